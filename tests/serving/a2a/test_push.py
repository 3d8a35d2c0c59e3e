"""Webhooks: told in order, told again if they fail, with what they need to know that it is us."""

import asyncio

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
from tests.serving.a2a.hook import Hook
from tests.serving.a2a.stage import client_at, said, sent, served, streamed

from baton import Agent, Runner
from baton.serving.a2a import a2a_app, allow_any_url, allow_public_urls
from baton.stores import MemoryStore
from baton.testing import ScriptedModel


async def test_a_webhook_that_is_away_twice_is_told_all_the_same_and_in_order() -> None:
    hook = Hook(failures=2)
    runner = Runner(Agent("A"), model=ScriptedModel(["hi"]), store="memory:")
    app = a2a_app(runner, push_policy=allow_any_url, push_retry_delays=(0.05, 0.1, 0.2))
    async with hook.at() as address, served(app) as url, client_at(url) as client:
        request = said("go")
        request.configuration.task_push_notification_config.CopyFrom(
            TaskPushNotificationConfig(
                url=address, token="tok", authentication=AuthenticationInfo(scheme="Bearer", credentials="abc")
            )
        )
        answers = await streamed(client.send_message(request))
        async with asyncio.timeout(60):
            await hook.ended.wait()
    headers, _ = hook.received[0]
    assert headers["x-a2a-notification-token"] == "tok"
    assert headers["authorization"] == "Bearer abc"
    kinds = [next(iter(body)) for _, body in hook.received]
    assert kinds == [each.WhichOneof("payload").split("_")[0] + "Update" for each in answers[1:]]
    assert hook.attempts == len(hook.received) + 2


async def test_configurations_are_kept_read_and_dropped() -> None:
    app = a2a_app(Agent("A", model=ScriptedModel(["hi"])), push_policy=allow_any_url)
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


async def test_configurations_are_no_runs_and_last_as_long_as_their_task() -> None:
    store = MemoryStore()
    app = a2a_app(Runner(Agent("A", model=ScriptedModel(["hi"])), store=store), push_policy=allow_any_url)
    async with served(app) as url, client_at(url, streams=False) as client:
        task = await sent(client, "go")
        await client.create_task_push_notification_config(
            TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:1/a")
        )
        assert [record.run_id for record in (await store.list()).records] == [task.id]
        assert (await client.list_tasks(ListTasksRequest())).total_size == 1
        assert await app.runner.list_unfinished() == []
        wanted = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert len((await client.list_task_push_notification_configs(wanted)).configs) == 1
        await store.delete(task.id)
        assert await store.notes(task.id) == {}
        with pytest.raises(TaskNotFoundError):
            await client.list_task_push_notification_configs(wanted)


async def test_an_address_that_may_not_be_called_begins_no_task() -> None:
    runner = Runner(Agent("A", model=ScriptedModel([])), store="memory:")
    async with served(a2a_app(runner)) as url, client_at(url, streams=False) as client:
        request = said("go")
        request.configuration.task_push_notification_config.url = "http://127.0.0.1:1/a"
        with pytest.raises(InvalidParamsError):
            await streamed(client.send_message(request))
    assert (await runner._require_store("test").list()).records == ()


async def test_private_addresses_are_refused_unless_allowed() -> None:
    async with (
        served(a2a_app(Agent("A", model=ScriptedModel(["hi"])))) as url,
        client_at(url, streams=False) as client,
    ):
        task = await sent(client, "go")
        for address in ("http://127.0.0.1/x", "http://192.168.1.1/x", "ftp://example.com"):
            with pytest.raises(InvalidParamsError):
                await client.create_task_push_notification_config(
                    TaskPushNotificationConfig(task_id=task.id, url=address)
                )
    assert await allow_public_urls("http://93.184.216.34/x")
    assert not await allow_public_urls("http://100.64.0.1/x")
    assert not await allow_any_url("file:///etc/passwd")
