"""An AG-UI client that checks the event types and that everything opened is closed."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from ag_ui.core import Event
from pydantic import TypeAdapter
from tests.sockets import frames_in

from batonkit.serve import serve_in_background

_EVENTS: Any = TypeAdapter(Event)
_PAIRS = {
    "TEXT_MESSAGE_START": ("TEXT_MESSAGE_END", "messageId"),
    "REASONING_START": ("REASONING_END", "messageId"),
    "REASONING_MESSAGE_START": ("REASONING_MESSAGE_END", "messageId"),
    "TOOL_CALL_START": ("TOOL_CALL_END", "toolCallId"),
    "STEP_STARTED": ("STEP_FINISHED", "stepName"),
    "SUBAGENT_STARTED": ("SUBAGENT_FINISHED", "subagentRunId"),
}
_CONTENTS = {
    "TEXT_MESSAGE_CONTENT": ("TEXT_MESSAGE_START", "messageId"),
    "REASONING_MESSAGE_CONTENT": ("REASONING_MESSAGE_START", "messageId"),
    "TOOL_CALL_ARGS": ("TOOL_CALL_START", "toolCallId"),
}


def assert_valid(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Assert that the official types accept the events and that their order is valid; return them."""
    for event in events:
        validated = _EVENTS.validate_python(event)
        assert not validated.model_extra, f"{event['type']} has fields the protocol does not know"
        assert None not in event.values(), "absent fields must be left out, not null"
    kinds = [event["type"] for event in events]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] in ("RUN_FINISHED", "RUN_ERROR")
    assert not {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"} & {*kinds[1:-1]}
    is_open: set[tuple[str, str]] = set()
    ends = {end: (start, field) for start, (end, field) in _PAIRS.items()}
    ends["SUBAGENT_ERROR"] = ("SUBAGENT_STARTED", "subagentRunId")
    for event in events:
        kind = event["type"]
        if kind in _PAIRS:
            opened = (kind, event[_PAIRS[kind][1]])
            assert opened not in is_open
            is_open.add(opened)
        elif kind in ends:
            is_open.remove((ends[kind][0], event[ends[kind][1]]))
        elif kind in _CONTENTS:
            assert (_CONTENTS[kind][0], event[_CONTENTS[kind][1]]) in is_open
        if kind not in ("SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR") and "subagentRunId" in event:
            assert ("SUBAGENT_STARTED", event["subagentRunId"]) in is_open
    assert is_open == set()
    return events


class FrontendClient:
    """A client that keeps the messages of one thread, like a user interface."""

    def __init__(self, session: aiohttp.ClientSession, url: str, thread: str = "t1", token: str = "") -> None:
        self.session = session
        self.url = url
        self.thread = thread
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.messages: list[dict[str, Any]] = []
        self.count = 0

    def request(self, text: str | None = None, **more: Any) -> dict[str, Any]:
        """Create the next request."""
        self.count += 1
        if text is not None:
            self.messages.append({"id": f"u{self.count}", "role": "user", "content": text})
        return {"threadId": self.thread, "runId": f"{self.thread}-r{self.count}", "messages": self.messages, **more}

    async def refused(self, text: str | None = None, **more: Any) -> tuple[int, str]:
        """Send a request that is refused; return the status and the code."""
        async with self.session.post(self.url, json=self.request(text, **more), headers=self.headers) as answer:
            return answer.status, (await answer.json())["error"]["code"]

    async def run(
        self, text: str | None = None, *, on_event: Callable[[dict[str, Any]], None] | None = None, **more: Any
    ) -> list[dict[str, Any]]:
        """Send a request and return the checked events. `on_event` is called with each event as it arrives."""
        request = self.request(text, **more)
        async with self.session.post(self.url, json=request, headers=self.headers) as answer:
            assert answer.status == 200, await answer.text()
            events: list[dict[str, Any]] = []
            async for frame in frames_in(answer.content):
                if "data" in frame:
                    events.append(json.loads(frame["data"]))
                    if on_event is not None:
                        on_event(events[-1])
        assert (events[0]["threadId"], events[0]["runId"]) == (request["threadId"], request["runId"])
        self._keep(events)
        return assert_valid(events)

    def _keep(self, events: list[dict[str, Any]]) -> None:
        texts: dict[str, dict[str, Any]] = {}
        for event in events:
            if event["type"] == "TEXT_MESSAGE_START":
                texts[event["messageId"]] = {"id": event["messageId"], "role": event["role"], "content": ""}
                self.messages.append(texts[event["messageId"]])
            elif event["type"] == "TEXT_MESSAGE_CONTENT":
                texts[event["messageId"]]["content"] += event["delta"]
            elif event["type"] == "TOOL_CALL_START":
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                message = {"id": event["parentMessageId"], "role": "assistant", "toolCalls": [call]}
                self.messages.append(message)
            elif event["type"] == "TOOL_CALL_RESULT":
                result = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
                self.messages.append({**result, "content": event["content"]})


def kinds_of(events: list[dict[str, Any]]) -> list[str]:
    """Return the types of the events."""
    return [event["type"] for event in events]


def text_in(events: list[dict[str, Any]]) -> str:
    """Return all text of the events."""
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


@asynccontextmanager
async def serve_frontend(app: Any, token: str = "") -> AsyncGenerator[FrontendClient]:
    """Serve an app, and yield a client for it."""
    async with serve_in_background(app, drain=0) as url, aiohttp.ClientSession() as session:
        yield FrontendClient(session, url, token=token)
