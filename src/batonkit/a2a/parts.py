"""Conversion between message content and A2A parts, and the A2A form of interrupts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2 import Part
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value

from ..log import InterruptRaised
from ..log.events import payload_fields
from ..messages import Audio, Content, Data, File, Image, Text, to_media
from ..messages import Part as ContentPart

_MAX_EXACT_INT = 2**53


def content_of(parts: Iterable[Part]) -> Content:
    """Convert A2A parts to message content; plain text if there are only text parts."""
    converted = [_from_part(part) for part in parts]
    if all(isinstance(part, Text) for part in converted):
        return "\n".join(part.text for part in converted if isinstance(part, Text))
    return tuple(converted)


def to_parts(content: Content) -> list[Part]:
    """Convert message content to A2A parts."""
    if isinstance(content, str):
        return [Part(text=content)] if content else []
    return [_to_part(part) for part in content]


def _from_part(part: Part) -> ContentPart:
    kind = part.WhichOneof("content")
    if kind == "data":
        return Data(plain_value(part.data))
    if kind in ("raw", "url"):
        data = bytes(part.raw) if kind == "raw" else None
        url = part.url if kind == "url" else None
        return to_media(part.media_type, url=url, data=data, name=part.filename or None)
    return Text(part.text)


def _to_part(part: ContentPart) -> Part:
    match part:
        case Text(text):
            return Part(text=text)
        case Data(value):
            return to_data_part(value)
        case Image() | Audio() | File():
            name = part.name if isinstance(part, File) else None
            # A part has either bytes or a URL; setting one of them clears the other.
            content: dict[str, Any] = {"url": part.url or ""} if part.data is None else {"raw": part.data}
            return Part(**content, media_type=part.media_type, filename=name)


def to_data_part(value: Any) -> Part:
    """Return a structured value as a part."""
    return Part(data=ParseDict(msgspec.to_builtins(value), Value()), media_type="application/json")


def to_struct(values: Mapping[str, Any]) -> Struct:
    """Return a mapping as a protobuf Struct."""
    struct = Struct()
    struct.update(msgspec.to_builtins(dict(values)))
    return struct


def plain_value(message: Value | Struct) -> Any:
    """Return a protobuf value as plain JSON; integral floats become integers."""
    return _restore_ints(MessageToDict(message))


def _restore_ints(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_EXACT_INT:
        return int(value)
    if isinstance(value, dict):
        return {key: _restore_ints(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_restore_ints(item) for item in cast("Sequence[Any]", value)]
    return value


TERMINAL = frozenset((pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELED, pb.TASK_STATE_REJECTED))

AUTH_REQUIRED = "auth_required"
"""The `kind` in the payload of an interrupt that asks for credentials."""


def to_interrupt_parts(interrupt: InterruptRaised) -> list[Part]:
    """Return an interrupt as text, and as data for clients that answer it by its id."""
    data: dict[str, Any] = {"interruptId": interrupt.key, "agent": interrupt.agent, "payload": interrupt.payload}
    data["schema"] = interrupt.schema
    if (call := interrupt.tool_call) is not None:
        data["call"] = {"name": call.name, "arguments": call.arguments}
    return [Part(text=_interrupt_text(interrupt)), to_data_part(data)]


def _interrupt_text(interrupt: InterruptRaised) -> str:
    payload: Any = interrupt.payload
    if isinstance(payload, str):
        return payload
    fields = payload_fields(payload)
    for name in ("question", "message", "text", "prompt"):
        if isinstance(fields.get(name), str):
            return fields[name]
    if interrupt.tool_call is not None:
        return f"Allow the call of `{interrupt.tool_call.name}` with {interrupt.tool_call.arguments}?"
    return msgspec.json.encode(payload).decode() if payload is not None else f"{interrupt.agent} needs an answer."


def interrupt_kind(interrupt: InterruptRaised) -> Any:
    """Return the `kind` in the payload of an interrupt, or None."""
    return payload_fields(interrupt.payload).get("kind")
