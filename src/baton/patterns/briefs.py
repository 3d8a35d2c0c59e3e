"""What the agents of plan_execute are told, in words."""

from collections.abc import Sequence
from typing import Any

from ..agents import AgentContext
from ..context import History, HistoryEntry
from ..messages import Text, ToolMessage, UserMessage, media_of, text_of
from .plans import PlanProgress

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
