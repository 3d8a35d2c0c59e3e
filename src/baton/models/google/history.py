"""A conversation as Google wants it: user and model by turns, each turn of calls answered by as many responses."""

from base64 import b64decode
from binascii import Error
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    text_of,
)
from ..turns import GO_ON, AlternatingTurns, Block, arguments_of, fitting_name, value_in

_UNSIGNED = b"skip_thought_signature_validator"
"""What Google's documentation names for calls that another model made, which have no signature of its own."""


def as_contents(messages: Sequence[Message], *, wants_signatures: bool) -> tuple[list[str], list[Block]]:
    """What the application says before all else, and the turns of the conversation."""
    turns = _Turns(wants_signatures)
    return turns.take(messages), turns.finished()


class _Turns(AlternatingTurns):
    """The turns, as far as they have come."""

    def __init__(self, wants_signatures: bool) -> None:
        super().__init__("model", "parts")
        self._wants_signatures = wants_signatures
        self._names: list[str] = []
        """The names of the calls whose responses are still to come."""

    def user(self, content: Content) -> None:
        """The user, or somebody in the user's place, says this."""
        self._add("user", _parts(content))

    def words(self, text: str) -> Block:
        """A part of text."""
        return {"text": text}

    def model(self, message: AssistantMessage) -> None:
        """The model says this."""
        parts = _parts(message.content)
        signed = _signatures(message.reasoning)
        calls = [_call(call) for call in message.tool_calls]
        for position, call in enumerate(message.tool_calls):
            if (position, call.name) in signed:
                calls[position]["thought_signature"] = signed[position, call.name]
        if calls and self._wants_signatures and not any("thought_signature" in call for call in calls):
            calls[0]["thought_signature"] = _UNSIGNED
        of_the_words = signed.get((-1, ""))
        if of_the_words is not None and parts and "text" in parts[-1]:
            parts[-1]["thought_signature"] = of_the_words
        if (parts or calls) and (not self._turns or (calls and self._turns[-1]["role"] == "model")):
            # A turn of calls must follow on words of the user or on responses.
            self._add("user", [{"text": GO_ON}])
        self._add("model", [*parts, *calls])
        # A response has the name of its call, whatever the tool calls itself.
        self._names = [part["function_call"]["name"] for part in calls]

    def result(self, message: ToolMessage) -> None:
        """A tool has this to say."""
        told = text_of(message.content)
        response = {"error" if message.is_error else "result": told}
        name = self._names.pop(0)
        part = {"function_response": {"id": message.tool_call_id, "name": name, "response": response}}
        self._add("user", [part])
        media = [part for part in _parts(message.content) if "text" not in part]
        if media:
            self._shown += [{"text": f"`{message.name}` showed:"}, *media]
        if not self._names:
            self._show()


def _parts(content: Content) -> list[Block]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [part for part in map(_part, content) if part.get("text") != ""]


def _part(part: Part) -> Block:
    if isinstance(part, Text):
        return {"text": part.text}
    if isinstance(part, Image | Audio | File):
        if part.url is None:
            return {"inline_data": {"mime_type": part.media_type, "data": part.data or b""}}
        return _by_url(part.url, part.media_type)
    return {"text": msgspec.json.encode(part.value).decode()}


def _by_url(url: str, media_type: str) -> Block:
    value = value_in(url)
    if value is not None:
        return {"inline_data": {"mime_type": value[0] or media_type, "data": b64decode(value[1])}}
    return {"file_data": {"mime_type": media_type, "file_uri": url}}


def wire_name(name: str) -> str:
    """The name of a tool as Google takes it, which may not begin with a digit or a dash."""
    kept = fitting_name(name)
    return f"_{kept}" if not kept or kept[0] in "-0123456789" else kept


def _call(call: ToolCall) -> Block:
    return {"function_call": {"id": call.id, "name": wire_name(call.name), "args": arguments_of(call)}}


def _signatures(reasoning: tuple[Reasoning, ...]) -> dict[tuple[int, str], bytes]:
    """The signatures of Google's own thoughts, by the call they belong to; (-1, "") is that of the words."""
    found: dict[tuple[int, str], bytes] = {}
    for each in reasoning:
        given: object = each.signature
        if each.provider != "google" or not isinstance(given, dict):
            continue
        opaque = cast("dict[str, Any]", given)
        try:
            signature = b64decode(opaque["signature"], validate=True)
        except (Error, TypeError, KeyError):
            continue
        found[opaque.get("call", -1), opaque.get("name", "")] = signature
    return found
