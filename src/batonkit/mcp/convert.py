"""Conversions between MCP's types and Baton's: names, schemas, annotations and content."""

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from hashlib import blake2s
from typing import Any, cast

import mcp_types as types

from ..context.json_schemas import JSONSchema, SchemaError
from ..errors import SetupError, ToolError
from ..handoffs.input_type import strict_schema
from ..messages import Audio, Content, Data, File, Image, Part, Text, ToolSpec, to_media
from ..tools import ToolEffect, ToolResult
from .transports import logger

MAX_NAME_LENGTH = 64
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(name: str, prefix: str | None) -> str:
    """Return the name that models see: prefixed, and valid for every provider."""
    full = f"{prefix}_{name}" if prefix else name
    plain = _FORBIDDEN.sub("_", full)
    if len(plain) <= MAX_NAME_LENGTH:
        return plain
    digest = blake2s(full.encode(), digest_size=4).hexdigest()
    return f"{plain[: MAX_NAME_LENGTH - 9].rstrip('_-')}_{digest}"


def to_tool_spec(tool: types.Tool, name: str, *, strict: bool) -> ToolSpec:
    """Describe a tool for models.

    The schema is the server's own; with `strict`, a strict copy where one with the same meaning exists.
    """
    description = tool.description or tool.title or ""
    schema = _strict_copy(tool) if strict else None
    if schema is None:
        return ToolSpec(name, description, tool.input_schema)
    return ToolSpec(name, description, schema, strict=True)


def optional_properties(schema: dict[str, Any]) -> frozenset[str]:
    """Return the properties that are not required."""
    return frozenset(schema.get("properties", {})) - frozenset(schema.get("required", ()))


def declared_effect(tool: types.Tool) -> ToolEffect:
    """Return the effect that the annotations declare; `idempotent` without annotations."""
    annotations = tool.annotations
    return "read" if annotations is not None and annotations.read_only_hint else "idempotent"


def is_repeatable(tool: types.Tool) -> bool:
    """Return whether the server declares that a call may be repeated."""
    annotations = tool.annotations
    return annotations is not None and bool(annotations.read_only_hint or annotations.idempotent_hint)


def _strict_copy(tool: types.Tool) -> dict[str, Any] | None:
    """Copy the schema with optional properties nullable; None if strict mode cannot express it."""
    schema = tool.input_schema
    try:
        JSONSchema(schema)
    except SchemaError:
        return None
    optional = optional_properties(schema)
    properties: dict[str, Any] = {}
    for name, given in schema.get("properties", {}).items():
        if _has_optional_parts(given):
            return None
        properties[name] = {"anyOf": [given, {"type": "null"}]} if name in optional else given
    if any(_has_optional_parts(part) for part in schema.get("$defs", {}).values()):
        return None
    try:
        return strict_schema({**schema, "properties": properties}, f"the schema of `{tool.name}`")
    except SetupError:
        return None


def _has_optional_parts(node: Any) -> bool:
    if isinstance(node, list):
        return any(map(_has_optional_parts, cast("list[Any]", node)))
    if not isinstance(node, dict):
        return False
    schema = cast("dict[str, Any]", node)
    if isinstance(schema.get("properties"), dict) and optional_properties(schema):
        return True
    return any(map(_has_optional_parts, schema.values()))


def check_result(tool: types.Tool, result: types.CallToolResult) -> None:
    """Check the result of a call against the tool's output schema, if that can be used.

    Raises:
        ToolError: It does not fit.
    """
    if tool.output_schema is None or result.is_error:
        return
    if "structured_content" not in result.model_fields_set:
        problems = ["it has no structured content, and the tool has an output schema"]
    else:
        try:
            problems = JSONSchema(tool.output_schema).problems("the result", result.structured_content)
        except SchemaError as error:
            # The call has been executed: an error would suggest to call it again.
            logger.warning("the result of tool `%s` is used unchecked: %s", tool.name, error)
            return
    if problems:
        raise ToolError(f"tool `{tool.name}` returned an invalid result: {'; '.join(problems)}", tool=tool.name)


def to_tool_result(result: types.CallToolResult) -> ToolResult:
    """Convert the result of a call, with all its content."""
    parts = [to_part(block) for block in result.content]
    structured = result.structured_content
    # Servers should repeat structured content as text, for clients that read only text.
    if structured is not None and not any(
        isinstance(part, Text) and _is_same_value(part.text, structured) for part in parts
    ):
        parts.append(Data(structured))
    return ToolResult(_content(parts), is_error=result.is_error)


def _content(parts: list[Part]) -> Content:
    if not parts:
        return "done"
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return tuple(parts)


def _is_same_value(text: str, value: Any) -> bool:
    """Compare a text with a value; some servers wrap non-objects under `result`."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = text
    return value in (parsed, {"result": parsed}, {"result": text})


def to_part(block: types.ContentBlock) -> Part:
    """Convert one content block."""
    match block:
        case types.TextContent():
            return Text(block.text)
        case types.ImageContent():
            return Image(data=_decode(block.data), media_type=block.mime_type)
        case types.AudioContent():
            return Audio(data=_decode(block.data), media_type=block.mime_type)
        case types.ResourceLink():
            return File(url=block.uri, media_type=block.mime_type or "application/octet-stream", name=block.name)
        case types.EmbeddedResource(resource=resource):
            if isinstance(resource, types.TextResourceContents):
                return Text(resource.text)
            return to_media(resource.mime_type, data=_decode(resource.blob), name=resource.uri)


def _decode(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        # Keep data that a server sent without encoding it.
        return text.encode()
