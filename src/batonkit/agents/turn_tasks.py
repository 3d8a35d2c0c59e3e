"""The calls of `finish_task` and `cancel_task` in one response, and the action they lead to."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..context import RunContext
from ..errors import BatonError, TaskResultError
from ..handoffs.tasks import FINISH_TOOL, TaskTools
from ..log import CancelTask, Finish, ToolReturned, keys
from ..messages import ToolCall, text_of
from .admission import TransferAdmitted, TransferDenied, admit_live_transfer
from .agent_context import AgentContext

_FINISHED = "The task is finished."
_CANCELLED = "The task is cancelled."


class TaskDecision(Struct):
    """The outcome of the calls that end a task."""

    action: Finish | CancelTask | None = None
    """The action to follow."""
    results: dict[int, tuple[str, bool]] = {}
    """The text of each call's result, by position, and whether it is an error."""
    fault: BatonError | None = None
    """The model's mistake, if any."""


async def decide_task_calls(
    ctx: AgentContext[Any],
    key: str,
    calls: Sequence[tuple[int, ToolCall]],
    *,
    preferred: str = "",
    is_concurrent: bool = False,
) -> TaskDecision:
    """Decide how the task ends: with the first valid result or else the first cancellation.

    It does not end if the response also asks for something that takes precedence, which `preferred` describes.
    """
    task = ctx._task
    decision = TaskDecision()
    assert task is not None
    chosen: int | None = None
    # A result must not be lost because the model also cancels.
    for position, call in sorted(calls, key=lambda each: each[1].name != FINISH_TOOL):
        undone = "Not finished" if call.name == FINISH_TOOL else "Not cancelled"
        if preferred:
            decision.results[position] = (f"{undone}: {preferred} was asked for in the same response.", True)
            continue
        if decision.action is not None:
            decision.results[position] = (f"{undone}: another call has ended the task.", True)
            continue
        action = _parse(task, call, decision, position, ctx.agent)
        if action is not None:
            decision.action = action
            chosen = position
            text = _FINISHED if type(action) is Finish else _CANCELLED
            decision.results[position] = (text, False)
    if chosen is not None and is_concurrent:
        refusal = await _claim(ctx, keys.call(key, chosen), dict(calls)[chosen], task.return_to)
        if refusal is not None:
            decision.action = None
            decision.results[chosen] = (refusal, True)
    return decision


def _parse(
    task: TaskTools, call: ToolCall, decision: TaskDecision, position: int, agent: str
) -> Finish | CancelTask | None:
    try:
        if call.name == FINISH_TOOL:
            return Finish(task.parse_result(call.arguments), call.id)
        return CancelTask(task.parse_reason(call.arguments), call.id)
    except ValueError as error:
        undone = "Not finished" if call.name == FINISH_TOOL else "Not cancelled"
        decision.results[position] = (f"{undone}: {error}.", True)
        expected = f"a result of its task that fits `{task.parser.type_name if task.parser is not None else 'str'}`"
        decision.fault = decision.fault or TaskResultError(agent, expected, str(error))
        return None


async def _claim(ctx: AgentContext[Any], key: str, call: ToolCall, target: str) -> str | None:
    """Reserve the return of control in a realtime session; return the reason of a refusal."""
    recorded = ctx._run.log.find(key, ToolReturned)
    if recorded is not None:
        # The order of concurrent calls is lost on replay; the recorded result decides.
        return text_of(recorded.content) if recorded.is_error else None
    inner = RunContext(ctx._run, ctx._origin, key, call, ctx)

    async def admit() -> TransferAdmitted | TransferDenied:
        return TransferAdmitted()

    verdict = await admit_live_transfer(inner, target, admit)
    return verdict.text if isinstance(verdict, TransferDenied) else None
