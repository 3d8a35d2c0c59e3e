"""Several processes with one store: tasks continue when one of them is killed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import A2AError
from tests.conftest import PROFILE
from tests.integration.serve.a2a.replica import CHUNKS
from tests.integration.serve.a2a.replicas import Replicas
from tests.serve.a2a.clients import (
    CANCELED,
    COMPLETED,
    INPUT_REQUIRED,
    WORKING,
    TaskView,
    client_at,
    message_request,
    read_stream,
    send,
    task_view,
    text_in,
)
from tests.serve.a2a.webhooks import Webhook

from batonkit import Runner
from batonkit.a2a import RemoteAgent

ROUNDS = 50 if PROFILE == "soak" else 20
ALL = "".join(CHUNKS)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    started = Replicas(tmp_path)
    try:
        yield started
    finally:
        started.close()


async def _wait_until_completed(url: str, task_id: str) -> Task:
    """Wait until a task is completed, and return it."""
    async with asyncio.timeout(60), client_at(url, streams=False) as client:
        while (task := await client.get_task(GetTaskRequest(id=task_id))).status.state != COMPLETED:
            await asyncio.sleep(0.02)
        return task


async def _disconnect_halfway(url: str) -> TaskView:
    """Start a counting task, disconnect in the middle, and return the client's view."""
    view = TaskView()
    async with client_at(url) as client:
        async for answer in client.send_message(message_request("count")):
            view.apply(answer)
            if view.chunks and len(text_in(view.task)) > 100:
                break
    return view


async def test_a_follow_up_sent_to_both_replicas_is_executed_once(replicas: Replicas) -> None:
    here, there = replicas.start(), replicas.start()
    await replicas.wait_until_up(here, there)
    async with client_at(here, streams=False) as one, client_at(there, streams=False) as other:
        for number in range(ROUNDS):
            waiting_task = await send(one if number % 2 else other, f"ask{number}")
            assert waiting_task.status.state == INPUT_REQUIRED
            answers = await asyncio.gather(
                send(one, "yes", task=waiting_task.id), send(other, "yes", task=waiting_task.id), return_exceptions=True
            )
            assert [type(each) for each in answers if isinstance(each, A2AError)] != [], answers
            await _wait_until_completed(there if number % 2 else here, waiting_task.id)
    assert sorted(replicas.notes()) == sorted(f"ask{number} yes" for number in range(ROUNDS))


async def test_a_silent_agent_can_be_cancelled_from_another_replica(replicas: Replicas) -> None:
    here, there = replicas.start(), replicas.start()
    await replicas.wait_until_up(here, there)
    async with client_at(here, streams=False) as one, client_at(there, streams=False) as other:
        for number in range(1, 4):
            silent_task = await send(one, "silent", return_immediately=True)
            await replicas.wait_for_note("silent", number)
            before = monotonic()
            cancelled = await other.cancel_task(CancelTaskRequest(id=silent_task.id))
            assert (cancelled.status.state, monotonic() - before < 60) == (CANCELED, True)
            assert (await one.get_task(GetTaskRequest(id=silent_task.id))).status.state == CANCELED


async def test_a_subscriber_at_another_replica_sees_the_end_after_a_kill(replicas: Replicas) -> None:
    here, there = replicas.start(), replicas.start()
    await replicas.wait_until_up(here, there)
    async with client_at(there) as other, client_at(here, streams=False) as one:
        task = await send(one, "work", return_immediately=True)
        await replicas.wait_until_stored("work")
        subscription = asyncio.create_task(read_stream(other.subscribe(SubscribeToTaskRequest(id=task.id))))
        replicas.kill(here)
        replicas.allow("go")
        before = monotonic()
        view = task_view(await subscription)
        assert monotonic() - before < 60
        assert (view.states[0], view.states[-1]) == (WORKING, COMPLETED)
        assert text_in(view.task) == "done"
        assert replicas.notes().count("work") == 1


async def test_a_task_whose_only_process_was_killed_continues_after_a_restart(replicas: Replicas) -> None:
    first = replicas.start()
    await replicas.wait_until_up(first)
    async with client_at(first, streams=False) as client:
        task = await send(client, "work", return_immediately=True)
        waiting_task = await send(client, "ask and work")
        answered = await send(client, "yes", task=waiting_task.id, return_immediately=True)
        assert answered.status.state == WORKING
        await replicas.wait_until_stored("work")
        await replicas.wait_until_stored("ask and work yes")
    replicas.kill(first)
    replicas.allow("go")
    again = replicas.start()
    await replicas.wait_until_up(again)
    async with client_at(again) as client:
        try:
            view = task_view(await read_stream(client.subscribe(SubscribeToTaskRequest(id=task.id))))
        except A2AError:
            view = None  # The task had ended before the subscription.
    finished = await _wait_until_completed(again, task.id)
    await _wait_until_completed(again, waiting_task.id)
    assert view is None or view.states[-1] == COMPLETED
    assert [text_in(finished), sorted(replicas.notes())] == ["done", ["ask and work yes", "work"]]


async def test_a_disconnected_client_can_resubscribe_at_any_replica_without_loss(
    replicas: Replicas,
) -> None:
    here, there = replicas.start(), replicas.start()
    await replicas.wait_until_up(here, there)
    view_before = await _disconnect_halfway(here)
    assert text_in(view_before.task) == ALL[: len(text_in(view_before.task))]
    async with client_at(here) as same, client_at(there) as other:
        streams = [client.subscribe(SubscribeToTaskRequest(id=view_before.task.id)) for client in (same, other)]
        views = [task_view([await anext(stream)]) for stream in streams]
        assert [view.states for view in views] == [[WORKING], [WORKING]]
        assert text_in(views[0].task).startswith(text_in(view_before.task))
        replicas.allow("go")
        for view, stream in zip(views, streams, strict=True):
            async for answer in stream:
                view.apply(answer)
            assert (text_in(view.task), view.states[-1]) == (ALL, COMPLETED)
            assert [len(view.task.artifacts), replicas.notes()] == [1, ["half"]]


async def test_a_stream_whose_server_was_killed_is_complete_at_the_other_replica(replicas: Replicas) -> None:
    # A snapshot comes first, and the interrupted response is streamed again.
    here, there = replicas.start(), replicas.start()
    await replicas.wait_until_up(here, there)
    async with client_at(here) as client:
        stream, view = client.send_message(message_request("count")), TaskView()
        while not view.chunks or len(text_in(view.task)) < 100:
            view.apply(await anext(stream))
        replicas.kill(here)
        replicas.allow("go")
        with pytest.raises(A2AClientError):
            await read_stream(stream)
        assert text_in(view.task) == ALL[: len(text_in(view.task))]
    async with client_at(there) as client:
        try:
            again = task_view(await read_stream(client.subscribe(SubscribeToTaskRequest(id=view.task.id))))
        except A2AError:
            again = None  # The task had ended before the subscription.
    assert again is None or (text_in(again.task), again.states[-1]) == (ALL, COMPLETED)
    assert text_in(await _wait_until_completed(there, view.task.id)) == ALL


async def test_the_replica_that_continues_a_task_notifies_the_webhook(replicas: Replicas) -> None:
    hook = Webhook(failures=2)
    here, there = replicas.start(), replicas.start()
    await replicas.wait_until_up(here, there)
    async with hook.serve() as address, client_at(here, streams=False) as client:
        request = message_request("work", return_immediately=True)
        request.configuration.task_push_notification_config.CopyFrom(TaskPushNotificationConfig(url=address))
        (answer,) = [each async for each in client.send_message(request)]
        await replicas.wait_until_stored("work")
        replicas.kill(here)
        replicas.allow("go")
        async with asyncio.timeout(60):
            await hook.ended.wait()
        assert text_in(await _wait_until_completed(there, answer.task.id)) == "done"
    assert hook.attempts == len(hook.received) + 2
    ends = [body for _, body in hook.received if body.get("statusUpdate", {}).get("status", {}).get("state")]
    assert [each["statusUpdate"]["status"]["state"] for each in ends].count("TASK_STATE_COMPLETED") == 1


async def test_a_remote_agent_killed_during_an_interrupt_still_gets_the_answer(replicas: Replicas) -> None:
    url = replicas.start()
    await replicas.wait_until_up(url)
    remote = RemoteAgent(url, name="Worker", description="Works.")
    runner = Runner(remote, store=replicas.folder / "here.db")
    waiting_task = await runner.run("ask and work")
    (question,) = waiting_task.interrupts
    replicas.kill(url)
    resumed_run = asyncio.create_task(runner.resume(waiting_task.run_id, {question.id: "yes"}))
    replicas.start(url)
    await replicas.wait_until_stored("ask and work yes")
    # It is killed again, after the answer was recorded and before the work is done.
    replicas.kill(url)
    replicas.start(url)
    replicas.allow("go")
    async with asyncio.timeout(60):
        finished = await resumed_run
    assert (finished.status, finished.output) == ("completed", "done")
    assert replicas.notes() == ["ask and work yes"]
    await remote.close()
