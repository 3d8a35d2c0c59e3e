"""The conformance kit's requirements of A2A 1.0 for streams, for all bindings."""

import asyncio
from typing import Any

import pytest
from tests.serve.a2a.bindings import RefusedError, ServiceUnderTest, message

TERMINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")


def _states(updates: list[dict[str, Any]]) -> list[str]:
    found = [each.get("task") or each.get("statusUpdate") for each in updates]
    return [each["status"]["state"] for each in found if each]


def _chunks(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["artifactUpdate"] for each in updates if "artifactUpdate" in each]


@pytest.mark.parametrize("id", ["tck-stream-001-x", "tck-stream-003-x", "tck-stream-ordering-001-x", "anything"])
async def test_a_stream_starts_with_the_task_and_closes_at_its_end(service: ServiceUnderTest, id: str) -> None:
    # CORE-STREAM-001, CORE-STREAM-003, STREAM-ORDER-001, JSONRPC-SSE-001, HTTP_JSON-SSE-001, GRPC-ERR-003
    updates = await service.read_stream(message=message(id))
    assert [*updates[0]] == ["task"]
    states = _states(updates)
    assert states[-1] == "TASK_STATE_COMPLETED"
    assert [*updates[-1]] == ["statusUpdate"]
    assert not [state for state in states[:-1] if state in TERMINAL]
    assert {each["taskId"] for each in _chunks(updates)} == {updates[0]["task"]["id"]}


async def test_a_stream_may_be_one_message(service: ServiceUnderTest) -> None:
    # CORE-STREAM-002
    (only,) = await service.read_stream(message=message("tck-stream-002-x"))
    assert [*only] == ["message"]
    assert only["message"]["parts"] == [{"text": "Direct message response"}]


async def test_streamed_text_is_one_artifact_in_chunks(service: ServiceUnderTest) -> None:
    chunks = _chunks(await service.read_stream(message=message("tck-stream-artifact-chunked-x")))
    assert len({each["artifact"]["artifactId"] for each in chunks}) == 1
    assert "".join(part["text"] for each in chunks for part in each["artifact"]["parts"]) == "chunk-1 chunk-2"
    assert [each.get("append", False) for each in chunks] == [False] + [True] * (len(chunks) - 1)
    assert [each.get("lastChunk", False) for each in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_a_file_is_one_chunk(service: ServiceUnderTest) -> None:
    (chunk,) = _chunks(await service.read_stream(message=message("tck-stream-artifact-file-x")))
    assert chunk["artifact"]["parts"] == [{"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"}]
    assert chunk["lastChunk"] is True


async def test_a_stream_ends_when_the_task_is_declined_or_needs_input(service: ServiceUnderTest) -> None:
    assert _states(await service.read_stream(message=message("tck-reject-task-x")))[-1] == "TASK_STATE_REJECTED"
    assert (
        _states(await service.read_stream(message=message("tck-input-required-x")))[-1] == "TASK_STATE_INPUT_REQUIRED"
    )


async def test_a_subscription_starts_with_the_task_and_continues_with_updates(service: ServiceUnderTest) -> None:
    # STREAM-SUB-001
    started = await service.task("test-resubscribe-message-id", configuration={"returnImmediately": True})
    complete = service.endpoints.sut.may_complete.set
    updates = await service.read_stream("SubscribeToTask", id=started["id"], on_update=complete)
    assert updates[0]["task"]["id"] == started["id"]
    assert _states(updates)[-1] == "TASK_STATE_COMPLETED"


async def test_two_subscribers_of_a_waiting_task_get_the_same_updates(service: ServiceUnderTest) -> None:
    # STREAM-SUB-002, STREAM-ORDER-002, STREAM-ORDER-003
    task = await service.task("tck-input-required-x")
    received: list[list[Any]] = [[], []]
    ready = [asyncio.Event(), asyncio.Event()]

    async def listen(number: int) -> None:
        async for update in service.client.stream("SubscribeToTask", {"id": task["id"]}):
            received[number].append(update)
            ready[number].set()

    async with asyncio.TaskGroup() as tasks:
        for number in (0, 1):
            tasks.create_task(listen(number))
        await asyncio.gather(*[each.wait() for each in ready])
        await service.task("tck-complete-task-x", taskId=task["id"])
    assert received[0] == received[1]
    assert _states(received[0])[0] == "TASK_STATE_INPUT_REQUIRED"
    assert _states(received[0])[-1] == "TASK_STATE_COMPLETED"


async def test_closing_one_subscription_does_not_close_the_others(service: ServiceUnderTest) -> None:
    # STREAM-ORDER-004
    task = await service.task("tck-input-required-x")
    leaving = service.client.stream("SubscribeToTask", {"id": task["id"]})
    staying = service.client.stream("SubscribeToTask", {"id": task["id"]})
    assert await anext(leaving) == await anext(staying)
    await leaving.aclose()
    await service.task("tck-complete-task-x", taskId=task["id"])
    rest = [each async for each in staying]
    assert _states(rest)[-1] == "TASK_STATE_COMPLETED"


async def test_ended_and_unknown_tasks_cannot_be_subscribed_to(service: ServiceUnderTest) -> None:
    # STREAM-SUB-003, STREAM-SUB-004, CORE-SEND-002, CORE-MULTI-004
    completed = await service.task("tck-complete-task-x")
    with pytest.raises(RefusedError, match="UNSUPPORTED_OPERATION"):
        await service.read_stream("SubscribeToTask", id=completed["id"])
    with pytest.raises(RefusedError, match="TASK_NOT_FOUND"):
        await service.read_stream("SubscribeToTask", id="unknown")
    with pytest.raises(RefusedError, match="UNSUPPORTED_OPERATION"):
        await service.read_stream(message=message("tck-stream-001", taskId=completed["id"]))
    with pytest.raises(RefusedError, match="TASK_NOT_FOUND"):
        await service.read_stream(message=message("tck-stream-001", taskId="unknown"))
