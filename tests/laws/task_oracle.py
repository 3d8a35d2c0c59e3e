"""A small model of the task stack: the moves of a random conversation, and where control and results must go."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hypothesis import strategies as st

from batonkit import Agent, Handoff, handoff
from batonkit.agents import HistoryPolicy
from batonkit.messages import ToolCall
from batonkit.testing import ScriptStep, call

NAMES: tuple[str, ...] = ("A", "B", "C", "D")
MoveKind: TypeAlias = Literal["task", "go", "ask", "finish", "cancel", "decline", "exit", "say"]
_KINDS: tuple[MoveKind, ...] = ("task", "task", "go", "ask", "finish", "finish", "cancel", "decline", "exit", "say")


@dataclass(frozen=True)
class Move:
    """One response of the active agent, and the agent that it may concern."""

    kind: MoveKind
    target: int


@dataclass(frozen=True)
class Turn:
    """One message of the user, and the moves until an answer goes back to the user."""

    moves: tuple[Move, ...]
    starts_at_root: bool = False


_moves = st.builds(Move, st.sampled_from(_KINDS), st.integers(0, len(NAMES) - 2))
_turns = st.builds(Turn, st.lists(_moves, max_size=5).map(tuple), st.sampled_from((False, False, False, False, True)))
conversations = st.lists(_turns, min_size=1, max_size=5).map(tuple)
"""Random conversations."""


@dataclass
class Frame:
    """An open task."""

    agent: str
    caller: str
    returns: list[str]


@dataclass(frozen=True)
class ExpectedRequest:
    """A model call: the agent, the agent's open task, and the results that it must read."""

    agent: str
    has_task: bool
    results: tuple[str, ...]


@dataclass
class Oracle:
    """Plays the moves against the stack, and writes the script of the model on the way."""

    active: str = NAMES[0]
    tasks: list[Frame] = field(default_factory=list[Frame])
    returns: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])
    requests: list[ExpectedRequest] = field(default_factory=list[ExpectedRequest])
    script: dict[str, list[ScriptStep]] = field(default_factory=lambda: {name: list[ScriptStep]() for name in NAMES})

    def play(self, turn: Turn) -> None:
        """Play one turn: afterwards the run has ended, and `active` is the agent of the next one."""
        if turn.starts_at_root:
            self.active, self.tasks = NAMES[0], []
        self.returns = []
        moves = list(turn.moves)
        while self._step(moves.pop(0) if moves else Move("say", 0)):
            pass

    @property
    def agents_of_tasks(self) -> list[str]:
        """Return the agents of the open tasks."""
        return [task.agent for task in self.tasks]

    def _step(self, move: Move) -> bool:
        """Play one move; return whether the turn goes on."""
        own = self.tasks[-1] if self.tasks and self.tasks[-1].agent == self.active else None
        self.requests.append(ExpectedRequest(self.active, own is not None, tuple(self.results)))
        others = [name for name in NAMES if name != self.active]
        kind, target = move.kind, others[move.target]
        if kind == "decline" and own is not None:
            kind, target = "go", own.caller
        if kind in ("task", "go", "ask"):
            self._respond(call(f"{kind}_{target}"))
            self._transfer(kind, target)
            return True
        if kind == "finish" and own is not None:
            self._respond(call("finish_task", result=self._new_result()))
            self._end(own)
            return True
        if kind == "cancel" and own is not None:
            self._respond(call("cancel_task", reason="why not"))
            self._end(own)
            return True
        if kind == "exit":
            self._respond(call("exit", final_result=self._new_result()))
            self.active = self.tasks[0].caller if self.tasks else self.active
            self.tasks = []
            return False
        self.script[self.active].append(f"words {len(self.requests)}")
        return self._answer()

    def _new_result(self) -> str:
        self.results.append(f"result-{len(self.results)}!")
        return self.results[-1]

    def _respond(self, step: ToolCall) -> None:
        # Own ids, because the counters of a scripted model start again after a crash.
        self.script[self.active].append(ToolCall(f"c{len(self.requests)}", step.name, step.arguments))

    def _transfer(self, kind: str, target: str) -> None:
        source = self.active
        if self.returns and self.returns[-1] == target:
            self.returns.pop()
        elif kind == "go" and self.tasks and not self.returns:
            task = self.tasks[-1]
            if (task.agent, task.caller) == (source, target):
                self._end(task)
        if kind == "task":
            self.tasks.append(Frame(target, source, self.returns))
            self.returns = []
        elif kind == "ask":
            self.returns.append(source)
        self.active = target

    def _end(self, task: Frame) -> None:
        assert self.tasks.pop() is task
        self.returns, self.active = list(task.returns), task.caller

    def _answer(self) -> bool:
        if self.returns:
            self.active = self.returns.pop()
            return True
        if self.tasks and self.tasks[-1].agent != self.active:
            self.active = self.tasks[-1].agent
            return True
        return False


def make_team(history: HistoryPolicy | None = None) -> Agent:
    """Make agents that can each hand a task, control or a question to every other one; return the first."""
    agents = [
        Agent(
            name,
            description=name,
            exit_tool=True,
            history=history,
            handoffs=[edge for other in NAMES if other != name for edge in _edges(other)],
        )
        for name in NAMES
    ]
    first = agents[0]
    # The edges are names, so that the others must be reachable through agents as well.
    return first.clone(handoffs=[*first.handoffs, *(_link(agent) for agent in agents[1:])])


def _edges(other: str) -> list[Handoff]:
    return [
        handoff(other, tool_name_override=f"task_{other}", return_to="caller", until="finished"),
        handoff(other, tool_name_override=f"go_{other}"),
        handoff(other, tool_name_override=f"ask_{other}", return_to="caller"),
    ]


def _link(agent: Agent) -> Handoff:
    return handoff(agent, tool_name_override=f"link_{agent.name}")
