"""Several processes over one store, and what becomes of tasks when one of them is killed (X3-X6)."""

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
from tests.serving.a2a.hook import Hook
from tests.serving.a2a.replica import PIECES
from tests.serving.a2a.replicas import Replicas
from tests.serving.a2a.stage import (
    CANCELED,
    COMPLETED,
    INPUT_REQUIRED,
    WORKING,
    Assembled,
    assembled,
    client_at,
    said,
    sent,
    streamed,
    text_in,
)

from baton import Runner
from baton.a2a import RemoteAgent

ROUNDS = 50 if PROFILE == "soak" else 20
ALL = "".join(PIECES)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    try:
        yield made
    finally:
        made.close()


async def _completed(url: str, task_id: str) -> Task:
    """The task, when it has been completed."""
    async with asyncio.timeout(60), client_at(url, streams=False) as client:
        while (task := await client.get_task(GetTaskRequest(id=task_id))).status.state != COMPLETED:
            await asyncio.sleep(0.02)
        return task


async def _half_heard(url: str) -> Assembled:
    """What a client has heard of one that counts, when its connection is cut in the middle of it."""
    view = Assembled()
    async with client_at(url) as client:
        async for answer in client.send_message(said("count")):
            view.take(answer)
            if view.chunks and len(text_in(view.task)) > 100:
                break
    return view


async def test_a_follow_up_that_reaches_both_replicas_at_once_is_carried_out_once(replicas: Replicas) -> None:
    # X5
    here, there = replicas.start(), replicas.start()
    await replicas.up(here, there)
    async with client_at(here, streams=False) as one, client_at(there, streams=False) as other:
        for number in range(ROUNDS):
            asked = await sent(one if number % 2 else other, f"ask{number}")
            assert asked.status.state == INPUT_REQUIRED
            answers = await asyncio.gather(
                sent(one, "yes", task=asked.id), sent(other, "yes", task=asked.id), return_exceptions=True
            )
            assert [type(each) for each in answers if isinstance(each, A2AError)] != [], answers
            await _completed(there if number % 2 else here, asked.id)
    assert sorted(replicas.notes()) == sorted(f"ask{number} yes" for number in range(ROUNDS))


async def test_an_agent_that_says_nothing_is_cancelled_from_the_other_replica(replicas: Replicas) -> None:
    # X5
    here, there = replicas.start(), replicas.start()
    await replicas.up(here, there)
    async with client_at(here, streams=False) as one, client_at(there, streams=False) as other:
        for number in range(1, 4):
            silent = await sent(one, "silent", at_once=True)
            await replicas.noted("silent", number)
            before = monotonic()
            stopped = await other.cancel_task(CancelTaskRequest(id=silent.id))
            assert (stopped.status.state, monotonic() - before < 60) == (CANCELED, True)
            assert (await one.get_task(GetTaskRequest(id=silent.id))).status.state == CANCELED


async def test_whoever_listens_elsewhere_hears_the_end_though_the_process_at_work_is_killed(replicas: Replicas) -> None:
    # X5
    here, there = replicas.start(), replicas.start()
    await replicas.up(here, there)
    async with client_at(there) as other, client_at(here, streams=False) as one:
        task = await sent(one, "work", at_once=True)
        await replicas.noted("work")
        listening = asyncio.create_task(streamed(other.subscribe(SubscribeToTaskRequest(id=task.id))))
        replicas.kill(here)
        replicas.allow("go")
        before = monotonic()
        view = assembled(await listening)
        assert monotonic() - before < 60
        assert (view.states[0], view.states[-1]) == (WORKING, COMPLETED)
        assert text_in(view.task) == "done"
        assert replicas.notes().count("work") == 1


async def test_a_task_whose_only_process_was_killed_goes_on_when_it_is_back(replicas: Replicas) -> None:
    # X5
    first = replicas.start()
    await replicas.up(first)
    async with client_at(first, streams=False) as client:
        task = await sent(client, "work", at_once=True)
        asked = await sent(client, "ask and work")
        answered = await sent(client, "yes", task=asked.id, at_once=True)
        assert answered.status.state == WORKING
        await replicas.noted("work")
        await replicas.noted("ask and work yes")
    replicas.kill(first)
    replicas.allow("go")
    again = replicas.start()
    await replicas.up(again)
    async with client_at(again) as client:
        try:
            view = assembled(await streamed(client.subscribe(SubscribeToTaskRequest(id=task.id))))
        except A2AError:
            view = None  # It had ended before we could subscribe.
    done = await _completed(again, task.id)
    await _completed(again, asked.id)
    assert view is None or view.states[-1] == COMPLETED
    assert [text_in(done), sorted(replicas.notes())] == ["done", ["ask and work yes", "work"]]


async def test_a_client_cut_off_in_the_middle_comes_back_to_either_replica_and_misses_nothing(
    replicas: Replicas,
) -> None:
    # X4
    here, there = replicas.start(), replicas.start()
    await replicas.up(here, there)
    heard = await _half_heard(here)
    assert text_in(heard.task) == ALL[: len(text_in(heard.task))]
    async with client_at(here) as same, client_at(there) as other:
        streams = [client.subscribe(SubscribeToTaskRequest(id=heard.task.id)) for client in (same, other)]
        views = [assembled([await anext(stream)]) for stream in streams]
        assert [view.states for view in views] == [[WORKING], [WORKING]]
        assert text_in(views[0].task).startswith(text_in(heard.task))
        replicas.allow("go")
        for view, stream in zip(views, streams, strict=True):
            async for answer in stream:
                view.take(answer)
            assert (text_in(view.task), view.states[-1]) == (ALL, COMPLETED)
            assert [len(view.task.artifacts), replicas.notes()] == [1, ["half"]]


async def test_a_stream_whose_server_is_killed_in_the_middle_is_whole_on_the_other(replicas: Replicas) -> None:
    # X4, X5: what was on its way is said anew, and a snapshot comes first.
    here, there = replicas.start(), replicas.start()
    await replicas.up(here, there)
    async with client_at(here) as client:
        stream, view = client.send_message(said("count")), Assembled()
        while not view.chunks or len(text_in(view.task)) < 100:
            view.take(await anext(stream))
        replicas.kill(here)
        replicas.allow("go")
        with pytest.raises(A2AClientError):
            await streamed(stream)
        assert text_in(view.task) == ALL[: len(text_in(view.task))]
    async with client_at(there) as client:
        try:
            again = assembled(await streamed(client.subscribe(SubscribeToTaskRequest(id=view.task.id))))
        except A2AError:
            again = None  # It had ended before we could subscribe.
    assert again is None or (text_in(again.task), again.states[-1]) == (ALL, COMPLETED)
    assert text_in(await _completed(there, view.task.id)) == ALL


async def test_a_webhook_is_told_by_whoever_goes_on_also_if_it_is_away_twice(replicas: Replicas) -> None:
    # X5, X6
    hook = Hook(failures=2)
    here, there = replicas.start(), replicas.start()
    await replicas.up(here, there)
    async with hook.at() as address, client_at(here, streams=False) as client:
        request = said("work", at_once=True)
        request.configuration.task_push_notification_config.CopyFrom(TaskPushNotificationConfig(url=address))
        (answer,) = [each async for each in client.send_message(request)]
        await replicas.noted("work")
        replicas.kill(here)
        replicas.allow("go")
        async with asyncio.timeout(60):
            await hook.ended.wait()
        assert text_in(await _completed(there, answer.task.id)) == "done"
    assert hook.attempts == len(hook.received) + 2
    ends = [body for _, body in hook.received if body.get("statusUpdate", {}).get("status", {}).get("state")]
    assert [each["statusUpdate"]["status"]["state"] for each in ends].count("TASK_STATE_COMPLETED") == 1


async def test_a_remote_agent_that_is_killed_while_its_question_is_open_gets_the_answer(replicas: Replicas) -> None:
    # X10
    url = replicas.start()
    await replicas.up(url)
    remote = RemoteAgent(url, name="Worker", description="Works.")
    runner = Runner(remote, store=replicas.folder / "here.db")
    asked = await runner.run("ask and work")
    (question,) = asked.interrupts
    replicas.kill(url)
    answering = asyncio.create_task(runner.resume(asked.run_id, {question.id: "yes"}))
    replicas.start(url)
    await replicas.noted("ask and work yes")
    # It is killed again, with the answer on record and work to do.
    replicas.kill(url)
    replicas.start(url)
    replicas.allow("go")
    async with asyncio.timeout(60):
        done = await answering
    assert (done.status, done.output) == ("completed", "done")
    assert replicas.notes() == ["ask and work yes"]
    await remote.close()
