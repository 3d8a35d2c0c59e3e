"""What the conformance kit of A2A 1.0 asks of streams, over all bindings."""

import asyncio
from typing import Any

import pytest
from tests.serving.a2a.wires import Line, Told, message

TERMINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")


def _states(updates: list[dict[str, Any]]) -> list[str]:
    found = [each.get("task") or each.get("statusUpdate") for each in updates]
    return [each["status"]["state"] for each in found if each]


def _chunks(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["artifactUpdate"] for each in updates if "artifactUpdate" in each]


@pytest.mark.parametrize("id", ["tck-stream-001-x", "tck-stream-003-x", "tck-stream-ordering-001-x", "anything"])
async def test_a_stream_begins_with_the_task_and_closes_at_its_end(line: Line, id: str) -> None:
    # CORE-STREAM-001, CORE-STREAM-003, STREAM-ORDER-001, JSONRPC-SSE-001, HTTP_JSON-SSE-001, GRPC-ERR-003
    updates = await line.streamed(message=message(id))
    assert [*updates[0]] == ["task"]
    states = _states(updates)
    assert states[-1] == "TASK_STATE_COMPLETED"
    assert [*updates[-1]] == ["statusUpdate"]
    assert not [state for state in states[:-1] if state in TERMINAL]
    assert {each["taskId"] for each in _chunks(updates)} == {updates[0]["task"]["id"]}


async def test_a_stream_of_one_message(line: Line) -> None:
    # CORE-STREAM-002
    (only,) = await line.streamed(message=message("tck-stream-002-x"))
    assert [*only] == ["message"]
    assert only["message"]["parts"] == [{"text": "Direct message response"}]


async def test_a_text_in_pieces(line: Line) -> None:
    chunks = _chunks(await line.streamed(message=message("tck-stream-artifact-chunked-x")))
    assert len({each["artifact"]["artifactId"] for each in chunks}) == 1
    assert "".join(part["text"] for each in chunks for part in each["artifact"]["parts"]) == "chunk-1 chunk-2"
    assert [each.get("append", False) for each in chunks] == [False] + [True] * (len(chunks) - 1)
    assert [each.get("lastChunk", False) for each in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_a_file_in_a_stream(line: Line) -> None:
    (chunk,) = _chunks(await line.streamed(message=message("tck-stream-artifact-file-x")))
    assert chunk["artifact"]["parts"] == [{"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"}]
    assert chunk["lastChunk"] is True


async def test_a_stream_of_what_is_declined_or_asks_ends_there(line: Line) -> None:
    assert _states(await line.streamed(message=message("tck-reject-task-x")))[-1] == "TASK_STATE_REJECTED"
    assert _states(await line.streamed(message=message("tck-input-required-x")))[-1] == "TASK_STATE_INPUT_REQUIRED"


async def test_who_subscribes_first_gets_the_task_and_then_what_happens(line: Line) -> None:
    # STREAM-SUB-001
    begun = await line.task("test-resubscribe-message-id", configuration={"returnImmediately": True})
    updates = await line.streamed("SubscribeToTask", id=begun["id"])
    assert updates[0]["task"]["id"] == begun["id"]
    assert _states(updates)[-1] == "TASK_STATE_COMPLETED"


async def test_two_who_listen_to_a_task_that_waits_hear_the_same_until_its_end(line: Line) -> None:
    # STREAM-SUB-002, STREAM-ORDER-002, STREAM-ORDER-003
    task = await line.task("tck-input-required-x")
    heard: list[list[Any]] = [[], []]
    ready = [asyncio.Event(), asyncio.Event()]

    async def listen(number: int) -> None:
        async for update in line.wire.stream("SubscribeToTask", {"id": task["id"]}):
            heard[number].append(update)
            ready[number].set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for number in (0, 1):
            tasks.create_task(listen(number))
        await asyncio.gather(*[each.wait() for each in ready])
        await line.task("tck-complete-task-x", taskId=task["id"])
    assert heard[0] == heard[1]
    assert _states(heard[0])[0] == "TASK_STATE_INPUT_REQUIRED"
    assert _states(heard[0])[-1] == "TASK_STATE_COMPLETED"


async def test_who_leaves_does_not_take_the_others_along(line: Line) -> None:
    # STREAM-ORDER-004
    task = await line.task("tck-input-required-x")
    leaving = line.wire.stream("SubscribeToTask", {"id": task["id"]})
    staying = line.wire.stream("SubscribeToTask", {"id": task["id"]})
    assert await anext(leaving) == await anext(staying)
    await leaving.aclose()
    await line.task("tck-complete-task-x", taskId=task["id"])
    async with asyncio.timeout(60):
        rest = [each async for each in staying]
    assert _states(rest)[-1] == "TASK_STATE_COMPLETED"


async def test_there_is_nothing_to_listen_to_in_a_task_that_has_ended_or_never_was(line: Line) -> None:
    # STREAM-SUB-003, STREAM-SUB-004, CORE-SEND-002, CORE-MULTI-004
    done = await line.task("tck-complete-task-x")
    with pytest.raises(Told, match="UNSUPPORTED_OPERATION"):
        await line.streamed("SubscribeToTask", id=done["id"])
    with pytest.raises(Told, match="TASK_NOT_FOUND"):
        await line.streamed("SubscribeToTask", id="nobody")
    with pytest.raises(Told, match="UNSUPPORTED_OPERATION"):
        await line.streamed(message=message("tck-stream-001", taskId=done["id"]))
    with pytest.raises(Told, match="TASK_NOT_FOUND"):
        await line.streamed(message=message("tck-stream-001", taskId="nobody"))
