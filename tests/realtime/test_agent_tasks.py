"""Task handoffs in realtime sessions."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.realtime.backends import Backend
from tests.realtime.recorder import record_session

from batonkit.errors import SetupError
from batonkit.log import AgentResponded, TaskEnded, TaskOpened, ToolReturned
from batonkit.messages import text_of
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, realtime_handoff
from batonkit.stores import MemoryStore
from batonkit.testing import call

TEXT_ONLY = RealtimeSettings(modality="text")


def agent(name: str, **options: Any) -> RealtimeAgent:
    return RealtimeAgent(name, description=f"Does {name.lower()}.", instructions=f"{name}: be kind.", **options)


def task(target: RealtimeAgent, **options: Any) -> Any:
    return realtime_handoff(target, return_to="caller", until="finished", **options)


def said(text: str) -> Callable[[AgentResponded], bool]:
    return lambda response: response.text == text


async def test_the_target_finishes_its_task_after_several_turns(backend: Backend) -> None:
    desk = agent("Desk", handoffs=[task(agent("Booking"), result_type=int)])
    model = await backend.start(
        {
            "Desk": [call("transfer_to_booking"), "You are booked."],
            "Booking": ["How many?", call("finish_task", result="two"), call("finish_task", result=2)],
        }
    )
    runner = RealtimeRunner(desk, model=model, settings=TEXT_ONLY)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("A table")
        await recorder.wait_for(AgentResponded, where=said("How many?"))
        instructions, tools, _ = backend.settings()
        assert "[Desk] has handed you a task" in instructions
        assert {"finish_task", "cancel_task"} <= {*tools}
        await recorder.session.send_text("Two")
        await recorder.wait_for(AgentResponded, where=said("You are booked."))
        assert recorder.session.active_agent == "Desk"
        assert "finish_task" not in backend.settings()[1]
    assert recorder.transfers == [("Desk", "Booking"), ("Booking", "Desk")]
    (opened,) = recorder.of_type(TaskOpened)
    (ended,) = recorder.of_type(TaskEnded)
    assert (opened.task.agent, ended.outcome, ended.result) == ("Booking", "finished", 2)
    results = [each for each in recorder.of_type(ToolReturned) if each.tool_name == "finish_task"]
    assert [(each.is_error, each.is_task_call) for each in results] == [(True, True), (False, True)]
    assert backend.complaints == []


async def test_a_cancelled_task_returns_to_the_caller(backend: Backend) -> None:
    desk = agent("Desk", handoffs=[task(agent("Booking"))])
    model = await backend.start(
        {"Desk": [call("transfer_to_booking"), "Sorry."], "Booking": [call("cancel_task", reason="full")]}
    )
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("A table")
        await recorder.wait_for(AgentResponded, where=said("Sorry."))
    (ended,) = recorder.of_type(TaskEnded)
    assert (ended.outcome, ended.reason) == ("cancelled", "full")
    assert backend.complaints == []


async def test_a_task_inside_a_task_returns_to_the_outer_one(backend: Backend) -> None:
    booking = agent("Booking", handoffs=[task(agent("Pay"))])
    desk = agent("Desk", handoffs=[task(booking)])
    model = await backend.start(
        {
            "Desk": [call("transfer_to_booking"), "Done."],
            "Booking": [call("transfer_to_pay"), "Paid. Which day?", call("finish_task", result="Monday")],
            "Pay": ["Which card?", call("finish_task", result="paid")],
        }
    )
    async with record_session(RealtimeRunner(desk, model=model, settings=TEXT_ONLY).connect()) as recorder:
        await recorder.session.send_text("A table")
        await recorder.wait_for(AgentResponded, where=said("Which card?"))
        await recorder.session.send_text("Visa")
        await recorder.wait_for(AgentResponded, where=said("Paid. Which day?"))
        await recorder.session.send_text("Monday")
        await recorder.wait_for(AgentResponded, where=said("Done."))
    assert [each.task.agent for each in recorder.of_type(TaskEnded)] == ["Pay", "Booking"]
    assert backend.complaints == []


async def test_the_next_session_of_a_thread_continues_the_task(backend: Backend) -> None:
    store = MemoryStore()
    desk = agent("Desk", handoffs=[task(agent("Booking"))])
    model = await backend.start(
        {
            "Desk": [call("transfer_to_booking"), "Done."],
            "Booking": ["How many?", call("finish_task", result="two")],
        }
    )
    runner = RealtimeRunner(desk, model=model, settings=TEXT_ONLY, store=store)
    async with record_session(runner.connect(thread="t")) as recorder:
        await recorder.session.send_text("A table")
        await recorder.wait_for(AgentResponded, where=said("How many?"))
    thread = runner.text_runner.thread("t")
    assert await thread.active_agent() == "Booking"
    assert [each.agent for each in await thread.open_tasks()] == ["Booking"]
    async with record_session(runner.connect(thread="t")) as recorder:
        await recorder.session.send_text("Two")
        await recorder.wait_for(AgentResponded, where=said("Done."))
    assert await thread.open_tasks() == ()
    messages = [text_of(message.content) for message in await thread.messages()]
    assert messages.count("two") == 1
    for record in await thread.runs():
        replayed = await runner.text_runner.runs.replay(record.run_id)
        assert replayed.status == "completed"


async def test_a_session_that_ends_during_a_digression_ends(backend: Backend) -> None:
    guest = agent("Guest")
    desk = agent("Desk", handoffs=[task(agent("Booking", handoffs=[guest]))])
    model = await backend.start(
        {"Desk": [call("transfer_to_booking")], "Booking": [call("transfer_to_guest")], "Guest": ["Sunny."]}
    )
    runner = RealtimeRunner(desk, model=model, settings=TEXT_ONLY, store=MemoryStore())
    async with record_session(runner.connect(thread="t")) as recorder:
        await recorder.session.send_text("A table")
        await recorder.wait_for(AgentResponded, where=said("Sunny."))
    assert recorder.transfers == [("Desk", "Booking"), ("Booking", "Guest")]
    thread = runner.text_runner.thread("t")
    assert await thread.active_agent() == "Booking"
    (record,) = await thread.runs()
    assert (await runner.text_runner.runs.replay(record.run_id)).status == "completed"


def test_return_to_without_a_task_is_refused_by_name() -> None:
    with pytest.raises(SetupError, match=r'with return_to=…, .* or finishes a task \(until="finished"\)'):
        agent("Desk", handoffs=[realtime_handoff(agent("B"), return_to="caller")])
