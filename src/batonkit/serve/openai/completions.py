"""Chat Completions: a turn as one message, streamed or whole."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from ...messages import Usage
from ..http.message_parts import PartClosed, PartExtended, PartOpened, PartUpdate
from ..http.sse import encode_frame
from .openai_errors import error_body
from .turns import Turn, TurnEnd

DONE = encode_frame("[DONE]")


class _SpokenText(Struct):
    agent: str
    text: str = ""
    """The text that was not written yet."""
    has_begun: bool = False
    is_closed: bool = False


class CompletionWriter:
    """Writes a turn as a completion."""

    def __init__(self, turn: Turn, model: str, created: int, *, show_agents: bool, include_usage: bool) -> None:
        self._head: dict[str, Any] = {"id": turn.response_id, "created": created, "model": model}
        self._show_agents = show_agents
        self._include_usage = include_usage
        self._texts: dict[str, _SpokenText] = {}
        """The texts of agents that speak at the same time: the first is written, the others wait for its end."""
        self._message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}

    def start(self) -> Iterator[bytes]:
        """Return the first frames."""
        yield self._chunk({"role": "assistant", "content": ""})

    def update(self, update: PartUpdate) -> Iterator[bytes]:
        """Return the frames of a part of the answer."""
        match update:
            case PartExtended(kind="text"):
                self._texts[update.id].text += update.text
            case PartExtended():
                yield self._add({"reasoning_content": update.text})
            case PartOpened(kind="text"):
                self._texts[update.id] = _SpokenText(update.agent)
            case PartClosed(kind="text"):
                self._texts[update.id].is_closed = True
            case _:
                pass
        yield from self._write_texts()

    def finish(self, outcome: TurnEnd) -> Iterator[bytes]:
        """Return the last frames."""
        if outcome.error is not None:
            yield encode_frame(msgspec.json.encode(error_body(outcome.error)))
            yield DONE
            return
        for index, call in enumerate(_tool_calls(outcome)):
            yield self._chunk({"tool_calls": [{"index": index, **call}]})
        yield self._chunk({}, _finish_reason(outcome))
        if self._include_usage:
            yield self._frame({"choices": [], "usage": _usage(outcome.usage)})
        yield DONE

    def body(self, outcome: TurnEnd) -> dict[str, Any]:
        """Return the completion."""
        calls = {"tool_calls": calls} if (calls := _tool_calls(outcome)) else {}
        message = {**self._message, **calls}
        if not calls:
            message["content"] = message["content"] or ""
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(outcome)}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(outcome.usage)}

    def _write_texts(self) -> Iterator[bytes]:
        for id, text in [*self._texts.items()]:
            if text.text:
                yield self._add(self._delta(text))
            if not text.is_closed:
                return
            del self._texts[id]

    def _delta(self, text: _SpokenText) -> dict[str, Any]:
        """Return the new piece of a text; a blank line separates it from the text before."""
        is_first = not text.has_begun
        gap = "\n\n" if is_first and self._message["content"] else ""
        delta: dict[str, Any] = {"content": gap + text.text}
        if is_first and self._show_agents:
            delta["baton"] = {"agent": text.agent}
        text.has_begun = True
        text.text = ""
        return delta

    def _add(self, delta: dict[str, Any]) -> bytes:
        for key, value in delta.items():
            before = self._message.get(key)
            self._message[key] = before + value if isinstance(before, str) else value
        return self._chunk(delta)

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return self._frame({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    def _frame(self, fields: dict[str, Any]) -> bytes:
        return encode_frame(msgspec.json.encode({**self._head, "object": "chat.completion.chunk", **fields}))


def _tool_calls(outcome: TurnEnd) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in outcome.calls
    ]


def _finish_reason(outcome: TurnEnd) -> str:
    if outcome.calls:
        return "tool_calls"
    return "length" if outcome.is_truncated else "stop"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
