"""What the conformance kit of A2A 1.0 asks of tasks and messages, over all bindings. Its numbers stand at the tests."""

import re
from typing import Any, cast

import pytest
from tests.serving.a2a.wires import Line, message

COMPLETED = "TASK_STATE_COMPLETED"


async def test_a_message_begins_a_task_with_ids_of_its_own(line: Line) -> None:
    # CORE-SEND-001, CORE-MULTI-001a, CORE-MULTI-003, CORE-GET-001
    first, second = await line.task("tck-complete-task-1"), await line.task("tck-complete-task-1")
    assert first["status"]["state"] == second["status"]["state"] == COMPLETED
    assert len({first["id"], second["id"], first["contextId"], second["contextId"]}) == 4
    assert await line.wire.call("GetTask", {"id": first["id"]}) == first


async def test_a_context_of_the_caller_is_taken(line: Line) -> None:
    # CORE-MULTI-002, CORE-MULTI-002a
    assert (await line.task("tck-complete-task-1", contextId="mine"))["contextId"] == "mine"
    refused = await line.refused("SendMessage", message=message("tck-complete-task-1", contextId="a\0b"))
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
async def test_artifacts_of_every_kind(line: Line, id: str, parts: list[Any]) -> None:
    # DM-ART-001, DM-PART-001
    (artifact,) = (await line.task(id))["artifacts"]
    assert artifact["artifactId"]
    assert artifact["parts"] == parts


async def test_several_artifacts(line: Line) -> None:
    first, second = (await line.task("tck-artifact-several-1"))["artifacts"]
    assert first["artifactId"] != second["artifactId"]
    assert [[*part] for part in second["parts"]] == [["raw", "filename", "mediaType"], ["data", "mediaType"]]


async def test_a_message_instead_of_a_task(line: Line) -> None:
    # CORE-SEND-001, DM-MSG-001
    answer = await line.send("tck-message-response-1")
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
async def test_a_task_that_is_declined_and_one_that_fails(line: Line, id: str, state: str, text: str) -> None:
    task = await line.task(id)
    assert task["status"]["state"] == state
    assert task["status"]["message"]["parts"] == [{"text": text}]
    assert "hunter2" not in str(task)


async def test_whoever_is_in_a_hurry_does_not_wait_and_all_others_do(line: Line) -> None:
    # CORE-EXECUTION-MODE-001, CORE-EXECUTION-MODE-002
    at_once = await line.task("tck-delayed-complete-1", configuration={"returnImmediately": True})
    assert at_once["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    waited = await line.task("tck-delayed-complete-1", configuration={"returnImmediately": False})
    assert waited["status"]["state"] == COMPLETED


@pytest.mark.parametrize("kind", ["input", "auth"])
async def test_a_task_that_waits_goes_on_with_the_message_it_waits_for(line: Line, kind: str) -> None:
    # CORE-EXECUTION-MODE-001, CORE-MULTI-005, AUTH-INTASK-001, AUTH-INTASK-002, CORE-HIST-004 to -006
    waiting = f"TASK_STATE_{kind.upper()}_REQUIRED"
    task = await line.task(f"tck-{kind}-required-1", "first")
    assert task["status"]["state"] == waiting
    assert (await line.wire.call("GetTask", {"id": task["id"]}))["status"]["state"] == waiting
    again = await line.task(f"tck-{kind}-required-1", "second", taskId=task["id"], metadata={"n": 1.0})
    assert (again["id"], again["status"]["state"]) == (task["id"], waiting)
    done = await line.task("tck-complete-task-1", "third", taskId=task["id"])
    assert (done["contextId"], done["status"]["state"]) == (task["contextId"], COMPLETED)
    assert done["artifacts"][-1]["parts"] == [{"text": "Hello from TCK"}]
    said = [each for each in done["history"] if each["role"] == "ROLE_USER"]
    assert [each["parts"][0]["text"] for each in said] == ["first", "second", "third"]
    ids = [each["messageId"] for each in said]
    assert ids == [f"tck-{kind}-required-1", f"tck-{kind}-required-1", "tck-complete-task-1"]
    assert said[1]["metadata"] == {"n": 1.0}


async def test_as_much_history_as_is_asked_for(line: Line) -> None:
    # CORE-HIST-001, CORE-HIST-002, CORE-HIST-003
    task = await line.task("tck-input-required-1")
    done = await line.task("tck-complete-task-1", configuration={"historyLength": 0}, taskId=task["id"])
    assert "history" not in done
    assert "history" not in await line.wire.call("GetTask", {"id": task["id"], "historyLength": 0})
    newest = await line.wire.call("GetTask", {"id": task["id"], "historyLength": 1})
    assert [each["messageId"] for each in newest["history"]] == ["tck-complete-task-1"]


async def test_what_can_be_cancelled_is_and_nothing_else(line: Line) -> None:
    # CORE-CANCEL-001, CORE-CANCEL-002, CORE-CANCEL-003
    task = await line.task("tck-input-required-1")
    stopped = await line.wire.call("CancelTask", {"id": task["id"]})
    assert (stopped["id"], stopped["status"]["state"]) == (task["id"], "TASK_STATE_CANCELED")
    done = await line.task("tck-complete-task-1")
    assert await line.refused("CancelTask", id=task["id"]) == "TASK_NOT_CANCELABLE"
    assert await line.refused("CancelTask", id=done["id"]) == "TASK_NOT_CANCELABLE"
    assert await line.refused("CancelTask", id="nobody") == "TASK_NOT_FOUND"


async def test_what_is_on_the_wire_is_written_as_the_protocol_says(line: Line) -> None:
    # DM-SERIAL-001, DM-SERIAL-002, DM-SERIAL-003, DM-SERIAL-005
    if line.binding == "grpc":
        pytest.skip("this is about JSON")
    parts: list[Any] = [{"text": "hi", "another": {}}]
    odd = message("tck-input-required-1", unknownField=1) | {"parts": parts}
    task = (await line.wire.call("SendMessage", {"message": odd, "extra": 42}))["task"]
    assert not [key for key in _keys(task) if re.fullmatch(r"[a-z]+(_[a-z]+)+", key)]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", task["status"]["timestamp"])
    assert task["history"][0]["role"] == "ROLE_USER"


def _keys(value: Any) -> list[str]:
    if isinstance(value, dict):
        facts = cast("dict[str, Any]", value)
        return [*facts, *(key for item in facts.values() for key in _keys(item))]
    return [key for item in cast("list[Any]", value) for key in _keys(item)] if isinstance(value, list) else []
