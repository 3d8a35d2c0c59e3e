"""Plan, do a step, look at the plan again: a sequence of a planner and a loop of executor and replanner."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..agents import AgentContext, BaseAgent, FlowOutcome
from ..errors import SetupError
from ..events import Action, BreakLoop, Exit
from ..workflows import LoopAgent, ParallelAgent, SequentialAgent
from .briefs import best_effort, executor_brief, history_of, objective_of, replanner_brief
from .plans import CompletedStep, ParallelPlan, Plan, PlanProgress, PlanState, as_text

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
            return await ctx.inside(self.agent, "0", history=history)
        finally:
            ctx._history.join(history, mark)


class PlanningPhase(PlanPhase):
    """The planner reads the conversation and makes the first plan."""

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        """Have a plan made."""
        objective = objective_of(ctx)
        outcome = await ctx.inside(self.agent, "0")
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
