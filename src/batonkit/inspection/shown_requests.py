"""Recorded model requests for display: token estimates, and what a handoff changed in what an agent reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..agents.request_records import content_hash
from ..log import AgentResponded, Event, ToolReturned, keys
from ..messages import Message, ToolSpec, estimate_text_tokens, estimate_tokens
from ..models import ModelSettings
from ..team.requests import MessageForm, MessageSource, RecordedRequest
from .usage import find_arrival

Mark: TypeAlias = Literal["same", "rewritten", "withheld", "added"]
"""`same` words, `rewritten` for the receiver, `withheld` by its policy or filter, or `added` for it alone."""
CacheBreak: TypeAlias = Literal["tools", "instructions", "messages", "none"]
"""The first part of a request that differs from the previous one, in the order in which providers cache them."""


class ReadMessage(Struct, frozen=True):
    """A message of a recorded request."""

    message: Message | None
    """The message; None if it was part of an earlier run of the thread, which has been deleted."""
    form: MessageForm
    """`same` as its author wrote it, `rewritten` for other agents, or `added`."""
    run_id: str
    """The run that has its event; "" if no event has it."""
    key: str
    """The key of that event."""
    agent: str
    """The agent that wrote it; "" for user input."""
    tokens: int
    """The estimated number of its tokens."""


class ChangedMessage(Struct, frozen=True):
    """A message of the sender or of the receiver of a handoff."""

    mark: Mark
    """The change that the handoff made to it."""
    message: Message | None
    """The message as the receiver read it; a withheld one as the sender had it."""
    original: Message | None
    """A rewritten message as the sender had it; otherwise None."""
    agent: str
    """The agent that wrote it; "" for user input."""
    key: str
    """The key of its event; "" if no event has it."""
    tokens: int
    """The estimated number of its tokens."""


class HandoffDiff(Struct, frozen=True):
    """The differences between what the sender of a handoff had and what the receiver read first."""

    sender: str
    """The agent that handed control over."""
    sender_key: str
    """The key of its last response."""
    policy: str
    """The history policy of the receiver, `function` or `filter`."""
    messages: tuple[ChangedMessage, ...]
    """All messages of both, in order."""
    tokens_before: int
    """The estimated tokens that the sender had: instructions, tools and messages."""
    tokens_after: int
    """The estimated tokens that the receiver read."""
    instructions: str
    """The instructions of the sender."""
    added_tools: tuple[str, ...]
    """The tools that only the receiver has."""
    removed_tools: tuple[str, ...]
    """The tools that only the sender has."""


class CachePrefix(Struct, frozen=True):
    """The part of a request that a provider can read from its prompt cache."""

    previous: str
    """The key of the response whose request is compared."""
    breaks_at: CacheBreak
    """The first part that differs; `none` if messages were only appended."""
    messages: int
    """The number of leading messages that both requests share; 0 if their instructions or tools differ."""
    tokens: int
    """The estimated tokens of the common beginning."""


class RequestView(Struct, frozen=True):
    """A model request, as the model received it."""

    key: str
    """The key of the response."""
    agent: str
    """The agent."""
    model: str
    """The model that responded."""
    policy: str
    """The history policy that the messages were selected with, `function` or `filter`."""
    instructions: str
    """The system prompt."""
    messages: tuple[ReadMessage, ...]
    """The messages."""
    tools: tuple[ToolSpec, ...]
    """The tools."""
    settings: ModelSettings
    """The settings; values of headers, query parameters and extra fields are not recorded."""
    output_schema: dict[str, Any] | None
    """The schema of the answer and its name."""
    tool_choice: str | None
    """The tool use that was required."""
    tokens: int
    """The estimated tokens of the request: its characters divided by four."""
    digest: str
    """A hash over all messages: two requests with the same messages have the same digest."""
    handoff: HandoffDiff | None = None
    """The changes by the handoff that led to the agent; None if there was none."""
    cache: CachePrefix | None = None
    """The part in common with the previous request of the run; None for the first one."""


def view_request(request: RecordedRequest) -> RequestView:
    """Return a recorded request for display, without comparisons.

    Args:
        request: The request.
    """
    messages = tuple([_read_message(*pair) for pair in zip(request.messages, request.sources, strict=True)])
    schema = request.output_schema
    return RequestView(
        request.key,
        request.agent,
        request.model,
        request.policy,
        request.instructions,
        messages,
        request.tools,
        request.settings,
        None if schema is None else msgspec.to_builtins(schema),
        request.tool_choice,
        _request_tokens(request),
        request.digest,
    )


def related_keys(events: Sequence[Event], key: str) -> tuple[str, ...]:
    """Return the keys of the requests that `view_compared` needs.

    They are its own, that of the previous request, and that of the sender of its handoff.

    Args:
        events: The log of the run.
        key: The key of the response.
    """
    return tuple(dict.fromkeys(filter(None, (key, _previous_key(events, key), _sender_key(events, key)))))


def view_compared(requests: Mapping[str, RecordedRequest], events: Sequence[Event], key: str) -> RequestView:
    """Return a recorded request with its handoff and its cache prefix.

    Args:
        requests: The requests of the run, at least the related ones.
        events: The log of the run.
        key: The key of the response; it must have a request.
    """
    request = requests[key]
    previous = requests.get(_previous_key(events, key))
    sender = requests.get(_sender_key(events, key))
    return msgspec.structs.replace(
        view_request(request),
        handoff=None if sender is None else _handoff_diff(sender, events, request),
        cache=None if previous is None else _cache_prefix(previous, request),
    )


def _recorded(events: Sequence[Event]) -> Iterator[AgentResponded]:
    return (event for event in events if isinstance(event, AgentResponded) and event.request is not None)


def _previous_key(events: Sequence[Event], key: str) -> str:
    previous = ""
    for event in _recorded(events):
        if event.key == key:
            break
        previous = event.key
    return previous


def _sender_key(events: Sequence[Event], key: str) -> str:
    """Return the key of the last response of the sender of a handoff; "" if there was none."""
    response = next((event for event in _recorded(events) if event.key == key), None)
    transfer = None if response is None else find_arrival(events, response.origin.id)
    if transfer is None:
        return ""
    return next((e.key for e in reversed([*_recorded(events)]) if e.origin.id == transfer.origin.id), "")


def _message_tokens(message: Message | None) -> int:
    return 0 if message is None else estimate_tokens([message])


def _tool_tokens(tools: Sequence[ToolSpec]) -> int:
    return estimate_text_tokens(msgspec.json.encode(tools).decode()) if tools else 0


def _read_message(message: Message | None, source: MessageSource) -> ReadMessage:
    return ReadMessage(message, source.form, source.run_id, source.key, source.agent, _message_tokens(message))


def _request_tokens(request: RecordedRequest) -> int:
    prefix = _tool_tokens(request.tools) + estimate_text_tokens(request.instructions)
    return prefix + sum(map(_message_tokens, request.messages))


class _Item(Struct, frozen=True):
    """A message that an agent had, and the identity by which it is found again."""

    id: tuple[str, str, int | str]
    message: Message | None
    source: MessageSource


def _items(messages: Sequence[Message | None], sources: Sequence[MessageSource]) -> Iterator[_Item]:
    """Yield messages with their identities: the event and place, or else the content."""
    seen: dict[tuple[str, str], int] = {}
    for message, source in zip(messages, sources, strict=True):
        place = (source.run_id, source.key)
        if source.key:
            seen[place] = seen.get(place, -1) + 1
            yield _Item((*place, seen[place]), message, source)
        else:
            yield _Item((*place, content_hash(message)), message, source)


def _handoff_diff(last: RecordedRequest, events: Sequence[Event], request: RecordedRequest) -> HandoffDiff:
    response = next(event for event in _recorded(events) if event.key == last.key)
    run_id = next((source.run_id for source in last.sources if source.run_id), "")
    had = [*_items(last.messages, last.sources), *_later_items(events, response, run_id)]
    got = [*_items(request.messages, request.sources)]
    ours = {tool.name for tool in request.tools}
    theirs = {tool.name for tool in last.tools}
    return HandoffDiff(
        last.agent,
        last.key,
        request.policy,
        tuple(_merge(had, got)),
        _request_tokens(last) + sum(_message_tokens(item.message) for item in had[len(last.messages) :]),
        _request_tokens(request),
        last.instructions,
        tuple(sorted(ours - theirs)),
        tuple(sorted(theirs - ours)),
    )


def _later_items(events: Sequence[Event], response: AgentResponded, run_id: str) -> Iterator[_Item]:
    """Yield the last response of the sender and its tool results."""
    for event in events:
        if isinstance(event, AgentResponded | ToolReturned) and (
            event is response or keys.is_in_calls_of(response.key, event.key)
        ):
            source = MessageSource("same", run_id, event.key, event.agent)
            yield _Item((run_id, event.key, 0), event.message, source)


def _merge(had: Sequence[_Item], got: Sequence[_Item]) -> Iterator[ChangedMessage]:
    """Yield the messages of both, in the receiver's order."""
    places = {item.id: place for place, item in enumerate(had)}
    after = {item.id for item in got}
    position = 0
    for item in got:
        place = places.get(item.id)
        if place is not None and place >= position:
            yield from (_changed("withheld", each) for each in had[position:place] if each.id not in after)
            position = place + 1
        if place is None:
            yield _changed("added" if not item.source.key else item.source.form, item)
        elif had[place].message == item.message:
            yield _changed("same", item)
        else:
            yield _changed("rewritten", item, had[place].message)
    yield from (_changed("withheld", each) for each in had[position:] if each.id not in after)


def _changed(mark: Mark, item: _Item, original: Message | None = None) -> ChangedMessage:
    source = item.source
    return ChangedMessage(mark, item.message, original, source.agent, source.key, _message_tokens(item.message))


def _cache_prefix(previous: RecordedRequest, request: RecordedRequest) -> CachePrefix:
    if previous.tools != request.tools:
        return CachePrefix(previous.key, "tools", 0, 0)
    tokens = _tool_tokens(request.tools)
    if previous.instructions != request.instructions:
        return CachePrefix(previous.key, "instructions", 0, tokens)
    tokens += estimate_text_tokens(request.instructions)
    count = 0
    for before, now in zip(previous.messages, request.messages, strict=False):
        if before != now:
            break
        tokens += _message_tokens(now)
        count += 1
    return CachePrefix(previous.key, "none" if count == len(previous.messages) else "messages", count, tokens)
