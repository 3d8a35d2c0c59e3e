"""A conversation as Anthropic wants it: turns of user and assistant by turns, results first, nothing empty."""

import re
from base64 import b64encode
from collections.abc import Sequence
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
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    paired,
    text_of,
)
from ..failures import unfit

Block = dict[str, Any]

GO_ON = "Go on."
"""What stands where Anthropic wants a user's message and there is none."""

_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64


def as_turns(messages: Sequence[Message], model: str) -> tuple[list[str], list[Block]]:
    """What the application says before all else, and the turns. Raises RequestError for media it cannot take."""
    told: list[str] = []
    turns = _Turns(model)
    for message in paired(messages):
        if isinstance(message, SystemMessage) and not turns.has_begun:
            told.append(text_of(message.content))
        elif isinstance(message, ToolMessage):
            turns.result(message)
        elif isinstance(message, AssistantMessage):
            turns.assistant(message)
        else:
            # In the middle only the newest models know an application; with all of them it can speak as the user.
            turns.user(turns.blocks(message.content))
    return [text for text in told if text.strip()], turns.finished()


class _Turns:
    """The turns, as far as they have come."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._turns: list[Block] = []
        self._shown: list[Block] = []
        """Media that may not stand where they were said; they come with the next words of the user."""
        self._ids: dict[str, str] = {}
        self._waiting = 0

    @property
    def has_begun(self) -> bool:
        """Whether anybody has said anything."""
        return bool(self._turns)

    def finished(self) -> list[Block]:
        """All of them; the first and the last are the user's."""
        self._show()
        if not self._turns or self._turns[-1]["role"] == "assistant":
            self._add("user", [_text(GO_ON)])
        return self._turns

    def user(self, blocks: list[Block]) -> None:
        """The user, or somebody in the user's place, says this."""
        self._show()
        self._add("user", blocks)

    def assistant(self, message: AssistantMessage) -> None:
        """The model says this."""
        content = message.content
        parts = (Text(content),) if isinstance(content, str) else content
        spoken = [part for part in parts if not isinstance(part, Image | Audio | File)]
        shown = self.blocks(tuple(part for part in parts if isinstance(part, Image | Audio | File)))
        text = "\n".join(_said(part) for part in spoken)
        calls = [self._call(call) for call in message.calls]
        blocks = _in_order(text, calls, [each for each in message.reasoning if each.provider == "anthropic"])
        self._show()
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
        result: Block = {"type": "tool_result", "tool_use_id": self._id(message.call_id)}
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
        name = _NOT_IN_A_NAME.sub("_", call.name)[:_LONGEST_NAME] or "tool"
        return {"type": "tool_use", "id": self._id(call.id), "name": name, "input": arguments_of(call)}

    def _id(self, id: str) -> str:
        known = self._ids.get(id)
        if known is None:
            known = _NOT_IN_A_NAME.sub("_", id)
            while known in self._ids.values():
                known += "x"
            self._ids[id] = known
        return known

    def _show(self) -> None:
        # Between a call and its results nothing else may stand.
        if self._shown and not self._waiting:
            shown, self._shown = self._shown, []
            self._add("user", shown)

    def _add(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"] += blocks
        else:
            self._turns.append({"role": role, "content": blocks})


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as the object they must be; what a model wrote that is none, under a name of its own."""
    try:
        return msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {"arguments": call.arguments}


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
        characters, count = each.opaque.get("after", (0, 0))
        blocks += [_text(text[written:characters]), *calls[called:count], thought]
        written, called = max(written, characters), max(called, count)
    blocks += [_text(text[written:]), *calls[called:]]
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _thought(reasoning: Reasoning) -> Block | None:
    given: object = reasoning.opaque
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
    # A data url is a value in disguise, which Anthropic takes only as a value.
    head, comma, data = url.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma and head[5:-7] in kinds:
        return {"type": "base64", "media_type": head[5:-7], "data": data}
    return {"type": "url", "url": url}


def _base64(data: bytes | None) -> str:
    return b64encode(data or b"").decode()


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
