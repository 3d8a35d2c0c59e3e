"""What the conformance kit of A2A 1.0 asks besides: lists, webhooks, the card, and how requests are refused."""

import asyncio
from typing import Any

import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from tests.serving.a2a.hook import webhook
from tests.serving.a2a.sut import served_sut
from tests.serving.a2a.wires import V1, Line, RestWire, fits, message

from baton.serving import BearerAuth

WEBHOOK: dict[str, Any] = {"id": "hook", "url": "https://example.com/hook"}


async def test_tasks_are_listed_by_pages_the_newest_first(line: Line) -> None:
    # CORE-LIST-001 to CORE-LIST-005
    tasks = [await line.task("tck-artifact-text-x", contextId="c") for _ in range(3)]
    page = await line.wire.call("ListTasks", {"contextId": "c", "pageSize": 2})
    fits(page, pb.ListTasksResponse())
    assert [each["id"] for each in page["tasks"]] == [tasks[2]["id"], tasks[1]["id"]]
    assert not [each for each in page["tasks"] if "artifacts" in each]
    assert (page["totalSize"], page["pageSize"]) == (3, 2)
    last = await line.wire.call(
        "ListTasks", {"contextId": "c", "pageSize": 2, "pageToken": page["nextPageToken"], "includeArtifacts": True}
    )
    assert [each["id"] for each in last["tasks"]] == [tasks[0]["id"]]
    assert last["tasks"][0]["artifacts"][0]["parts"] == [{"text": "Generated text content"}]
    nothing = await line.wire.call("ListTasks", {"contextId": "nobody's"})
    if line.binding != "grpc":
        assert last["nextPageToken"] == ""
        assert (nothing["tasks"], nothing["nextPageToken"], nothing["totalSize"]) == ([], "", 0)


async def test_webhooks_are_kept_shown_and_dropped(line: Line) -> None:
    # PUSH-CREATE-001, PUSH-CREATE-002, PUSH-GET-001, PUSH-GET-002, PUSH-LIST-001, PUSH-DEL-001, PUSH-DEL-002
    task = (await line.task("tck-complete-task-x"))["id"]
    made = await line.wire.call("CreateTaskPushNotificationConfig", {"taskId": task, **WEBHOOK})
    fits(made, pb.TaskPushNotificationConfig())
    which: dict[str, Any] = {"taskId": task, "id": "hook"}
    assert await line.wire.call("GetTaskPushNotificationConfig", which) == made == {"taskId": task, **WEBHOOK}
    assert (await line.wire.call("ListTaskPushNotificationConfigs", {"taskId": task}))["configs"] == [made]
    assert await line.refused("GetTaskPushNotificationConfig", taskId=task, id="other") == "TASK_NOT_FOUND"
    await line.wire.call("DeleteTaskPushNotificationConfig", which)
    await line.wire.call("DeleteTaskPushNotificationConfig", which)
    assert await line.refused("GetTaskPushNotificationConfig", **which) == "TASK_NOT_FOUND"
    assert await line.refused("CreateTaskPushNotificationConfig", taskId="nobody", **WEBHOOK) == "TASK_NOT_FOUND"


async def test_a_webhook_is_called_with_its_credentials(line: Line) -> None:
    # PUSH-DELIVER-001, PUSH-DELIVER-002, PUSH-DELIVER-003
    async with webhook() as (url, heard), asyncio.timeout(60):
        auth = {"scheme": "Bearer", "credentials": "s3cret"}
        hook = {"url": url, "token": "mine", "authentication": auth}
        task = await line.task("tck-input-required-x", configuration={"taskPushNotificationConfig": hook})
        await line.task("tck-complete-task-x", taskId=task["id"])
        states: list[str] = []
        while "TASK_STATE_COMPLETED" not in states:
            headers, body = await heard.get()
            fits(body, pb.StreamResponse())
            assert headers["authorization"] == "Bearer s3cret"
            assert headers["x-a2a-notification-token"] == "mine"
            states += [body["statusUpdate"]["status"]["state"]] if "statusUpdate" in body else []
    assert "TASK_STATE_INPUT_REQUIRED" in states


@pytest.mark.parametrize(
    ("reason", "operation", "params", "headers"),
    [
        ("TASK_NOT_FOUND", "GetTask", {"id": "nobody"}, {}),  # CORE-GET-002, CORE-ERR-001
        ("TASK_NOT_FOUND", "SendMessage", {"message": message("x", taskId="nobody")}, {}),  # CORE-MULTI-004
        ("INVALID_PARAMS", "SendMessage", {}, {}),  # CORE-ERR-002
        ("INVALID_PARAMS", "SendMessage", {"message": {"messageId": "x", "role": "ROLE_USER"}}, {}),
        (
            "CONTENT_TYPE_NOT_SUPPORTED",  # CORE-SEND-003
            "SendMessage",
            {"message": message("x") | {"parts": [{"raw": "dGNr", "mediaType": "application/x-unsupported-tck-type"}]}},
            {},
        ),
        ("VERSION_NOT_SUPPORTED", "SendMessage", {"message": message("x")}, {"A2A-Version": "99.0"}),  # VER-SERVER-002
        ("VERSION_NOT_SUPPORTED", "SendMessage", {"message": message("x")}, {"A2A-Version": "0.3"}),  # VER-SERVER-003
        ("VERSION_NOT_SUPPORTED", "SendMessage", {"message": message("x")}, {"A2A-Version": ""}),
        ("UNSUPPORTED_OPERATION", "GetExtendedAgentCard", {}, {}),  # CORE-CAP-003
    ],
)
async def test_how_requests_are_refused(
    line: Line, reason: str, operation: str, params: dict[str, Any], headers: dict[str, str]
) -> None:
    assert await line.refused(operation, headers, **params) == reason
    assert not (await line.wire.call("ListTasks", {})).get("tasks")


async def test_a_task_takes_no_messages_after_its_end_nor_from_another_context(line: Line) -> None:
    # CORE-SEND-002, CORE-MULTI-006
    done = (await line.task("tck-complete-task-x"))["id"]
    assert await line.refused("SendMessage", message=message("x", taskId=done)) == "UNSUPPORTED_OPERATION"
    waits = (await line.task("tck-input-required-x"))["id"]
    wrong = message("x", taskId=waits, contextId="another")
    assert await line.refused("SendMessage", message=wrong) == "INVALID_PARAMS"


async def test_extensions_that_nobody_knows_do_no_harm(line: Line) -> None:
    # JSONRPC-SVC-002, HTTP_JSON-SVC-002, GRPC-META-001
    headers = {"A2A-Extensions": "https://example.com/ext/v1,https://example.com/ext/v2"}
    answer = await line.wire.call("SendMessage", {"message": message("tck-complete-task-x")}, headers)
    assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_the_card_says_how_the_service_is_reached_and_may_be_kept() -> None:
    # CARD-DISC-001, CARD-STRUCT-001, CARD-PROTO-001, CARD-PROTO-002, BIND-FIELD-001, CARD-CACHE-001 to -003
    async with served_sut() as place, httpx.AsyncClient() as http:
        answer = await http.get(f"{place.http}/.well-known/agent-card.json")
    fits(answer.json(), pb.AgentCard())
    reached = [(each["protocolBinding"], each["url"]) for each in answer.json()["supportedInterfaces"]]
    assert reached == [("JSONRPC", f"{place.http}/"), ("HTTP+JSON", place.http), ("GRPC", place.grpc)]
    assert "max-age" in answer.headers["cache-control"]
    assert answer.headers["etag"]
    assert answer.headers["last-modified"]


async def test_a_card_for_those_who_are_known() -> None:
    # CARD-EXT-001, CARD-EXT-002
    more = pb.AgentCard(name="More", description="More.", version="1")
    options: dict[str, Any] = {"extended_card": more, "auth": BearerAuth({"t": "ann"})}
    async with served_sut(**options) as place, httpx.AsyncClient() as http:
        refused = await http.get(f"{place.http}/extendedAgentCard", headers=V1)
        shown = await http.get(f"{place.http}/extendedAgentCard", headers=V1 | {"Authorization": "Bearer t"})
    assert (refused.status_code, shown.json()["name"]) == (401, "More")
    promised = {"capabilities": {"extendedAgentCard": True}}
    async with served_sut(card=promised) as place, httpx.AsyncClient() as http:
        line = Line(RestWire(place, http), place, "rest")
        assert await line.refused("GetExtendedAgentCard") == "EXTENDED_AGENT_CARD_NOT_CONFIGURED"


async def test_what_a_service_does_not_do_it_says_so() -> None:
    # CORE-CAP-001, CORE-CAP-002, HTTP_JSON-STATUS-001
    async with served_sut(card={"capabilities": {"streaming": False}}) as place, httpx.AsyncClient() as http:
        card = (await http.get(f"{place.http}/.well-known/agent-card.json")).json()
        assert not card["capabilities"].get("pushNotifications")
        line = Line(RestWire(place, http), place, "rest")
        pushed = await line.refused("CreateTaskPushNotificationConfig", taskId="t", **WEBHOOK)
        streamed = await line.refused("SendStreamingMessage", message=message("x"))
    assert (pushed, streamed) == ("PUSH_NOTIFICATION_NOT_SUPPORTED", "UNSUPPORTED_OPERATION")
