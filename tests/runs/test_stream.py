"""Streams: streaming changes no logged event, and leaving early leaves nothing running."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot
from tests.loop_clock import FrozenLoopClock
from tests.waiting import forever

from batonkit import Agent, AgentContext, Limits, RunContext, Runner, agent, handoff, tool
from batonkit.errors import LimitError, ModelError, RunError
from batonkit.log import (
    AgentResponded,
    AgentStarted,
    Delta,
    Event,
    ReasoningDelta,
    RunCancelled,
    RunCompleted,
    RunStarted,
    RunSuspended,
    TextDelta,
    ToolCallDelta,
    ToolReturned,
    decode_log,
    encode_event,
    encode_log,
)
from batonkit.messages import AssistantMessage, Reasoning
from batonkit.models import Chunk, CompleteResponse, ModelRequest, ModelResponse, TextChunk
from batonkit.testing import ScriptedModel, ScriptedStream, call, say, transcript, transfer_to


@tool
async def look_up(city: str) -> str:
    """Look up."""
    return f"sunny in {city}"


@tool(needs_approval=True)
async def pay(ctx: RunContext, euro: int) -> str:
    """Pay."""
    ctx.values.set("paid", euro)
    return "paid"


def make_busy_runner(*, stream: bool) -> Runner[Any, Any]:
    """Create a runner whose run has tools, an approval, errors, transfers and a return."""
    model = ScriptedModel(
        {
            "A": [
                say("Let me look.", call("look_up", city="Rome"), call("look_up", city="Oslo")),
                [transfer_to("Unknown"), call("nope")],
                [call("pay", euro=5), transfer_to("B"), transfer_to("C")],
            ],
            "B": [say("Asking C.", call("transfer_to_c")), "B ends"],
            "C": ["C has found something"],
        },
        stream=stream,
    )
    c = Agent("C")
    b = Agent("B", handoffs=[handoff(c, return_to="caller")], output_key="answer")
    return Runner(Agent("A", tools=[look_up, pay], sub_agents=[b, c]), model=model)


def as_logged(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the events as JSON without timestamps and run ids."""
    lines: list[dict[str, Any]] = [msgspec.json.decode(encode_event(event)) for event in events]
    return [{name: value for name, value in line.items() if name not in ("timestamp", "run_id")} for line in lines]


async def read_all(live: AsyncIterable[Event | Delta]) -> list[Event | Delta]:
    """Return all items of a stream."""
    return [event async for event in live]


# --- streaming


async def test_streaming_does_not_change_the_log() -> None:
    logs: list[list[dict[str, Any]]] = []
    for stream in (False, True):
        unstreamed = make_busy_runner(stream=stream)
        suspended = await unstreamed.run("hi", values={"x": 1})
        logs.append(as_logged((await unstreamed.resume(suspended.run_id, True)).events))
        streamed = make_busy_runner(stream=stream)
        async with streamed.stream("hi", values={"x": 1}) as live:
            await read_all(live)
        async with streamed.stream_resume(live.run_id, True) as resumed:
            await read_all(resumed)
        logs.append(as_logged(resumed.result.events))
    assert len(logs[0]) > 30
    assert logs[1:] == logs[:1] * 3


async def test_deltas_come_before_the_events_they_belong_to() -> None:
    # The deltas of a response, then the response, then its consequences.
    model = ScriptedModel({"A": [say("Over to B.", transfer_to("B"))], "B": ["hello you"]}, stream=True)
    async with Runner(Agent("A", sub_agents=[Agent("B")]), model=model).stream("hi") as live:
        events = await read_all(live)
    summary = [
        f"{type(event).__name__} {getattr(event, 'text', '')}{getattr(event, 'arguments', '')}".strip()
        for event in events
    ]
    assert summary == snapshot(
        [
            "RunStarted",
            "AgentStarted",
            "TextDelta Over",
            "TextDelta to",
            "TextDelta B.",
            "ToolCallDelta",
            'ToolCallDelta {"agent_name":"B"}',
            "AgentResponded Over to B.",
            "ToolReturned",
            "ControlTransferred",
            "AgentFinished",
            "AgentStarted",
            "TextDelta hello",
            "TextDelta you",
            "AgentResponded hello you",
            "AgentFinished",
            "RunCompleted",
        ]
    )
    assert [event.agent for event in events if isinstance(event, Delta)] == ["A"] * 5 + ["B"] * 2
    assert live.result.output == "hello you"


async def test_a_stream_delivers_logged_events_and_deltas() -> None:
    runner = make_busy_runner(stream=True)
    async with runner.stream("hi") as live:
        events = await read_all(live)
    assert tuple(event for event in events if isinstance(event, Event)) == live.result.events
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunSuspended)
    text = "".join(event.text for event in events if isinstance(event, TextDelta) and event.agent == "A")
    assert text == "Let me look."
    calls = "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))
    assert calls.startswith('{"city":"Rome"}{"city":"Oslo"}')


async def test_an_event_is_delivered_when_it_happens() -> None:
    # Not at the end of the run.
    may_continue = asyncio.Event()
    model = ScriptedModel([ScriptedStream("one ", may_continue, "two")])
    async with Runner(Agent("A", model=model)).stream("hi") as live:
        async for event in live:
            if isinstance(event, TextDelta):
                assert event.text == ("two" if may_continue.is_set() else "one ")
                may_continue.set()
    assert live.result.output == "one two"


async def test_reasoning_is_streamed_and_stored_with_the_response() -> None:
    reasoning = Reasoning("Let me think.", "acme", {"signature": "s"})
    model = ScriptedModel([AssistantMessage("Yes.", reasoning=(reasoning,))], stream=True)
    async with Runner(Agent("A", model=model)).stream("hi") as live:
        events = await read_all(live)
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["Let me think."]
    (response,) = [event for event in events if isinstance(event, AgentResponded)]
    assert response.message == AssistantMessage("Yes.", reasoning=(reasoning,))


async def test_a_complete_response_is_streamed_and_logged_like_any_other() -> None:
    class CompleteModel:
        name = "prompt"

        def respond(self, request: ModelRequest) -> CompleteResponse:
            return CompleteResponse(TextChunk("hel"), TextChunk("lo"), ModelResponse(stop_reason="end"))

    runner = Runner(Agent("A", model=CompleteModel()))
    unstreamed = await runner.run("hi")
    async with runner.stream("hi") as live:
        events = await read_all(live)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["hel", "lo"]
    assert as_logged(live.result.events) == as_logged(unstreamed.events)
    assert unstreamed.output == "hello"


async def test_a_resumed_stream_delivers_only_new_events() -> None:
    # Neither events nor deltas are repeated.
    runner = make_busy_runner(stream=True)
    async with runner.stream("hi") as live:
        before = await read_all(live)
    async with runner.stream_resume(live.run_id, True) as resumed:
        after = await read_all(resumed)
    assert not {event.key for event in before if isinstance(event, Event)} & {
        event.key for event in after if isinstance(event, Event)
    }
    assert next(event for event in after if isinstance(event, Delta)).agent == "B"
    assert resumed.result.events[: len(live.result.events)] == live.result.events
    assert transcript(after)[:2] == ["run resumed", 'A: got the answer {"approved":true}']


async def test_the_error_of_a_run_is_raised_at_the_end_of_its_stream() -> None:
    runner = Runner(Agent("A", model=ScriptedModel([ModelError("overloaded")])))
    live = runner.stream("hi")
    lines: list[str] = []

    async def listen() -> None:
        async with live:
            async for event in live:
                lines.extend(transcript([event]))

    with pytest.raises(ModelError, match="overloaded"):
        await listen()
    assert lines[-1] == "run failed with ModelError: overloaded"
    assert (live.result.status, str(live.result.error)) == ("failed", "overloaded")


async def test_an_error_has_a_note_with_run_id_and_agent_path() -> None:
    runner = Runner(
        Agent("A", sub_agents=[Agent("B")]), model=ScriptedModel({"A": [transfer_to("B")], "B": [OSError()]})
    )
    with pytest.raises(ModelError) as caught:
        await runner.run("hi", run_id="r1")
    assert caught.value.__notes__ == ["in run r1, at A → B"]


async def test_the_result_is_available_only_after_the_run_has_stopped() -> None:
    live = Runner(Agent("A", model=ScriptedModel(["hello"]))).stream("hi")
    with pytest.raises(RunError, match="has not stopped yet; read its events to the end first"):
        _ = live.result
    async with live:
        await read_all(live)
        assert live.result.output == "hello"
    assert live.result.output == "hello"


async def test_a_stream_must_be_opened_once() -> None:
    live = Runner(Agent("A", model=ScriptedModel(["hello"]))).stream("hi")
    with pytest.raises(RunError, match="open it first: async with runner"):
        await read_all(live)
    async with live:
        await read_all(live)
    with pytest.raises(RunError, match="is already open"):
        await live.__aenter__()
    with pytest.raises(RunError, match="has already been driven"):
        await live._drive()


async def test_reading_can_continue_in_a_second_loop() -> None:
    model = ScriptedModel(["one two three"], stream=True)
    async with Runner(Agent("A", model=model)).stream("hi") as live:
        async for event in live:
            if isinstance(event, TextDelta):
                break
        rest = await read_all(live)
    assert isinstance(rest[-1], RunCompleted)
    assert live.result.status == "completed"


# --- leaving early


class EndlessModel:
    """A model whose response never ends and whose cleanup takes several steps."""

    name = "slow"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.is_closed = False

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        try:
            yield TextChunk("I ")
            self.asked.set()
            await asyncio.Event().wait()
            yield ModelResponse()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.is_closed = True


def no_other_task_is_running() -> bool:
    """Return whether this task is the only one."""
    return asyncio.all_tasks() == {asyncio.current_task()}


async def test_leaving_early_cancels_the_run_and_waits_for_what_it_started() -> None:
    started, cleaned = asyncio.Event(), list[str]()

    @tool
    async def hangs() -> str:
        """Hang."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            cleaned.append("hangs")
        return "never"

    model = ScriptedModel([[call("hangs"), call("hangs"), call("look_up", city="Rome")], "done"])
    runner = Runner(Agent("A", model=model, tools=[hangs, look_up]))
    async with runner.stream("hi") as live:
        async for event in live:
            if isinstance(event, ToolReturned):
                break
        await started.wait()
    assert cleaned == ["hangs", "hangs"]
    assert no_other_task_is_running()
    assert live.result.status == "cancelled"
    assert isinstance(live.result.events[-1], RunCancelled)


async def test_leaving_during_a_model_response_closes_it() -> None:
    model = EndlessModel()
    async with Runner(Agent("A", model=model)).stream("hi") as live:
        async for event in live:
            if isinstance(event, TextDelta):
                break
    assert model.is_closed
    assert no_other_task_is_running()
    assert transcript(live.result.events) == ['run of A started with "hi"', "A started", "run cancelled"]


async def test_leaving_before_anything_was_read_leaves_a_log_that_can_be_resumed() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["hello"])))
    async with runner.stream("hi") as live:
        pass
    assert no_other_task_is_running()
    assert transcript(live.result.events) == ['run of A started with "hi"', "run cancelled"]
    assert (await runner.resume(live.run_id)).output == "hello"


async def test_leaving_a_resumed_run_immediately_does_not_lose_it() -> None:
    runner = make_busy_runner(stream=False)
    suspended = await runner.run("hi")
    async with runner.stream_resume(suspended.run_id, True):
        pass
    assert (await runner.resume(suspended.run_id)).output == "B ends"


async def test_a_resume_stream_that_is_never_opened_changes_nothing() -> None:
    runner = make_busy_runner(stream=False)
    suspended = await runner.run("hi")
    runner.stream_resume(suspended.run_id, True)
    assert (await runner.resume(suspended.run_id, True)).output == "B ends"


@pytest.mark.parametrize("stop_at", range(1, 14))
async def test_leaving_at_any_event_leaves_a_valid_log_that_can_be_resumed(stop_at: int) -> None:
    runner = make_busy_runner(stream=True)
    uninterrupted = make_busy_runner(stream=True)
    suspended = await uninterrupted.run("hi")
    expected = as_logged((await uninterrupted.resume(suspended.run_id, True)).events)
    async with runner.stream("hi") as live:
        count = 0
        async for _ in live:
            count += 1
            if count == stop_at:
                break
    assert no_other_task_is_running()
    log = live.result.events
    assert tuple(decode_log(encode_log(log))) == log
    result = await runner.resume(live.run_id)
    if result.status == "suspended":
        result = await runner.resume(live.run_id, True)
    status_events = ("RunCancelled", "RunSuspended", "RunResumed")

    def without_status_events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [event for event in events if event["type"] not in status_events]

    # Apart from the stops, the log equals that of an uninterrupted run.
    assert without_status_events(as_logged(result.events)) == without_status_events(expected)


async def test_an_error_in_the_block_cancels_the_run_and_propagates() -> None:
    model = EndlessModel()
    runner = Runner(Agent("A", model=model))
    live = runner.stream("hi")

    async def listen() -> None:
        async with live:
            async for event in live:
                if isinstance(event, TextDelta):
                    raise ZeroDivisionError("my own")

    with pytest.raises(ZeroDivisionError, match="my own"):
        await listen()
    assert model.is_closed
    assert no_other_task_is_running()
    assert live.result.status == "cancelled"


async def test_leaving_after_the_end_cancels_nothing() -> None:
    async with Runner(Agent("A", model=ScriptedModel(["hello"]))).stream("hi") as live:
        await read_all(live)
    assert live.result.status == "completed"
    assert no_other_task_is_running()


async def test_leaving_early_does_not_raise_the_error_of_the_run() -> None:
    runner = Runner(Agent("A", model=ScriptedModel([OSError("gone")])))
    async with runner.stream("hi") as live:
        async for event in live:
            if isinstance(event, AgentStarted):
                break
        for _ in range(10):
            await asyncio.sleep(0)
    assert live.result.status in ("failed", "cancelled")


async def test_cancelling_the_reading_task_cancels_the_run() -> None:
    model = EndlessModel()
    live = Runner(Agent("A", model=model)).stream("hi")

    async def listen() -> None:
        async with live:
            await read_all(live)

    listener = asyncio.create_task(listen())
    await model.asked.wait()
    listener.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listener
    assert model.is_closed
    assert no_other_task_is_running()
    assert live.result.status == "cancelled"


async def test_a_stream_ends_when_its_run_is_cancelled_by_another_task() -> None:
    model = EndlessModel()
    live = Runner(Agent("A", model=model)).stream("hi")
    async with live:

        async def stop() -> None:
            await model.asked.wait()
            await live.cancel()

        stopping = asyncio.create_task(stop())
        events = await read_all(live)
        await stopping
    assert transcript(events)[-1] == "run cancelled"
    assert model.is_closed
    assert no_other_task_is_running()


async def test_a_cancelled_run_call_can_be_resumed() -> None:
    # Also for run().
    started, runs = asyncio.Event(), list[str]()

    @tool
    async def sometimes_hangs() -> str:
        """Hang the first time."""
        runs.append("sometimes_hangs")
        if len(runs) == 1:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)
                runs.append("cleaned")
        return "ok"

    model = ScriptedModel([[call("sometimes_hangs"), call("look_up", city="Rome")], "done"])
    runner = Runner(Agent("A", model=model, tools=[sometimes_hangs, look_up]))
    running = asyncio.create_task(runner.run("hi", run_id="r1"))
    await started.wait()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert runs == ["sometimes_hangs", "cleaned"]
    assert no_other_task_is_running()
    result = await runner.resume("r1")
    assert result.output == "done"
    assert runs == ["sometimes_hangs", "cleaned", "sometimes_hangs"]
    assert len(model.requests) == 2
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            'A: called sometimes_hangs({}) + look_up({"city":"Rome"})',
            "A: look_up -> sunny in Rome",
            "run cancelled",
            "run resumed",
            "A: sometimes_hangs -> ok",
            'A: said "done"',
            "A finished",
            "run completed",
        ]
    )


async def test_a_run_that_takes_too_long_for_its_caller_can_be_resumed() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        if not await ctx.step("first", lambda: True) or len(tries) == 0:
            tries.append(1)
            clock.advance(60)
            await forever()
        await ctx.say("at last")

    tries: list[int] = []
    clock, runner = FrozenLoopClock(), Runner(a)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runner.run("hi", run_id="r1"), 60)
    assert (await runner.resume("r1")).output == "at last"


async def test_a_cancelled_run_does_not_record_a_partial_response() -> None:
    # Streamed deltas are not recorded; the model is asked again.
    model = ScriptedModel([ScriptedStream("half an ", asyncio.Event()), "a whole answer"])
    runner = Runner(Agent("A", model=model))
    async with runner.stream("hi") as live:
        async for event in live:
            if isinstance(event, TextDelta):
                break
    result = await runner.resume(live.run_id)
    assert [event.text for event in result.events if isinstance(event, AgentResponded)] == ["a whole answer"]


async def test_no_task_keeps_running_after_the_time_limit() -> None:
    clock, model = FrozenLoopClock(), EndlessModel()
    live = Runner(Agent("A", model=model)).stream("hi", limits=Limits(seconds=60))
    driving = asyncio.create_task(live._drive())
    await model.asked.wait()
    clock.advance(60)
    with pytest.raises(LimitError):
        await driving
    assert model.is_closed
    assert no_other_task_is_running()


async def test_waiting_for_a_stream_that_was_never_opened_is_refused() -> None:
    stream = Runner(Agent("A", model=ScriptedModel(["hello"]))).stream("hi", run_id="r")
    with pytest.raises(RunError, match="run `r` has not started; open it first: async with"):
        await stream.wait()
