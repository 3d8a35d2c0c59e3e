"""MCP's words in ours and back: names, schemas, hints and content."""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from hashlib import blake2s
from typing import Any, cast

import mcp_types as types

from ..errors import SetupError
from ..handoffs.input import strict_schema
from ..messages import Audio, Content, Data, File, Image, Part, Text, ToolSpec
from ..tools import ToolEffect, ToolResult

LONGEST_NAME = 64
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(name: str, prefix: str | None) -> str:
    """The name a model sees: with the prefix, in letters that all providers take, and not too long for them."""
    whole = f"{prefix}_{name}" if prefix else name
    plain = _FORBIDDEN.sub("_", whole)
    if len(plain) <= LONGEST_NAME:
        return plain
    mark = blake2s(whole.encode(), digest_size=4).hexdigest()
    return f"{plain[: LONGEST_NAME - 9].rstrip('_-')}_{mark}"


def spec_of(tool: types.Tool, name: str, *, strict: bool) -> ToolSpec:
    """The tool as a model sees it: the schema as the server wrote it, or a strict copy where that can be made."""
    described = tool.description or tool.title or ""
    if strict:
        copied = _strict_copy(tool)
        if copied is not None:
            return ToolSpec(name, described, copied, strict=True)
    return ToolSpec(name, described, tool.input_schema)


def optional_in(schema: dict[str, Any]) -> frozenset[str]:
    """The properties that may be left out."""
    return frozenset(schema.get("properties", {})) - frozenset(schema.get("required", ()))


def effect_of_hints(tool: types.Tool) -> ToolEffect:
    """What calls do outside, as the server hints; without a hint what our own tools are taken for."""
    hints = tool.annotations
    return "read" if hints is not None and hints.read_only_hint else "idempotent"


def is_repeatable(tool: types.Tool) -> bool:
    """Whether the server says that a call may be made twice."""
    hints = tool.annotations
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


def _strict_copy(tool: types.Tool) -> dict[str, Any] | None:
    """A strict copy in which what is optional may be null; None if a strict schema cannot say the same."""
    schema = tool.input_schema
    optional = optional_in(schema)
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
    if isinstance(schema.get("properties"), dict) and optional_in(schema):
        return True
    return any(map(_has_optional_parts, schema.values()))


def outcome_of_result(result: types.CallToolResult) -> ToolResult:
    """What a call came to, with all that the server gave."""
    parts = [part_of(block) for block in result.content]
    structured = result.structured_content
    # A server that gives structured content should repeat it as text, for those who read only that.
    if structured is not None and not any(isinstance(part, Text) and _says(part.text, structured) for part in parts):
        parts.append(Data(structured))
    return ToolResult(_content(parts), is_error=result.is_error)


def _content(parts: list[Part]) -> Content:
    if not parts:
        return "done"
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return tuple(parts)


def _says(text: str, value: Any) -> bool:
    """Whether the text is this value. A value that is no object is put into one under `result` by some servers."""
    try:
        said = json.loads(text)
    except ValueError:
        said = text
    return value in (said, {"result": said}, {"result": text})


def part_of(block: types.ContentBlock) -> Part:
    """One piece of content in our words."""
    match block:
        case types.TextContent():
            return Text(block.text)
        case types.ImageContent():
            return Image(data=_bytes(block.data), media_type=block.mime_type)
        case types.AudioContent():
            return Audio(data=_bytes(block.data), media_type=block.mime_type)
        case types.ResourceLink():
            return File(url=block.uri, media_type=block.mime_type or "application/octet-stream", name=block.name)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return Text(resource.text)
        case types.EmbeddedResource(resource=resource):
            return _blob(resource)


def _blob(resource: types.TextResourceContents | types.BlobResourceContents) -> Part:
    data = _bytes(resource.blob) if isinstance(resource, types.BlobResourceContents) else resource.text.encode()
    kind = resource.mime_type or "application/octet-stream"
    if kind.startswith("image/"):
        return Image(data=data, media_type=kind)
    if kind.startswith("audio/"):
        return Audio(data=data, media_type=kind)
    return File(data=data, media_type=kind, name=resource.uri)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64:
        # What a server sends as data without encoding it is at least not lost.
        return text.encode()


def blocks_of(content: Content) -> list[types.ContentBlock]:
    """Our content in MCP's words."""
    if isinstance(content, str):
        return [types.TextContent(text=content)]
    return [_block_of(part) for part in content]


def _block_of(part: Part) -> types.ContentBlock:
    match part:
        case Text():
            return types.TextContent(text=part.text)
        case Data():
            return types.TextContent(text=json.dumps(part.value, ensure_ascii=False))
        case Image(data=bytes() as data):
            return types.ImageContent(data=b64encode(data).decode(), mime_type=part.media_type)
        case Audio(data=bytes() as data):
            return types.AudioContent(data=b64encode(data).decode(), mime_type=part.media_type)
        case File(data=bytes() as data):
            blob = b64encode(data).decode()
            uri = f"file:///{part.name or 'file'}"
            contents = types.BlobResourceContents(uri=uri, mime_type=part.media_type, blob=blob)
            return types.EmbeddedResource(resource=contents)
        case _:
            uri = part.url or ""
            name = part.name if isinstance(part, File) and part.name else uri.rsplit("/", 1)[-1]
            return types.ResourceLink(uri=uri, name=name or "resource", mime_type=part.media_type)
