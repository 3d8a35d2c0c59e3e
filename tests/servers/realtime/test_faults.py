"""Faults that are injected into a connection."""

import aiohttp
import pytest
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import (
    CutConnection,
    DelayEvent,
    DropEvent,
    IgnoreCommand,
    RefuseCommand,
    RepeatEvent,
    SwapEvents,
)
from tests.servers.realtime.clients import HELLO, RawClient, raw

from batonkit.testing import call


async def until_the_end(client: RawClient) -> int | None:
    """Read all remaining events, and return the close code."""
    while (message := await client.websocket.receive()).type is aiohttp.WSMsgType.TEXT:
        client.events.append(message.json())
    return client.websocket.close_code


@pytest.mark.parametrize(
    ("fault", "last"),
    [
        (CutConnection("response.created", before=True), "session.created"),
        (CutConnection("response.created"), "response.created"),
        (CutConnection("response.output_audio.delta", nth=2), "response.output_audio.delta"),
        (CutConnection("response.done", before=True), "conversation.item.done"),
    ],
)
async def test_a_cut_at_a_point(fault: CutConnection, last: str) -> None:
    async with OpenAIRealtimeServer(["One two three."], faults=[fault]) as server, raw(server) as client:
        await client.send("response.create")
        assert await until_the_end(client) == 1006
        assert client.types()[-1] == last
        assert await server.sessions[0].until_closed() == 1006
        assert server.faults_left == []


async def test_a_cut_between_a_call_and_the_end_of_its_response() -> None:
    fault = CutConnection("response.function_call_arguments.done")
    async with OpenAIRealtimeServer([call("f")], faults=[fault]) as server, raw(server) as client:
        await client.send("response.create")
        await until_the_end(client)
    assert client.types()[-1] == "response.function_call_arguments.done"


async def test_a_cut_by_the_test_itself_and_a_close_with_a_code() -> None:
    async with OpenAIRealtimeServer([call("f")]) as server:
        async with raw(server) as client:
            await client.send("response.create")
            await client.until("response.done")
            await server.sessions[0].abort()
            assert await until_the_end(client) == 1006
        async with raw(server) as client:
            await (await server.session(1)).close(1001, "going away")
            assert await until_the_end(client) == 1001
        fault = CutConnection("conversation.item.done", code=4000, reason="session_expired")
        server.plan(fault)
        async with raw(server) as client:
            await client.send("conversation.item.create", item=HELLO)
            assert await until_the_end(client) == 4000


async def test_events_are_repeated_swapped_and_dropped() -> None:
    faults = [
        RepeatEvent("response.done"),
        RepeatEvent("response.output_item.done", new_id=True),
        SwapEvents("response.output_audio.delta"),
        DropEvent("rate_limits.updated"),
    ]
    async with OpenAIRealtimeServer(["One two."], faults=faults) as server, raw(server) as client:
        await client.send("response.create")
        await client.until("response.done", 2)
    types = client.types()
    assert "rate_limits.updated" not in types
    first = types.index("response.output_audio_transcript.delta")
    assert types[first : first + 4] == [
        "response.output_audio_transcript.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.delta",
    ]
    done = [event["event_id"] for event in client.events if event["type"] == "response.done"]
    assert done[0] == done[1]
    closed = [event["event_id"] for event in client.events if event["type"] == "response.output_item.done"]
    assert closed[0] != closed[1]


async def test_a_delay_holds_up_what_follows() -> None:
    async with (
        OpenAIRealtimeServer(["One."], faults=[DelayEvent("response.created", 0.05)]) as server,
        raw(server) as client,
    ):
        await client.send("response.create")
        await client.until("response.done")
    session = server.sessions[0]
    asked = await session.until_received("response.create")
    created = await session.until_sent("response.created")
    assert created.at - asked.at >= 0.05


async def test_commands_are_ignored_or_refused_once() -> None:
    faults = [IgnoreCommand("conversation.item.create"), RefuseCommand("response.create", "server_error", "no")]
    async with OpenAIRealtimeServer(["One."], faults=faults) as server, raw(server) as client:
        await client.send("conversation.item.create", item=HELLO)
        await client.send("response.create", event_id="first")
        error = (await client.until("error"))["error"]
        assert (error["code"], error["message"], error["event_id"]) == ("server_error", "no", "first")
        assert "conversation.item.added" not in client.types()
        await client.send("response.create")
        await client.until("response.done")
    assert server.complaints == []


async def test_a_timeout_names_what_came_instead() -> None:
    async with OpenAIRealtimeServer([]) as server, raw(server) as client:
        await client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
        with pytest.raises(AssertionError, match=r"no 1\. `response\.create`.*input_audio_buffer\.clear"):
            await server.sessions[0].until_received("response.create", within=0.01)
        with pytest.raises(AssertionError, match="session 1 was not opened"):
            await server.session(1, within=0.01)
