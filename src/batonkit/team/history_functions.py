"""History functions: code of the user that selects the messages an agent reads."""

from collections.abc import Sequence
from typing import Any, cast

from ..agents.agent_context import HistoryFunction
from ..context import RunContext
from ..context.run_context import needs_await
from ..errors import SetupError
from ..log import HistoryEntry
from ..log.history import History
from ..messages import Message, pair_calls_with_results, to_messages


async def select_messages(policy: HistoryFunction, history: History, ctx: RunContext[Any]) -> list[Message]:
    """Return the messages that a history function selects.

    Raises:
        SetupError: It does not return messages.
    """
    read = [_without_hidden(entry, ctx.run_id) for entry in history.entries_for("all")]
    shown = tuple([entry for entry in read if entry is not None])
    given: Any = policy.function(ctx, shown) if policy.takes_context else policy.function(shown)
    if needs_await(given):
        given = await given
    what = f"history function `{policy.name}` of `{ctx.agent}`"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SetupError(f"the {what} must return a list of messages, not {given!r}")
    if ctx._run.suspended_by:
        ctx._run.check_suspended(what, ctx._scope)
    return pair_calls_with_results(to_messages(cast("Sequence[Message]", given), what=f"result of {what}: messages"))


def _without_hidden(entry: HistoryEntry, run_id: str) -> HistoryEntry | None:
    if not entry.hidden:
        return entry
    message = entry.for_others(hide_transfers=False)
    return None if message is None else HistoryEntry(message, entry.origin, entry.is_answer)
