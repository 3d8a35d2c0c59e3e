"""Realtime sessions with random steps of the user, the provider and the connection, and resuming them after a crash."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hypothesis import strategies as st
from tests.laws.clockless import pass_time, rest
from tests.laws.plans import AgentPlan, Plan, ReplyPlan, TeamPlan, ToolPlan
from tests.laws.realtime_strategies import REALTIME_TOOLS, TeamSetup, replies, team_setups
from tests.laws.realtime_teams import answer_for, make_realtime_runner, realtime_message_for
from tests.laws.teams import Environment

from batonkit import BatonError, RunResult
from batonkit.errors import AnswerError
from batonkit.log import Event
from batonkit.messages import text_of
from batonkit.models import ModelRequest
from batonkit.realtime import PlaybackTracker, RealtimeRunner, RealtimeSession
from batonkit.realtime.protocol import AddItem, ConfigureSession, CreateResponse
from batonkit.stores import Store
from batonkit.testing import ScriptedRealtimeModel, ScriptedStream

StepKind: TypeAlias = Literal[
    "speak",
    "start speaking",
    "stop speaking",
    "send text",
    "send text without response",
    "barge in",
    "interrupt",
    "finish a tool",
    "continue a response",
    "hand off",
    "cut the connection",
    "cut while sending",
    "refuse an item",
    "sleep",
    "wait for idle",
    "answer",
]
_COMMANDS = (AddItem, ConfigureSession, CreateResponse)
RUN_ID = "r"


@dataclass(frozen=True, repr=False)
class SessionStep(Plan):
    """One step of a session; `pick` selects the text, the tool, the agent or the interrupt."""

    kind: StepKind
    pick: int = 0


@dataclass(frozen=True, repr=False)
class SessionPlan(Plan):
    """A session: the replies of the model, which of them pause midway, and the steps that are taken meanwhile."""

    setup: TeamSetup
    replies: tuple[ReplyPlan, ...]
    pauses: tuple[bool, ...]
    steps: tuple[SessionStep, ...]
    waits_for_tools: bool = False


_OFTEN: tuple[StepKind, ...] = (
    "speak",
    "send text",
    "wait for idle",
    "wait for idle",
    "finish a tool",
    "continue a response",
)
_RARELY: tuple[StepKind, ...] = (
    *("start speaking", "stop speaking", "send text without response", "barge in", "interrupt", "hand off", "sleep"),
    *("cut the connection", "cut while sending", "refuse an item", "answer", "answer"),
)
_steps = st.builds(SessionStep, kind=st.sampled_from((*_OFTEN, *_OFTEN, *_RARELY)), pick=st.integers(0, 5))


def session_plans() -> st.SearchStrategy[SessionPlan]:
    """Generate sessions."""
    return st.builds(
        SessionPlan,
        setup=team_setups(kinds=REALTIME_TOOLS).map(_with_once_tools),
        replies=st.lists(replies(), max_size=8).map(tuple),
        pauses=st.lists(st.booleans(), min_size=1, max_size=4).map(tuple),
        steps=st.lists(_steps, min_size=1, max_size=14).map(tuple),
        waits_for_tools=st.sampled_from([False, False, False, True]),
    )


def _with_once_tools(setup: TeamSetup) -> TeamSetup:
    """Add to each gated tool a second one with the effect `once`."""
    agents = [_with_once_tool(agent) for agent in setup.team.agents]
    return TeamSetup(TeamPlan(tuple(agents)), setup.declines, setup.multiple, setup.corrections)


def _with_once_tool(plan: AgentPlan) -> AgentPlan:
    once = [ToolPlan(f"{each.name}_once", "gated", is_once=True) for each in plan.tools if each.kind == "gated"]
    edges = plan.edges
    return AgentPlan(
        plan.name,
        (*plan.tools, *once),
        plan.children,
        edges,
        has_exit=plan.has_exit,
        stays_from_parent=plan.stays_from_parent,
        is_parallel=plan.is_parallel,
    )


class SessionExecution:
    """Executes one session. `number` keeps its call ids different from those before a crash."""

    def __init__(
        self,
        plan: SessionPlan,
        *,
        number: int = 0,
        replies: Sequence[ReplyPlan] | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.plan = plan
        self.environment = environment or Environment()
        self.paused: list[asyncio.Event] = []
        self.model = ScriptedRealtimeModel([self._respond], cycle=True, hears=["something"] * 50)
        self._replies = list(plan.replies if replies is None else replies)
        self._number = number
        self._tasks: set[asyncio.Task[None]] = set()
        self._never_pauses = False

    async def run(self, *, store: Store | None = None) -> RunResult[Any]:
        """Run the session from its start to its end."""
        session = self._runner(store).connect(run_id=RUN_ID, playback=_playback())
        with suppress(BatonError):
            async with session, _consume_events(session) as consumer:
                for step in self.plan.steps:
                    with suppress(BatonError):
                        await self._perform(session, step)
                await self._finish_pending(session, consumer)
        if self._tasks:
            await asyncio.wait(self._tasks)
        return session.result

    async def resume(self, events: Sequence[Event] = (), *, store: Store | None = None) -> RunResult[Any]:
        """Resume the session with a new runner that has only the log; the user sends one more message."""
        runner = self._runner(store)
        if store is None:
            await runner.text_runner.runs.load(events)
        session = runner.resume(RUN_ID, playback=_playback())
        with suppress(BatonError):
            async with session, _consume_events(session) as consumer:
                await self._finish_pending(session, consumer)
                with suppress(BatonError):
                    await session.send_text("are you still there?")
                await self._finish_pending(session, consumer)
        return session.result

    async def resume_with_clock(self, events: Sequence[Event], *, store: Store) -> RunResult[Any]:
        """Resume the session in a normal event loop with a store that needs I/O."""
        runner = self._runner(store)
        await runner.text_runner.runs.fork(events, run_id=RUN_ID)
        self.environment.has_open_gates = self._never_pauses = True
        session = runner.resume(RUN_ID)
        with suppress(BatonError):
            async with session, _consume_events(session), asyncio.timeout(120):
                await _answer_until_idle(session)
                with suppress(BatonError):
                    await session.send_text("are you still there?")
                await _answer_until_idle(session)
        await runner.close()
        return session.result

    def _runner(self, store: Store | None) -> RealtimeRunner[Any]:
        is_async = not self.plan.waits_for_tools
        return make_realtime_runner(
            self.plan.setup, self.environment, self.model, async_tool_calls=is_async, store=store
        )

    def complaints(self) -> list[str]:
        """Return the provider's complaints, except for results of calls that it refused after reconnecting."""
        was_refused = any(step.kind == "refuse an item" for step in self.plan.steps) and len(self.model.connections) > 1
        return [each for each in self.model.complaints if not (was_refused and "the unknown call" in each)]

    def _respond(self, request: ModelRequest) -> ScriptedStream:
        number = self._number = self._number + 1
        reply = self._replies.pop(0) if self._replies else ReplyPlan(f"that is all {number}")
        message = realtime_message_for(reply, self.plan.setup, request.agent, number=number)
        words = text_of(message.content).split(" ") if message.content else []
        middle = len(words) // 2
        chunks: list[Any] = [f"{word} " for word in words]
        if not self._never_pauses and self.plan.pauses[number % len(self.plan.pauses)]:
            self.paused.append(asyncio.Event())
            chunks.insert(middle, self.paused[-1])
        return ScriptedStream(*chunks, *message.tool_calls)

    async def _perform(self, session: RealtimeSession, step: SessionStep) -> None:  # noqa: C901
        connection, pick = self.model.connections[-1], step.pick
        match step.kind:
            case "speak" if connection.is_open:
                connection.user_speaks(None if pick == 5 else f"spoken {pick}")
            case "start speaking" | "barge in" if connection.is_open:
                connection.user_begins()
            case "stop speaking" if connection.is_open:
                with suppress(BatonError):
                    connection.user_ceases(f"ceased {pick}")
            case "send text" | "send text without response":
                self._start_task(session.send_text(f"written {pick}", respond=step.kind == "send text"))
            case "interrupt":
                await session.interrupt()
            case "finish a tool" if self.environment.gates:
                gates = list(self.environment.gates.values())
                _open_gate(gates[pick % len(gates)])
            case "continue a response" if self.paused:
                self.paused.pop(pick % len(self.paused)).set()
            case "hand off":
                names = [agent.name for agent in self.plan.setup.team.agents]
                self._start_task(session.handoff_to(names[pick % len(names)]))
            case "cut the connection":
                connection.cut()
            case "cut while sending":
                self.model.cut_at(_COMMANDS[pick % 3])
            case "refuse an item":
                self.model.refuse(AddItem, code="server_error", message="try again")
            case "sleep":
                await pass_time(0.3 * (pick + 1))
            case "wait for idle":
                await rest()
            case "answer" if session.interrupts:
                await _answer(session, pick)
            case _:
                pass

    async def _finish_pending(self, session: RealtimeSession, consumer: "asyncio.Task[None]") -> None:
        """Unblock everything that waits, until nothing is pending or the session has ended."""
        self.environment.has_open_gates = self._never_pauses = True
        for _ in range(40):
            await rest()
            for gate in list(self.environment.gates.values()):
                _open_gate(gate)
            while self.paused:
                self.paused.pop().set()
            with suppress(BatonError):
                connection = self.model.connections[-1]
                if connection.is_open:
                    connection.user_ceases("at last")
            while session.interrupts:
                with suppress(BatonError):
                    await _answer(session, 0)
                    continue
                break
            await rest()
            await pass_time(10)
            if consumer.done() or not (self.environment.gates or self.paused or session.interrupts):
                await rest()
                return
        raise AssertionError("the session does not become idle")

    def _start_task(self, work: Any) -> None:
        async def run_work() -> None:
            with suppress(BatonError):
                await work

        task = asyncio.create_task(run_work())
        self._tasks.add(task)


def _playback() -> PlaybackTracker:
    return PlaybackTracker(clock=asyncio.get_running_loop().time)


@asynccontextmanager
async def _consume_events(session: RealtimeSession) -> AsyncGenerator["asyncio.Task[None]"]:
    """Consume the events of the session in a task that ends with the session."""

    async def consume() -> None:
        with suppress(BatonError):
            async for _ in session:
                pass

    consumer = asyncio.create_task(consume())
    try:
        yield consumer
    finally:
        with suppress(BatonError):
            await session.close()
        await consumer


async def _answer_until_idle(session: RealtimeSession) -> None:
    """Answer interrupts until the session is idle."""
    await session.wait_until_idle()
    while session.interrupts:
        with suppress(BatonError):
            await _answer(session, 0)
            await session.wait_until_idle()
            continue
        return


async def _answer(session: RealtimeSession, pick: int) -> None:
    questions = session.log.open_interrupts()
    id = [*questions][pick % len(questions)]
    with suppress(AnswerError):
        await session.answer(id, answer_for(questions[id]))


def _open_gate(gate: "asyncio.Future[None]") -> None:
    if not gate.done():
        gate.set_result(None)
