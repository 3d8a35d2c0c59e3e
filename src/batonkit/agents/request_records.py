"""Records of model requests: what a log needs to show each request later without running user code.

The messages of a request are what the agent read of the log, and the log has them. What functions, toolsets and
settings have made of the rest is recorded once per run, by its hash.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import NotEncodableError
from ..log import AgentResponded, Event, RequestRecord
from ..log.events import EntryForm, MessageRange
from ..log.excerpts import to_excerpt
from ..messages import Message
from ..models import ModelRequest, ModelSettings
from .agent_options import SECRET_SETTINGS

_HASH_BYTES = 8
_HIDDEN = "(not recorded)"
_MAX_CACHED = 1000
_encode = msgspec.json.Encoder().encode

REQUEST_PARTS = ("instructions", "tools", "settings", "output_schema", "prompt_cache", "tool_choice")
"""The parts of a request other than messages, as records name them."""


def content_hash(content: Any) -> str:
    """Return the hash that stands for a part of a request in records, or for a message.

    Raises:
        NotEncodableError: It holds a value that JSON cannot represent.
    """
    try:
        encoded = _encode(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotEncodableError("part of a model request", content, str(error)) from None
    return blake2b(encoded, digest_size=_HASH_BYTES).hexdigest()


class RequestRecorder:
    """Makes the records of the requests of one run."""

    __slots__ = ("_hashes", "_known", "_last_parts", "_last_request", "_parts")

    def __init__(self, events: Iterable[Event]) -> None:
        self._known: set[str] = set()
        """The hashes of the contents that the log has."""
        for event in events:
            if isinstance(event, AgentResponded) and event.request is not None:
                self._known.update(event.request.contents)
        self._hashes: dict[int, tuple[object, str]] = {}
        """The hashes of instructions, tools, settings and schemas, by identity."""
        self._parts: dict[tuple[str, ...], str] = {}
        """The hashes of combinations of these."""
        self._last_request: ModelRequest | None = None
        self._last_parts = ""

    def record(self, request: ModelRequest, read: Sequence[Message]) -> RequestRecord:
        """Return the record of a request of an agent that has read these messages."""
        contents: dict[str, Any] = {}
        parts = self._name_parts(request, contents)
        messages = self._name_messages(request.messages, read, contents)
        return RequestRecord(parts=parts, messages=messages, contents=contents)

    def _name_messages(
        self, sent: Sequence[Message], read: Sequence[Message], contents: dict[str, Any]
    ) -> tuple[MessageRange | str, ...] | None:
        """Return the messages for the record; None if they are what the agent read."""
        if sent is read:
            return None
        positions = {id(message): position for position, message in enumerate(read)}

        def find(message: Message) -> tuple[int, EntryForm] | None:
            position = positions.get(id(message))
            return None if position is None else (position, "same")

        excerpt = to_excerpt(sent, find)
        return tuple([part if isinstance(part, tuple) else self._name(part, contents) for part in excerpt])

    def _name_parts(self, request: ModelRequest, contents: dict[str, Any]) -> str:
        """Return the hash of all parts but the messages; add their contents if they are new."""
        last = self._last_request
        if last is not None and _has_same_parts(request, last):
            return self._last_parts
        schema = request.output_schema
        cache = request.prompt_cache
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
        self._last_request = request
        self._last_parts = known
        return known

    def _name(self, part: Any, contents: dict[str, Any]) -> str:
        """Return the hash of a part of a request, "" if it is empty; add its content if new."""
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


def _without_secrets(settings: ModelSettings) -> ModelSettings:
    """Return the settings without the values of headers, query parameters and extra fields."""
    given = {name: getattr(settings, name) for name in SECRET_SETTINGS}
    return replace(settings, **{name: dict.fromkeys(value, _HIDDEN) for name, value in given.items() if value})
