"""Push notifications are sent in order, retried on failure, and authenticated."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest
from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from starlette.applications import Starlette
from starlette.routing import Route
from tests.serve.a2a.clients import client_at, message_request, read_stream, send, served
from tests.serve.a2a.webhooks import Webhook
from tests.unfinished import list_unfinished

from batonkit import Agent, Runner
from batonkit.serve.a2a import a2a_app, allow_any_url, allow_public_urls
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel


async def test_notifications_are_retried_and_stay_in_order() -> None:
    hook = Webhook(failures=2)
    runner = Runner(Agent("A"), model=ScriptedModel(["hi"]), store="memory:")
    app = a2a_app(runner, push_policy=allow_any_url, push_retry_delays=(0.01, 0.01, 0.01))
    async with hook.serve() as address, served(app) as url, client_at(url) as client:
        request = message_request("go")
        request.configuration.task_push_notification_config.CopyFrom(
            TaskPushNotificationConfig(
                url=address, token="tok", authentication=AuthenticationInfo(scheme="Bearer", credentials="abc")
            )
        )
        answers = await read_stream(client.send_message(request))
        await hook.ended.wait()
    headers, _ = hook.received[0]
    assert headers["x-a2a-notification-token"] == "tok"
    assert headers["authorization"] == "Bearer abc"
    kinds = [next(iter(body)) for _, body in hook.received]
    assert kinds == [each.WhichOneof("payload").split("_")[0] + "Update" for each in answers[1:]]
    assert hook.attempts == len(hook.received) + 2


async def test_configurations_can_be_created_read_and_deleted() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel(["hi"])), push_policy=allow_any_url)
    async with served(app) as url, client_at(url, streams=False) as client:
        task = await send(client, "go")
        created = await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:1/a")
        )
        named = await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, id="mine", url="http://127.0.0.1:1/b")
        )
        assert created.id
        listed = await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id=task.id)
        )
        assert list(listed.configs) == [created, named]
        request = GetTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        assert await client.get_task_push_notification_config(request) == named
        await client.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        )
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(request)


async def test_configurations_are_not_runs_and_are_deleted_with_their_task() -> None:
    store = MemoryStore()
    app = a2a_app(Runner(Agent("A", model=ScriptedModel(["hi"])), store=store), push_policy=allow_any_url)
    async with served(app) as url, client_at(url, streams=False) as client:
        task = await send(client, "go")
        await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:1/a")
        )
        assert [record.run_id for record in (await store.list()).records] == [task.id]
        assert (await client.list_tasks(ListTasksRequest())).total_size == 1
        assert await list_unfinished(app.runner) == []
        request = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert len((await client.list_task_push_notification_configs(request)).configs) == 1
        await store.delete(task.id)
        assert await store.notes(task.id) == {}
        with pytest.raises(TaskNotFoundError):
            await client.list_task_push_notification_configs(request)


async def test_a_forbidden_webhook_url_starts_no_task() -> None:
    runner = Runner(Agent("A", model=ScriptedModel([])), store="memory:")
    async with served(a2a_app(runner)) as url, client_at(url, streams=False) as client:
        request = message_request("go")
        request.configuration.task_push_notification_config.url = "http://127.0.0.1:1/a"
        with pytest.raises(InvalidParamsError):
            await read_stream(client.send_message(request))
    assert (await runner._require_store("test").list()).records == ()


async def test_private_webhook_urls_are_refused_unless_allowed() -> None:
    async with (
        served(a2a_app(Agent("A", model=ScriptedModel(["hi"])))) as url,
        client_at(url, streams=False) as client,
    ):
        task = await send(client, "go")
        for address in ("http://127.0.0.1/x", "http://192.168.1.1/x", "ftp://example.com"):
            with pytest.raises(InvalidParamsError):
                await client.create_task_push_notification_config(
                    TaskPushNotificationConfig(task_id=task.id, url=address)
                )
    assert await allow_public_urls("http://93.184.216.34/x", ["93.184.216.34"])
    assert not await allow_public_urls("http://100.64.0.1/x", ["100.64.0.1"])
    assert not await allow_public_urls("http://unknown.example/x", [])
    assert not await allow_any_url("file:///etc/passwd", [])


@pytest.mark.parametrize(
    "address",
    [
        "[2002:7f00:1::]",  # 6to4 of 127.0.0.1
        "[2002:c0a8:101::1]",  # 6to4 of 192.168.1.1
        "[64:ff9b::127.0.0.1]",  # NAT64
        "[64:ff9b:1::8.8.8.8]",  # NAT64 with a local prefix
        "[::ffff:10.0.0.1]",  # IPv4-mapped
        "[::127.0.0.1]",  # IPv4-compatible
        "[::ffff:0:127.0.0.1]",  # IPv4-translated
        "[2001:0:7f00:1::]",  # Teredo
        "[fec0::1]",  # site-local
        "[fd00::1]",
        "[fe80::1]",
        "169.254.169.254",
        "2130706433",
        "0.0.0.0",
    ],
)
async def test_other_forms_of_private_addresses_are_private(address: str) -> None:
    async with (
        served(a2a_app(Agent("A", model=ScriptedModel(["hi"])))) as url,
        client_at(url, streams=False) as client,
    ):
        task = await send(client, "go")
        config = TaskPushNotificationConfig(task_id=task.id, url=f"http://{address}/x")
        with pytest.raises(InvalidParamsError):
            await client.create_task_push_notification_config(config)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::1111", "64:ff9b::8.8.8.8", "2002:808:808::1"])
async def test_public_addresses_are_public(address: str) -> None:
    assert await allow_public_urls("https://hooks.example.com/x", [address])
    assert not await allow_public_urls("https://hooks.example.com/x", [address, "10.0.0.1"])
    assert not await allow_public_urls("https://ann:pw@hooks.example.com/x", [address])


async def test_a_webhook_is_called_at_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, lookups = socket.getaddrinfo, 0

    def rebinding(host: Any, *args: Any, **options: Any) -> Any:
        nonlocal lookups
        if host not in ("hook.example", b"hook.example"):
            return resolve(host, *args, **options)
        # Each lookup that a check might make is followed by one with another address.
        lookups += 1
        return resolve("127.0.0.2" if lookups % 2 else "127.0.0.1", *args, **options)

    async def allow_second_address(url: str, addresses: Sequence[str]) -> bool:
        return [*addresses] == ["127.0.0.2"]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    hook, victim = Webhook(), Webhook()
    app = a2a_app(Agent("A", model=ScriptedModel(["hi"])), push_policy=allow_second_address, push_retry_delays=())
    async with victim.serve() as address:
        port = int(address.rpartition(":")[2].partition("/")[0])
        routes = [Route("/hook", hook.answer, methods=["POST"])]
        async with (
            served(Starlette(routes=routes), port, host="127.0.0.2"),
            served(app) as url,
            client_at(url) as client,
        ):
            request = message_request("go")
            request.configuration.task_push_notification_config.url = f"http://hook.example:{port}/hook"
            await read_stream(client.send_message(request))
            calls = [asyncio.create_task(each.called.wait()) for each in (hook, victim)]
            _, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
    assert victim.received == []
    assert {headers["host"] for headers, _ in hook.received} == {f"hook.example:{port}"}
