"""Content parts, call ids, names and arguments in the formats of OpenAI's APIs."""

from base64 import b64decode
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from ...messages import Audio, Data, File, Image, Part, Text, text_of
from ..encoding import Block, as_base64, as_data_url, as_json, safe_name
from ..provider_errors import malformed, unsupported

_MAX_NAME = 64
_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
_syntax = msgspec.json.Decoder(msgspec.Raw)


def chat_part(part: Part, model: str) -> Block:
    """Convert a part of a user message for Chat Completions."""
    if isinstance(part, Audio) and part.data is not None and part.media_type in _AUDIO_FORMATS:
        known = _AUDIO_FORMATS[part.media_type]
        return {"type": "input_audio", "input_audio": {"data": as_base64(part.data), "format": known}}
    text = _as_text(part)
    if text or isinstance(part, Text | Data):
        return {"type": "text", "text": text}
    if isinstance(part, Image):
        url = {"url": _url(part)}
        return {"type": "image_url", "image_url": {**url, "detail": part.detail} if part.detail else url}
    if isinstance(part, Audio):
        raise unsupported(model, f"audio ({part.media_type})", "pass wav or mp3 as data, or a transcript")
    if part.data is None:
        what = f"a file by URL ({part.media_type})"
        raise unsupported(model, what, "pass it as data, or use api='responses'")
    data = as_data_url(part.data, part.media_type)
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": data}}


def responses_part(part: Part, model: str) -> Block:
    """Convert a part of a user message or a tool result for Responses."""
    text = _as_text(part)
    if text or isinstance(part, Text | Data):
        return {"type": "input_text", "text": text}
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": _url(part), "detail": part.detail or "auto"}
    if isinstance(part, Audio):
        raise unsupported(model, f"audio ({part.media_type})", "use api='chat', or pass a transcript")
    if part.data is None:
        return {"type": "input_file", "file_url": part.url or ""}
    data = as_data_url(part.data, part.media_type)
    return {"type": "input_file", "filename": part.name or "file", "file_data": data}


def _as_text(part: Part) -> str:
    """Return text, data, a transcript or a text file as text, nothing for other media."""
    if isinstance(part, Audio):
        return part.transcript or ""
    return _text_in(part) if isinstance(part, File) else text_of((part,))


def about(name: str, media: Sequence[Part]) -> tuple[Part, ...]:
    """Introduce media that the API does not accept where it was produced."""
    if not media:
        return ()
    return (Text(f"From the result of `{name}`:" if name else "From the response before:"), *media)


def from_base64(text: str, model: str) -> bytes:
    """Decode media in a response."""
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise malformed(model, error, text.encode()) from None


def fitting_id(id: str, max_length: int) -> str:
    """Return the id of a call, or a digest of it if it is too long for the provider."""
    return id if len(id) <= max_length else f"call_{blake2b(id.encode(), digest_size=16).hexdigest()}"


def fitting_name(name: str) -> str:
    """Return a tool's name as providers accept it; a model may have invented the name."""
    if name.isidentifier() and name.isascii() and len(name) <= _MAX_NAME:
        return name
    return safe_name(name) or "unnamed"


def fitting_arguments(arguments: str) -> str:
    """Return the arguments of a call, wrapped in a JSON object if they are not one."""
    if is_json_object(arguments):
        return arguments
    return as_json({"malformed": arguments}) if arguments.strip() else "{}"


def is_json_object(text: str) -> bool:
    """Check whether a text is one complete JSON object."""
    if text == "{}":
        return True
    if text.lstrip()[:1] != "{":
        return False
    try:
        _syntax.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _url(image: Image) -> str:
    return image.url if image.data is None and image.url else as_data_url(image.data, image.media_type)


def _text_in(file: File) -> str:
    # Neither API accepts plain text as a file, but every model can read it as text.
    kind = file.media_type.partition(";")[0]
    if file.data is None or not (kind.startswith("text/") or kind == "application/json"):
        return ""
    text = file.data.decode(errors="replace")
    return f"{file.name}:\n{text}" if file.name else text
