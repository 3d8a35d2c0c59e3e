"""A conversation as Google wants it: user and model by turns, each turn of calls answered by as many responses."""

import re
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
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    paired,
    text_of,
)

WirePart = dict[str, Any]

GO_ON = "Go on."
"""What stands where Google wants a user's words and there are none."""

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_UNSIGNED = b"skip_thought_signature_validator"
"""What Google's documentation names for calls that another model made, which have no signature of its own."""


def as_contents(messages: Sequence[Message], *, wants_signatures: bool) -> tuple[list[str], list[WirePart]]:
    """What the application says before all else, and the turns of the conversation."""
    told: list[str] = []
    turns = _Turns(wants_signatures)
    for message in paired(messages):
        if isinstance(message, SystemMessage) and not turns.has_begun:
            told.append(text_of(message.content))
        elif isinstance(message, ToolMessage):
            turns.response(message)
        elif isinstance(message, AssistantMessage):
            turns.model(message)
        else:
            # Among the turns there is no application; in the middle it speaks as the user.
            turns.user(_parts(message.content))
    return [text for text in told if text.strip()], turns.finished()


class _Turns:
    """The turns, as far as they have come."""

    def __init__(self, wants_signatures: bool) -> None:
        self._wants_signatures = wants_signatures
        self._turns: list[WirePart] = []
        self._shown: list[WirePart] = []
        """Media of results: they come after all responses of a turn."""
        self._names: list[str] = []
        """The names of the calls whose responses are still to come."""

    @property
    def has_begun(self) -> bool:
        """Whether anybody has said anything."""
        return bool(self._turns)

    def finished(self) -> list[WirePart]:
        """All of them; the first and the last are the user's."""
        if not self._turns or self._turns[-1]["role"] == "model":
            self._add("user", [{"text": GO_ON}])
        return self._turns

    def user(self, parts: list[WirePart]) -> None:
        """The user, or somebody in the user's place, says this."""
        self._add("user", parts)

    def model(self, message: AssistantMessage) -> None:
        """The model says this."""
        parts = _parts(message.content)
        signed = _signatures(message.reasoning)
        calls = [_call(call) for call in message.calls]
        for position, call in enumerate(message.calls):
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

    def response(self, message: ToolMessage) -> None:
        """A tool has this to say."""
        told = text_of(message.content)
        response = {"error" if message.is_error else "result": told}
        name = self._names.pop(0)
        part = {"function_response": {"id": message.call_id, "name": name, "response": response}}
        self._add("user", [part])
        media = [part for part in _parts(message.content) if "text" not in part]
        if media:
            self._shown += [{"text": f"`{message.name}` showed:"}, *media]
        if self._shown and not self._names:
            shown, self._shown = self._shown, []
            self._add("user", shown)

    def _add(self, role: str, parts: list[WirePart]) -> None:
        if not parts:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["parts"] += parts
        else:
            self._turns.append({"role": role, "parts": parts})


def _parts(content: Content) -> list[WirePart]:
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return [part for part in map(_part, content) if part.get("text") != ""]


def _part(part: Part) -> WirePart:
    if isinstance(part, Text):
        return {"text": part.text}
    if isinstance(part, Image | Audio | File):
        if part.url is None:
            return {"inline_data": {"mime_type": part.media_type, "data": part.data or b""}}
        return _by_url(part.url, part.media_type)
    return {"text": msgspec.json.encode(part.value).decode()}


def _by_url(url: str, media_type: str) -> WirePart:
    # A data url is a value in disguise, which Google takes only as a value.
    head, comma, data = url.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        return {"inline_data": {"mime_type": head[5:-7] or media_type, "data": b64decode(data)}}
    return {"file_data": {"mime_type": media_type, "file_uri": url}}


def wire_name(name: str) -> str:
    """The name of a tool as Google takes it, which may not begin with a digit or a dash."""
    kept = _NOT_IN_A_NAME.sub("_", name)[:_LONGEST_NAME]
    return f"_{kept}" if not kept or kept[0] in "-0123456789" else kept


def _call(call: ToolCall) -> WirePart:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        arguments = {"arguments": call.arguments}
    return {"function_call": {"id": call.id, "name": wire_name(call.name), "args": arguments}}


def _signatures(reasoning: tuple[Reasoning, ...]) -> dict[tuple[int, str], bytes]:
    """The signatures of Google's own thoughts, by the call they belong to; (-1, "") is that of the words."""
    found: dict[tuple[int, str], bytes] = {}
    for each in reasoning:
        given: object = each.opaque
        if each.provider != "google" or not isinstance(given, dict):
            continue
        opaque = cast("dict[str, Any]", given)
        try:
            signature = b64decode(opaque["signature"], validate=True)
        except (Error, TypeError, KeyError):
            continue
        found[opaque.get("call", -1), opaque.get("name", "")] = signature
    return found
