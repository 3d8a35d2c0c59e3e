"""What the server refuses although every field has the right form."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from ..openai.errors import empty_array, wrong, wrong_value
from ..openai.media import base64, image
from ..openai.schemas import check_choice, check_length, check_name, check_range, check_tools
from ..reading import converted
from .wire import (
    VOICES,
    ClientItem,
    FunctionCall,
    FunctionCallOutput,
    InputMessage,
    InputPart,
    NamedTool,
    OutputMessage,
    OutputPart,
    ResponseFields,
    SemanticVad,
    ServerVad,
    SessionFields,
)

LONGEST_INSTRUCTIONS = 65_536
"""About 16,384 tokens."""
_LONGEST_ID = 32
_MOST_TOKENS = 4096
_KINDS: dict[str, type[Any]] = {"function_call": FunctionCall, "function_call_output": FunctionCallOutput}
_ROLES = ("user", "assistant", "system")
_UNSUPPORTED = ("prompt", "reasoning", "conversation", "input")


def session_fields(
    given: Mapping[str, Any], settings: Mapping[str, Any], *, model: str, has_spoken: bool
) -> SessionFields:
    """What a `session.update` changes, checked; `settings` are those in force."""
    fields = converted(given, SessionFields, "session")
    _check_shared(fields, "session", tools_in_force=[tool["name"] for tool in settings["tools"]])
    if fields.model is not UNSET and fields.model != model:
        raise wrong("Cannot update a conversation's model.", param="session.model", code="cannot_update_model")
    if fields.audio is UNSET:
        return fields
    if fields.audio.input is not UNSET:
        _check_listening(fields.audio.input.turn_detection)
    if fields.audio.output is not UNSET:
        output = fields.audio.output
        if output.speed is not UNSET:
            check_range("session.audio.output.speed", output.speed, 0.25, 1.5)
        if output.voice is not UNSET:
            check_voice(output.voice, "session.audio.output.voice")
            if has_spoken and output.voice != settings["audio"]["output"]["voice"]:
                message = "Cannot update a conversation's voice if assistant audio is present."
                raise wrong(message, code="cannot_update_voice")
    return fields


def response_fields(given: Mapping[str, Any], settings: Mapping[str, Any]) -> ResponseFields:
    """What a `response.create` wants to be different for one response, checked."""
    fields = converted(given, ResponseFields, "response")
    for name in _UNSUPPORTED:
        value = getattr(fields, name)
        if value is not UNSET and value is not None and (name, value) != ("conversation", "auto"):
            param = f"response.{name}"
            raise wrong(f"This test server does not support '{param}'.", param=param, code="unsupported_parameter")
    _check_shared(fields, "response", tools_in_force=[tool["name"] for tool in settings["tools"]])
    if fields.audio is not UNSET and fields.audio.output is not UNSET and fields.audio.output.voice is not UNSET:
        check_voice(fields.audio.output.voice, "response.audio.output.voice")
    return fields


def check_voice(voice: object, param: str) -> None:
    """One of the voices there are, or one of somebody's own, by id."""
    if isinstance(voice, str) and voice not in VOICES:
        raise wrong_value(param, voice, VOICES)


def _check_shared(fields: SessionFields | ResponseFields, within: str, *, tools_in_force: Sequence[str]) -> None:
    if fields.instructions is not UNSET:
        check_length(fields.instructions, f"{within}.instructions", LONGEST_INSTRUCTIONS)
    modalities = fields.output_modalities
    if modalities is not UNSET and len(modalities) != 1:
        message = f"Invalid modalities: {modalities}. Supported combinations are: ['text'] and ['audio']."
        raise wrong(message, param=f"{within}.output_modalities", code="invalid_value")
    if fields.max_output_tokens is not UNSET and fields.max_output_tokens != "inf":
        check_range(f"{within}.max_output_tokens", fields.max_output_tokens, 1, _MOST_TOKENS)
    if fields.tools is not UNSET and fields.tools:
        offered = [(tool.name, tool.parameters, False) for tool in fields.tools]
        check_tools(offered, within + ".tools[{}].name", within + ".tools[{}].parameters")
    if isinstance(fields.tool_choice, NamedTool):
        known = [tool.name for tool in fields.tools] if fields.tools is not UNSET else tools_in_force
        check_choice(None, fields.tool_choice.name, tools=known)


def _check_listening(detection: object) -> None:
    place = "session.audio.input.turn_detection"
    if isinstance(detection, ServerVad):
        numbers = (
            (detection.threshold, "threshold", 0, 1),
            (detection.prefix_padding_ms, "prefix_padding_ms", 0, None),
        )
        for value, name, least, most in numbers:
            if value is not UNSET:
                check_range(f"{place}.{name}", value, least, most)
        if detection.silence_duration_ms is not UNSET:
            check_range(f"{place}.silence_duration_ms", detection.silence_duration_ms, 0)
    else:
        assert detection is UNSET or detection is None or isinstance(detection, SemanticVad)


def item_from(given: Mapping[str, Any]) -> ClientItem:
    """The item of a `conversation.item.create`, in its own form and checked by itself."""
    kind = given.get("type")
    if kind in _KINDS:
        item: ClientItem = converted(given, _KINDS[kind], "item")
    elif kind == "message":
        role = given.get("role")
        if role not in _ROLES:
            raise wrong_value("item.role", role, _ROLES)
        item = converted(given, OutputMessage if role == "assistant" else InputMessage, "item")
    else:
        raise wrong_value("item.type", kind, ["message", *_KINDS])
    if item.id is not None:
        check_length(item.id, "item.id", _LONGEST_ID)
    if isinstance(item, FunctionCall | FunctionCallOutput):
        check_length(item.call_id or "", "item.call_id", _LONGEST_ID)
        if isinstance(item, FunctionCall):
            check_name(item.name, "item.name")
    else:
        if not item.content:
            raise empty_array("item.content")
        for index, part in enumerate(item.content):
            _check_part(part, item.role, f"item.content[{index}]")
    return item


def _check_part(part: InputPart | OutputPart, role: str, place: str) -> None:
    if isinstance(part, OutputPart):
        if part.type == "output_audio":
            message = "Audio of the assistant cannot be put into a conversation; give its transcript as 'output_text'."
            raise wrong(message, param=f"{place}.type", code="invalid_value")
    elif role == "system" and part.type != "input_text":
        raise wrong_value(f"{place}.type", part.type, ["input_text"])
    field = {"input_audio": "audio", "input_image": "image_url"}.get(part.type, "text")
    value = getattr(part, field)
    if value is None:
        name = f"{place}.{field}"
        raise wrong(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    others = {"text", "audio", "image_url", "transcript"} - {field}
    if part.type == "input_audio":
        others.discard("transcript")
    for other in sorted(others):
        if getattr(part, other, None) is not None:
            raise wrong(f"Unknown parameter: '{place}.{other}'.", param=f"{place}.{other}", code="unknown_parameter")
    if part.type == "input_audio":
        base64(value, f"{place}.audio")
    elif part.type == "input_image":
        if not value.startswith("data:"):
            message = f"Invalid '{place}.image_url'. Expected a base64-encoded data URL."
            raise wrong(message, param=f"{place}.image_url", code="invalid_value")
        image(value, f"{place}.image_url")
