"""A client like `useChat` that checks every chunk, and builds the messages that a page would show."""

import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
from tests.sockets import frames_in

from batonkit.serve import serve_in_background

Chunk = dict[str, Any]

_TOOL = {"providerExecuted": bool, "providerMetadata": dict, "toolMetadata": dict, "dynamic": bool, "title": str}
_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "start": ({}, {"messageId": str, "messageMetadata": object}),
    "finish": ({}, {"finishReason": str, "messageMetadata": object}),
    "abort": ({}, {"reason": str}),
    "error": ({"errorText": str}, {}),
    "start-step": ({}, {}),
    "finish-step": ({}, {}),
    "text-start": ({"id": str}, {"providerMetadata": dict}),
    "text-delta": ({"id": str, "delta": str}, {"providerMetadata": dict}),
    "text-end": ({"id": str}, {"providerMetadata": dict}),
    "reasoning-start": ({"id": str}, {"providerMetadata": dict}),
    "reasoning-delta": ({"id": str, "delta": str}, {"providerMetadata": dict}),
    "reasoning-end": ({"id": str}, {"providerMetadata": dict}),
    "tool-input-available": ({"toolCallId": str, "toolName": str, "input": object}, _TOOL),
    "tool-approval-request": ({"toolCallId": str, "approvalId": str}, {}),
    "tool-output-available": ({"toolCallId": str, "output": object}, {**_TOOL, "preliminary": bool}),
    "tool-output-error": ({"toolCallId": str, "errorText": str}, _TOOL),
    "tool-output-denied": ({"toolCallId": str}, {}),
}
"""The fields that chunks must have and may have, as the schema of the package `ai` 7 says."""
_DATA: tuple[dict[str, Any], dict[str, Any]] = ({"data": object}, {"id": str, "transient": bool})
_REASONS = ("stop", "length", "content-filter", "tool-calls", "error", "other")


def assert_valid(chunk: Chunk) -> None:
    """Assert that a chunk has the fields of its type, and no others."""
    kind = chunk["type"]
    required, optional = _DATA if kind.startswith("data-") else _FIELDS[kind]
    assert {"type", *required} <= {*chunk} <= {"type", *required, *optional}, chunk
    for name, value in chunk.items():
        assert isinstance(value, {"type": str, **required, **optional}[name]), chunk
    assert chunk.get("finishReason", "stop") in _REASONS
    metadata = cast("dict[str, Any]", chunk.get("providerMetadata", {}))
    assert all(isinstance(fields, dict) for fields in metadata.values()), "metadata is an object for each provider"


class MessageBuilder:
    """Adds chunks to a message as the package `ai` does, and asserts what it requires of their order."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.message = message
        self._parts: list[dict[str, Any]] = message["parts"]
        self._open: dict[str, dict[str, Any]] = {}

    def apply(self, chunks: Iterable[Chunk]) -> list[dict[str, Any]]:
        """Apply the chunks of a stream; return the parts of the message."""
        for chunk in chunks:
            assert_valid(chunk)
            kind = chunk["type"].partition("-")[0]
            if kind in ("text", "reasoning"):
                self._change_text(kind, chunk)
            elif kind == "tool":
                self._change_tool(chunk)
            elif kind == "data":
                self._change_data(chunk)
            else:
                self._change_message(chunk)
        assert self._open == {}, "every part is closed"
        return self._parts

    def _change_message(self, chunk: Chunk) -> None:
        if chunk["type"] == "start":
            assert self.message.get("id", chunk["messageId"]) == chunk["messageId"], "a message keeps its id"
            self.message["id"] = chunk["messageId"]
        elif chunk["type"] == "start-step":
            self._parts.append({"type": "step-start"})
        elif chunk["type"] == "finish-step":
            assert self._open == {}, "the end of a step would close open texts"
        elif chunk["type"] == "finish":
            self.message["metadata"] = chunk["messageMetadata"]

    def _change_text(self, kind: str, chunk: Chunk) -> None:
        if chunk["type"].endswith("-start"):
            assert chunk["id"] not in self._open
            self._open[chunk["id"]] = {"type": kind, "text": "", "state": "streaming"}
            self._parts.append(self._open[chunk["id"]])
        part = self._open[chunk["id"]]
        part["text"] += chunk.get("delta", "")
        part |= chunk.get("providerMetadata", {"baton": {}})["baton"]
        if chunk["type"].endswith("-end"):
            part["state"] = "discarded" if part.get("discarded") else "done"
            del self._open[chunk["id"]]

    def _change_tool(self, chunk: Chunk) -> None:
        same = [part for part in self._parts if part.get("toolCallId") == chunk["toolCallId"]]
        if chunk["type"] == "tool-input-available":
            assert same == [], "a call is shown once"
            tool = {"type": f"tool-{chunk['toolName']}", "state": "input-available", "input": chunk["input"]}
            self._parts.append({**tool, "toolCallId": chunk["toolCallId"], "agent": chunk["toolMetadata"]["agent"]})
            return
        (tool,) = same
        if chunk["type"] == "tool-approval-request":
            tool |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
        else:
            result = {name: chunk[name] for name in ("output", "errorText") if name in chunk}
            tool |= {"state": chunk["type"].removeprefix("tool-"), **result}

    def _change_data(self, chunk: Chunk) -> None:
        if chunk.get("transient"):
            return
        same = [part for part in self._parts if part["type"] == chunk["type"] and part["id"] == chunk["id"]]
        if same:
            same[0]["data"] = chunk["data"]
        else:
            self._parts.append(chunk)


class ChatClient:
    """One chat of a page: its messages, and what the page does with them."""

    def __init__(self, session: aiohttp.ClientSession, url: str, chat: str = "c1", token: str = "") -> None:
        self.session = session
        self.url = url
        self.chat = chat
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.messages: list[dict[str, Any]] = []
        self.last_chunk: Chunk = {}

    async def send(
        self, text: str | None = None, *, on_chunk: Callable[[Chunk], None] | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Send a message, or the answers in the messages; return the parts of the assistant's message."""
        return await self._read(self._post(text, **options), on_chunk)

    async def leave_after(self, text: str, message: str | None = None) -> None:
        """Send a message, and disconnect after some text of the answer."""
        async with self._post(message) as answer:
            await answer.content.readuntil(f'"{text}"'.encode())

    async def resume(self, on_chunk: Callable[[Chunk], None] | None = None) -> list[dict[str, Any]]:
        """Resume the stream as a page that was loaded again; return the parts of the message that it repeats."""
        self.messages = []
        return await self._read(self.session.get(self.stream_url, headers=self.headers), on_chunk)

    async def refused(self, text: str | None = None, **options: Any) -> tuple[int, str]:
        """Send what is refused; return the status and the code."""
        before = [*self.messages]
        async with self._post(text, **options) as answer:
            self.messages = before
            return answer.status, (await answer.json())["error"]["code"]

    @property
    def stream_url(self) -> str:
        """The address of the chat's stream."""
        return f"{self.url}/{self.chat}/stream"

    async def _read(self, response: Any, on_chunk: Callable[[Chunk], None] | None) -> list[dict[str, Any]]:
        """Read a stream to its end into the last message of the assistant, or a new one."""
        async with response as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
            chunks: list[Chunk] = []
            data = ""
            async for frame in frames_in(answer.content):
                data = frame.get("data", data)
                if data != "[DONE]" and "data" in frame:
                    chunks.append(json.loads(data))
                    if on_chunk is not None:
                        on_chunk(chunks[-1])
        assert data == "[DONE]"
        assert chunks[0]["type"] == "start"
        self.last_chunk = chunks[-1]
        assert [chunk for chunk in chunks if chunk["type"] in ("finish", "error", "abort")] == [self.last_chunk]
        if not self.messages or self.messages[-1]["role"] == "user":
            self.messages.append({"role": "assistant", "parts": []})
        return MessageBuilder(self.messages[-1]).apply(chunks)

    def decide(self, approved: bool, reason: str = "") -> None:
        """Answer the first request for approval, as `addToolApprovalResponse` does."""
        part = next(part for part in self.messages[-1]["parts"] if part.get("state") == "approval-requested")
        part["state"] = "approval-responded"
        part["approval"] |= {"approved": approved, "reason": reason}

    def text(self) -> str:
        """Return the text of the last message."""
        return "".join(part["text"] for part in self.messages[-1]["parts"] if part["type"] == "text")

    def _post(self, text: str | None, **options: Any) -> Any:
        if text is not None:
            parts = [{"type": "text", "text": text}]
            self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "parts": parts})
        body = {"id": self.chat, "messages": self.messages, "trigger": "submit-message", **options}
        return self.session.post(self.url, json=body, headers=self.headers)


def summary(parts: list[dict[str, Any]]) -> list[str]:
    """Return parts in a line each: who says or calls what, and what came of it."""
    return [_line(part) for part in parts]


def _line(part: dict[str, Any]) -> str:
    if part["type"] in ("text", "reasoning"):
        mark = "" if part["state"] == "done" else f" ({part['state']})"
        return f"{part['agent']} {part['type']}: {part['text']}{mark}"
    if part["type"] == "data-handoff":
        return f"{part['data']['from']} -> {part['data']['to']}"
    if part["type"] == "data-question":
        return f"{part['data']['text']} ({'answered' if part['data']['answered'] else 'open'})"
    if part["type"] == "step-start":
        return "---"
    result = part.get("output", part.get("errorText", ""))
    return f"{part['agent']} {part['type']}({part['input']}) {part['state']} {result}".rstrip()


@asynccontextmanager
async def serve_chat(app: Any, token: str = "") -> AsyncGenerator[ChatClient]:
    """Serve an app, and yield a client for it."""
    async with serve_in_background(app, drain=0) as url, aiohttp.ClientSession() as session:
        yield ChatClient(session, url.rstrip("/"), token=token)
