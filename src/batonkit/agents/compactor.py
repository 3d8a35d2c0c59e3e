"""Compaction before the model calls of one activation: measure, summarize, record, and read the summary."""

import logging
from collections.abc import Sequence
from time import time
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from .._wording import show
from ..context import RunContext
from ..context.run_state import ends_run
from ..errors import ReplayMismatchError, SetupError
from ..handoffs.summary_filter import COMPACTION_INSTRUCTIONS, request_summary, transcript
from ..log import AgentResponded, EventRef, HistoryCompacted, Origin, SummaryMessage, keys
from ..log.entries import HistoryEntry
from ..log.events import SummaryReaders
from ..log.history import History
from ..log.view import CompactableView, Covered
from ..messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    Usage,
    UserMessage,
    estimate_text_tokens,
    estimate_tokens,
    pair_calls_with_results,
    to_messages,
)
from ..messages.valid_text import with_valid_text
from ..models import Model, ModelRequest, resolve_model
from ..models.prices import add_cost
from ..tools.tool_guardrails import copy_changes
from .agent_context import AgentContext
from .compaction import Compaction
from .compiled import CompiledAgent
from .hooks import maybe_await

_logger = logging.getLogger("baton.agents")

_HEADING = "Summary of the conversation so far:\n"


class _Summary(Struct, frozen=True):
    """A summary that is not recorded yet."""

    entries: Sequence[HistoryEntry]
    usage: Usage | None = None
    model: str = ""


class Compactor(Struct):
    """The compaction of one activation."""

    ctx: AgentContext[Any]
    _failed_calls: int = 0
    """The number of model calls that the last summary took, if it failed."""
    _estimated: int = 0
    """The number of messages whose tokens have been estimated."""
    _tokens: int = 0
    """The tokens of these messages."""

    async def prepare_turn(self, compiled: CompiledAgent, turn: int, instructions: str) -> int:
        """Compact the history before a model call, or read the recorded summary.

        Returns:
            The number of model calls that were made for nothing; they are recorded with the response.
        """
        ctx = self.ctx
        compaction = compiled.compaction
        key = keys.inside(keys.response(ctx._scope, turn), "compact")
        if ctx._run.log.has_past and _apply_recorded(ctx, key):
            return 0
        if compaction is None:
            return 0
        history = ctx._history
        tokens = self._count_tokens(turn, instructions)
        if tokens <= compaction.at_tokens or tokens < history.retry_at:
            return 0
        stop = _find_stop(history.entries, compaction.keep_last)
        view = cast("CompactableView", ctx._view)
        covered = view.cover(history, stop) if stop else None
        if covered is None or not _is_worthwhile(covered, compaction):
            return 0
        self._failed_calls = 0
        own: RunContext[Any] = RunContext(ctx._run, ctx._origin, key, None, ctx)
        try:
            summary = await self._summarize(compaction, covered, own, compiled.model)
        except Exception as error:
            if ends_run(error):
                raise
            await self._report(error, turn, tokens, own)
            return self._failed_calls
        if ctx._run.has_open_calls:
            ctx._run.check_ended(f"the summarizer of `{ctx.agent}`", key)
        event = HistoryCompacted(
            key,
            ctx._origin,
            time(),
            _refer_to(ctx, stop),
            with_valid_text(tuple(map(_to_summary_message, summary.entries))),
            summary.usage,
            summary.model,
            covered.readers,
            not history.is_main,
            _count_inputs(history, covered.readers, summary.entries),
            own._all_changes(),
        )
        ctx._run.log.write(event)
        history.retry_at = self._estimated = self._tokens = 0
        _apply(ctx, event)
        if summary.usage is not None:
            ctx._run.meter.add_usage(summary.usage, ctx._origin)
        if ctx._run.log.sink is not None:
            await ctx._run.log.settle()
        return 0

    def _count_tokens(self, turn: int, instructions: str) -> int:
        """Return the tokens of the request: the provider's last count, and an estimate of the rest.

        Without a count, it is an estimate of the messages and the instructions.
        """
        ctx = self.ctx
        last = ctx._run.log.peek(keys.response(ctx._scope, turn - 1)) if turn > 1 else None
        if isinstance(last, AgentResponded) and last.model_calls == 1 and last.usage and last.usage.input_tokens:
            new: list[Message] = []
            for entry in reversed(ctx._history.entries):
                if entry.key == last.key:
                    break
                new.append(entry.message)
            return last.usage.total_tokens + estimate_tokens(new)
        messages = ctx._view.messages()
        self._tokens += estimate_tokens(messages[self._estimated :])
        self._estimated = len(messages)
        return self._tokens + estimate_text_tokens(instructions)

    async def _report(self, error: Exception, turn: int, tokens: int, own: RunContext[Any]) -> None:
        ctx = self.ctx
        _logger.warning("the history of `%s` could not be compacted", ctx.agent, exc_info=error)
        ctx._run.forget_open_calls(own._scope)
        ctx._history.retry_at = 2 * tokens
        # Recorded with the response.
        copy_changes(ctx, own._all_changes())
        if ctx._hooks is not None:
            await ctx._hooks.call(ctx, "compaction_failed", error, turn=turn)

    async def _summarize(
        self, compaction: Compaction, covered: Covered, own: RunContext[Any], model: Model
    ) -> _Summary:
        shown = [(_with_author(message, entry), entry) for message, entry in covered.entries]
        messages = [message for message, _ in shown]
        given = compaction.summarizer
        if callable(given) and not isinstance(given, Model):
            returned: Any = await maybe_await(given(own, messages))
            return _Summary(_entries_of(returned, shown, own._origin))
        if given is not None:
            model = resolve_model(given, wanted_by="Compaction")
        own._run.meter.start_model_call(own._origin)
        self._failed_calls = 1
        text = UserMessage(transcript(messages))
        request = ModelRequest(
            [text], compaction.instructions or COMPACTION_INSTRUCTIONS, agent=own.agent, stream=False
        )
        written = await request_summary(model, request)
        prices = self.ctx._options.prices
        usage = replace(add_cost(prices, written.usage, model.name, written.model), model_calls=1)
        return _Summary([HistoryEntry(UserMessage(_HEADING + written.text))], usage, written.model)


def count_recorded_compaction(ctx: AgentContext[Any], key: str) -> None:
    """Count the recorded summary of a turn that a replay finds without its response."""
    event = ctx._run.log.find(keys.inside(key, "compact"), HistoryCompacted)
    if event is not None:
        ctx._run.meter.count_compaction(event)


async def replay_compaction(ctx: AgentContext[Any], turn: int) -> None:
    """Read the summary of a recorded turn, and repeat the changes of its hooks."""
    if not _apply_recorded(ctx, keys.inside(keys.response(ctx._scope, turn), "compact")) and ctx._hooks is not None:
        await ctx._hooks.call(ctx, "compaction_failed", None, turn=turn, is_past=True)


def _apply_recorded(ctx: AgentContext[Any], key: str) -> bool:
    event = ctx._run.log.find(key, HistoryCompacted)
    if event is None:
        return False
    ctx._run.meter.count_compaction(event)
    ctx._apply_changes(event.value_changes)
    _apply(ctx, event)
    return True


def _apply(ctx: AgentContext[Any], event: HistoryCompacted) -> None:
    """Let the readers of the history read the summary of its first entries."""
    history = ctx._history
    prefix = history.prefix_of(event, ctx._origin)
    if not prefix.stop and event.upto.run_id == ctx._run.id:
        raise ReplayMismatchError(event.key, f"a summary up to {event.upto.key}", "no such response before it")
    history.apply(event, ctx._origin)
    for entry in prefix.entries:
        # A function may have made these messages; the agent's own calls must not reuse their ids.
        if type(entry.message) is AssistantMessage:
            ctx._run.call_ids.update([call.id for call in entry.message.tool_calls])
    cast("CompactableView", ctx._view).compact(history, prefix)


def _is_worthwhile(covered: Covered, compaction: Compaction) -> bool:
    """Return whether enough is covered: a summary at every turn would cost more than it saves."""
    new = [message for message, _ in covered.entries[covered.summarized :]]
    return bool(new) and estimate_tokens(new) >= compaction.at_tokens // 4


def _find_stop(entries: Sequence[HistoryEntry], keep_last: int) -> int:
    """Return the position at which the last turns begin; 0 if nothing is before them."""
    position = len(entries)
    while position and keep_last:
        position -= 1
        if entries[position].is_of_turn and type(entries[position].message) is AssistantMessage:
            keep_last -= 1
    # The user messages before a response belong to its turn.
    while position and not entries[position - 1].is_of_turn:
        position -= 1
    return 0 if keep_last else position


def _refer_to(ctx: AgentContext[Any], stop: int) -> EventRef:
    """Return the last response before a position."""
    position = stop - 1
    entries = ctx._history.entries
    while type(entries[position].message) is not AssistantMessage:
        position -= 1
    entry = entries[position]
    return entry.event or EventRef(ctx._run.id, entry.key)


def _count_inputs(history: History, readers: SummaryReaders, summary: Sequence[HistoryEntry]) -> int:
    """Return the number of first entries of a summary that are input of the flow, or new."""
    before = history.prefix_for(readers)
    inputs = {id(entry) for entry in [*before.entries[: before.inputs], *history.entries[before.stop : history.inputs]]}
    for count, entry in enumerate(summary):
        if entry.origin is not None and id(entry) not in inputs:
            return count
    return len(summary)


def _with_author(message: Message, entry: HistoryEntry) -> Message:
    if entry.origin is None or not isinstance(message, AssistantMessage | ToolMessage):
        return message
    return replace(message, author=entry.origin.agent)


def _entries_of(returned: Any, shown: Sequence[tuple[Message, HistoryEntry]], own: Origin) -> Sequence[HistoryEntry]:
    """Convert what a function returned to entries; messages that it did not change keep theirs."""
    if isinstance(returned, str):
        if not returned.strip():
            raise SetupError(f"the summarizer of `{own.agent}` returned no text; return text or messages")
        return [HistoryEntry(UserMessage(_HEADING + returned))]
    if not isinstance(returned, Sequence) or not returned:
        raise SetupError(
            f"the summarizer of `{own.agent}` returned {show(cast(object, returned))}; return text or messages"
        )
    messages = to_messages(cast("Sequence[Message]", returned))
    if len(messages) == len(shown) and all(new is old for new, (old, _) in zip(messages, shown, strict=True)):
        return [entry for _, entry in shown]
    entries = _attribute(messages, shown, own)
    if not entries:
        raise SetupError(f"the summarizer of `{own.agent}` returned only empty messages; return text or messages")
    return entries


def _attribute(
    messages: Sequence[Message], shown: Sequence[tuple[Message, HistoryEntry]], own: Origin
) -> list[HistoryEntry]:
    """Return messages as entries; those that were shown keep theirs."""
    known = {id(message): entry for message, entry in shown}
    origins = {entry.origin.agent: entry.origin for _, entry in shown if entry.origin is not None}
    entries: list[HistoryEntry] = []
    for message in pair_calls_with_results(messages):
        entry = known.get(id(message))
        if entry is None and isinstance(message, AssistantMessage | ToolMessage):
            origin = origins.get(message.author, own)
            if isinstance(message, ToolMessage) and not message.author and entries:
                origin = entries[-1].origin or own
            entry = HistoryEntry(replace(message, author=""), origin)
        entries.append(entry or HistoryEntry(message))
    return entries


def _to_summary_message(entry: HistoryEntry) -> SummaryMessage:
    origin = entry.origin
    agent, activation = ("", "") if origin is None else (origin.agent, origin.id)
    return SummaryMessage(entry.message, agent, activation, entry.is_answer, entry.hidden, entry.followed)
