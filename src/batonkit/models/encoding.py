"""Conversions that several providers share: tool names, arguments, data URLs, schemas in prompts and versions."""

import re
from base64 import b64encode
from collections.abc import Collection
from typing import Any, TypeAlias, cast

import msgspec

from ..messages import AssistantMessage, ToolCall

Block: TypeAlias = dict[str, Any]
"""A piece of a request in the provider's own format."""

_INVALID_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64
_NEWEST = (99, 0)


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|u[dD][89a-fA-F][\da-fA-F]{2}|.)", re.DOTALL
)
_LONE_SURROGATE_LENGTH = len(r"\ud83d")
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def replace_lone_surrogates(json: str) -> str:
    """Replace the escapes of halves of surrogate pairs in JSON, which are not valid text."""
    if _LONE_SURROGATE.search(json) is None:
        return json
    return _ESCAPE.sub(_keep_or_replace, json)


def _keep_or_replace(escape: re.Match[str]) -> str:
    is_lone = len(escape[0]) == _LONE_SURROGATE_LENGTH and _LONE_SURROGATE.match(escape[0]) is not None
    return r"\ufffd" if is_lone else escape[0]


def safe_name(name: str) -> str:
    """Return a tool's name in the characters that providers accept."""
    return _INVALID_IN_NAMES.sub("_", name)[:_MAX_NAME]


def safe_id(id: str) -> str:
    """Return the id of a tool call in the characters that providers accept."""
    return _INVALID_IN_NAMES.sub("_", id)


def unused_name(name: str, taken: Collection[str]) -> str:
    """Return a name, with underscores appended until it is not among those taken."""
    while name in taken:
        name += "_"
    return name


def decode_arguments(call: ToolCall) -> dict[str, Any]:
    """Decode the arguments of a call; other text than an object is put under `arguments`."""
    try:
        return msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {"arguments": call.arguments}


def signed_reasoning(message: AssistantMessage, provider: str) -> list[tuple[str, Block]]:
    """Return text and signature of the reasoning that the provider can be sent back."""
    own = [block for block in message.reasoning if block.provider == provider and isinstance(block.signature, dict)]
    return [(block.text, cast("Block", block.signature)) for block in own]


def as_json(value: Any) -> str:
    """Encode a value as JSON text."""
    return msgspec.json.encode(value).decode()


def as_base64(data: bytes | None) -> str:
    """Encode bytes as base64 text."""
    return b64encode(data or b"").decode()


def as_data_url(data: bytes | None, media_type: str) -> str:
    """Encode bytes as a data URL."""
    return f"data:{media_type};base64,{as_base64(data)}"


def schema_prompt(schema: dict[str, Any]) -> str:
    """Ask in the system prompt for a schema that the provider cannot enforce."""
    return f"Give your final answer as nothing but JSON that fits this schema: {as_json(schema)}"


def parse_version(pattern: re.Pattern[str], model: str) -> tuple[int, int]:
    """Return the version in a model's name; an unknown name counts as the newest version."""
    found = pattern.search(model)
    return (int(found[1]), int(found[2] or 0)) if found is not None else _NEWEST


def without_none(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
