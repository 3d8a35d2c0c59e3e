"""The plan-and-execute pattern: a sequence of a planner and a loop of executor and replanner, and their agents."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from .._checks import check_arguments, check_choice
from ..agents import Agent, AgentContext, BaseAgent
from ..agents.agent_context import FlowOutcome
from ..context import RunContext
from ..errors import SetupError
from ..handoffs.input_type import HandoffInputParser
from ..log import Action, BreakLoop, Exit
from ..log.entries import HistoryEntry
from ..messages import Text, ToolMessage, ToolSpec, UserMessage, media_of, text_of
from ..models import Model
from ..tools import Tool, ToolResult, tool
from .parallel import ParallelAgent
from .plans import CompletedStep, ParallelPlan, Plan, PlanProgress, PlanState, as_text
from .sequential import LoopAgent, SequentialAgent

PLANNER = """\
You write plans that other agents execute. Break the objective down into as few steps as possible, in order. The agent \
that executes a step reads only the objective, the plan and the results so far, so make each step clear on its own. \
The last step must produce the answer for the user. Leave out steps that do no work."""

EXECUTOR = """\
You execute one step of a plan. You receive the objective, the plan, the completed steps and your step. Execute only \
your step. Answer with its result, and include everything that later steps need."""

REPLANNER = """\
You review a plan while it is being executed. If the completed steps are enough to answer the user, call `respond` \
with the final answer, written for the user. Otherwise call `plan` with the remaining steps only; leave out completed \
steps, and change the remaining ones if the results require it."""

LAST_ROUND = "This is the last round: answer now with the results you have, and say what is missing."
_NEXT = "Which steps remain? If none, what is the answer?"


def get_objective(ctx: AgentContext[Any]) -> str:
    """Return the text of the conversation so far, without tool calls."""
    return "\n".join(filter(None, map(_text_of_entry, ctx._history.entries_for("all"))))


def _text_of_entry(entry: HistoryEntry) -> str:
    message = entry.for_others(hide_transfers=True)
    if message is None or (isinstance(message, ToolMessage) and not entry.is_answer):
        return ""
    text = text_of(message.content)
    return text if not text or entry.author is None or isinstance(message, UserMessage) else f"[{entry.author}] {text}"


def best_effort(progress: PlanProgress, groups: Sequence[Sequence[str]]) -> str:
    """Return an answer for a plan that was not finished: the completed and the remaining steps."""
    summary = f"Not finished: this is what was done in {progress.rounds} rounds."
    remaining = f"\n\nRemaining steps:\n{_numbered(groups)}" if groups else ""
    return f"{summary}\n\n{_done(progress)}{remaining}"


def _state(progress: PlanProgress, groups: Sequence[Sequence[str]]) -> str:
    plan = _numbered(groups) or "(no remaining steps)"
    return f"Objective:\n{progress.objective}\n\nPlan:\n{plan}\n\nCompleted steps:\n{_done(progress)}"


def _numbered(groups: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"{number}. {' | '.join(steps)}" for number, steps in enumerate(groups, start=1))


def _done(progress: PlanProgress) -> str:
    done = [f"{number}. {each.step}\n   Result: {each.result}" for number, each in enumerate(progress.done, start=1)]
    return "\n".join(done) or "(none yet)"


_DEFAULT_LANES = 4


class PlanPhase(BaseAgent[Any, Any]):
    """A phase of plan_execute: briefs one agent and stores its result."""

    def __init__(self, name: str, agent: BaseAgent[Any, Any], state: PlanState) -> None:
        super().__init__(name, description=f"Runs `{agent.name}` for `{state.owner}`.")
        self.agent = agent
        self.state = state

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """Return the agent of the phase."""
        return (self.agent,)

    async def _run_briefed(self, ctx: AgentContext[Any], brief: str) -> FlowOutcome:
        """Run the agent on its brief and the user's media; later agents read its messages."""
        inputs = [entry.message.content for entry in ctx._history.entries_for("all") if entry.is_user_input]
        media = [part for content in inputs for part in media_of(content)]
        history = ctx._history.begin(UserMessage((Text(brief), *media) if media else brief))
        try:
            return await ctx.run_agent(self.agent, "0", history=history)
        finally:
            ctx._history.join(history, 1)


class PlanningPhase(PlanPhase):
    """The phase in which the planner reads the conversation and makes the first plan."""

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the planner."""
        objective = get_objective(ctx)
        outcome = await ctx.run_agent(self.agent, "0")
        if type(outcome.action) is not Exit:
            plan = self.state.parse_plan(outcome.output, self.agent.name)
            self.state.write(ctx, PlanProgress(objective, plan))
        return outcome.action


class ExecutingPhase(PlanPhase):
    """The phase in which the executor does one step."""

    def __init__(self, name: str, agent: BaseAgent[Any, Any], state: PlanState, lane: int = 0) -> None:
        super().__init__(name, agent, state)
        self.lane = lane

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the executor on its step, if there is one."""
        progress, groups = self.state.read(ctx)
        if not groups or self.lane >= len(groups[0]):
            return None
        step = groups[0][self.lane]
        outcome = await self._run_briefed(ctx, f"{_state(progress, groups)}\n\nYour step:\n{step}")
        if type(outcome.action) is not Exit:
            self.state.add_step(ctx, len(progress.done) + self.lane, CompletedStep(step, as_text(outcome.output)))
        return outcome.action


class ParallelExecutingPhase(ParallelAgent):
    """The phase in which the steps of one group are done in parallel."""

    def __init__(self, name: str, lanes: Sequence[ExecutingPhase], state: PlanState) -> None:
        super().__init__(name, sub_agents=lanes, description=f"Does independent steps of `{state.owner}` in parallel.")
        self.state = state

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run as many lanes as the group has steps."""
        _, groups = self.state.read(ctx)
        if not groups:
            return None
        lanes = self.sub_agents[: len(groups[0])]
        return await ParallelAgent(self.name, sub_agents=lanes).run(ctx)


class ReplanningPhase(PlanPhase):
    """The phase in which the replanner gives the remaining steps, or the answer."""

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the replanner."""
        progress, groups = self.state.read(ctx)
        progress = replace(progress, rounds=progress.rounds + 1)
        question = LAST_ROUND if progress.rounds == self.state.max_iterations else _NEXT
        outcome = await self._run_briefed(ctx, f"{_state(progress, groups)}\n\n{question}")
        if type(outcome.action) is Exit:
            return outcome.action
        answer, plan = self.state.parse_answer_or_plan(outcome.output, self.agent.name)
        if answer is not None:
            self.state.write(ctx, replace(progress, answer=answer, is_complete=True))
            return BreakLoop()
        self.state.write(ctx, replace(progress, plan=plan))
        return outcome.action


class PlanExecuteAgent(SequentialAgent):
    """The agent that `plan_execute` creates: Sequential[planner, Loop[executor, replanner]]."""

    def __init__(self, name: str, phases: Sequence[BaseAgent[Any, Any]], state: PlanState, description: str) -> None:
        super().__init__(name, sub_agents=phases, description=description)
        self.state = state

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Run the phases, then say the answer, or summarise the progress at the limit."""
        action = await super().run(ctx)
        if action is None:
            progress, groups = self.state.read(ctx)
            if progress.answer is None:
                progress = replace(progress, answer=best_effort(progress, groups))
            self.state.conclude(ctx, progress)
            await ctx.say(progress.answer or "")
        return action


@check_arguments
def plan_execute(
    *,
    planner: BaseAgent[Any, Any],
    executor: BaseAgent[Any, Any],
    replanner: BaseAgent[Any, Any],
    name: str = "PlanExecuteAgent",
    description: str = "",
    max_iterations: int = 10,
    parallel_steps: bool | int = False,
    plan_type: Any = None,
) -> PlanExecuteAgent:
    """Create an agent that plans, executes one step at a time, and replans after each.

    Args:
        planner: The agent that makes the first plan; see `make_planner`.
        executor: The agent that does a step; see `make_executor`.
        replanner: The agent that revises the plan or gives the answer; see `make_replanner`.
        name: The name of the agent.
        description: The description for models that may transfer to it.
        max_iterations: Maximum number of rounds, 0 for no limit. At the limit, the answer summarises the progress.
        parallel_steps: Whether independent steps run in parallel: True for up to four at once, or a number.
        plan_type: A type with `steps` that pydantic can validate; by default `Plan`, or `ParallelPlan` with
            `parallel_steps`.

    Raises:
        SetupError: `parallel_steps` is negative.
    """
    lane_count = _DEFAULT_LANES if parallel_steps is True else int(parallel_steps)
    if lane_count < 0:
        raise SetupError(
            f"`{name}` has parallel_steps={parallel_steps}; give True, False or the maximum number of parallel steps"
        )
    state = PlanState(name, plan_type or (ParallelPlan if lane_count else Plan), max_iterations)
    executing: BaseAgent[Any, Any] = ExecutingPhase(f"{name}.execute", executor, state)
    if lane_count:
        lanes = [ExecutingPhase(f"{name}.execute.{lane + 1}", executor, state, lane) for lane in range(lane_count)]
        executing = ParallelExecutingPhase(f"{name}.execute", lanes, state)
    replanning = ReplanningPhase(f"{name}.replan", replanner, state)
    loop = LoopAgent(
        f"{name}.loop",
        sub_agents=[executing, replanning],
        max_iterations=max_iterations,
        description=f"Executes the plan of `{name}`.",
    )
    return PlanExecuteAgent(name, [PlanningPhase(f"{name}.plan", planner, state), loop], state, description)


class PlanTool:
    """The tool `plan`: its arguments are the plan, which becomes the answer of the agent."""

    def __init__(self, plan_type: Any, description: str) -> None:
        self._parser = HandoffInputParser("plan", plan_type, what="the plan_type")
        self.spec = ToolSpec("plan", description, self._parser.schema, strict=True)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Validate the plan."""
        try:
            plan = self._parser.dump(self._parser.parse(arguments))
        except ValueError as error:
            return ToolResult(f"This is not a plan: {error}. Correct it and call `plan` again.", is_error=True)
        return ToolResult(msgspec.json.encode(plan).decode(), is_final=True)


@tool(return_directly=True)
async def respond(response: str) -> dict[str, str]:
    """Give the user the final answer and end the work."""
    return {"response": response}


@check_arguments
def make_planner(
    model: Model | str | None = None,
    *,
    name: str = "Planner",
    instructions: str = PLANNER,
    plan_type: Any = Plan,
    method: Literal["output", "tool"] = "output",
) -> Agent[Any, Any]:
    """Create the planner of `plan_execute`.

    Args:
        model: The model; by default the runner's.
        name: The name of the agent.
        instructions: Its instructions.
        plan_type: The type of the plan.
        method: "output" for structured output, "tool" for a tool `plan` that the model must call.
    """
    check_choice(f"method of make_planner(name={name!r})", method, ("output", "tool"))
    if method == "output":
        return Agent(name, model=model, instructions=instructions, output_type=plan_type)
    plan = PlanTool(plan_type, "Submit the plan: the steps that lead to the objective.")
    return Agent(name, model=model, instructions=instructions, tools=[plan], tool_choice="plan")


@check_arguments
def make_executor(
    model: Model | str | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    *,
    name: str = "Executor",
    instructions: str = EXECUTOR,
    max_turns: int = 20,
) -> Agent[Any, str]:
    """Create the executor of `plan_execute`.

    Args:
        model: The model; by default the runner's.
        tools: Its tools.
        name: The name of the agent.
        instructions: Its instructions.
        max_turns: Maximum number of turns per step.
    """
    return Agent(name, model=model, instructions=instructions, tools=tools, max_turns=max_turns)


@check_arguments
def make_replanner(
    model: Model | str | None = None,
    *,
    name: str = "Replanner",
    instructions: str = REPLANNER,
    plan_type: Any = Plan,
) -> Agent[Any, str]:
    """Create the replanner of `plan_execute`; it calls `plan` or `respond`.

    Args:
        model: The model; by default the runner's.
        name: The name of the agent.
        instructions: Its instructions.
        plan_type: The type of the plan.
    """
    plan = PlanTool(plan_type, "Continue with these steps: only those that remain.")
    return Agent(name, model=model, instructions=instructions, tools=[plan, respond], tool_choice="required")
