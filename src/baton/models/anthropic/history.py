"""A conversation as Anthropic wants it: turns of user and assistant by turns, results first, nothing empty."""

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
    Text,
    ToolCall,
    ToolMessage,
)
from ..failures import unfit
from ..turns import GO_ON, AlternatingTurns, Block, arguments_of, fitting_id, fitting_name, value_in

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
