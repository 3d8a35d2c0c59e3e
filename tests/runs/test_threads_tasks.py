"""Open tasks in threads: they continue across runs and processes, and trimming does not cut into them."""

from typing import Any

import pytest

from batonkit import Agent, Runner, handoff
from batonkit.log import RunStarted
from batonkit.messages import text_of
from batonkit.serve import Principal
from batonkit.serve.api.run_schemas import encode_public_event
from batonkit.stores import MemoryStore, resolve_store
from batonkit.testing import ScriptedModel, call

SCRIPT: dict[str, list[Any]] = {
    "Desk": [call("transfer_to_booking"), "Booked.", "Bye."],
    "Booking": ["Which day?", "How many?", call("finish_task", result="Monday, two")],
}


def make_runner(store: Any, script: Any = SCRIPT) -> tuple[Runner[Any, Any], ScriptedModel]:
    model = ScriptedModel(script)
    edge = handoff(Agent("Booking", description="books"), return_to="caller", until="finished")
    return Runner(Agent("Desk", handoffs=[edge]), model=model, store=store), model


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_another_process_continues_the_task(kind: str, tmp_path: Any) -> None:
    store = MemoryStore() if kind == "memory" else resolve_store(tmp_path / "runs.db")
    first, _ = make_runner(store)
    await first.run("A table", thread="t")
    second, model = make_runner(store, {"Booking": SCRIPT["Booking"][2:], "Desk": SCRIPT["Desk"][1:]})
    result = await second.run("Monday, two", thread="t")
    assert result.output == "Booked."
    assert text_of(model.requests[-1].messages[2].content) == "Monday, two"
    started = result.events[0]
    assert isinstance(started, RunStarted)
    assert [(task.agent, task.caller, task.run_id != "") for task in started.tasks] == [("Booking", "Desk", True)]


async def test_a_submitted_run_has_the_tasks_of_its_thread() -> None:
    runner, _ = make_runner(MemoryStore())
    await runner.run("A table", thread="t")
    run_id = await runner.submit("Monday", thread="t")
    assert (await runner.runs.drive(run_id)).status == "completed"
    assert [task.agent for task in await runner.thread("t").open_tasks()] == ["Booking"]


async def test_start_at_root_clears_the_stack() -> None:
    runner, model = make_runner(MemoryStore())
    await runner.run("A table", thread="t")
    result = await runner.run("Hello?", thread="t", start_at="root")
    assert (result.agent, result.open_tasks) == ("Desk", ())
    assert await runner.thread("t").active_agent() == "Desk"
    # The call keeps its first result.
    assert text_of(model.requests[-1].messages[2].content) == '{"assistant":"Booking"}'


async def test_trimming_keeps_the_runs_since_the_first_open_task() -> None:
    script = {"Desk": ["Hello.", *SCRIPT["Desk"]], "Booking": SCRIPT["Booking"]}
    runner, model = make_runner(MemoryStore(), script)
    for text in ("Hi", "A table", "Monday"):
        await runner.run(text, thread="t")
    thread = runner.thread("t")
    assert await thread.trim(keep=1) == 1
    assert await thread.trim(keep=0) == 0
    assert (await runner.run("two", thread="t")).output == "Booked."
    assert [text_of(message.content) for message in model.requests[-1].messages[:3]] == ["A table", "", "Monday, two"]
    # Now the task is over.
    assert await thread.trim(keep=1) == 2
    await runner.run("Thanks", thread="t")
    read = " ".join(text_of(message.content) for message in model.requests[-1].messages)
    assert "For context: the task that [Desk] gave to [Booking] ended with: Monday, two" in read
    assert read.count("Monday, two") == 1


async def test_a_task_of_an_agent_that_is_gone_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    runner, _ = make_runner(store)
    await runner.run("A table", thread="t")
    alone = Runner(Agent("Desk"), model=ScriptedModel(["Only me."]), store=store)
    result = await alone.run("Hello?", thread="t")
    assert (result.agent, result.open_tasks) == ("Desk", ())
    assert "has open tasks of agents that are not part of the team" in caplog.text


async def test_a_cancelled_run_keeps_the_stack() -> None:
    runner, _ = make_runner(MemoryStore())
    await runner.run("A table", thread="t")
    async with runner.stream("Monday", thread="t") as run:
        await run.cancel()
    assert run.result.status == "cancelled"
    assert [task.agent for task in await runner.thread("t").open_tasks()] == ["Booking"]
    assert (await runner.run("Monday", thread="t")).agent == "Booking"


async def test_the_history_of_an_earlier_run_is_not_changed() -> None:
    # The entries of a thread are cached; the end of a task must not change what an earlier run read.
    runner, _ = make_runner(MemoryStore())
    first = await runner.run("A table", thread="t")
    second = await runner.run("Monday", thread="t")
    await runner.run("two", thread="t")
    assert text_of((await runner.runs.replay(first.run_id)).messages[2].content) == '{"assistant":"Booking"}'
    fork = await runner.runs.fork(second.run_id, at=1)
    forked, model = make_runner(runner._require_store("a test"), {"Booking": ["And now?"]})
    await forked.resume(fork)
    read = [text_of(message.content) for message in model.requests[0].messages]
    assert read[2] == 'For context: [Desk] `transfer_to_booking` tool returned result: {"assistant":"Booking"}.'


async def test_the_http_api_shows_public_run_ids() -> None:
    runner, _ = make_runner(MemoryStore())
    await runner.run("A table", thread="ann:t", run_id="ann:r1")
    result = await runner.run("Monday", thread="ann:t", run_id="ann:r2")
    line = encode_public_event(result.events[0], Principal("ann"), show_errors=False)
    assert b'"run_id":"r1"' in line
    assert b"ann:" not in line
