"""Invalid client events: each is answered by an `error` event with the client's event id, and is recorded."""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import silence
from tests.servers.realtime.clients import HELLO, TEXT, check_all, raw

from batonkit.testing import ScriptedStream, call

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
CALL: dict[str, Any] = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "call_x"}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "call_x", "output": "1"}


def session(**fields: Any) -> dict[str, Any]:
    """Build an update of settings."""
    return {"type": "session.update", "session": {"type": "realtime", **fields}}


def tool(name: str = "f", **fields: Any) -> dict[str, Any]:
    """Build a tool."""
    return {"type": "function", "name": name, "parameters": OBJECT, **fields}


def output(**fields: Any) -> dict[str, Any]:
    """Build an update of the settings for output audio."""
    return session(audio={"output": fields})


def listening(**fields: Any) -> dict[str, Any]:
    """Build an update of the settings for input audio."""
    return session(audio={"input": fields})


def item(**fields: Any) -> dict[str, Any]:
    """Build the creation of an item."""
    return {"type": "conversation.item.create", "item": fields}


def part(role: str, **fields: Any) -> dict[str, Any]:
    """Build the creation of a message with one content part."""
    return item(type="message", role=role, content=[fields])


WRONG: list[tuple[dict[str, Any], str | None, str | None]] = [
    ({"type": "session.destroy"}, "invalid_value", "type"),
    ({"type": 7}, "invalid_type", "type"),
    ({}, "missing_required_parameter", "type"),
    ({"type": "response.create", "now": True}, "unknown_parameter", "now"),
    ({"type": "session.update"}, "missing_required_parameter", "session"),
    ({"type": "session.update", "session": {}}, "missing_required_parameter", "session.type"),
    ({"type": "session.update", "session": {"type": "transcription"}}, "invalid_value", "session.type"),
    (session(modalities=["text"]), "unknown_parameter", "session.modalities"),
    (session(output_modalities=["text", "audio"]), "invalid_value", "session.output_modalities"),
    (session(instructions="x" * 65_537), "string_above_max_length", "session.instructions"),
    (session(instructions=None), "invalid_type", "session.instructions"),
    (session(model="other"), "cannot_update_model", "session.model"),
    (session(max_output_tokens=0), "integer_below_min_value", "session.max_output_tokens"),
    (session(tools=[tool("not a name")]), "invalid_value", "session.tools[0].name"),
    (session(tools=[tool("x" * 65)]), "string_above_max_length", "session.tools[0].name"),
    (session(tools=[tool(), tool()]), None, "session.tools[1].name"),
    (
        session(tools=[tool(parameters={"type": "string"})]),
        "invalid_function_parameters",
        "session.tools[0].parameters",
    ),
    (session(tools=[tool(strict=True)]), "unknown_parameter", "session.tools[0].strict"),
    (session(tool_choice={"type": "function", "name": "g"}, tools=[tool()]), None, "tool_choice"),
    (session(voice="alloy"), "unknown_parameter", "session.voice"),
    (output(voice="nobody"), "invalid_value", "session.audio.output.voice"),
    (output(speed=2), "integer_above_max_value", "session.audio.output.speed"),
    (output(format={"type": "pcm16"}), "invalid_value", "session.audio.output.format.type"),
    (output(format={"type": "audio/pcm", "rate": 8000}), "invalid_value", "session.audio.output.format.rate"),
    (listening(turn_detection={"type": "vad"}), "invalid_value", "session.audio.input.turn_detection.type"),
    (
        listening(turn_detection={"type": "server_vad", "threshold": 2}),
        "integer_above_max_value",
        "session.audio.input.turn_detection.threshold",
    ),
    ({"type": "input_audio_buffer.append", "audio": "no base64!"}, "invalid_base64", "audio"),
    ({"type": "input_audio_buffer.append", "audio": b64encode(b"odd").decode()}, "invalid_value", "audio"),
    ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty", None),
    ({"type": "output_audio_buffer.clear"}, "invalid_value", "type"),
    (item(type="thought"), "invalid_value", "item.type"),
    (item(type="message", role="boss", content=[]), "invalid_value", "item.role"),
    (item(type="message", role="user", content=[]), "empty_array", "item.content"),
    (item(**HELLO, id="x" * 33), "string_above_max_length", "item.id"),
    (item(**{**CALL, "call_id": "c" * 33}), "string_above_max_length", "item.call_id"),
    (item(**OUTPUT), "invalid_tool_call_id", "item.call_id"),
    (item(**CALL, tool=1), "unknown_parameter", "item.tool"),
    (part("user", type="text", text="a"), "invalid_value", "item.content[0].type"),
    (part("user", type="input_text"), "missing_required_parameter", "item.content[0].text"),
    (part("user", type="input_text", text="a", audio=""), "unknown_parameter", "item.content[0].audio"),
    (part("user", type="input_audio", audio="no!"), "invalid_base64", "item.content[0].audio"),
    (part("user", type="input_image", image_url="http://a/b.png"), "invalid_value", "item.content[0].image_url"),
    (part("assistant", type="output_audio", audio=""), "invalid_value", "item.content[0].type"),
    (part("system", type="input_audio", audio=""), "invalid_value", "item.content[0].type"),
    (
        {**item(**HELLO), "previous_item_id": "nobody"},
        "item_create_invalid_previous_item_id",
        "previous_item_id",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "nobody", "content_index": 0, "audio_end_ms": 0},
        "item_truncate_invalid_item_id",
        "item_id",
    ),
    ({"type": "conversation.item.delete", "item_id": "nobody"}, "item_delete_invalid_item_id", "item_id"),
    ({"type": "conversation.item.retrieve", "item_id": "nobody"}, "item_retrieve_invalid_item_id", "item_id"),
    ({"type": "response.cancel"}, "response_cancel_not_active", None),
    ({"type": "response.create", "response": {"voice": "alloy"}}, "unknown_parameter", "response.voice"),
    (
        {"type": "response.create", "response": {"conversation": "none"}},
        "unsupported_parameter",
        "response.conversation",
    ),
]


@pytest.mark.parametrize(("event", "code", "param"), WRONG, ids=lambda value: str(value)[:60])
async def test_a_wrong_event_is_refused_and_changes_nothing(
    event: dict[str, Any], code: str | None, param: str | None
) -> None:
    async with OpenAIRealtimeServer([]) as server, raw(server) as client:
        before = server.sessions[0].settings
        await client.websocket.send_json({**event, "event_id": "mine"})
        error = (await client.until("error"))["error"]
        assert (error["code"], error["param"], error["event_id"]) == (code, param, "mine")
        assert error["type"] == "invalid_request_error"
        (served,) = server.sessions
        assert (served.settings, served.items) == (before, [])
    check_all(served.sent)
    assert [(complaint.code, complaint.event_id) for complaint in server.complaints] == [(code, "mine")]


async def test_invalid_json_is_rejected() -> None:
    async with OpenAIRealtimeServer([]) as server, raw(server) as client:
        await client.websocket.send_str("{broken")
        assert "could not parse" in (await client.until("error"))["error"]["message"]


async def complaints_after(server: OpenAIRealtimeServer, events: Sequence[dict[str, Any]]) -> list[str | None]:
    """Send events one after the other, and return the codes of the rejected ones."""
    async with raw(server) as client:
        for number, event in enumerate(events):
            await client.websocket.send_json(event)
            if event["type"] == "response.create":
                await client.until("response.done", sum(e["type"] == "response.create" for e in events[: number + 1]))
        await client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
    return [complaint.code for complaint in server.complaints]


async def test_the_voice_stays_once_it_was_heard() -> None:
    first, same, other = output(voice="marin"), output(voice="marin"), output(voice="cedar")
    speak = {"type": "response.create"}
    async with OpenAIRealtimeServer(["Hello."]) as server:
        assert await complaints_after(server, [other, first, speak, same, other]) == ["cannot_update_voice"]
    assert server.sessions[0].settings["audio"]["output"]["voice"] == "marin"


async def test_a_text_answer_leaves_the_voice_free() -> None:
    steps = [session(**TEXT), {"type": "response.create"}, output(voice="cedar")]
    async with OpenAIRealtimeServer(["Hello."]) as server:
        assert await complaints_after(server, steps) == []


async def test_ids_are_there_once_and_results_too() -> None:
    hello = item(**HELLO, id="item_1")
    events = [hello, hello, item(**CALL), item(**CALL), item(**OUTPUT), item(**OUTPUT)]
    async with OpenAIRealtimeServer([]) as server:
        assert await complaints_after(server, events) == [
            "item_create_duplicate_item_id",
            "duplicate_tool_call_id",
            "duplicate_tool_call_output",
        ]
        assert len(server.sessions[0].items) == 3


async def test_a_result_for_a_call_that_was_made_is_taken() -> None:
    events = [{"type": "response.create"}, item(**{**OUTPUT, "call_id": "call_1"})]
    async with OpenAIRealtimeServer([call("f")]) as server:
        assert await complaints_after(server, events) == []


async def test_only_spoken_items_can_be_truncated() -> None:
    truncate = {"type": "conversation.item.truncate", "item_id": "item_1", "content_index": 0, "audio_end_ms": 0}
    async with OpenAIRealtimeServer([]) as server:
        assert await complaints_after(server, [item(**HELLO, id="item_1"), truncate]) == ["invalid_value"]


async def test_too_little_audio_cannot_be_committed() -> None:
    little = {"type": "input_audio_buffer.append", "audio": b64encode(silence(80)).decode()}
    commit = {"type": "input_audio_buffer.commit"}
    async with OpenAIRealtimeServer([]) as server:
        events = [listening(turn_detection=None), little, commit, little, commit]
        assert await complaints_after(server, events) == ["input_audio_buffer_commit_empty"]


async def test_one_response_at_a_time() -> None:
    gate = asyncio.Event()
    async with OpenAIRealtimeServer([ScriptedStream("One ", gate, "two.")]) as server, raw(server) as client:
        await client.send("response.create")
        await client.until("response.output_audio.delta")
        await client.send("response.create", event_id="second")
        error = (await client.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", "second")
        gate.set()
        await client.until("response.done")
