"""Input filters for handoffs: they choose which earlier messages the target of a transfer reads.

A filter takes `HandoffInputData` and returns a changed copy. None of these separates a call from its results. The log,
the result of the run and the histories of other agents keep everything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ..errors import SetupError
from ..messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
    estimate_text_tokens,
    estimate_tokens,
    is_empty,
    media_of,
    to_messages,
)
from ..models import Model, ModelRequest, resolve_model
from .declaration import HandoffInputData, HandoffInputFilter, check_filter_result
from .redaction import Pattern, Redactor, find_patterns
from .summary_filter import HANDOVER_INSTRUCTIONS, request_summary, transcript

Messages: TypeAlias = tuple[Message, ...]

_OPENING = "This was said before you took over:\n<conversation>"
_CLOSING = "</conversation>"


def remove_all_tools(data: HandoffInputData) -> HandoffInputData:
    """Remove tool calls and results; the text of messages that make calls is kept."""
    return _map_messages(data, _remove_calls)


def keep_last(n: int, *, keep_input: bool = True) -> HandoffInputFilter:
    """Keep the newest n messages before the turn that hands off, and that turn.

    A call and its results are kept or removed together.
    """
    budget = _check_count("keep_last", n)

    def keep_newest(data: HandoffInputData) -> HandoffInputData:
        return _keep_newest(data, budget, lambda _: 1, keep_input=keep_input)

    return keep_newest


def keep_tokens(n: int, *, count: Callable[[str], int] | None = None, keep_input: bool = True) -> HandoffInputFilter:
    """Keep the newest messages that fit into n tokens, and the turn that hands off.

    A call and its results are kept or removed together.
    """
    budget = _check_count("keep_tokens", n)
    count_text = count if count is not None else estimate_text_tokens

    def keep_newest(data: HandoffInputData) -> HandoffInputData:
        return _keep_newest(
            data, budget, lambda message: estimate_tokens((message,), count_text), keep_input=keep_input
        )

    return keep_newest


def redact(
    patterns: Mapping[str, Pattern] | Iterable[str] | None = None,
    *,
    replacement: str = "[{name} removed]",
    also: Mapping[str, Pattern] | None = None,
) -> HandoffInputFilter:
    """Replace payment cards, US social security numbers, e-mail addresses and phone numbers.

    Text, data, arguments, results and transcripts of audio are searched; reasoning is removed. The contents of images,
    sounds, files and their URLs are not searched. See `batonkit.handoffs.redaction` for the patterns.
    """
    redactor = Redactor({**find_patterns(patterns), **find_patterns(also or {})}, replacement)

    def redacted(data: HandoffInputData) -> HandoffInputData:
        return _map_messages(data, redactor.redact_message)

    return redacted


def summarize(model: Model | str, *, instructions: str | None = None, keep_input: bool = True) -> HandoffInputFilter:
    """Replace everything before the turn that hands off with a model's summary.

    The model is called once, also across resume, and counts towards the run's limits. It reads a transcript in which
    images, sounds and files are only mentioned. It is not called if there is nothing to summarize.
    """
    if not isinstance(model, str):
        resolve_model(model, wanted_by="summarize")

    async def summarized(data: HandoffInputData) -> HandoffInputData:
        earlier = _EarlierMessages(data, keep_input=keep_input)
        if not earlier.removed:
            return earlier.data()
        ctx = data.run_context
        if ctx is None:
            raise SetupError("summarize needs HandoffInputData(run_context=…), which a run provides")
        ctx._run.meter.start_model_call(ctx._origin)
        messages = [UserMessage(transcript(earlier.messages))]
        request = ModelRequest(messages, instructions or HANDOVER_INSTRUCTIONS, agent="summarize")

        async def ask() -> dict[str, Any]:
            # Resolved only here: a resumed run with a recorded summary needs no provider.
            summary = await request_summary(resolve_model(model, wanted_by="summarize"), request)
            return {"text": summary.text, "model": summary.model, "usage": msgspec.to_builtins(summary.usage)}

        summary = await ctx.step("summarize", ask)
        ctx._run.meter.add_usage(msgspec.convert(summary["usage"], Usage), ctx._origin)
        return earlier.data(UserMessage(f"Summary of the conversation so far: {summary['text']}"))

    return summarized


def nest_history(*, opening: str = _OPENING, closing: str = _CLOSING) -> HandoffInputFilter:
    """Replace everything before the turn that hands off with a transcript in one user message.

    Images, sounds and files follow the text in the same message; reasoning is removed.
    """

    def nested(data: HandoffInputData) -> HandoffInputData:
        earlier = _EarlierMessages(data, keep_input=False)
        if not earlier.removed:
            return earlier.data()
        text = "\n".join((opening, transcript(earlier.removed), closing))
        media = tuple(part for message in earlier.removed for part in media_of(message.content))
        return earlier.data(UserMessage((Text(text), *media) if media else text))

    return nested


def compose(*filters: HandoffInputFilter) -> HandoffInputFilter:
    """Combine filters; they are applied from left to right.

    Raises:
        SetupError: One of them is not callable.
    """
    for each in filters:
        if not callable(each):
            raise SetupError(f"compose takes filters, but {each!r} is not callable")

    async def composed(data: HandoffInputData) -> HandoffInputData:
        for each in filters:
            data = await check_filter_result(each, each(data), "in compose")
        return data

    return composed


class _EarlierMessages:
    """The messages before the turn that hands off, and which of them a filter keeps."""

    def __init__(self, data: HandoffInputData, *, keep_input: bool) -> None:
        self._data = data
        self._input, self._before, self._turn = _sections(data)
        self.messages: Messages = (*self._input, *self._before)
        self.leaders = _find_leaders((*self.messages, *self._turn))
        # A call whose result is in the turn stays, because the turn itself always does.
        self.kept = {*self.leaders[len(self.messages) :], *(_find_request(self._input) if keep_input else ())}

    @property
    def removed(self) -> list[Message]:
        pairs = zip(self.leaders, self.messages, strict=False)
        return [message for leader, message in pairs if leader not in self.kept and not is_empty(message)]

    def data(self, replacement: Message | None = None) -> HandoffInputData:
        """Return what is kept, with a message in place of what was removed."""
        is_kept = [leader in self.kept for leader in self.leaders]
        input_history = tuple(compress(self._input, is_kept))
        before = tuple(compress(self._before, is_kept[len(self._input) :]))
        if replacement is not None:
            before = (replacement, *before)
        return self._data.clone(input_history=input_history, pre_handoff_items=before, new_items=self._turn)


def _sections(data: HandoffInputData) -> tuple[Messages, Messages, Messages]:
    return to_messages(data.input_history), to_messages(data.pre_handoff_items), to_messages(data.new_items)


def _map_messages(data: HandoffInputData, change: Callable[[Message], Message | None]) -> HandoffInputData:
    input_history, before, turn = (
        tuple([changed for message in section if (changed := change(message)) is not None])
        for section in _sections(data)
    )
    return data.clone(input_history=input_history, pre_handoff_items=before, new_items=turn)


def _find_leaders(messages: Sequence[Message]) -> list[int]:
    """Return for each message its own position, but for a result the position of its call."""
    leaders = list(range(len(messages)))
    callers: dict[str, int] = {}
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            # Some providers reuse ids in every turn: the latest call of an id is the one answered.
            callers.update((call.id, position) for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            leaders[position] = callers.get(message.tool_call_id, position)
    return leaders


def _find_request(messages: Messages) -> set[int]:
    request = {position for position, message in enumerate(messages) if isinstance(message, SystemMessage)}
    latest = max(
        (position for position, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1
    )
    while latest >= 0 and isinstance(messages[latest], UserMessage):
        request.add(latest)
        latest -= 1
    return request


def _keep_newest(
    data: HandoffInputData, budget: int, cost: Callable[[Message], int], *, keep_input: bool
) -> HandoffInputData:
    earlier = _EarlierMessages(data, keep_input=keep_input)
    groups: dict[int, list[Message]] = {}
    for leader, message in zip(earlier.leaders, earlier.messages, strict=False):
        groups.setdefault(leader, []).append(message)
    for leader in reversed(groups):
        if leader in earlier.kept:
            continue
        budget -= sum(map(cost, groups[leader]))
        if budget < 0:
            break
        earlier.kept.add(leader)
    return earlier.data()


def _check_count(filter_name: str, n: Any) -> int:
    if not isinstance(n, int) or n < 0:
        raise SetupError(f"{filter_name}({n!r}): give an integer, 0 or more")
    return n


def _remove_calls(message: Message) -> Message | None:
    if isinstance(message, ToolMessage):
        return None
    if not isinstance(message, AssistantMessage) or not message.tool_calls:
        return message
    # Providers reject reasoning without the calls it led to.
    remaining = replace(message, tool_calls=(), reasoning=())
    return None if is_empty(remaining) else remaining
