"""Parts of messages, ids and names in the forms that OpenAI takes.

Answers of a given schema: asked for by the schema itself, by JSON mode, or as a call of a tool.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ...errors import ModelRequestError
from ...messages import Audio, Content, Data, File, Image, Part, Text, ToolSpec
from ..base import ModelRequest, OutputSchema
from ..provider_errors import malformed
from .endpoint import StructuredOutputMode

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)


def chat_part(part: Part, model: str) -> dict[str, Any]:
    """One part of a user's message in Chat Completions."""
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Data(value):
            return {"type": "text", "text": as_json(value)}
        case Image():
            url = {"url": _address(part.url, part.data, part.media_type)}
            return {"type": "image_url", "image_url": {**url, "detail": part.detail} if part.detail else url}
        case Audio():
            sound = part.data
            if sound is not None and part.media_type in _FORMATS:
                known = _FORMATS[part.media_type]
                return {"type": "input_audio", "input_audio": {"data": b64encode(sound).decode(), "format": known}}
            if part.transcript:
                return {"type": "text", "text": part.transcript}
            raise _unsendable(model, "sound", part.media_type, "give wav or mp3 by value, or a transcript")
        case File():
            if text := _text_in(part):
                return {"type": "text", "text": text}
            if part.data is None:
                raise _unsendable(model, "a file by url", part.media_type, "give it by value, or use api='responses'")
            data = _address(None, part.data, part.media_type)
            return {"type": "file", "file": {"filename": part.name or "file", "file_data": data}}


def responses_part(part: Part, model: str) -> dict[str, Any]:
    """One part of a user's message, or of a call's result, in Responses."""
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Data(value):
            return {"type": "input_text", "text": as_json(value)}
        case Image():
            url = _address(part.url, part.data, part.media_type)
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case Audio():
            if part.transcript:
                return {"type": "input_text", "text": part.transcript}
            raise _unsendable(model, "sound", part.media_type, "use api='chat', or give a transcript")
        case File():
            if text := _text_in(part):
                return {"type": "input_text", "text": text}
            if part.data is None:
                return {"type": "input_file", "file_url": part.url or ""}
            data = _address(None, part.data, part.media_type)
            return {"type": "input_file", "filename": part.name or "file", "file_data": data}


def split(content: Content) -> tuple[str, list[Part]]:
    """Text and data as one text, and the media beside it."""
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
    """Media that cannot stand where it was made, with a word on where it comes from."""
    return (Text(f"From the result of `{name}`:" if name else "From the answer before:"), *media)


def as_json(value: Any) -> str:
    """A value as JSON text."""
    return msgspec.json.encode(value).decode()


def from_base64(text: str, model: str) -> bytes:
    """The bytes of media in an answer."""
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise malformed(model, error, text.encode()) from None


def fitting_id(id: str, longest: int) -> str:
    """The id of a call, or a digest of it if the provider finds it too long."""
    return id if len(id) <= longest else f"call_{blake2b(id.encode(), digest_size=16).hexdigest()}"


def fitting_name(name: str) -> str:
    """The name of a tool as a provider takes it in a history, where a model may have made it up."""
    if name.isidentifier() and name.isascii() and len(name) <= _LONGEST_NAME:
        return name
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def fitting_arguments(arguments: str) -> str:
    """The arguments of a call; if they are no JSON object, in one, since many servers parse the history."""
    if arguments == "{}":
        return arguments
    try:
        if arguments.lstrip()[:1] == "{":
            _SYNTAX.decode(arguments)
            return arguments
    except msgspec.DecodeError:
        return as_json({"malformed": arguments})
    return as_json({"malformed": arguments}) if arguments.strip() else "{}"


def _address(url: str | None, data: bytes | None, media_type: str) -> str:
    return url if data is None and url else f"data:{media_type};base64,{b64encode(data or b'').decode()}"


def _text_in(file: File) -> str:
    # Neither API takes plain text as a file, and every model can read it.
    kind = file.media_type.partition(";")[0]
    if file.data is None or not (kind.startswith("text/") or kind == "application/json"):
        return ""
    text = file.data.decode(errors="replace")
    return f"{file.name}:\n{text}" if file.name else text


def _unsendable(model: str, what: str, media_type: str, advice: str) -> ModelRequestError:
    return ModelRequestError(f"`{model}` cannot be sent {what} ({media_type}); {advice}", model=model)


_WORDS = ("auto", "required", "none")
_ASKED = "Answer with one JSON object and nothing else. It must fit this JSON schema:"


def output_tool(request: ModelRequest, structured: StructuredOutputMode) -> ToolSpec | None:
    """The tool whose call is the answer, where the answer is asked for in that way."""
    output = request.output_schema
    if output is None or structured != "tool":
        return None
    taken = {tool.name for tool in request.tools}
    name = "final_answer"
    while name in taken:
        name += "_"
    told = "Give the final answer. Call it once everything is known."
    return ToolSpec(name, told, output.schema, output.strict)


def instructions_with_schema(request: ModelRequest, structured: StructuredOutputMode) -> str:
    """The instructions; in JSON mode they must show the schema, since nothing else does."""
    if request.output_schema is None or structured != "json_object":
        return request.instructions
    asked = f"{_ASKED}\n{as_json(request.output_schema.schema)}"
    return f"{request.instructions}\n\n{asked}" if request.instructions else asked


def add_tools(
    body: dict[str, Any],
    request: ModelRequest,
    structured: StructuredOutputMode,
    *,
    form: Callable[[ToolSpec], dict[str, Any]],
    named: Callable[[str], dict[str, Any]],
) -> None:
    """Offer the tools, and the one that is the answer; say which must be called. `form` and `named` are the API's."""
    answer = output_tool(request, structured)
    tools = request.tools if answer is None else (*request.tools, answer)
    if not tools:
        return
    body["tools"] = [form(spec) for spec in tools]
    choice = _chosen_tool(request, answer)
    if choice is not None:
        body["tool_choice"] = choice if choice in _WORDS else named(choice)
    if request.settings.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.settings.parallel_tool_calls


def _chosen_tool(request: ModelRequest, answer: ToolSpec | None) -> str | None:
    """Which tool must be called: with an answer that is a call, at least that one."""
    choice = request.settings.tool_choice
    if answer is None:
        return choice
    if not request.tools or choice == "none":
        return answer.name
    return "required" if choice in (None, "auto") else choice


def schema_format(output: OutputSchema) -> dict[str, Any]:
    """The schema by itself, as both APIs take it."""
    return {"name": output.name, "schema": output.schema, "strict": output.strict}
