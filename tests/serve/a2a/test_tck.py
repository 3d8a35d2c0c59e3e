"""The conformance kit's requirements of A2A 1.0 for tasks and messages, with their ids, for all bindings."""

import re
from typing import Any, cast

import pytest
from tests.serve.a2a.bindings import ServiceUnderTest, message

COMPLETED = "TASK_STATE_COMPLETED"


async def test_each_message_starts_a_task_with_unique_ids(service: ServiceUnderTest) -> None:
    # CORE-SEND-001, CORE-MULTI-001a, CORE-MULTI-003, CORE-GET-001
    first, second = await service.task("tck-complete-task-1"), await service.task("tck-complete-task-1")
    assert first["status"]["state"] == second["status"]["state"] == COMPLETED
    assert len({first["id"], second["id"], first["contextId"], second["contextId"]}) == 4
    assert await service.client.call("GetTask", {"id": first["id"]}) == first


async def test_the_callers_context_id_is_used(service: ServiceUnderTest) -> None:
    # CORE-MULTI-002, CORE-MULTI-002a
    assert (await service.task("tck-complete-task-1", contextId="mine"))["contextId"] == "mine"
    refused = await service.refused("SendMessage", message=message("tck-complete-task-1", contextId="a\0b"))
    assert refused == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("id", "parts"),
    [
        ("tck-artifact-text-1", [{"text": "Generated text content"}]),
        ("tck-artifact-file-1", [{"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"}]),
        (
            "tck-artifact-file-url-1",
            [{"url": "https://example.com/output.txt", "mediaType": "text/plain", "filename": "output.txt"}],
        ),
        ("tck-artifact-data-1", [{"data": {"key": "value", "count": 42.0}, "mediaType": "application/json"}]),
    ],
)
async def test_artifacts_have_the_parts_of_the_response(service: ServiceUnderTest, id: str, parts: list[Any]) -> None:
    # DM-ART-001, DM-PART-001
    (artifact,) = (await service.task(id))["artifacts"]
    assert artifact["artifactId"]
    assert artifact["parts"] == parts


async def test_each_response_is_a_separate_artifact(service: ServiceUnderTest) -> None:
    first, second = (await service.task("tck-artifact-several-1"))["artifacts"]
    assert first["artifactId"] != second["artifactId"]
    assert [[*part] for part in second["parts"]] == [["raw", "filename", "mediaType"], ["data", "mediaType"]]


async def test_an_agent_can_answer_with_a_message(service: ServiceUnderTest) -> None:
    # CORE-SEND-001, DM-MSG-001
    answer = await service.send("tck-message-response-1")
    assert [*answer] == ["message"]
    assert answer["message"]["role"] == "ROLE_AGENT"
    assert answer["message"]["parts"] == [{"text": "Direct message response"}]
    assert answer["message"]["contextId"]


@pytest.mark.parametrize(
    ("id", "state", "text"),
    [
        ("tck-reject-task-1", "TASK_STATE_REJECTED", "rejected"),
        ("tck-fail-task-1", "TASK_STATE_FAILED", "The task failed. The operator of the service has the details."),
    ],
)
async def test_declined_and_failed_tasks_have_their_status_message(
    service: ServiceUnderTest, id: str, state: str, text: str
) -> None:
    task = await service.task(id)
    assert task["status"]["state"] == state
    assert task["status"]["message"]["parts"] == [{"text": text}]
    assert "hunter2" not in str(task)


async def test_return_immediately_does_not_wait_for_the_task(service: ServiceUnderTest) -> None:
    # CORE-EXECUTION-MODE-001, CORE-EXECUTION-MODE-002
    unfinished = await service.task("tck-delayed-complete-1", configuration={"returnImmediately": True})
    assert unfinished["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    service.endpoints.sut.may_complete.set()
    completed = await service.task("tck-delayed-complete-1", configuration={"returnImmediately": False})
    assert completed["status"]["state"] == COMPLETED


@pytest.mark.parametrize("kind", ["input", "auth"])
async def test_a_waiting_task_continues_with_the_next_message(service: ServiceUnderTest, kind: str) -> None:
    # CORE-EXECUTION-MODE-001, CORE-MULTI-005, AUTH-INTASK-001, AUTH-INTASK-002, CORE-HIST-004 to -006
    waiting = f"TASK_STATE_{kind.upper()}_REQUIRED"
    task = await service.task(f"tck-{kind}-required-1", "first")
    assert task["status"]["state"] == waiting
    assert (await service.client.call("GetTask", {"id": task["id"]}))["status"]["state"] == waiting
    again = await service.task(f"tck-{kind}-required-1", "second", taskId=task["id"], metadata={"n": 1.0})
    assert (again["id"], again["status"]["state"]) == (task["id"], waiting)
    completed = await service.task("tck-complete-task-1", "third", taskId=task["id"])
    assert (completed["contextId"], completed["status"]["state"]) == (task["contextId"], COMPLETED)
    assert completed["artifacts"][-1]["parts"] == [{"text": "Hello from TCK"}]
    user_messages = [each for each in completed["history"] if each["role"] == "ROLE_USER"]
    assert [each["parts"][0]["text"] for each in user_messages] == ["first", "second", "third"]
    ids = [each["messageId"] for each in user_messages]
    assert ids == [f"tck-{kind}-required-1", f"tck-{kind}-required-1", "tck-complete-task-1"]
    assert user_messages[1]["metadata"] == {"n": 1.0}


async def test_history_length_limits_the_history(service: ServiceUnderTest) -> None:
    # CORE-HIST-001, CORE-HIST-002, CORE-HIST-003
    task = await service.task("tck-input-required-1")
    completed = await service.task("tck-complete-task-1", configuration={"historyLength": 0}, taskId=task["id"])
    assert "history" not in completed
    assert "history" not in await service.client.call("GetTask", {"id": task["id"], "historyLength": 0})
    latest = await service.client.call("GetTask", {"id": task["id"], "historyLength": 1})
    assert [each["messageId"] for each in latest["history"]] == ["tck-complete-task-1"]


async def test_only_unfinished_tasks_can_be_cancelled(service: ServiceUnderTest) -> None:
    # CORE-CANCEL-001, CORE-CANCEL-002, CORE-CANCEL-003
    task = await service.task("tck-input-required-1")
    cancelled = await service.client.call("CancelTask", {"id": task["id"]})
    assert (cancelled["id"], cancelled["status"]["state"]) == (task["id"], "TASK_STATE_CANCELED")
    completed = await service.task("tck-complete-task-1")
    assert await service.refused("CancelTask", id=task["id"]) == "TASK_NOT_CANCELABLE"
    assert await service.refused("CancelTask", id=completed["id"]) == "TASK_NOT_CANCELABLE"
    assert await service.refused("CancelTask", id="unknown") == "TASK_NOT_FOUND"


async def test_json_has_the_protocols_field_names_and_formats(service: ServiceUnderTest) -> None:
    # DM-SERIAL-001, DM-SERIAL-002, DM-SERIAL-003, DM-SERIAL-005
    if service.binding == "grpc":
        pytest.skip("this is about JSON")
    parts: list[Any] = [{"text": "hi", "another": {}}]
    odd = message("tck-input-required-1", unknownField=1) | {"parts": parts}
    task = (await service.client.call("SendMessage", {"message": odd, "extra": 42}))["task"]
    assert not [key for key in _keys(task) if re.fullmatch(r"[a-z]+(_[a-z]+)+", key)]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", task["status"]["timestamp"])
    assert task["history"][0]["role"] == "ROLE_USER"


def _keys(value: Any) -> list[str]:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return [*fields, *(key for item in fields.values() for key in _keys(item))]
    return [key for item in cast("list[Any]", value) for key in _keys(item)] if isinstance(value, list) else []
