"""Between what is said in a run and the parts of A2A: text, files by value or by address, structured values.

The questions of a run, as callers of A2A are asked them: in words, and as data.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from a2a.types.a2a_pb2 import Part, TaskState
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value

from ..events import InterruptRaised
from ..messages import Audio, Content, Data, File, Image, Text
from ..messages import Part as OurPart

_LARGEST_WHOLE = 2**53


def content_of(parts: Iterable[Part]) -> Content:
    """What the parts say, as the content of a message: plain text if there is nothing else."""
    given = [our_part(part) for part in parts]
    if all(isinstance(part, Text) for part in given):
        return "\n".join(part.text for part in given if isinstance(part, Text))
    return tuple(given)


def parts_of(content: Content) -> list[Part]:
    """The content of a message as parts."""
    if isinstance(content, str):
        return [Part(text=content)] if content else []
    return [_their_part(part) for part in content]


def our_part(part: Part) -> OurPart:
    """One part as ours: what it is, its media type says."""
    kind = part.WhichOneof("content")
    if kind == "data":
        return Data(plain_value(part.data))
    if kind in ("raw", "url"):
        data = bytes(part.raw) if kind == "raw" else None
        url = part.url if kind == "url" else None
        media_type = part.media_type or "application/octet-stream"
        if media_type.startswith("image/"):
            return Image(url=url, data=data, media_type=media_type)
        if media_type.startswith("audio/"):
            return Audio(url=url, data=data, media_type=media_type)
        return File(url=url, data=data, media_type=media_type, name=part.filename or None)
    return Text(part.text)


def _their_part(part: OurPart) -> Part:
    match part:
        case Text(text):
            return Part(text=text)
        case Data(value):
            return data_part(value)
        case Image() | Audio():
            return _file(part.url, part.data, part.media_type, "")
        case File():
            return _file(part.url, part.data, part.media_type, part.name or "")


def _file(url: str | None, data: bytes | None, media_type: str, name: str) -> Part:
    if data is not None:
        return Part(raw=data, media_type=media_type, filename=name)
    return Part(url=url or "", media_type=media_type, filename=name)


def data_part(value: Any) -> Part:
    """A structured value as a part."""
    return Part(data=ParseDict(msgspec.to_builtins(value), Value()), media_type="application/json")


def struct_of(values: Mapping[str, Any]) -> Struct:
    """Metadata, as the protocol has it."""
    made = Struct()
    made.update(msgspec.to_builtins(dict(values)))
    return made


def plain_value(message: Value | Struct) -> Any:
    """A structured value as JSON has it. The protocol knows only floats: whole numbers are made whole again."""
    return _whole(MessageToDict(message))


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_WHOLE:
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_whole(item) for item in cast("Sequence[Any]", value)]
    return value


TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)

AUTH_REQUIRED = "auth_required"
"""The `kind` in the payload of a question that asks for credentials."""


def question_text(asked: InterruptRaised) -> str:
    """A question in words, for whoever cannot read its data."""
    payload: Any = asked.payload
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict):
        facts = cast("dict[str, Any]", payload)
        for name in ("question", "message", "text", "prompt"):
            if isinstance(facts.get(name), str):
                return facts[name]
    if asked.tool_call is not None:
        return f"May `{asked.tool_call.name}` be called with {asked.tool_call.arguments}?"
    return msgspec.json.encode(payload).decode() if payload is not None else f"{asked.agent} waits for an answer."


def question_data(asked: InterruptRaised) -> dict[str, Any]:
    """A question as data: its id, by which it is answered, what is asked, and what answers must look like."""
    call = None if asked.tool_call is None else {"name": asked.tool_call.name, "arguments": asked.tool_call.arguments}
    facts = {"interruptId": asked.key, "agent": asked.agent, "payload": asked.payload, "schema": asked.schema}
    return {**facts, "call": call} if call else facts


def kind_of(asked: InterruptRaised) -> Any:
    payload: Any = asked.payload
    return cast("dict[str, Any]", payload).get("kind") if isinstance(payload, dict) else None
