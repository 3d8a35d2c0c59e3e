"""Conversion of a request to the parameters of Anthropic's Messages API."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    File,
    Image,
    Message,
    Part,
    ToolCall,
    ToolMessage,
    ToolSpec,
    media_of,
    text_of,
)
from ...messages.input_parts import parse_data_url
from .. import encoding
from ..alternating import CONTINUE, AlternatingTurns, convert_history
from ..encoding import Block
from ..model import ModelRequest, PromptCaching
from ..provider_errors import unsupported
from ..settings import ModelSettings, require_supported

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_OLD_API = {"anthropic-version": "2023-06-01"}
"""The API version that accepts a temperature; the newer one rejects it for every model."""

# The documented maximum response lengths, oldest models first, and the length requested by default.
_MAX_TOKENS_BEFORE = (((3, 5), 4_096), ((3, 7), 8_192), ((4, 5), 32_000), ((4, 6), 64_000))
_MAX_TOKENS = 128_000
_DEFAULT_TOKENS = 32_000
_DEFAULT_TOKENS_HIGH_EFFORT = 64_000

_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_768, "max": 49_152}
_MIN_BUDGET = 1_024

_TIERS = {"default": "standard_only"}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"


def as_turns(messages: Sequence[Message], model: str, *, is_request: bool = True) -> tuple[list[str], list[Block]]:
    """Return the leading system texts and the turns of the conversation."""
    turns = _convert(messages, model)
    return turns.system, turns.turns(is_request=is_request)


def _convert(messages: Sequence[Message], model: str) -> "_Turns":
    return convert_history(messages, ("anthropic", model), lambda: _Turns(model))


class _Turns(AlternatingTurns):
    def __init__(self, model: str) -> None:
        super().__init__("assistant", "content", _text)
        self._model = model
        self._ids: dict[str, str] = {}
        self._taken_ids: set[str] = set()
        self._open_calls = 0
        self.called_tools: dict[str, None] = {}
        """The names of the tools that were called, as they are sent."""

    def finish(self) -> None:
        # Nothing may stand between a call and its results.
        if self._pending_media and not self._open_calls:
            self._add_pending_media()

    def add_user(self, content: Content) -> None:
        blocks = self._blocks(content)
        self.finish()
        self._add("user", blocks)

    def add_response(self, message: AssistantMessage) -> None:
        media = self._blocks(media_of(message.content))
        calls = [self._call(call) for call in message.tool_calls]
        blocks = _in_order(text_of(message.content), calls, encoding.signed_reasoning(message, "anthropic"))
        self.finish()
        if blocks and not self._turns:
            self._add("user", [_text(CONTINUE)])
        self._add("assistant", blocks)
        self._open_calls = len(calls)
        if media:
            self._pending_media += [_text("The assistant showed:"), *media]

    def add_result(self, message: ToolMessage) -> None:
        blocks = self._blocks(message.content)
        if message.is_error:
            # An error may contain only text.
            media = [block for block in blocks if block["type"] != "text"]
            blocks = [block for block in blocks if block["type"] == "text"]
            if media:
                self._pending_media += [_text(f"`{message.name}` showed:"), *media]
        result: Block = {"type": "tool_result", "tool_use_id": self._id(message.tool_call_id)}
        if blocks:
            result["content"] = blocks
        if message.is_error:
            result["is_error"] = True
        self._open_calls -= 1
        self._add("user", [result])

    def _blocks(self, content: Content) -> list[Block]:
        if isinstance(content, str):
            return [_text(content)] if content.strip() else []
        return _without_blank_text([self._block(part) for part in content])

    def _block(self, part: Part) -> Block:
        if isinstance(part, Image):
            return {"type": "image", "source": self._image_source(part)}
        if isinstance(part, File):
            return self._document(part)
        if isinstance(part, Audio):
            if part.transcript:
                return _text(part.transcript)
            raise unsupported(self._model, "audio", "pass a transcript, or use a model that accepts audio")
        return _text(text_of((part,)))

    def _image_source(self, part: Image) -> Block:
        if part.url is not None:
            return _url_source(part.url, _IMAGE_TYPES)
        if part.media_type not in _IMAGE_TYPES:
            raise unsupported(self._model, f"images of type {part.media_type}", f"it accepts {', '.join(_IMAGE_TYPES)}")
        return {"type": "base64", "media_type": part.media_type, "data": encoding.as_base64(part.data)}

    def _document(self, part: File) -> Block:
        document: Block = {"type": "document"}
        if part.name:
            document["title"] = part.name
        if part.url is not None:
            return {**document, "source": _url_source(part.url, (_PDF,))}
        if part.media_type == _PDF:
            source: Block = {"type": "base64", "media_type": _PDF, "data": encoding.as_base64(part.data)}
        elif part.media_type.startswith("text/") or part.media_type == "application/json":
            text = (part.data or b"").decode(errors="replace")
            source = {"type": "text", "media_type": "text/plain", "data": text}
        else:
            works = "it accepts PDF as a URL or as data, and plain text as data"
            raise unsupported(self._model, f"files of type {part.media_type}", works)
        return {**document, "source": source}

    def _call(self, call: ToolCall) -> Block:
        name = encoding.safe_name(call.name) or "tool"
        self.called_tools[name] = None
        return {"type": "tool_use", "id": self._id(call.id), "name": name, "input": encoding.decode_arguments(call)}

    def _id(self, id: str) -> str:
        known = self._ids.get(id)
        if known is None:
            known = encoding.safe_id(id)
            while known in self._taken_ids:
                known += "x"
            self._ids[id] = known
            self._taken_ids.add(known)
        return known


def _in_order(text: str, calls: list[Block], reasoning: list[tuple[str, Block]]) -> list[Block]:
    """Put thinking blocks in place; each has stored how much text and how many calls precede it."""
    if not text.strip() and not calls:
        # A turn may not consist of thinking alone.
        return []
    blocks: list[Block] = []
    written = called = 0
    for thought, signature in reasoning:
        if "data" in signature:
            thinking = {"type": "redacted_thinking", "data": signature["data"]}
        elif "signature" in signature:
            thinking = {"type": "thinking", "thinking": thought, "signature": signature["signature"]}
        else:
            continue
        characters, count = signature.get("after", (0, 0))
        blocks += [_text(text[written:characters]), *calls[called:count], thinking]
        written = max(written, characters)
        called = max(called, count)
    blocks += [_text(text[written:]), *calls[called:]]
    return _without_blank_text(blocks)


def _without_blank_text(blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _url_source(url: str, media_types: tuple[str, ...]) -> Block:
    data = parse_data_url(url)
    if data is not None and data[0] in media_types:
        return {"type": "base64", "media_type": data[0], "data": data[1]}
    return {"type": "url", "url": url}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def version_of(model: str) -> tuple[int, int]:
    """Return the version in a name such as `claude-opus-4-5-20251101`."""
    return encoding.parse_version(_VERSION, model)


_LEAVE_OUT = "leave it out"
_LACKS = {
    "presence_penalty": _LEAVE_OUT,
    "frequency_penalty": _LEAVE_OUT,
    "seed": _LEAVE_OUT,
    "verbosity": "ask for short or long answers in the instructions",
    "truncation": "shorten the history with Agent(history=…)",
    "logprobs": _LEAVE_OUT,
    "top_logprobs": _LEAVE_OUT,
}
_SAMPLING = ("temperature", "top_p", "top_k")
_LACKS_AFTER_4_6 = {**_LACKS, **dict.fromkeys(_SAMPLING, "leave it out, or use Claude 4.6 or older")}


def lacking_settings(version: tuple[int, int]) -> dict[str, str]:
    """Return the model settings that a version of Claude lacks, each with what would work."""
    return _LACKS if version <= (4, 6) else _LACKS_AFTER_4_6


def build_parameters(request: ModelRequest, model: str, name: str) -> dict[str, Any]:
    """Return the arguments of the SDK call. Raises ModelRequestError."""
    version = version_of(model)
    settings = require_supported(request.settings, name, lacking_settings(version))
    effort = settings.reasoning_effort
    max_tokens = settings.max_tokens or _default_max_tokens(version, effort)
    converted = _convert(request.messages, name)
    system = [request.instructions, *converted.system]
    schema = request.output_schema.schema if request.output_schema is not None else None
    if schema is not None and _is_open(schema):
        system.append(encoding.schema_prompt(schema))
        schema = None
    tools, choice = _tools(request, converted.called_tools)
    sampling = {name: getattr(settings, name) for name in _SAMPLING if getattr(settings, name) is not None}
    headers = {**(_OLD_API if sampling else {}), **(settings.extra_headers or {})}
    parameters = {
        "model": model,
        "max_tokens": max_tokens,
        "messages": converted.turns(),
        "stream": True,
        "system": "\n\n".join([text for text in system if text.strip()]) or None,
        "stop_sequences": list(settings.stop_sequences) if settings.stop_sequences else None,
        "tools": tools or None,
        "tool_choice": choice,
        "thinking": _thinking(effort, version, max_tokens, choice),
        "output_config": _output_config(effort, version, schema) or None,
        "metadata": _metadata(settings, name),
        "service_tier": _TIERS.get(settings.service_tier or "", settings.service_tier),
        "extra_headers": headers or None,
        "extra_query": dict(settings.extra_query) if settings.extra_query else None,
        "extra_body": {**sampling, **(settings.extra_body or {})} or None,
        "timeout": settings.timeout,
    }
    parameters = encoding.without_none(parameters)
    if request.prompt_cache is not None:
        _add_cache_markers(parameters, request.prompt_cache)
    return parameters


def _add_cache_markers(parameters: dict[str, Any], caching: PromptCaching) -> None:
    """Mark the end of the system prompt or tools, and of the last two user turns."""
    marker = {"type": "ephemeral"} if caching.ttl == "5m" else {"type": "ephemeral", "ttl": caching.ttl}
    if "system" in parameters:
        parameters["system"] = [{**_text(parameters["system"]), "cache_control": marker}]
    elif "tools" in parameters:
        parameters["tools"][-1]["cache_control"] = marker
    messages: list[Block] = parameters["messages"]
    # The first and last turns are the user's, and roles alternate. Blocks are shared with later requests.
    for place in range(len(messages) - 1, max(-1, len(messages) - 4), -2):
        *before, last = messages[place]["content"]
        messages[place] = {**messages[place], "content": [*before, {**last, "cache_control": marker}]}


def _default_max_tokens(version: tuple[int, int], effort: str | None) -> int:
    most = next((most for before, most in _MAX_TOKENS_BEFORE if version < before), _MAX_TOKENS)
    return min(most, _DEFAULT_TOKENS_HIGH_EFFORT if effort in ("xhigh", "max") else _DEFAULT_TOKENS)


def _tools(request: ModelRequest, called: Iterable[str]) -> tuple[list[Block], Block | None]:
    """Return the tools and the tool choice."""
    if not request.tools:
        # A history with calls requires their tools, even where none may be called any more.
        tools: list[Block] = [{"name": name, "input_schema": {"type": "object"}} for name in called]
        return tools, {"type": "none"} if tools else None
    parallel = request.settings.parallel_tool_calls
    wanted = request.tool_choice
    choice: Block | None = None
    if wanted is not None:
        choice = {"type": _CHOICES[wanted]} if wanted in _CHOICES else {"type": "tool", "name": wanted}
    if parallel is not None and wanted != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": not parallel}
    return [_tool(spec) for spec in request.tools], choice


def _tool(spec: ToolSpec) -> Block:
    tool: Block = {"name": spec.name, "input_schema": spec.parameters}
    if spec.description:
        tool["description"] = spec.description
    if spec.strict and not _is_open(spec.parameters):
        from anthropic import transform_schema

        # A strict tool may only use the part of JSON schema that Anthropic can enforce.
        tool |= {"strict": True, "input_schema": transform_schema(spec.parameters)}
    return tool


def _output_config(effort: str | None, version: tuple[int, int], schema: dict[str, Any] | None) -> Block:
    config: Block = {}
    if effort not in (None, "none") and version >= (4, 6):
        config["effort"] = _EFFORTS.get(effort, effort)
    if schema is not None:
        from anthropic import transform_schema

        config["format"] = {"type": "json_schema", "schema": transform_schema(schema)}
    return config


def _is_open(schema: Any) -> bool:
    """Check for an object with arbitrary keys, which Anthropic cannot enforce."""
    if isinstance(schema, list):
        return any(_is_open(each) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    fields = cast("dict[str, Any]", schema)
    return bool(fields.get("additionalProperties", False)) or any(_is_open(each) for each in fields.values())


def _thinking(effort: str | None, version: tuple[int, int], max_tokens: int, choice: Block | None) -> Block | None:
    if effort == "none":
        return {"type": "disabled"}
    # Anthropic rejects thinking together with a forced tool call.
    if effort is None or (choice is not None and choice["type"] in ("any", "tool")):
        return None
    if version >= (4, 6):
        return {"type": "adaptive"}
    budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), max_tokens - 1)
    return {"type": "enabled", "budget_tokens": budget} if budget >= _MIN_BUDGET and version >= (3, 7) else None


def _metadata(settings: ModelSettings, name: str) -> Block | None:
    given = settings.metadata or {}
    unknown = [key for key in given if key != "user_id"]
    if unknown and not settings.ignore_unsupported:
        raise unsupported(name, f"metadata `{unknown[0]}`", "the only key of ModelSettings(metadata=…) is `user_id`")
    return {"user_id": given["user_id"]} if "user_id" in given else None
