"""History functions: code of the user that selects the messages an agent reads."""

from collections.abc import Sequence
from typing import Any, cast

from .._wording import show
from ..agents.agent_context import HistoryFunction
from ..context import RunContext
from ..context.run_context import needs_await
from ..errors import SetupError
from ..log import HistoryEntry
from ..log.history import History
from ..messages import Message, pair_calls_with_results, to_messages
from ..messages.valid_text import with_valid_text


async def select_messages(policy: HistoryFunction, history: History, ctx: RunContext[Any]) -> list[Message]:
    """Return the messages that a history function selects.

    Raises:
        SetupError: It does not return messages.
    """
    readable = map(_without_hidden, history.entries_for("all"))
    entries = tuple([entry for entry in readable if entry is not None])
    selected: Any = policy.function(ctx, entries) if policy.takes_context else policy.function(entries)
    if needs_await(selected):
        selected = await selected
    what = f"history function `{policy.name}` of `{ctx.agent}`"
    if isinstance(selected, str) or not isinstance(selected, Sequence):
        raise SetupError(f"the {what} must return a list of messages, not {show(selected)}")
    if ctx._run.has_open_calls:
        ctx._run.check_ended(what, ctx._scope)
    messages = with_valid_text(to_messages(cast("Sequence[Message]", selected), what=f"result of {what}: messages"))
    return pair_calls_with_results(messages)


def _without_hidden(entry: HistoryEntry) -> HistoryEntry | None:
    if not entry.hidden:
        return entry
    message = entry.for_others(hide_transfers=False)
    return None if message is None else HistoryEntry(message, entry.origin, entry.is_answer)
