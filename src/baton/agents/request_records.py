"""Records of model requests: what a log needs to show each request later without running user code.

A record names every message by a hash of its content. Most messages are in the log already, as responses, tool
results and input, in the author's words or rewritten for other agents; `baton.flow.requests` finds them there. The
rest, such as messages that a filter or middleware made, is recorded once per run, with instructions, tools and
settings.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..context.history import History, MessageWindow, PolicyView
from ..errors import NotEncodableError
from ..events import AgentResponded, RequestRecord
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

    Args:
        content: A message, text, or a structure of JSON data.

    Raises:
        NotEncodableError: It holds a value that JSON cannot represent.
    """
    try:
        encoded = _encode(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotEncodableError("part of a model request", content, str(error)) from None
    return blake2b(encoded, digest_size=_HASH_BYTES).hexdigest()


class _SentMessages(Struct):
    """The messages of the last request that was made from one list."""

    key: str
    messages: Sequence[Message]
    """The list that the request is made from; a view may have appended to it since."""
    count: int
    hashes: list[str]
    parts: str = ""
    """The hash of the other parts of the request."""


class _OwnMessages(Struct):
    """The entries of a history whose messages are not in the log, by identity."""

    position: int = 0
    found: dict[int, Message] = {}


class RequestRecorder:
    """Makes the records of the requests of one run.

    Args:
        log: The log of the run; contents that it has are not recorded again.
        history: The history of the run, with its input.
    """

    __slots__ = (
        "_by_activation",
        "_by_list",
        "_hashes",
        "_input_ids",
        "_known",
        "_last",
        "_last_parts",
        "_last_request",
        "_parts",
    )

    def __init__(self, log: Log, history: History) -> None:
        self._input_ids = {id(entry.message): entry.message for entry in history.entries}
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
        """Return the record of a request.

        Args:
            key: The key of its response.
            request: The request, as the model received it.
            ctx: The context of the activation.
        """
        contents: dict[str, Any] = {}
        base, kept, sent = self._sent(key, request.messages, ctx, contents)
        parts = self._name_parts(request, contents)
        is_same = bool(base) and parts == sent.parts
        sent.parts = parts
        self._last = self._by_activation[ctx._origin.id] = sent
        return RequestRecord(
            base=base,
            kept=kept,
            added=tuple(sent.hashes[kept:]),
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
    ) -> tuple[str, int, _SentMessages]:
        """Return the base of a request, the number of messages kept from it, and the new state."""
        is_window = type(messages) is MessageWindow
        source, count = (messages.source if is_window else messages), len(messages)
        same = self._by_list.get(id(source)) if is_window else None
        if same is not None and same.count <= count:
            base, kept, sent = same.key, same.count, same
            is_logged = self._test_own(ctx)
        else:
            previous = self._by_activation.get(ctx._origin.id) or self._last
            kept = 0 if previous is None else _common_prefix(previous, source, count)
            base = previous.key if kept and previous is not None else ""
            hashes = [] if previous is None else previous.hashes[:kept]
            sent = _SentMessages(key, source, count, hashes, previous.parts if previous is not None else "")
            is_logged = self._test_all(ctx, source)
            if is_window:
                self._by_list[id(source)] = sent
        for position in range(kept, count):
            message = source[position]
            name = content_hash(message)
            sent.hashes.append(name)
            if name not in self._known:
                self._known.add(name)
                if not is_logged(message):
                    contents[name] = _plain(message)
        sent.key, sent.count = key, count
        return base, kept, sent

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
