"""Content parts of dicts, in the formats of OpenAI, Anthropic and Baton itself."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from .._wording import misspelled, nearest, quote_names, show
from .messages import Audio, Content, File, Image, Part, Text, text_of

Fields: TypeAlias = Mapping[str, Any]

_PDF = "application/pdf"
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_NO_FILE_IDS = "is the id of a file that a provider stores, which other models cannot read; give the data or a URL"


class InvalidInputError(Exception):
    """A key of a dict has a wrong value, or is missing."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(key, problem)
        self.key = key
        self.problem = problem

    def inside(self, key: str) -> "InvalidInputError":
        """Return the same error for the dict around it."""
        joined = f"{key}{self.key}" if self.key.startswith("[") or not self.key else f"{key}.{self.key}"
        return InvalidInputError(joined, self.problem)


def read_text(fields: Fields, key: str, default: str | None = None) -> str:
    """Return a field that must be text; None counts as missing."""
    value = fields.get(key)
    if isinstance(value, str):
        return value
    if value is None and default is not None:
        return default
    if value is None:
        raise InvalidInputError(key, f"is missing{misspelled(key, [each for each in fields if each != 'type'])}")
    raise InvalidInputError(key, f"is {show(value)}; give text")


def read_fields(fields: Fields, key: str) -> Fields:
    """Return a field that must be a dict."""
    value = fields.get(key)
    if isinstance(value, Mapping):
        return cast("Fields", value)
    raise InvalidInputError(key, "is missing" if value is None else f"is {show(value)}; give a dict")


def read_list(value: object, key: str) -> Sequence[Fields]:
    """Return a value that must be a list of dicts."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidInputError(key, f"is {show(value)}; give a list of dicts")
    for position, each in enumerate(cast("Sequence[object]", value)):
        if not isinstance(each, Mapping):
            raise InvalidInputError(f"{key}[{position}]", f"is {show(each)}; give a dict")
    return cast("Sequence[Fields]", value)


def decode_content(value: object, key: str = "content") -> Content:
    """Decode content that consists of text, media and data."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, Sequence):
        raise InvalidInputError(key, f"is {show(value)}; give text or a list of parts")
    parts = read_list(cast("Sequence[object]", value), key)
    return tuple(decode_part(part, f"{key}[{position}]") for position, part in enumerate(parts))


def decode_part(part: Fields, key: str) -> Part:
    """Decode one part."""
    kind = part.get("type")
    decode = PARTS.get(kind) if isinstance(kind, str) else None
    if decode is None:
        if kind is None:
            raise InvalidInputError(f"{key}.type", f"is missing; use one of {quote_names([*PARTS])}")
        known = f"use one of {quote_names([*PARTS])}{nearest(kind, PARTS)}"
        raise InvalidInputError(f"{key}.type", f"is {show(kind)}; {known}")
    try:
        return decode(part)
    except InvalidInputError as error:
        raise error.inside(key) from None


def plain_text(content: Content) -> Content:
    """Return the text of a single text part, for formats in which all text is written as parts."""
    return part.text if len(content) == 1 and isinstance(part := content[0], Text) else content


def from_base64(text: str, key: str) -> bytes:
    """Decode base64 text."""
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise InvalidInputError(key, f"is {show(text)}; give base64") from None


def parse_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and the base64 text of a data URL; None for any other URL."""
    head, comma, data = url.partition(",")
    return (head[5:-7], data) if head.startswith("data:") and head.endswith(";base64") and comma else None


def _text(part: Fields) -> Part:
    return Text(read_text(part, "text"))


def _refusal(part: Fields) -> Part:
    return Text(read_text(part, "refusal"))


def _own(part: Fields) -> Part:
    try:
        return msgspec.convert(dict(part), Part)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        raise InvalidInputError(place.rstrip("`"), f"does not fit: {problem[:1].lower()}{problem[1:]}") from None


def _image_url(part: Fields) -> Part:
    given = part.get("image_url")
    # Some programs write the URL itself, as Responses does.
    fields = {"url": given} if isinstance(given, str) else read_fields(part, "image_url")
    try:
        return _image(read_text(fields, "url"), fields, "url")
    except InvalidInputError as error:
        raise error.inside("image_url") from None


def _input_image(part: Fields) -> Part:
    if part.get("image_url") is None and part.get("file_id") is not None:
        raise InvalidInputError("file_id", _NO_FILE_IDS)
    return _image(read_text(part, "image_url"), part, "image_url")


def _image(url: str, options: Fields, key: str) -> Image:
    data = parse_data_url(url)
    detail = read_text(options, "detail", "auto")
    # "auto" is the provider's default.
    shown = None if detail == "auto" else detail
    if data is None:
        return Image(url, detail=shown)
    media_type, text = data
    return Image(None, from_base64(text, key), media_type or "image/png", shown)


def _input_audio(part: Fields) -> Part:
    fields = read_fields(part, "input_audio")
    try:
        kind = read_text(fields, "format", "wav")
        return Audio(None, from_base64(read_text(fields, "data"), "data"), _AUDIO_TYPES.get(kind, f"audio/{kind}"))
    except InvalidInputError as error:
        raise error.inside("input_audio") from None


def _file(part: Fields) -> Part:
    if "file" not in part:
        return _own(part)
    try:
        return _input_file(read_fields(part, "file"))
    except InvalidInputError as error:
        raise error if error.key == "file" else error.inside("file") from None


def _input_file(part: Fields) -> Part:
    name = part.get("filename")
    if part.get("file_data") is not None:
        given = read_text(part, "file_data")
        media_type, text = parse_data_url(given) or (_PDF, given)
        return File(None, from_base64(text, "file_data"), media_type, name)
    if part.get("file_url") is not None:
        return File(read_text(part, "file_url"), None, name=name)
    if part.get("file_id") is not None:
        raise InvalidInputError("file_id", _NO_FILE_IDS)
    raise InvalidInputError("file_data", "is missing; give a data URL")


def _anthropic_image(part: Fields) -> Part:
    if "source" not in part:
        return _own(part)
    return _from_source(part, lambda url: Image(url), lambda data, kind: Image(None, data, kind or "image/png"))


def _document(part: Fields) -> Part:
    title = part.get("title")
    source = read_fields(part, "source")
    if source.get("type") == "text":
        return File(None, read_text(source, "data").encode(), "text/plain", title)
    if source.get("type") == "content":
        text = text_of(decode_content(source.get("content"), "source.content"))
        return File(None, text.encode(), "text/plain", title)
    return _from_source(
        part, lambda url: File(url, None, _PDF, title), lambda data, kind: File(None, data, kind or _PDF, title)
    )


def _from_source(part: Fields, by_url: Callable[[str], Part], by_value: Callable[[bytes, str], Part]) -> Part:
    source = read_fields(part, "source")
    try:
        kind = source.get("type")
        if kind == "url":
            return by_url(read_text(source, "url"))
        if kind == "base64":
            return by_value(from_base64(read_text(source, "data"), "data"), read_text(source, "media_type", ""))
        if kind == "file":
            raise InvalidInputError("file_id", _NO_FILE_IDS)
        raise InvalidInputError("type", f"is {show(kind)}; use `base64` or `url`")
    except InvalidInputError as error:
        raise error.inside("source") from None


PARTS: dict[str, Callable[[Fields], Part]] = {
    "text": _text,
    "image_url": _image_url,
    "input_audio": _input_audio,
    "file": _file,
    "refusal": _refusal,
    "input_text": _text,
    "output_text": _text,
    "input_image": _input_image,
    "input_file": _input_file,
    "image": _anthropic_image,
    "document": _document,
    "audio": _own,
    "data": _own,
}
"""The decoder of each type of part."""
