"""A request as the parameters of Anthropic's Messages API.

A conversation as Anthropic wants it: turns of user and assistant by turns, results first, nothing empty.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from logging import getLogger
from typing import Any, cast

import msgspec

from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    Data,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
)
from ..alternating import GO_ON, AlternatingTurns, Block, arguments_of, fitting_id, fitting_name, value_in
from ..base import ModelRequest, ModelSettings
from ..provider_errors import unfit

_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"


def as_turns(messages: Sequence[Message], model: str) -> tuple[list[str], list[Block]]:
    """What the application says before all else, and the turns. Raises ModelRequestError for media it cannot take."""
    turns = _Turns(model)
    return turns.take(messages), turns.finished()


class _Turns(AlternatingTurns):
    """The turns, as far as they have come."""

    def __init__(self, model: str) -> None:
        super().__init__("assistant", "content")
        self._model = model
        self._ids: dict[str, str] = {}
        self._waiting = 0

    def finished(self) -> list[Block]:
        """All of them, and what is still to be shown."""
        self._show_if_allowed()
        return super().finished()

    def user(self, content: Content) -> None:
        """The user, or somebody in the user's place, says this."""
        blocks = self.blocks(content)
        self._show_if_allowed()
        self._add("user", blocks)

    def words(self, text: str) -> Block:
        """A block of text."""
        return _text(text)

    def model(self, message: AssistantMessage) -> None:
        """The model says this."""
        content = message.content
        parts = (Text(content),) if isinstance(content, str) else content
        spoken = [part for part in parts if not isinstance(part, Image | Audio | File)]
        shown = self.blocks(tuple(part for part in parts if isinstance(part, Image | Audio | File)))
        text = "\n".join(_said(part) for part in spoken)
        calls = [self._call(call) for call in message.tool_calls]
        blocks = _in_order(text, calls, [each for each in message.reasoning if each.provider == "anthropic"])
        self._show_if_allowed()
        if blocks and not self._turns:
            self._add("user", [_text(GO_ON)])
        self._add("assistant", blocks)
        self._waiting = len(calls)
        if shown:
            self._shown += [_text("The assistant showed:"), *shown]

    def result(self, message: ToolMessage) -> None:
        """A tool has this to say."""
        blocks = self.blocks(message.content)
        if message.is_error:
            # An error may only be told in words.
            media = [block for block in blocks if block["type"] != "text"]
            blocks = [block for block in blocks if block["type"] == "text"]
            if media:
                self._shown += [_text(f"`{message.name}` showed:"), *media]
        result: Block = {"type": "tool_result", "tool_use_id": self._id(message.tool_call_id)}
        if blocks:
            result["content"] = blocks
        if message.is_error:
            result["is_error"] = True
        self._waiting -= 1
        self._add("user", [result])

    def blocks(self, content: Content) -> list[Block]:
        """Content as blocks; text of nothing but spaces is left out."""
        if isinstance(content, str):
            return [_text(content)] if content.strip() else []
        found = [self._block(part) for part in content]
        return [block for block in found if block["type"] != "text" or block["text"].strip()]

    def _block(self, part: Part) -> Block:
        if isinstance(part, Image):
            return {"type": "image", "source": self._picture(part)}
        if isinstance(part, File):
            return self._document(part)
        if isinstance(part, Audio):
            if part.transcript:
                return _text(part.transcript)
            raise unfit(self._model, "sound", "give the transcript, or ask a model that can hear")
        return _text(_said(part))

    def _picture(self, part: Image) -> Block:
        if part.url is not None:
            return _by_url(part.url, _PICTURES)
        if part.media_type not in _PICTURES:
            raise unfit(self._model, f"an image of {part.media_type}", f"it takes {', '.join(_PICTURES)}")
        return {"type": "base64", "media_type": part.media_type, "data": _base64(part.data)}

    def _document(self, part: File) -> Block:
        document: Block = {"type": "document"}
        if part.name:
            document["title"] = part.name
        if part.url is not None:
            return {**document, "source": _by_url(part.url, (_PDF,))}
        if part.media_type == _PDF:
            source: Block = {"type": "base64", "media_type": _PDF, "data": _base64(part.data)}
        elif part.media_type.startswith("text/") or part.media_type == "application/json":
            text = (part.data or b"").decode(errors="replace")
            source = {"type": "text", "media_type": "text/plain", "data": text}
        else:
            works = "it takes PDF by url or by value, and plain text by value"
            raise unfit(self._model, f"a file of {part.media_type}", works)
        return {**document, "source": source}

    def _call(self, call: ToolCall) -> Block:
        name = fitting_name(call.name) or "tool"
        return {"type": "tool_use", "id": self._id(call.id), "name": name, "input": arguments_of(call)}

    def _id(self, id: str) -> str:
        known = self._ids.get(id)
        if known is None:
            known = fitting_id(id)
            while known in self._ids.values():
                known += "x"
            self._ids[id] = known
        return known

    def _show_if_allowed(self) -> None:
        # Between a call and its results nothing else may stand.
        if self._shown and not self._waiting:
            self._show()


def _in_order(text: str, calls: list[Block], reasoning: list[Reasoning]) -> list[Block]:
    """Thoughts where they were thought: each has written down how much text and how many calls came before it."""
    if not text.strip() and not calls:
        # Thoughts alone are no turn.
        return []
    blocks: list[Block] = []
    written = called = 0
    for each in reasoning:
        thought = _thought(each)
        if thought is None:
            continue
        characters, count = each.signature.get("after", (0, 0))
        blocks += [_text(text[written:characters]), *calls[called:count], thought]
        written, called = max(written, characters), max(called, count)
    blocks += [_text(text[written:]), *calls[called:]]
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _thought(reasoning: Reasoning) -> Block | None:
    given: object = reasoning.signature
    if not isinstance(given, dict):
        return None
    opaque = cast("dict[str, Any]", given)
    if "data" in opaque:
        return {"type": "redacted_thinking", "data": opaque["data"]}
    if "signature" in opaque:
        return {"type": "thinking", "thinking": reasoning.text, "signature": opaque["signature"]}
    return None


def _said(part: Part) -> str:
    if isinstance(part, Text):
        return part.text
    return msgspec.json.encode(part.value).decode() if isinstance(part, Data) else ""


def _by_url(url: str, kinds: tuple[str, ...]) -> Block:
    value = value_in(url)
    if value is not None and value[0] in kinds:
        return {"type": "base64", "media_type": value[0], "data": value[1]}
    return {"type": "url", "url": url}


def _base64(data: bytes | None) -> str:
    return b64encode(data or b"").decode()


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


_log = getLogger(__name__)

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_NEWEST = (99, 0)
_OLD_API = {"anthropic-version": "2023-06-01"}
"""The version of the API in which a temperature may be sent; the newer one refuses it for every model."""

# The longest answers that are documented, oldest models first, and what is asked for if nobody says how much.
_LONGEST_ANSWERS = (((3, 5), 4_096), ((3, 7), 8_192), ((4, 5), 32_000), ((4, 6), 64_000))
_LONGEST_ANSWER = 128_000
_USUAL_ANSWER = 32_000
_LONG_ANSWER = 64_000

_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_768, "max": 49_152}
_LEAST_BUDGET = 1_024


def version_of(model: str) -> tuple[int, int]:
    """The version in a name such as `claude-opus-4-5-20251101`; an unknown name counts as the newest."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found is not None else _NEWEST


def parameters(request: ModelRequest, model: str, name: str) -> dict[str, Any]:
    """What the SDK is given for this request; `name` is the model as Baton calls it."""
    settings = request.settings
    version = version_of(model)
    told, messages = as_turns(request.messages, name)
    effort = settings.reasoning_effort
    max_tokens = settings.max_tokens or usual_answer(version, effort)
    given: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": messages, "stream": True}
    told.insert(0, request.instructions)
    if settings.stop_sequences:
        given["stop_sequences"] = list(settings.stop_sequences)
    _add_tools(given, request)
    _add_thinking(given, effort, version)
    if request.output_schema is not None:
        _add_output(given, request.output_schema.schema, told)
    system = "\n\n".join([text for text in told if text.strip()])
    if system:
        given["system"] = system
    _add_extras(given, settings, version, name)
    return given


def usual_answer(version: tuple[int, int], effort: str | None) -> int:
    """How long an answer may be if nobody says so: within what is documented for this version."""
    longest = next((most for before, most in _LONGEST_ANSWERS if version < before), _LONGEST_ANSWER)
    return min(longest, _LONG_ANSWER if effort in ("xhigh", "max") else _USUAL_ANSWER)


def _add_tools(given: dict[str, Any], request: ModelRequest) -> None:
    settings = request.settings
    if not request.tools:
        used = _called_in(given["messages"])
        if used:
            # A history with calls wants their tools to be there, also where none may be called any more.
            given["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in used]
            given["tool_choice"] = {"type": "none"}
        return
    given["tools"] = [_tool(spec) for spec in request.tools]
    match settings.tool_choice:
        case None | "auto":
            choice: Block | None = {"type": "auto"} if settings.tool_choice else None
        case "required":
            choice = {"type": "any"}
        case "none":
            choice = {"type": "none"}
        case name:
            choice = {"type": "tool", "name": name}
    if settings.parallel_tool_calls is not None and settings.tool_choice != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": not settings.parallel_tool_calls}
    if choice is not None:
        given["tool_choice"] = choice


def _tool(spec: ToolSpec) -> Block:
    tool: Block = {"name": spec.name, "input_schema": spec.parameters}
    if spec.description:
        tool["description"] = spec.description
    if spec.strict and not _is_open(spec.parameters):
        from anthropic import transform_schema

        # A strict tool may only use the part of JSON schema that Anthropic can enforce.
        tool |= {"strict": True, "input_schema": transform_schema(spec.parameters)}
    return tool


def _add_output(given: dict[str, Any], schema: dict[str, Any], told: list[str]) -> None:
    if _is_open(schema):
        shown = msgspec.json.encode(schema).decode()
        told.append(f"Give your final answer as nothing but JSON that fits this schema: {shown}")
        return
    from anthropic import transform_schema

    form = {"type": "json_schema", "schema": transform_schema(schema)}
    given.setdefault("output_config", {})["format"] = form


def _is_open(schema: Any) -> bool:
    """Whether there is an object in it whose keys are not known, which Anthropic cannot hold a model to."""
    if isinstance(schema, list):
        return any(_is_open(each) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    words = cast("dict[str, Any]", schema)
    return bool(words.get("additionalProperties", False)) or any(_is_open(each) for each in words.values())


def _called_in(turns: Sequence[Block]) -> list[str]:
    blocks = [block for turn in turns for block in turn["content"]]
    return list(dict.fromkeys([block["name"] for block in blocks if block["type"] == "tool_use"]))


def _add_thinking(given: dict[str, Any], effort: str | None, version: tuple[int, int]) -> None:
    if effort is None:
        return
    if effort == "none":
        given["thinking"] = {"type": "disabled"}
        return
    # Who must call a tool cannot think first: Anthropic refuses the two together.
    is_forced = given.get("tool_choice", {}).get("type") in ("any", "tool")
    if version >= (4, 6):
        given["output_config"] = {"effort": _EFFORTS.get(effort, effort)}
        if not is_forced:
            given["thinking"] = {"type": "adaptive"}
        return
    budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), given["max_tokens"] - 1)
    if budget >= _LEAST_BUDGET and not is_forced and version >= (3, 7):
        given["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _add_extras(given: dict[str, Any], settings: ModelSettings, version: tuple[int, int], name: str) -> None:
    headers = dict(settings.extra_headers or {})
    body = dict(settings.extra_body or {})
    asked = {"temperature": settings.temperature, "top_p": settings.top_p}
    sampling = {key: value for key, value in asked.items() if value is not None}
    if sampling and version <= (4, 6):
        headers = {**_OLD_API, **headers}
        body = {**sampling, **body}
        sampling = {}
    unheard = [*sampling, *(["seed"] if settings.seed is not None else [])]
    if unheard:
        _log.warning("%s takes no %s; it answers without", name, " and no ".join(unheard))
    if headers:
        given["extra_headers"] = headers
    if body:
        given["extra_body"] = body
    if settings.timeout is not None:
        given["timeout"] = settings.timeout
