"""Build the agents and the model of a random workflow, and run it with answers in any order or from any prefix."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any
from zlib import crc32

from tests.laws.trees import NOTES, CustomAgent, ModelAgent, Tree

from batonkit import (
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
from batonkit.agents import AgentContext, Compaction
from batonkit.errors import BatonError
from batonkit.log import Action, Event
from batonkit.messages import AssistantMessage, ToolCall, text_of
from batonkit.models import Chunk, ModelRequest, ModelResponse
from batonkit.stores import Store
from batonkit.testing import call, transfer_to
from batonkit.workflows import BreakLoop, break_loop_tool
from batonkit.workflows.reducers import append

RUN_ID = "r"
REQUEST = "do it"
NO_LIMITS = Limits(model_calls=None, transfers=None, idle_cycles=None)


def answer_to(payload: Any) -> str:
    """Return the answer to an interrupt; it depends only on the payload."""
    return f"yes {payload}"


def digest(texts: Sequence[str]) -> str:
    """Return a short digest of the texts of a conversation."""
    return f"{len(texts)}:{crc32('|'.join(texts).encode()) % 1000}"


class PlannedError(RuntimeError):
    """The error that agents raise when their plan says so."""


class Worker(BaseAgent[Any, Any]):
    """A custom agent that executes its plan."""

    def __init__(self, plan: CustomAgent, team: "WorkflowTeam", partner: BaseAgent[Any, Any] | None) -> None:
        super().__init__(plan.name, description=plan.name, handoffs=[partner] if partner is not None else [])
        self.plan = plan
        self.team = team

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        for operation, number in self.plan.operations:
            await self._execute(ctx, operation, number)
        match self.plan.ending:
            case "none":
                return None
            case "exit":
                return Exit(f"{self.name} is over")
            case "exit empty":
                return Exit()
            case "break":
                return BreakLoop()
            case "transfer":
                assert self.plan.partner is not None
                return Transfer(self.plan.partner.name)

    async def _execute(self, ctx: AgentContext[Any], operation: str, number: int) -> None:
        key = f"k{number}"
        match operation:
            case "say":
                await ctx.say(f"{self.name} has {ctx.values.get(key)} and {ctx.values.get(NOTES)}")
            case "read":
                await ctx.say(f"{self.name} read {digest([text_of(each.content) for each in ctx.messages()])}")
            case "step":
                ctx.values.set(key, await ctx.step("s", lambda: self.team.take_step(ctx)))
            case "ask":
                ctx.values.set(key, await self.team.ask(ctx, f"{self.name}{number}"))
            case "write":
                ctx.values.set(key, f"of {self.name}")
            case "note":
                ctx.values.set(NOTES, self.name)
            case "delete":
                ctx.values.delete(key)
            case _:
                raise PlannedError(self.name)


class WorkflowModel:
    """The model of all agents. Its response depends only on the agent and the number of its earlier responses."""

    name = "workflow"

    def __init__(self) -> None:
        self.by_agent: dict[str, list[AssistantMessage]] = {}
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        # Messages of other agents are rewritten as user messages; assistant messages are this agent's own.
        earlier = sum(isinstance(message, AssistantMessage) for message in request.messages)
        responses = self.by_agent[request.agent]
        self.requests.append(request)
        yield ModelResponse(responses[earlier % len(responses)])


def responses_of(plan: ModelAgent) -> list[AssistantMessage]:
    """Return the model's responses in each activation of this agent."""
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
        case "transfer":
            assert plan.partner is not None
            turns.append(transfer_to(plan.partner.name))
        case _:
            return [*(AssistantMessage(tool_calls=(turn,)) for turn in turns), AssistantMessage(f"{plan.name} is done")]
    return [AssistantMessage(tool_calls=(turn,)) for turn in turns]


class WorkflowTeam:
    """The agents of one tree. With `answers_inline`, questions are answered without an interrupt."""

    def __init__(
        self,
        tree: Tree,
        *,
        answers_inline: bool = False,
        store: Store | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        self.answers_inline = answers_inline
        self._store = store
        self._compaction = compaction
        self.steps_taken: Counter[str] = Counter()
        self.model = WorkflowModel()
        self._root = self._build(tree)

    def runner(self) -> Runner[Any, Any]:
        """Create a runner without any runs."""
        return Runner(self._root, model=self.model, limits=NO_LIMITS, store=self._store, compaction=self._compaction)

    async def ask(self, ctx: RunContext[Any], about: str) -> str:
        """Return the answer to a question."""
        return answer_to(about) if self.answers_inline else await ctx.interrupt(about)

    def take_step(self, ctx: RunContext[Any]) -> str:
        """Take a step, which must happen only once."""
        self.steps_taken[ctx._scope] += 1
        return f"step of {ctx.agent}"

    def _build(self, tree: Tree) -> BaseAgent[Any, Any]:
        if isinstance(tree, CustomAgent):
            return Worker(tree, self, self._build(tree.partner) if tree.partner is not None else None)
        if isinstance(tree, ModelAgent):
            return self._model_agent(tree)
        steps = [self._build(step) for step in tree.steps]
        match tree.kind:
            case "sequence":
                return SequentialAgent(tree.name, sub_agents=steps)
            case "loop":
                return LoopAgent(tree.name, sub_agents=steps, max_iterations=tree.rounds)
            case "parallel":
                return ParallelAgent(tree.name, sub_agents=steps, on_error=tree.on_error, reducers={NOTES: append})

    def _model_agent(self, plan: ModelAgent) -> BaseAgent[Any, Any]:
        @tool
        async def ask(ctx: RunContext[Any], about: str) -> str:
            """Ask a question."""
            answer = await self.ask(ctx, about)
            ctx.values.set("k0", answer)
            return answer

        self.model.by_agent[plan.name] = responses_of(plan)
        trees = [self._build(each).as_tool() for each in plan.calls if not isinstance(each, str)]
        return Agent(
            plan.name,
            description=plan.name,
            tools=[ask, break_loop_tool, *trees],
            sub_agents=[self._build(plan.partner)] if plan.partner is not None else [],
            exit_tool=True,
        )


class EndedRun:
    """A run that has ended, with its result and its events."""

    def __init__(self, result: RunResult[Any]) -> None:
        self.result = result
        self.events: tuple[Event, ...] = result.events

    @property
    def summary(self) -> tuple[object, ...]:
        """Return the part of the result that must not depend on suspensions and crashes."""
        result = self.result
        if result.error is not None:
            return result.status, type(result.error).__name__, str(result.error)
        return result.status, result._output, result.agent, result.messages, result.values


async def run_to_end(
    team: WorkflowTeam, events: Sequence[Event] = (), *, order: Random | None = None, is_stored: bool = False
) -> EndedRun:
    """Start or resume a run and drive it to its end; with `order`, answer some interrupts at a time, in any order."""
    runner = team.runner()
    if is_stored or events:
        live = runner.stream_resume(await runner.runs.load(events) if events else RUN_ID)
    else:
        live = runner.stream("go", run_id=RUN_ID)
    while True:
        try:
            await live._drive()
        except (BatonError, PlannedError):
            return EndedRun(live.result)
        if live.result.status != "suspended":
            return EndedRun(live.result)
        open_questions = list(live.result.interrupts)
        if order is not None:
            order.shuffle(open_questions)
            open_questions = open_questions[: order.randint(1, len(open_questions))]
        answers = {question.id: answer_to(question.payload) for question in open_questions}
        live = runner.stream_resume(RUN_ID, answers)
