"""The conformance kit's requirements of A2A 1.0 for lists, webhooks, the card and errors."""

from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from tests.serve.a2a.bindings import V1, RestClient, ServiceUnderTest, assert_valid, message
from tests.serve.a2a.sut import serve_sut
from tests.serve.a2a.webhooks import serve_webhook
from tests.sockets import http_client

from batonkit.serve import BearerAuth

WEBHOOK: dict[str, Any] = {"id": "hook", "url": "https://example.com/hook"}


async def test_tasks_are_listed_in_pages_newest_first(service: ServiceUnderTest) -> None:
    # CORE-LIST-001 to CORE-LIST-005
    tasks = [await service.task("tck-artifact-text-x", contextId="c") for _ in range(3)]
    page = await service.client.call("ListTasks", {"contextId": "c", "pageSize": 2})
    assert_valid(page, pb.ListTasksResponse())
    assert [each["id"] for each in page["tasks"]] == [tasks[2]["id"], tasks[1]["id"]]
    assert not [each for each in page["tasks"] if "artifacts" in each]
    assert (page["totalSize"], page["pageSize"]) == (3, 2)
    last = await service.client.call(
        "ListTasks", {"contextId": "c", "pageSize": 2, "pageToken": page["nextPageToken"], "includeArtifacts": True}
    )
    assert [each["id"] for each in last["tasks"]] == [tasks[0]["id"]]
    assert last["tasks"][0]["artifacts"][0]["parts"] == [{"text": "Generated text content"}]
    nothing = await service.client.call("ListTasks", {"contextId": "unknown"})
    if service.binding != "grpc":
        assert last["nextPageToken"] == ""
        assert (nothing["tasks"], nothing["nextPageToken"], nothing["totalSize"]) == ([], "", 0)


async def test_webhooks_are_created_read_and_deleted(service: ServiceUnderTest) -> None:
    # PUSH-CREATE-001, PUSH-CREATE-002, PUSH-GET-001, PUSH-GET-002, PUSH-LIST-001, PUSH-DEL-001, PUSH-DEL-002
    task = (await service.task("tck-complete-task-x"))["id"]
    created = await service.client.call("CreateTaskPushNotificationConfig", {"taskId": task, **WEBHOOK})
    assert_valid(created, pb.TaskPushNotificationConfig())
    config_id: dict[str, Any] = {"taskId": task, "id": "hook"}
    assert (
        await service.client.call("GetTaskPushNotificationConfig", config_id) == created == {"taskId": task, **WEBHOOK}
    )
    assert (await service.client.call("ListTaskPushNotificationConfigs", {"taskId": task}))["configs"] == [created]
    assert await service.refused("GetTaskPushNotificationConfig", taskId=task, id="other") == "TASK_NOT_FOUND"
    await service.client.call("DeleteTaskPushNotificationConfig", config_id)
    await service.client.call("DeleteTaskPushNotificationConfig", config_id)
    assert await service.refused("GetTaskPushNotificationConfig", **config_id) == "TASK_NOT_FOUND"
    assert await service.refused("CreateTaskPushNotificationConfig", taskId="unknown", **WEBHOOK) == "TASK_NOT_FOUND"


async def test_a_webhook_is_called_with_its_credentials(service: ServiceUnderTest) -> None:
    # PUSH-DELIVER-001, PUSH-DELIVER-002, PUSH-DELIVER-003
    async with serve_webhook() as (url, received):
        auth = {"scheme": "Bearer", "credentials": "s3cret"}
        hook = {"url": url, "token": "mine", "authentication": auth}
        task = await service.task("tck-input-required-x", configuration={"taskPushNotificationConfig": hook})
        await service.task("tck-complete-task-x", taskId=task["id"])
        states: list[str] = []
        while "TASK_STATE_COMPLETED" not in states:
            headers, body = await received.get()
            assert_valid(body, pb.StreamResponse())
            assert headers["authorization"] == "Bearer s3cret"
            assert headers["x-a2a-notification-token"] == "mine"
            states += [body["statusUpdate"]["status"]["state"]] if "statusUpdate" in body else []
    assert "TASK_STATE_INPUT_REQUIRED" in states


@pytest.mark.parametrize(
    ("reason", "operation", "params", "headers"),
    [
        ("TASK_NOT_FOUND", "GetTask", {"id": "unknown"}, {}),  # CORE-GET-002, CORE-ERR-001
        ("TASK_NOT_FOUND", "SendMessage", {"message": message("x", taskId="unknown")}, {}),  # CORE-MULTI-004
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
async def test_invalid_requests_are_refused_with_a_reason(
    service: ServiceUnderTest, reason: str, operation: str, params: dict[str, Any], headers: dict[str, str]
) -> None:
    assert await service.refused(operation, headers, **params) == reason
    assert not (await service.client.call("ListTasks", {})).get("tasks")


async def test_a_task_refuses_messages_after_its_end_and_from_another_context(service: ServiceUnderTest) -> None:
    # CORE-SEND-002, CORE-MULTI-006
    completed = (await service.task("tck-complete-task-x"))["id"]
    assert await service.refused("SendMessage", message=message("x", taskId=completed)) == "UNSUPPORTED_OPERATION"
    waiting = (await service.task("tck-input-required-x"))["id"]
    wrong = message("x", taskId=waiting, contextId="another")
    assert await service.refused("SendMessage", message=wrong) == "INVALID_PARAMS"


async def test_unknown_extensions_are_ignored(service: ServiceUnderTest) -> None:
    # JSONRPC-SVC-002, HTTP_JSON-SVC-002, GRPC-META-001
    headers = {"A2A-Extensions": "https://example.com/ext/v1,https://example.com/ext/v2"}
    answer = await service.client.call("SendMessage", {"message": message("tck-complete-task-x")}, headers)
    assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_the_card_lists_the_interfaces_and_can_be_cached() -> None:
    # CARD-DISC-001, CARD-STRUCT-001, CARD-PROTO-001, CARD-PROTO-002, BIND-FIELD-001, CARD-CACHE-001 to -003
    async with serve_sut() as endpoints, http_client() as http:
        answer = await http.get(f"{endpoints.http}/.well-known/agent-card.json")
    assert_valid(answer.json(), pb.AgentCard())
    interfaces = [(each["protocolBinding"], each["url"]) for each in answer.json()["supportedInterfaces"]]
    assert interfaces == [("JSONRPC", f"{endpoints.http}/"), ("HTTP+JSON", endpoints.http), ("GRPC", endpoints.grpc)]
    assert "max-age" in answer.headers["cache-control"]
    assert answer.headers["etag"]
    assert answer.headers["last-modified"]


async def test_the_extended_card_needs_authentication() -> None:
    # CARD-EXT-001, CARD-EXT-002
    extended_card = pb.AgentCard(name="More", description="More.", version="1")
    options: dict[str, Any] = {"extended_card": extended_card, "auth": BearerAuth({"t": "ann"})}
    async with serve_sut(**options) as endpoints, http_client() as http:
        refused = await http.get(f"{endpoints.http}/extendedAgentCard", headers=V1)
        accepted = await http.get(f"{endpoints.http}/extendedAgentCard", headers=V1 | {"Authorization": "Bearer t"})
    assert (refused.status_code, accepted.json()["name"]) == (401, "More")
    card = {"capabilities": {"extendedAgentCard": True}}
    async with serve_sut(card=card) as endpoints, http_client() as http:
        service = ServiceUnderTest(RestClient(endpoints, http), endpoints, "rest")
        assert await service.refused("GetExtendedAgentCard") == "EXTENDED_AGENT_CARD_NOT_CONFIGURED"


async def test_unsupported_capabilities_are_refused() -> None:
    # CORE-CAP-001, CORE-CAP-002, HTTP_JSON-STATUS-001
    async with serve_sut(card={"capabilities": {"streaming": False}}) as endpoints, http_client() as http:
        card = (await http.get(f"{endpoints.http}/.well-known/agent-card.json")).json()
        assert not card["capabilities"].get("pushNotifications")
        service = ServiceUnderTest(RestClient(endpoints, http), endpoints, "rest")
        push_refusal = await service.refused("CreateTaskPushNotificationConfig", taskId="t", **WEBHOOK)
        stream_refusal = await service.refused("SendStreamingMessage", message=message("x"))
    assert (push_refusal, stream_refusal) == ("PUSH_NOTIFICATION_NOT_SUPPORTED", "UNSUPPORTED_OPERATION")
