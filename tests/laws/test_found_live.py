"""What the laws of live conversations have found, each as small as it is (R4, R5, R9, D13)."""

import asyncio
from contextlib import suppress
from typing import Any

from msgspec.structs import replace
from tests.laws.clockless import rest, without_a_clock

from baton import tool
from baton.errors import BatonError, TransferError
from baton.events import AgentResponded, ControlTransferred, Event
from baton.flow.log_history import history_from_log
from baton.messages import AssistantMessage, ToolMessage
from baton.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession, realtime_handoff
from baton.realtime.protocol import AddItem, ResponseEnded, ResponseStarted
from baton.testing import ScriptedRealtimeModel, call


def _desk(model: ScriptedRealtimeModel, *tools: Any, has_exit: bool = False, **options: Any) -> RealtimeRunner[Any]:
    other = RealtimeAgent("B", description="The other.", handoffs=[realtime_handoff("A")])
    one = RealtimeAgent("A", description="The one.", tools=tools, handoffs=[other], exit_tool=has_exit)
    return RealtimeRunner(one, model=model, **options)


def _said(events: tuple[Event, ...]) -> list[tuple[str, object]]:
    return [(each.agent, each.message.content) for each in events if isinstance(each, AgentResponded)]


def test_results_recorded_before_an_error_are_in_the_history() -> None:
    """The policy `error` tells each of several transfers that it is not followed, and then ends the run (R5)."""

    async def held() -> RealtimeSession:
        model = ScriptedRealtimeModel([[call("transfer_to_b"), call("transfer_to_b")]])
        session = _desk(model, multiple_transfers="error").connect("hello")
        with suppress(BatonError):
            async with session:
                await session.send_text("go")
                await rest()
        return session

    result = without_a_clock(held()).result
    assert isinstance(result.error, TransferError)
    assert [type(each) for each in result.messages[-3:]] == [AssistantMessage, ToolMessage, ToolMessage]
    assert list(result.messages) == [entry.message for entry in history_from_log(result.events)]


def test_a_connection_lost_in_sending_is_not_a_normal_end() -> None:
    """Closing what is broken ends the reading of it in good order, and it is broken all the same (R9)."""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    async def held() -> tuple[RealtimeSession, ScriptedRealtimeModel]:
        model = ScriptedRealtimeModel([call("look"), "I have seen it."])
        async with _desk(model, look).connect() as session:
            await session.send_text("look")
            model.cut_at(AddItem)
            await session.wait_until_idle()
            assert session.active_agent == "A"
        return session, model

    session, model = without_a_clock(held())
    assert len(model.connections) == 2
    assert _said(session.result.events)[-1] == ("A", "I have seen it.")
    assert not model.complaints


def test_a_response_during_a_requested_transfer_belongs_to_its_agent() -> None:
    """The response has ended on the wire, and whoever has the floor has not taken note of it yet (R4)."""

    async def held() -> RealtimeSession:
        model = ScriptedRealtimeModel({"B": ["I am B."]})
        async with _desk(model).connect() as session:
            connection = await model.connection()
            connection.emit(ResponseStarted("of A"))
            await rest()
            wish = asyncio.create_task(session.handoff_to("B"))
            connection.emit(ResponseEnded("of A", "completed", AssistantMessage("I am A.")))
            await wish
            await session.wait_until_idle()
        return session

    events = without_a_clock(held()).result.events
    assert _said(events) == [("A", "I am A."), ("B", "I am B.")]


def test_of_an_exit_and_a_transfer_in_two_responses_the_log_says_which_it_was() -> None:
    """The second response exits while a tool of the first still runs, which then asks for a transfer (D13)."""
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "done"

    first = [call("wait"), call("transfer_to_b")]

    async def held() -> tuple[RealtimeSession, RealtimeRunner[Any]]:
        model = ScriptedRealtimeModel([first, call("exit", final_result="the end")])
        runner = _desk(model, wait, has_exit=True)
        session = runner.connect()
        with suppress(BatonError):
            async with session:
                await session.send_text("wait")
                await rest()
                await session.send_text("or rather not")
                await rest()
                gate.set()
                await rest()
        return session, runner

    session, runner = without_a_clock(held())
    result = session.result
    assert (result.status, result.output) == ("completed", "the end")
    again = without_a_clock(runner.text_runner.replay(result.events))
    assert (again.status, again.output, again.messages) == ("completed", "the end", result.messages)


def test_a_claimed_transfer_stays_claimed_after_a_crash() -> None:
    """Two responses were carried out, one of them had won a transfer; the other one must not win it again (R5)."""
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "done"

    slow = [call("wait"), call("transfer_to_b")]

    async def held() -> tuple[Event, ...]:
        model = ScriptedRealtimeModel([slow, call("transfer_to_b"), "I am B."])
        async with _desk(model, wait).connect(run_id="r") as session:
            await session.send_text("wait")
            await rest()
            await session.send_text("or go at once")
            await rest()
            return tuple(session.log.events)

    async def taken_up(events: tuple[Event, ...]) -> RealtimeSession:
        gate.set()
        model = ScriptedRealtimeModel(["I am B."])
        runner = _desk(model, wait)
        async with runner.resume(runner.text_runner.load_log(events)) as session:
            await session.wait_until_idle()
        return session

    result = without_a_clock(taken_up(without_a_clock(held()))).result
    results = [each for each in result.messages if isinstance(each, ToolMessage) and each.name == "transfer_to_b"]
    assert [each.is_error for each in results] == [True, False]
    assert sum(isinstance(each, ControlTransferred) for each in result.events) == 1


def test_messages_at_the_moment_of_an_error_survive_a_resume() -> None:
    """A run that has failed fails again; its history is that of its log all the same (D8)."""

    async def held() -> tuple[Event, ...]:
        model = ScriptedRealtimeModel([[call("transfer_to_b"), call("transfer_to_b")]])
        session = _desk(model, multiple_transfers="error").connect(run_id="r")
        with suppress(BatonError):
            async with session:
                await session.send_text("go")
                await rest()
        return session.result.events

    async def taken_up(events: tuple[Event, ...]) -> RealtimeSession:
        runner = _desk(ScriptedRealtimeModel([]), multiple_transfers="error")
        session = runner.resume(runner.text_runner.load_log(events))
        with suppress(BatonError):
            async with session:
                pass
        return session

    *before, failed = without_a_clock(held())
    said = next(each for each in before if isinstance(each, AgentResponded))
    beside = replace(said, key="1/i9", message=AssistantMessage("so be it."))
    result = without_a_clock(taken_up((*before, beside, failed))).result
    assert result.status == "failed"
    assert list(result.messages) == [entry.message for entry in history_from_log(result.events)]
    assert result.messages[-1] == AssistantMessage("so be it.")
