"""Webhooks: told in order, told again if they fail, with what they need to know that it is us."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.adapters.a2a.stage import client_at, said, sent, served, streamed

from baton import Agent, Runner
from baton.adapters.a2a import anywhere, public_only, serve_a2a
from baton.testing import ScriptedModel


class Hook:
    """A webhook that fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.received: list[tuple[dict[str, str], Any]] = []
        self.attempts = 0
        self._failures = failures
        self.ended = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        self.attempts += 1
        if self.attempts <= self._failures:
            return Response(status_code=503)
        body = await request.json()
        self.received.append((dict(request.headers), body))
        if body.get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_COMPLETED":
            self.ended.set()
        return Response()

    @asynccontextmanager
    async def at(self) -> AsyncGenerator[str]:
        async with served(Starlette(routes=[Route("/hook", self.answer, methods=["POST"])])) as url:
            yield f"{url}/hook"


async def test_a_webhook_that_is_away_twice_is_told_all_the_same_and_in_order() -> None:
    hook = Hook(failures=2)
    runner = Runner(Agent("A"), model=ScriptedModel(["hi"]), store="memory:")
    app = serve_a2a(runner, push_policy=anywhere, push_pauses=(0.05, 0.1, 0.2))
    async with hook.at() as address, served(app) as url, client_at(url) as client:
        request = said("go")
        request.configuration.task_push_notification_config.CopyFrom(
            TaskPushNotificationConfig(
                url=address, token="tok", authentication=AuthenticationInfo(scheme="Bearer", credentials="abc")
            )
        )
        answers = await streamed(client.send_message(request))
        async with asyncio.timeout(10):
            await hook.ended.wait()
    headers, _ = hook.received[0]
    assert headers["x-a2a-notification-token"] == "tok"
    assert headers["authorization"] == "Bearer abc"
    kinds = [next(iter(body)) for _, body in hook.received]
    assert kinds == [each.WhichOneof("payload").split("_")[0] + "Update" for each in answers[1:]]
    assert hook.attempts == len(hook.received) + 2


async def test_configurations_are_kept_read_and_dropped() -> None:
    app = serve_a2a(Agent("A", model=ScriptedModel(["hi"])), push_policy=anywhere)
    async with served(app) as url, client_at(url, streams=False) as client:
        task = await sent(client, "go")
        made = await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:1/a")
        )
        named = await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, id="mine", url="http://127.0.0.1:1/b")
        )
        assert made.id
        listed = await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id=task.id)
        )
        assert list(listed.configs) == [made, named]
        wanted = GetTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        assert await client.get_task_push_notification_config(wanted) == named
        await client.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        )
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(wanted)


async def test_private_addresses_are_refused_unless_allowed() -> None:
    async with (
        served(serve_a2a(Agent("A", model=ScriptedModel(["hi"])))) as url,
        client_at(url, streams=False) as client,
    ):
        task = await sent(client, "go")
        for address in ("http://127.0.0.1/x", "http://192.168.1.1/x", "ftp://example.com"):
            with pytest.raises(InvalidParamsError):
                await client.create_task_push_notification_config(
                    TaskPushNotificationConfig(task_id=task.id, url=address)
                )
    assert await public_only("http://93.184.216.34/x")
    assert not await public_only("http://100.64.0.1/x")
    assert not await anywhere("file:///etc/passwd")
