"""Content parts, call ids, tools and output schemas in the formats of OpenAI's APIs."""

from base64 import b64decode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ...messages import Audio, Content, Data, File, Image, Part, Text, ToolSpec
from ..base import ModelRequest, OutputSchema
from ..encoding import as_base64, as_data_url, as_json, safe_name
from ..provider_errors import malformed, unsupported
from .endpoint import StructuredOutputMode

_MAX_NAME = 64
_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
_syntax = msgspec.json.Decoder(msgspec.Raw)


def chat_part(part: Part, model: str) -> dict[str, Any]:
    """Convert a part of a user message for Chat Completions."""
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Data(value):
            return {"type": "text", "text": as_json(value)}
        case Image():
            url = {"url": _url(part)}
            return {"type": "image_url", "image_url": {**url, "detail": part.detail} if part.detail else url}
        case Audio():
            if part.data is not None and part.media_type in _AUDIO_FORMATS:
                known = _AUDIO_FORMATS[part.media_type]
                return {"type": "input_audio", "input_audio": {"data": as_base64(part.data), "format": known}}
            if part.transcript:
                return {"type": "text", "text": part.transcript}
            raise unsupported(model, f"audio ({part.media_type})", "pass wav or mp3 as data, or a transcript")
        case File():
            if text := _text_in(part):
                return {"type": "text", "text": text}
            if part.data is None:
                what = f"a file by URL ({part.media_type})"
                raise unsupported(model, what, "pass it as data, or use api='responses'")
            data = as_data_url(part.data, part.media_type)
            return {"type": "file", "file": {"filename": part.name or "file", "file_data": data}}


def responses_part(part: Part, model: str) -> dict[str, Any]:
    """Convert a part of a user message or a tool result for Responses."""
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Data(value):
            return {"type": "input_text", "text": as_json(value)}
        case Image():
            url = _url(part)
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case Audio():
            if part.transcript:
                return {"type": "input_text", "text": part.transcript}
            raise unsupported(model, f"audio ({part.media_type})", "use api='chat', or pass a transcript")
        case File():
            if text := _text_in(part):
                return {"type": "input_text", "text": text}
            if part.data is None:
                return {"type": "input_file", "file_url": part.url or ""}
            data = as_data_url(part.data, part.media_type)
            return {"type": "input_file", "filename": part.name or "file", "file_data": data}


def split_media(content: Content) -> tuple[str, list[Part]]:
    """Separate content into one text and its media."""
    if isinstance(content, str):
        return content, []
    media: list[Part] = []
    texts: list[str] = []
    for part in content:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, Data):
            texts.append(as_json(part.value))
        else:
            media.append(part)
    return "\n".join(texts), media


def about(name: str, media: Sequence[Part]) -> tuple[Part, ...]:
    """Introduce media that the API does not accept where it was produced."""
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
    if arguments == "{}":
        return arguments
    try:
        if arguments.lstrip()[:1] == "{":
            _syntax.decode(arguments)
            return arguments
    except msgspec.DecodeError:
        return as_json({"malformed": arguments})
    return as_json({"malformed": arguments}) if arguments.strip() else "{}"


def _url(image: Image) -> str:
    return image.url if image.data is None and image.url else as_data_url(image.data, image.media_type)


def _text_in(file: File) -> str:
    # Neither API accepts plain text as a file, but every model can read it as text.
    kind = file.media_type.partition(";")[0]
    if file.data is None or not (kind.startswith("text/") or kind == "application/json"):
        return ""
    text = file.data.decode(errors="replace")
    return f"{file.name}:\n{text}" if file.name else text


_CHOICES = ("auto", "required", "none")
_SCHEMA_PROMPT = "Answer with one JSON object and nothing else. It must fit this JSON schema:"


def output_tool(request: ModelRequest, structured: StructuredOutputMode) -> ToolSpec | None:
    """Return the tool whose call is the final answer, for the mode `tool`."""
    output = request.output_schema
    if output is None or structured != "tool":
        return None
    taken = {tool.name for tool in request.tools}
    name = "final_answer"
    while name in taken:
        name += "_"
    description = "Give the final answer. Call it once everything is known."
    return ToolSpec(name, description, output.schema, output.strict)


def instructions_with_schema(request: ModelRequest, structured: StructuredOutputMode) -> str:
    """Return the instructions, with the schema appended in JSON mode."""
    if request.output_schema is None or structured != "json_object":
        return request.instructions
    prompt = f"{_SCHEMA_PROMPT}\n{as_json(request.output_schema.schema)}"
    return f"{request.instructions}\n\n{prompt}" if request.instructions else prompt


def add_tools(
    body: dict[str, Any],
    request: ModelRequest,
    structured: StructuredOutputMode,
    *,
    encode: Callable[[ToolSpec], dict[str, Any]],
    encode_choice: Callable[[str], dict[str, Any]],
) -> None:
    """Add the tools, the output tool and the tool choice, in the encoding of the API."""
    answer = output_tool(request, structured)
    tools = request.tools if answer is None else (*request.tools, answer)
    if not tools:
        return
    body["tools"] = [encode(spec) for spec in tools]
    choice = _tool_choice(request, answer)
    if choice is not None:
        body["tool_choice"] = choice if choice in _CHOICES else encode_choice(choice)
    if request.settings.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.settings.parallel_tool_calls


def _tool_choice(request: ModelRequest, answer: ToolSpec | None) -> str | None:
    """Return the tool choice; with an output tool, some tool must be called."""
    choice = request.tool_choice
    if answer is None:
        return choice
    if not request.tools or choice == "none":
        return answer.name
    return "required" if choice in (None, "auto") else choice


def schema_format(output: OutputSchema) -> dict[str, Any]:
    """Return the schema as both APIs accept it."""
    return {"name": output.name, "schema": output.schema, "strict": output.strict}
