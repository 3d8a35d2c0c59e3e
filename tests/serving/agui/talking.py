"""Talks AG-UI with an app over a real socket, and holds it to the protocol: types, and what must be open or closed."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from ag_ui.core import Event
from pydantic import TypeAdapter
from tests.sockets import frames_in

from baton.serving import serve_in_background

_EVENTS: Any = TypeAdapter(Event)
_PAIRS = {
    "TEXT_MESSAGE_START": ("TEXT_MESSAGE_END", "messageId"),
    "REASONING_START": ("REASONING_END", "messageId"),
    "REASONING_MESSAGE_START": ("REASONING_MESSAGE_END", "messageId"),
    "TOOL_CALL_START": ("TOOL_CALL_END", "toolCallId"),
    "STEP_STARTED": ("STEP_FINISHED", "stepName"),
    "SUBAGENT_STARTED": ("SUBAGENT_FINISHED", "subagentRunId"),
}
_INSIDE = {
    "TEXT_MESSAGE_CONTENT": ("TEXT_MESSAGE_START", "messageId"),
    "REASONING_MESSAGE_CONTENT": ("REASONING_MESSAGE_START", "messageId"),
    "TOOL_CALL_ARGS": ("TOOL_CALL_START", "toolCallId"),
}


def checked(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events, if the official types take them and the order is one that a client accepts."""
    for event in told:
        validated = _EVENTS.validate_python(event)
        assert not validated.model_extra, f"{event['type']} has fields the protocol does not know"
        assert None not in event.values(), "what is absent is left out, not null"
    kinds = [event["type"] for event in told]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] in ("RUN_FINISHED", "RUN_ERROR")
    assert not {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"} & {*kinds[1:-1]}
    is_open: set[tuple[str, str]] = set()
    ends = {end: (start, field) for start, (end, field) in _PAIRS.items()}
    ends["SUBAGENT_ERROR"] = ("SUBAGENT_STARTED", "subagentRunId")
    for event in told:
        kind = event["type"]
        if kind in _PAIRS:
            place = (kind, event[_PAIRS[kind][1]])
            assert place not in is_open
            is_open.add(place)
        elif kind in ends:
            is_open.remove((ends[kind][0], event[ends[kind][1]]))
        elif kind in _INSIDE:
            assert (_INSIDE[kind][0], event[_INSIDE[kind][1]]) in is_open
        if kind not in ("SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR") and "subagentRunId" in event:
            assert ("SUBAGENT_STARTED", event["subagentRunId"]) in is_open
    assert is_open == set()
    return told


class Front:
    """A user interface, as far as the protocol is concerned: it keeps the messages and the state of one thread."""

    def __init__(self, session: aiohttp.ClientSession, url: str, thread: str = "t1", token: str = "") -> None:
        self.session = session
        self.url = url
        self.thread = thread
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.messages: list[dict[str, Any]] = []
        self.count = 0

    def request(self, text: str | None = None, **more: Any) -> dict[str, Any]:
        """The next request."""
        self.count += 1
        if text is not None:
            self.messages.append({"id": f"u{self.count}", "role": "user", "content": text})
        return {"threadId": self.thread, "runId": f"{self.thread}-r{self.count}", "messages": self.messages, **more}

    async def refused(self, text: str | None = None, **more: Any) -> tuple[int, str]:
        """Make a request that is not carried out; the status and the code."""
        async with self.session.post(self.url, json=self.request(text, **more), headers=self.headers) as answer:
            return answer.status, (await answer.json())["error"]["code"]

    async def run(
        self, text: str | None = None, *, heard: Callable[[dict[str, Any]], None] | None = None, **more: Any
    ) -> list[dict[str, Any]]:
        """Make a request; all that is told, checked. `heard` is called with each event as it comes."""
        request = self.request(text, **more)
        async with self.session.post(self.url, json=request, headers=self.headers) as answer:
            assert answer.status == 200, await answer.text()
            told: list[dict[str, Any]] = []
            async for frame in frames_in(answer.content):
                if "data" in frame:
                    told.append(json.loads(frame["data"]))
                    if heard is not None:
                        heard(told[-1])
        assert (told[0]["threadId"], told[0]["runId"]) == (request["threadId"], request["runId"])
        self._keep(told)
        return checked(told)

    def _keep(self, told: list[dict[str, Any]]) -> None:
        texts: dict[str, dict[str, Any]] = {}
        for event in told:
            if event["type"] == "TEXT_MESSAGE_START":
                texts[event["messageId"]] = {"id": event["messageId"], "role": "assistant", "content": ""}
                self.messages.append(texts[event["messageId"]])
            elif event["type"] == "TEXT_MESSAGE_CONTENT":
                texts[event["messageId"]]["content"] += event["delta"]
            elif event["type"] == "TOOL_CALL_START":
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                message = {"id": event["parentMessageId"], "role": "assistant", "toolCalls": [call]}
                self.messages.append(message)
            elif event["type"] == "TOOL_CALL_RESULT":
                kept = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
                self.messages.append({**kept, "content": event["content"]})


def kinds_of(told: list[dict[str, Any]]) -> list[str]:
    """What sort of events they are."""
    return [event["type"] for event in told]


def text_in(told: list[dict[str, Any]]) -> str:
    """All text that was told."""
    return "".join(event["delta"] for event in told if event["type"] == "TEXT_MESSAGE_CONTENT")


@asynccontextmanager
async def front_of(app: Any, token: str = "") -> AsyncGenerator[Front]:
    """Serve an app, and talk with it."""
    async with serve_in_background(app, timeout_graceful_shutdown=1) as url, aiohttp.ClientSession() as session:
        yield Front(session, url, token=token)
