"""Records of model requests: what a log needs to show each request later without running user code.

A record names every message by a hash of its content. Most messages are in the log already, as responses, tool
results and input, in the author's words or rewritten for other agents; `batonkit.flow.requests` finds them there. The
rest, such as messages that a filter or middleware made, is recorded once per run, with instructions, tools and
settings. A request that begins with the messages of an earlier one, also of an earlier run of the thread, refers to it.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..context.history import History, MessageWindow, PolicyView
from ..errors import NotEncodableError
from ..events import AgentResponded, Event, RequestRecord
from ..log import Log
from ..messages import AssistantMessage, Message, ToolMessage
from ..models import ModelRequest, ModelSettings
from .activation import AgentContext
from .options import SECRET_SETTINGS

_HASH_BYTES = 8
_HIDDEN = "(not recorded)"
_encode = msgspec.json.Encoder().encode


REQUEST_PARTS = ("instructions", "tools", "settings", "output_schema", "prompt_cache", "tool_choice")
"""The parts of a request other than messages, as records name them."""


def content_hash(content: Any) -> str:
    """Return the hash that stands for a message, or for another part of a request, in records.

    Raises:
        NotEncodableError: It holds a value that JSON cannot represent.
    """
    try:
        encoded = _encode(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotEncodableError("part of a model request", content, str(error)) from None
    return blake2b(encoded, digest_size=_HASH_BYTES).hexdigest()


class MessagesDigest:
    """The hash over the messages of a request, to which messages can be added."""

    __slots__ = ("_hash",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._hash = blake2b("".join(names).encode(), digest_size=_HASH_BYTES)

    def add(self, name: str) -> None:
        """Add the hash of the next message."""
        self._hash.update(name.encode())

    def text(self) -> str:
        """Return the hash over all messages so far."""
        return self._hash.hexdigest()


class RequestRef(Struct, frozen=True, array_like=True, gc=False):
    """The beginning of a recorded request, which later ones can refer to."""

    agent: str
    """The agent that made it."""
    run_id: str
    """The run that has its response."""
    key: str
    """The key of the response."""
    count: int
    """The number of first messages: all, or those before the input of the run."""
    digest: str
    """The hash over these messages."""
    is_start: bool = False
    """True for the messages before the input of the run."""


def recent_requests(run_id: str, events: Iterable[Event]) -> tuple[RequestRef, ...]:
    """Return the last request of each agent of a run, which its next request may begin with.

    Handoffs add messages that later runs do not read. So there is also the beginning of each, before the input of the
    run: later requests of the agent begin with it, unless the history was compacted.
    """
    found: list[RequestRef] = []
    for event in events:
        if type(event) is AgentResponded and (record := event.request) is not None and record.digest:
            count = record.kept + len(record.added)
            found.append(RequestRef(event.agent, run_id, event.key, count, record.digest))
            if record.start_digest:
                start, digest = record.start, record.start_digest
                found.append(RequestRef(event.agent, run_id, event.key, start, digest, is_start=True))
    return latest_requests(found)


def latest_requests(refs: Iterable[RequestRef]) -> tuple[RequestRef, ...]:
    """Return the last reference of each agent and kind."""
    return tuple({(ref.agent, ref.is_start): ref for ref in refs}.values())


class _SentMessages(Struct):
    """The messages of the last request that was made from one list."""

    key: str
    messages: Sequence[Message]
    """The list that the request is made from; a view may have appended to it since."""
    count: int
    hashes: list[str]
    digest: MessagesDigest
    parts: str = ""
    """The hash of the other parts of the request."""


class _Base(Struct):
    """The request that another one begins with."""

    key: str = ""
    kept: int = 0
    run_id: str = ""
    """The earlier run that has it; "" for the run itself."""


class _OwnMessages(Struct):
    """The entries of a history whose messages are not in the log, by identity."""

    position: int = 0
    found: dict[int, Message] = {}


class RequestRecorder:
    """Makes the records of the requests of one run."""

    __slots__ = (
        "_by_activation",
        "_by_list",
        "_counts",
        "_first_input",
        "_hashes",
        "_input_ids",
        "_known",
        "_last",
        "_last_parts",
        "_last_request",
        "_parts",
        "_recorded",
        "_run_id",
        "_started",
    )

    def __init__(
        self,
        run_id: str,
        log: Log,
        history: History,
        earlier: Iterable[RequestRef] = (),
        *,
        offset: int = 0,
    ) -> None:
        self._run_id = run_id
        self._first_input = history.entries[offset].message if 0 < offset < len(history.entries) else None
        self._started: set[str] = set()
        """The agents whose first request has been recorded by this process."""
        self._recorded = {ref.digest: ref for ref in latest_requests([*earlier, *recent_requests(run_id, log.events)])}
        """Requests that were recorded before this process drove the run, by digest."""
        self._counts = {ref.count for ref in self._recorded.values()}
        self._input_ids = {id(entry.message): entry.message for entry in history.entries[: history.inputs]}
        self._known: set[str] = set()
        for event in log.events:
            if isinstance(event, AgentResponded) and event.request is not None:
                self._known.update(event.request.added, event.request.contents)
        self._last: _SentMessages | None = None
        self._by_list: dict[int, _SentMessages] = {}
        self._by_activation: dict[str, _SentMessages] = {}
        self._hashes: dict[int, tuple[object, str]] = {}
        """The hashes of instructions, tools, settings and schemas, by identity."""
        self._parts: dict[tuple[str, ...], str] = {}
        """The hashes of combinations of these."""
        self._last_request: ModelRequest | None = None
        self._last_parts = ""

    def record(self, key: str, request: ModelRequest, ctx: AgentContext[Any]) -> RequestRecord:
        """Return the record of a request."""
        contents: dict[str, Any] = {}
        base, sent = self._sent(key, request.messages, ctx, contents)
        parts = self._name_parts(request, contents)
        is_same = bool(base.key) and parts == sent.parts
        sent.parts = parts
        self._last = self._by_activation[ctx._origin.id] = sent
        start = self._find_start(sent, ctx.agent) if self._first_input is not None else 0
        return RequestRecord(
            base=base.key,
            base_run=base.run_id,
            kept=base.kept,
            added=tuple(sent.hashes[base.kept :]),
            digest=sent.digest.text(),
            start=start,
            start_digest=MessagesDigest(sent.hashes[:start]).text() if start else "",
            policy=cast("PolicyView", ctx._view).policy,
            entries=len(ctx._history.entries),
            parts="" if is_same else parts,
            contents=contents,
        )

    def _name_parts(self, request: ModelRequest, contents: dict[str, Any]) -> str:
        """Return the hash of all parts but the messages; add their contents if they are new."""
        last = self._last_request
        if last is not None and _has_same_parts(request, last):
            return self._last_parts
        schema, cache = request.output_schema, request.prompt_cache
        names = (
            self._name(request.instructions, contents),
            self._name(request.tools, contents),
            self._name(request.settings, contents),
            "" if schema is None else self._name(schema, contents),
            "" if cache is None else self._name(cache, contents),
            request.tool_choice or "",
        )
        known = self._parts.get(names)
        if known is None:
            plain = {part: name for part, name in zip(REQUEST_PARTS, names, strict=True) if name}
            known = self._parts[names] = content_hash(plain)
            if known not in self._known:
                self._known.add(known)
                contents[known] = plain
        self._last_request, self._last_parts = request, known
        return known

    def _sent(
        self, key: str, messages: Sequence[Message], ctx: AgentContext[Any], contents: dict[str, Any]
    ) -> tuple[_Base, _SentMessages]:
        """Return the base of a request and the new state."""
        is_window = type(messages) is MessageWindow
        source, count = (messages.source if is_window else messages), len(messages)
        same = self._by_list.get(id(source)) if is_window else None
        if same is not None and same.count <= count:
            base, sent = _Base(same.key, same.count), same
            is_logged = self._test_own(ctx)
            _add_names(sent, source, count)
        else:
            previous = self._by_activation.get(ctx._origin.id) or self._last
            kept = 0 if previous is None else _common_prefix(previous, source, count)
            base = _Base(previous.key, kept) if kept and previous is not None else _Base()
            hashes = [] if previous is None else previous.hashes[:kept]
            parts = previous.parts if base.key and previous is not None else ""
            sent = _SentMessages(key, source, kept, hashes, MessagesDigest(hashes), parts)
            is_logged = self._test_all(ctx, source)
            self._find_recorded(base, sent, count)
            if is_window:
                self._by_list[id(source)] = sent
        for position in range(base.kept, count):
            name = sent.hashes[position]
            if name not in self._known:
                self._known.add(name)
                if not is_logged(source[position]):
                    contents[name] = _plain(source[position])
        sent.key, sent.count = key, count
        return base, sent

    def _find_recorded(self, base: _Base, sent: _SentMessages, count: int) -> None:
        """Name all messages; change the base if a recorded request has more of the first ones."""
        for stop in sorted(known for known in self._counts if base.kept < known <= count):
            _add_names(sent, sent.messages, stop)
            ref = self._recorded.get(sent.digest.text())
            if ref is not None and ref.count == stop:
                base.key, base.kept, base.run_id = ref.key, stop, ref.run_id if ref.run_id != self._run_id else ""
                # What the other parts of that request were is not known here.
                sent.parts = ""
        _add_names(sent, sent.messages, count)

    def _find_start(self, sent: _SentMessages, agent: str) -> int:
        """Return the number of messages before the run's input; 0 after the agent's first request."""
        if agent in self._started:
            return 0
        self._started.add(agent)
        for position in range(sent.count - 1, 0, -1):
            if sent.messages[position] is self._first_input:
                return position
        return 0

    def _test_own(self, ctx: AgentContext[Any]) -> Callable[[Message], bool]:
        """Return a test whether a message that a view has appended is in the log."""
        own = self._own_messages(ctx._history)
        return lambda message: id(message) not in own

    def _test_all(self, ctx: AgentContext[Any], source: Sequence[Message]) -> Callable[[Message], bool]:
        """Return a test whether a message of a request is in the log."""
        own, view = self._own_messages(ctx._history), cast("PolicyView", ctx._view)
        if view.is_derived:
            read = view.messages()
            if isinstance(read, MessageWindow) and read.source is source:
                return lambda message: id(message) not in own
            logged = {id(message) for message in read}
        else:
            entries = ctx._history.entries
            logged = {id(form) for e in entries for form in (e.message, e.rewritten, e.rewritten_bare)}
        return lambda message: id(message) in logged and id(message) not in own

    def _own_messages(self, history: History) -> dict[int, Message]:
        """Return the messages of a history that no event has, such as those made by handoffs."""
        state = history.views.get(RequestRecorder)
        if state is None:
            state = history.views[RequestRecorder] = _OwnMessages()
        entries = history.entries
        for position in range(state.position, len(entries)):
            message, origin = entries[position].message, entries[position].origin
            is_logged = type(message) is AssistantMessage or type(message) is ToolMessage
            if id(message) not in self._input_ids if origin is None else not is_logged:
                state.found[id(message)] = message
        state.position = len(entries)
        return state.found

    def _name(self, part: Any, contents: dict[str, Any]) -> str:
        """Return the hash of another part of a request, "" if it is empty; add its content if new."""
        known = self._hashes.get(id(part))
        if known is not None and known[0] is part:
            return known[1]
        plain = _plain(_without_secrets(part) if isinstance(part, ModelSettings) else part)
        name = content_hash(plain) if plain else ""
        if len(self._hashes) >= _MAX_CACHED:
            self._hashes.clear()
        self._hashes[id(part)] = (part, name)
        if name and name not in self._known:
            self._known.add(name)
            contents[name] = plain
        return name


_MAX_CACHED = 1000


def _add_names(sent: _SentMessages, source: Sequence[Message], stop: int) -> None:
    """Name the messages of a request up to a position."""
    for position in range(len(sent.hashes), stop):
        name = content_hash(source[position])
        sent.hashes.append(name)
        sent.digest.add(name)


def _plain(content: Any) -> Any:
    """Return the content as a reader of the log finds it."""
    return msgspec.json.decode(_encode(content))


def _has_same_parts(request: ModelRequest, other: ModelRequest) -> bool:
    """Return whether all parts but the messages are the same objects."""
    return (
        request.instructions is other.instructions
        and request.tools is other.tools
        and request.settings is other.settings
        and request.output_schema is other.output_schema
        and request.prompt_cache is other.prompt_cache
        and request.tool_choice == other.tool_choice
    )


def _common_prefix(previous: _SentMessages, messages: Sequence[Message], count: int) -> int:
    """Return the number of first messages that a request shares with the previous one."""
    before, stop = previous.messages, min(previous.count, count)
    for position in range(stop):
        if before[position] is not messages[position]:
            return position
    return stop


def _without_secrets(settings: ModelSettings) -> ModelSettings:
    """Return the settings without the values of headers, query parameters and extra fields."""
    given = {name: getattr(settings, name) for name in SECRET_SETTINGS}
    return replace(settings, **{name: dict.fromkeys(value, _HIDDEN) for name, value in given.items() if value})
