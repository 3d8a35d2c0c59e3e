"""Plan, do a step, look at the plan again: a sequence of a planner and a loop of executor and replanner.

What the agents of plan_execute are told, in words.

The three agents that plan_execute works with, ready made. Each may be replaced by any agent.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ..agents import Agent, AgentContext, BaseAgent
from ..agents.base import FlowOutcome
from ..context import HistoryEntry, RunContext
from ..context.history import History
from ..errors import SetupError, check_choice
from ..events import Action, BreakLoop, Exit
from ..handoffs.input import HandoffInputParser
from ..messages import Text, ToolMessage, ToolSpec, UserMessage, media_of, text_of
from ..models import Model
from ..tools import Tool, ToolResult, tool
from ..workflows import LoopAgent, ParallelAgent, SequentialAgent
from .plans import CompletedStep, ParallelPlan, Plan, PlanProgress, PlanState, as_text

PLANNER = """\
You plan; others carry the plan out. Break the objective down into the fewest steps that lead to it, in order. \
Each step must be clear to somebody who reads nothing but the objective, the plan and the results so far. The \
last step must give what the user wants to know. Steps that do nothing are not steps."""

EXECUTOR = """\
You carry out one step of a plan. You are told the objective, the plan, what was done and your step. Do your \
step and nothing else, and answer with its result, complete enough for those who do the steps after it."""

REPLANNER = """\
You look at a plan while it is carried out. If what was done is enough for the user, call `respond` with the \
final answer, written for the user. Else call `plan` with the steps that are still to be done, without those \
that are done; change them where results call for it."""

LAST_ROUND = "There will be no further round: answer now, as well as what was done allows, and say what is missing."


def objective_of(ctx: AgentContext[Any]) -> str:
    """What the conversation so far asks for: all that was said in it, without what tools were called for."""
    return "\n".join(filter(None, map(_spoken, ctx._history.entries)))


def _spoken(entry: HistoryEntry) -> str:
    message = entry.as_read_later(hides_transfers=True)
    if message is None or (isinstance(message, ToolMessage) and not entry.is_answer):
        return ""
    text = text_of(message.content)
    return text if not text or entry.author is None or isinstance(message, UserMessage) else f"[{entry.author}] {text}"


def history_of(ctx: AgentContext[Any], brief: str) -> History:
    """A history of its own for an agent that reads only this, and the media the user gave."""
    inputs = [entry.message.content for entry in ctx._history.entries if entry.is_user_input]
    media = [part for content in inputs for part in media_of(content)]
    return History([HistoryEntry(UserMessage((Text(brief), *media) if media else brief))])


def executor_brief(progress: PlanProgress, places: Sequence[Sequence[str]], step: str) -> str:
    """The objective, the plan, what was done, and the step to do."""
    return f"{_state(progress, places)}\n\nYour step:\n{step}"


def replanner_brief(progress: PlanProgress, places: Sequence[Sequence[str]], *, is_last: bool) -> str:
    """The objective, the plan as it was, and what was done."""
    question = LAST_ROUND if is_last else "What is still to be done? If nothing is, what is the answer?"
    return f"{_state(progress, places)}\n\n{question}"


def best_effort(progress: PlanProgress, places: Sequence[Sequence[str]]) -> str:
    """An answer made of what was done, for a plan that did not come to its end; its first words say so."""
    said = f"Not finished: this is what was done in {progress.rounds} rounds."
    left = f"\n\nStill to be done:\n{_numbered(places)}" if places else ""
    return f"{said}\n\n{_done(progress)}{left}"


def _state(progress: PlanProgress, places: Sequence[Sequence[str]]) -> str:
    plan = _numbered(places) or "(no steps are left)"
    return f"Objective:\n{progress.objective}\n\nPlan:\n{plan}\n\nDone so far:\n{_done(progress)}"


def _numbered(places: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"{number}. {' | '.join(steps)}" for number, steps in enumerate(places, start=1))


def _done(progress: PlanProgress) -> str:
    done = [f"{number}. {each.step}\n   Result: {each.result}" for number, each in enumerate(progress.done, start=1)]
    return "\n".join(done) or "(nothing yet)"


_AT_ONCE = 4


class PlanPhase(BaseAgent[Any, Any]):
    """What plan_execute does around one of its agents: tell it what it needs, and note down what it came to."""

    def __init__(self, name: str, agent: BaseAgent[Any, Any], notes: PlanState) -> None:
        super().__init__(name, description=f"Has `{agent.name}` work for `{notes.owner}`.")
        self.agent = agent
        self.notes = notes

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        """The agent that works here."""
        return (self.agent,)

    async def briefed(self, ctx: AgentContext[Any], brief: str) -> FlowOutcome:
        """What the agent comes to. It reads nothing but its brief; whoever comes later reads what it said and did."""
        history = history_of(ctx, brief)
        mark = len(history.entries)
        try:
            return await ctx.run_agent(self.agent, "0", history=history)
        finally:
            ctx._history.join(history, mark)


class PlanningPhase(PlanPhase):
    """The planner reads the conversation and makes the first plan."""

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Have a plan made."""
        objective = objective_of(ctx)
        outcome = await ctx.run_agent(self.agent, "0")
        if type(outcome.action) is not Exit:
            plan = self.notes.plan_in(outcome.output, self.agent.name)
            self.notes.write(ctx, PlanProgress(objective, plan))
        return outcome.action


class ExecutingPhase(PlanPhase):
    """The executor does the step in one lane: without lanes beside it, the first step."""

    def __init__(self, name: str, agent: BaseAgent[Any, Any], notes: PlanState, lane: int = 0) -> None:
        super().__init__(name, agent, notes)
        self.lane = lane

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Have the step done, if there is one."""
        progress = self.notes.read(ctx)
        places = self.notes.steps_of(progress)
        if not places or self.lane >= len(places[0]):
            return None
        step = places[0][self.lane]
        outcome = await self.briefed(ctx, executor_brief(progress, places, step))
        if type(outcome.action) is not Exit:
            self.notes.note(ctx, len(progress.done) + self.lane, CompletedStep(step, as_text(outcome.output)))
        return outcome.action


class ParallelExecutingPhase(ParallelAgent):
    """As many lanes as the next place of the plan has steps, each a branch of its own."""

    def __init__(self, name: str, lanes: Sequence[ExecutingPhase], notes: PlanState) -> None:
        super().__init__(name, sub_agents=lanes, description=f"Does independent steps of `{notes.owner}` at once.")
        self.notes = notes

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Do the steps; each branch notes down its own."""
        places = self.notes.steps_of(self.notes.read(ctx))
        if not places:
            return None
        lanes = self.sub_agents[: len(places[0])]
        return await ParallelAgent(self.name, sub_agents=lanes).run(ctx)


class ReplanningPhase(PlanPhase):
    """The replanner reads what was done and gives the steps that are left, or the answer, which ends the loop."""

    def __init__(self, name: str, agent: BaseAgent[Any, Any], notes: PlanState, max_iterations: int) -> None:
        super().__init__(name, agent, notes)
        self.max_iterations = max_iterations

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Have it decided whether to go on."""
        progress = self.notes.read(ctx)
        progress = replace(progress, rounds=progress.rounds + 1)
        brief = replanner_brief(progress, self.notes.steps_of(progress), is_last=progress.rounds == self.max_iterations)
        outcome = await self.briefed(ctx, brief)
        if type(outcome.action) is Exit:
            return outcome.action
        answer, plan = self.notes.answer_or_plan_in(outcome.output, self.agent.name)
        if answer is not None:
            self.notes.write(ctx, replace(progress, answer=answer, is_complete=True))
            return BreakLoop()
        self.notes.write(ctx, replace(progress, plan=plan))
        return outcome.action


class PlanExecuteAgent(SequentialAgent):
    """Sequential[planner, Loop[executor, replanner]], and the answer in the end."""

    def __init__(self, name: str, phases: Sequence[BaseAgent[Any, Any]], notes: PlanState, description: str) -> None:
        super().__init__(name, sub_agents=phases, description=description)
        self.notes = notes

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Go through the phases, then say the answer; at the limit, what there is of one."""
        action = await super().run(ctx)
        if action is None:
            progress = self.notes.read(ctx)
            if progress.answer is None:
                progress = replace(progress, answer=best_effort(progress, self.notes.steps_of(progress)))
            self.notes.conclude(ctx, progress)
            await ctx.say(progress.answer or "")
        return action


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
    """An agent that has a plan made, done step by step, and looked at again after each, until there is an answer.

    `plan_type` is `Plan`, or `ParallelPlan` with `parallel_steps` (True for up to four at once, or a number), or any
    type with `steps` that pydantic can read. At `max_iterations` (0 for none) the answer is made of what was done, and
    says so.
    """
    at_once = _AT_ONCE if parallel_steps is True else int(parallel_steps)
    if at_once < 0:
        raise SetupError(f"`{name}` has parallel_steps={parallel_steps}; give True, False or how many at once")
    notes = PlanState(name, plan_type or (ParallelPlan if at_once else Plan))
    working: BaseAgent[Any, Any] = ExecutingPhase(f"{name}.execute", executor, notes)
    if at_once:
        lanes = [ExecutingPhase(f"{name}.execute.{lane + 1}", executor, notes, lane) for lane in range(at_once)]
        working = ParallelExecutingPhase(f"{name}.execute", lanes, notes)
    looking = ReplanningPhase(f"{name}.replan", replanner, notes, max_iterations)
    loop = LoopAgent(
        f"{name}.loop",
        sub_agents=[working, looking],
        max_iterations=max_iterations,
        description=f"Goes through the plan of `{name}`.",
    )
    return PlanExecuteAgent(name, [PlanningPhase(f"{name}.plan", planner, notes), loop], notes, description)


class PlanTool:
    """The tool `plan`: its arguments are the plan, and the plan is the answer of the agent that calls it."""

    def __init__(self, plan_type: Any, description: str) -> None:
        self._plan_type = plan_type
        self._description = description

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return ToolSpec("plan", self._description, self._reader.schema, strict=True)

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Take the plan, if it fits its type."""
        try:
            plan = self._reader.dump(self._reader.parse(arguments))
        except ValueError as error:
            return ToolResult(f"This is not a plan: {error}. Correct it and call `plan` again.", is_error=True)
        return ToolResult(msgspec.json.encode(plan).decode(), is_final=True)

    @cached_property
    def _reader(self) -> HandoffInputParser:
        return HandoffInputParser("plan", self._plan_type, what="the plan_type")


@tool(return_directly=True)
async def respond(response: str) -> dict[str, str]:
    """Give the user the final answer. Nothing is done after it.

    Args:
        response: The answer, complete, as the user will read it.
    """
    return {"response": response}


def make_planner(
    model: Model | str | None = None,
    *,
    name: str = "Planner",
    instructions: str = PLANNER,
    plan_type: Any = Plan,
    method: Literal["output", "tool"] = "output",
) -> Agent[Any, Any]:
    """An agent that makes a plan of what it is asked: by structured output, or by a tool `plan` it must call."""
    check_choice(f"by of make_planner(name={name!r})", method, ("output", "tool"))
    if method == "output":
        return Agent(name, model=model, instructions=instructions, output_type=plan_type)
    plan = PlanTool(plan_type, "Give the plan: the steps that lead to the objective.")
    return Agent(name, model=model, instructions=instructions, tools=[plan], tool_choice="plan")


def make_executor(
    model: Model | str | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    *,
    name: str = "Executor",
    instructions: str = EXECUTOR,
    max_turns: int = 20,
) -> Agent[Any, str]:
    """An agent that carries out one step of a plan with these tools."""
    return Agent(name, model=model, instructions=instructions, tools=tools, max_turns=max_turns)


def make_replanner(
    model: Model | str | None = None,
    *,
    name: str = "Replanner",
    instructions: str = REPLANNER,
    plan_type: Any = Plan,
) -> Agent[Any, str]:
    """An agent that calls `plan` with the steps that are left, or `respond` with the answer."""
    plan = PlanTool(plan_type, "Go on, with these steps: those that are still to be done, and no others.")
    return Agent(name, model=model, instructions=instructions, tools=[plan, respond], tool_choice="required")
