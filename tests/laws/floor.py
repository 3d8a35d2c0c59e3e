"""The agents of a random workflow, their model, and runs of it: answered in any order, taken up after any event."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any
from zlib import crc32

from tests.laws.trees import NOTES, Chat, Own, Tree

from baton import (
    Agent,
    BaseAgent,
    Exit,
    Limits,
    LoopAgent,
    ParallelAgent,
    RunContext,
    Runner,
    RunResult,
    SequentialAgent,
    Transfer,
    tool,
)
from baton.agents import AgentContext
from baton.errors import BatonError
from baton.events import Action, Event
from baton.messages import AssistantMessage, ToolCall, text_of
from baton.models import Chunk, ModelRequest, ModelResponse
from baton.testing import call, transfer_to
from baton.workflows import BreakLoop, break_loop_tool
from baton.workflows.reducers import append

RUN_ID = "r"
REQUEST = "do it"
NO_LIMITS = Limits(model_calls=None, transfers=None, idle_cycles=None)


def answer_to(payload: Any) -> str:
    """What the outside answers: the same whenever and in whatever order it is asked."""
    return f"yes {payload}"


def digest(texts: Sequence[str]) -> str:
    """A short word for a conversation that was read."""
    return f"{len(texts)}:{crc32('|'.join(texts).encode()) % 1000}"


class Broken(RuntimeError):
    """What agents raise that are told to."""


class Worker(BaseAgent[Any, Any]):
    """Does what its plan says."""

    def __init__(self, plan: Own, floor: "Floor", partner: BaseAgent[Any, Any] | None) -> None:
        super().__init__(plan.name, description=plan.name, handoffs=[partner] if partner is not None else [])
        self.plan = plan
        self.floor = floor

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        for deed, number in self.plan.deeds:
            await self._do(ctx, deed, number)
        match self.plan.ending:
            case "none":
                return None
            case "exit":
                return Exit(f"{self.name} is over")
            case "leave":
                return Exit()
            case "break":
                return BreakLoop()
            case "pass":
                assert self.plan.partner is not None
                return Transfer(self.plan.partner.name)

    async def _do(self, ctx: AgentContext[Any], deed: str, number: int) -> None:
        key = f"k{number}"
        match deed:
            case "say":
                await ctx.say(f"{self.name} has {ctx.values.get(key)} and {ctx.values.get(NOTES)}")
            case "read":
                await ctx.say(f"{self.name} read {digest([text_of(each.content) for each in ctx.messages()])}")
            case "step":
                ctx.values.set(key, await ctx.step("s", lambda: self.floor.take(ctx)))
            case "ask":
                ctx.values.set(key, await self.floor.ask(ctx, f"{self.name}{number}"))
            case "write":
                ctx.values.set(key, f"of {self.name}")
            case "note":
                ctx.values.set(NOTES, self.name)
            case "delete":
                ctx.values.delete(key)
            case _:
                raise Broken(self.name)


class Lines:
    """The model of all agents: what it says depends on nothing but who asks and how much of it was said before."""

    name = "lines"

    def __init__(self) -> None:
        self.by_agent: dict[str, list[AssistantMessage]] = {}

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        # What others say reads as a user's: assistant messages are this agent's own.
        said = sum(isinstance(message, AssistantMessage) for message in request.messages)
        lines = self.by_agent[request.agent]
        yield ModelResponse(lines[said % len(lines)])


def lines_of(plan: Chat) -> list[AssistantMessage]:
    """What the model of this agent says each time the agent has the floor."""
    turns: list[ToolCall] = []
    for each in plan.calls:
        match each:
            case "ask":
                turns.append(call("ask", about=plan.name))
            case "break":
                turns.append(call("break_loop"))
            case tree:
                turns.append(call(tree.name, request=REQUEST))
    match plan.ending:
        case "exit":
            turns.append(call("exit", final_result=f"{plan.name} is over"))
        case "pass":
            assert plan.partner is not None
            turns.append(transfer_to(plan.partner.name))
        case _:
            return [*(AssistantMessage(tool_calls=(turn,)) for turn in turns), AssistantMessage(f"{plan.name} is done")]
    return [AssistantMessage(tool_calls=(turn,)) for turn in turns]


class Floor:
    """One tree of agents. `is_known` has every question answered at once, without asking."""

    def __init__(self, tree: Tree, *, is_known: bool = False) -> None:
        self.is_known = is_known
        self.taken: Counter[str] = Counter()
        self._model = Lines()
        self._root = self._built(tree)

    def runner(self) -> Runner[Any, Any]:
        """A runner that knows of no run yet."""
        return Runner(self._root, model=self._model, limits=NO_LIMITS)

    async def ask(self, ctx: RunContext[Any], about: str) -> str:
        """The answer to a question."""
        return answer_to(about) if self.is_known else await ctx.interrupt(about)

    def take(self, ctx: RunContext[Any]) -> str:
        """Take a step, which must happen once."""
        self.taken[ctx._scope] += 1
        return f"step of {ctx.agent}"

    def _built(self, tree: Tree) -> BaseAgent[Any, Any]:
        if isinstance(tree, Own):
            return Worker(tree, self, self._built(tree.partner) if tree.partner is not None else None)
        if isinstance(tree, Chat):
            return self._chat(tree)
        steps = [self._built(step) for step in tree.steps]
        match tree.kind:
            case "sequence":
                return SequentialAgent(tree.name, sub_agents=steps)
            case "loop":
                return LoopAgent(tree.name, sub_agents=steps, max_iterations=tree.rounds)
            case "parallel":
                return ParallelAgent(tree.name, sub_agents=steps, on_error=tree.on_error, reducers={NOTES: append})

    def _chat(self, plan: Chat) -> BaseAgent[Any, Any]:
        @tool
        async def ask(ctx: RunContext[Any], about: str) -> str:
            """Ask the outside."""
            answer = await self.ask(ctx, about)
            ctx.values.set("k0", answer)
            return answer

        self._model.by_agent[plan.name] = lines_of(plan)
        trees = [self._built(each).as_tool() for each in plan.calls if not isinstance(each, str)]
        return Agent(
            plan.name,
            description=plan.name,
            tools=[ask, break_loop_tool, *trees],
            sub_agents=[self._built(plan.partner)] if plan.partner is not None else [],
            exit_tool=True,
        )


class Ended:
    """How a run ended: with a result, or with an error."""

    def __init__(self, result: RunResult[Any]) -> None:
        self.result = result
        self.events: tuple[Event, ...] = result.events

    @property
    def what_counts(self) -> tuple[object, ...]:
        """What must be the same however often the run was stopped."""
        result = self.result
        if result.error is not None:
            return result.status, type(result.error).__name__, str(result.error)
        return result.status, result._output, result.agent, result.messages, result.values


async def run_to_end(floor: Floor, events: Sequence[Event] = (), *, order: Random | None = None) -> Ended:
    """The run to its end, each suspension answered in part and in any order; from the beginning, or on from a log."""
    runner = floor.runner()
    live = runner.stream_resume(runner.load_log(events)) if events else runner.stream("go", run_id=RUN_ID)
    while True:
        try:
            await live._drive()
        except (BatonError, Broken):
            return Ended(live.result)
        if live.result.status != "suspended":
            return Ended(live.result)
        open_questions = list(live.result.interrupts)
        if order is not None:
            order.shuffle(open_questions)
            open_questions = open_questions[: order.randint(1, len(open_questions))]
        answers = {question.id: answer_to(question.payload) for question in open_questions}
        live = runner.stream_resume(RUN_ID, answers)
