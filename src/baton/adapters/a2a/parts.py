"""Between what is said in a run and the parts of A2A: text, files by value or by address, structured values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from a2a.types.a2a_pb2 import Part
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value

from ...messages import Audio, Content, Data, File, Image, Text
from ...messages import Part as OurPart

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
