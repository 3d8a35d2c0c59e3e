"""The methods of a session, and the events and errors it delivers."""

import asyncio
from typing import Any

import pytest
from tests.loop_clock import LoopClock
from tests.otel.spans import Traced
from tests.realtime.backends import Backend, ScriptedBackend, WebSocketBackend, speak
from tests.realtime.recorder import TEXT_ONLY, make_runner, record_session
from tests.servers.realtime import speech

from batonkit import Limits, RunContext, RunHooks, tool
from batonkit.errors import (
    AnswerError,
    AuthenticationError,
    LimitError,
    ModelConnectionError,
    OverloadedError,
    RunError,
    TransferError,
    UnknownPriceError,
)
from batonkit.log import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    InterruptAnswered,
    InterruptRaised,
    RunCompleted,
    RunStarted,
    ToolReturned,
    UserMessageAdded,
)
from batonkit.messages import Usage
from batonkit.models import ModelPrice, PriceTable
from batonkit.otel import OTelObserver
from batonkit.realtime import (
    AudioCompleted,
    AudioDelta,
    RealtimeAgent,
    RealtimeRunner,
    RealtimeSettings,
    SessionErrorReported,
    SpeechStarted,
    SpeechStopped,
    TranscriptDelta,
)
from batonkit.realtime.openai import OpenAIRealtimeModel
from batonkit.runs import Interrupt
from batonkit.testing import ScriptedRealtimeModel, ScriptedStream, call, say


async def test_deltas_are_delivered_and_events_are_logged(backend: Backend) -> None:
    model = await backend.start(["Good morning to you."])
    async with record_session(
        make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings()).connect()
    ) as recorder:
        await speak(backend, recorder.session, "Hello there")
        await recorder.wait_for_response()
        await recorder.wait_for(UserMessageAdded)
        await recorder.session.wait_until_idle()
    kinds = {type(event) for event in recorder.events}
    assert kinds == {
        *(RunStarted, AgentStarted, UserMessageAdded, AgentResponded, AgentFinished, RunCompleted),
        *(SpeechStarted, SpeechStopped, TranscriptDelta, AudioDelta, AudioCompleted),
    }
    logged = [type(event) for event in recorder.session.log.events]
    assert logged == [RunStarted, AgentStarted, UserMessageAdded, AgentResponded, AgentFinished, RunCompleted]
    transcript = "".join(delta.text for delta in recorder.of_type(TranscriptDelta) if delta.speaker == "agent")
    assert transcript == recorder.response_texts[0] == "Good morning to you."
    assert sum(len(delta.audio) for delta in recorder.of_type(AudioDelta)) == 48 * 200 * 4
    assert {event.agent for event in recorder.events if isinstance(event, AudioDelta | AgentResponded)} == {"Desk"}
    assert recorder.session.result.output == "Good morning to you."
    assert backend.complaints == []


async def test_audio_is_committed_manually_without_turn_detection(backend: Backend) -> None:
    # `send_audio(…, commit=True)`, and `clear_audio`.
    settings = RealtimeSettings(turn_detection=None)
    if isinstance(backend, WebSocketBackend):
        model: Any = await backend.start(["I heard you."])
        backend.transcripts.append("Hello there")
    else:
        assert isinstance(backend, ScriptedBackend)
        model = backend.model = ScriptedRealtimeModel(["I heard you."], hears=["Hello there"])
    async with record_session(make_runner(RealtimeAgent("Desk"), model, settings=settings).connect()) as recorder:
        await recorder.session.send_audio(speech("a cough"))
        await recorder.session.clear_audio()
        await recorder.session.send_audio(speech("Hello"))
        await recorder.session.send_audio(speech("there"), commit=True)
        await recorder.wait_for_response()
        await recorder.wait_for(UserMessageAdded)
        await recorder.session.wait_until_idle()
    assert backend.commands() == ["clear", "commit", "respond"]
    assert [event.text for event in recorder.of_type(UserMessageAdded)] == ["Hello there"]
    assert backend.complaints == []


async def test_text_can_be_sent_without_requesting_a_response(backend: Backend) -> None:
    model = await backend.start(["Yes."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        await recorder.session.send_text("I am in Paris.", respond=False)
        await recorder.session.wait_until_idle()
        assert recorder.response_texts == []
        await recorder.session.send_text("Did you get that?")
        await recorder.wait_for_response()
    assert backend.commands() == ["user", "user", "respond"]
    assert backend.complaints == []


async def test_sending_before_the_session_is_open_raises_an_error(scripted_backend: ScriptedBackend) -> None:
    model = await scripted_backend.start([])
    session = make_runner(RealtimeAgent("Desk"), model).connect()
    for send in (
        session.send_text("Hi"),
        session.send_audio(b"\0\0"),
        session.clear_audio(),
        session.interrupt(),
        session.respond(),
        session.handoff_to("Desk"),
        session.answer("?", 1),
    ):
        with pytest.raises(RunError, match="the session is not open; use `async with"):
            await send


async def test_invalid_requests_are_rejected_and_the_session_continues(backend: Backend) -> None:
    model = await backend.start(["Still here."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        with pytest.raises(TransferError, match="Unknown"):
            await recorder.session.handoff_to("Unknown")
        with pytest.raises(AnswerError):
            await recorder.session.answer("nothing", True)
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
    assert recorder.failure is None
    assert backend.complaints == []


async def test_a_target_that_cannot_be_set_up_raises_an_error(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    # `handoff_to` and `update_agent`.

    def fail(ctx: Any) -> str:
        raise LookupError("no such customer")

    desk = RealtimeAgent("Desk", handoffs=[RealtimeAgent("Billing", instructions=fail)])
    model = await backend.start(["Still me."])
    async with record_session(make_runner(desk, model).connect()) as recorder:
        with pytest.raises(RunError, match="could not be set up: no such customer"):
            await recorder.session.handoff_to("Billing")
        with pytest.raises(RunError, match="could not be set up: no such customer"):
            await recorder.session.update_agent(desk.clone(instructions=fail))
        await recorder.session.send_text("Hi")
        await recorder.wait_for_response()
        assert recorder.session.active_agent == "Desk"
    assert backend.commands() == ["user", "respond"]
    assert "could not set up `" in caplog.text
    assert backend.complaints == []


async def test_handoff_to_cancels_the_current_response(backend: Backend) -> None:
    # The current response is cancelled first.
    billing = RealtimeAgent("Billing", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    model = await backend.start(
        {"Desk": [ScriptedStream("One two three", asyncio.Event())], "Billing": ["Billing here."]}
    )
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for(TranscriptDelta, where=lambda delta: "three" in delta.text)
        await recorder.session.handoff_to("Billing")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Billing here.")
    assert recorder.response_texts == ["One two three", "Billing here."]
    assert backend.commands() == ["user", "respond", "cancel", "configure", "respond"]
    assert backend.complaints == []


async def test_usage_is_counted(backend: Backend) -> None:
    model = await backend.start([say("One.", usage=Usage(10, 5)), say("Two.", usage=Usage(20, 7, cached_tokens=3))])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        for number in (1, 2):
            await recorder.session.send_text("Hi")
            await recorder.wait_for_response(number)
    usage = recorder.session.result.usage.total
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (30, 12, 3)
    assert backend.complaints == []


async def test_a_realtime_model_costs_what_the_price_table_says_or_is_unpriced() -> None:
    name, price = "openai:gpt-realtime", ModelPrice(input=4, output=16)
    table = PriceTable({name: price})
    for prices, expected in ((True, (0.0, 1)), (table, (price.cost(Usage(1000, 100)), 0))):
        model = ScriptedRealtimeModel([say("One.", usage=Usage(1000, 100))], name=name)
        async with record_session(make_runner(RealtimeAgent("Desk"), model, prices=prices).connect()) as recorder:
            await recorder.session.send_text("Hi")
            await recorder.wait_for_response()
        total = recorder.session.result.usage.total
        assert (total.cost, total.unpriced_calls) == expected


async def test_a_limit_on_the_cost_ends_a_session_whose_price_is_unknown() -> None:
    model = ScriptedRealtimeModel([say("One.", usage=Usage(1000, 100))], name="openai:gpt-realtime")
    runner = make_runner(RealtimeAgent("Desk"), model)
    async with record_session(runner.connect(limits=Limits(cost=1))) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, UnknownPriceError)
    assert "PriceTable" in str(recorder.failure)


@pytest.mark.parametrize(
    ("limits", "limit"),
    [(Limits(model_calls=1), "model_calls"), (Limits(tokens=12), "tokens")],
    ids=["calls", "tokens"],
)
async def test_limits_end_the_session(backend: Backend, limits: Limits, limit: str) -> None:
    model = await backend.start([say("One.", usage=Usage(10, 5)), say("Two.", usage=Usage(10, 5))])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect(limits=limits)) as recorder:
        await recorder.session.send_text("Hi")
        if limit == "model_calls":
            await recorder.wait_for_response()
            await recorder.session.send_text("Hi again")
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, LimitError)
    assert recorder.failure.limit == limit
    assert backend.complaints == []


async def test_the_duration_of_a_session_can_be_limited(backend: Backend) -> None:
    clock = LoopClock()
    model = await backend.start(["One."])
    async with record_session(
        make_runner(RealtimeAgent("Desk"), model).connect(limits=Limits(seconds=600))
    ) as recorder:
        clock.advance(600)
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, LimitError)
    assert backend.complaints == []


async def test_transfers_can_be_limited(backend: Backend) -> None:
    billing = RealtimeAgent("Billing", description="Settles.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", sub_agents=[billing])
    model = await backend.start({"Desk": ["Hi."], "Billing": ["Hi."]})
    async with record_session(make_runner(desk, model).connect(limits=Limits(transfers=1))) as recorder:
        await recorder.session.handoff_to("Billing")
        await recorder.wait_for_response()
        await recorder.session.handoff_to("Desk")
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, LimitError)


class RecordingHooks(RunHooks):
    """Records the calls of hooks."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_run_start(self, ctx: RunContext[Any], agent: Any) -> Any:
        self.calls.append("run starts")

    def on_run_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> Any:
        self.calls.append(f"run ends: {output}")

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: Any) -> Any:
        self.calls.append(f"model is asked: {len(request.messages)}")

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: Any) -> Any:
        self.calls.append("model has answered")

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: Any, result: Any) -> Any:
        self.calls.append(f"{call.name}: {result.content}")

    async def on_interrupt(self, ctx: RunContext[Any], interrupt: Interrupt) -> None:
        self.calls.append("question")


async def test_hooks_are_called_as_in_every_run(backend: Backend) -> None:
    hooks = RecordingHooks()

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = await backend.start([call("pay"), "It is paid."])
    async with record_session(
        make_runner(RealtimeAgent("Desk", tools=[pay]), model, hooks=hooks).connect()
    ) as recorder:
        await recorder.session.send_text("Pay")
        interrupt = await recorder.wait_for(InterruptRaised)
        await recorder.session.answer(interrupt.key, True)
        await recorder.wait_for(AgentResponded, 2)
    assert hooks.calls == [
        "run starts",
        "model is asked: 1",
        "model has answered",
        "question",
        "pay: paid",
        "model is asked: 3",
        "model has answered",
        "run ends: It is paid.",
    ]
    assert [
        type(event) for event in recorder.session.log.events if isinstance(event, InterruptRaised | InterruptAnswered)
    ] == [
        InterruptRaised,
        InterruptAnswered,
    ]
    assert backend.complaints == []


async def test_a_session_has_the_same_spans_as_a_run(backend: Backend) -> None:
    # Spans are made of the log, as in every run.

    @tool
    async def look_up() -> str:
        """Look it up."""
        return "found"

    billing = RealtimeAgent("Billing", description="Settles.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing], tools=[look_up])
    model = await backend.start({"Desk": [call("look_up"), call("transfer_to_billing")], "Billing": ["Hello."]})
    tracing = Traced()
    observers = [OTelObserver(tracing.provider)]
    async with record_session(make_runner(desk, model, observers=observers).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
    # The names of models are without their providers.
    named = f"chat {model.name.rpartition(':')[2]}"
    names = ["chat" if span.name == named else span.name for span in tracing.spans]
    assert sorted(names) == sorted(
        [
            *("invoke_workflow Desk", "invoke_agent Desk", "invoke_agent Billing"),
            *("chat", "chat", "chat", "execute_tool look_up", "handoff Desk to Billing"),
        ]
    )
    assert backend.complaints == []


async def test_values_and_context_reach_tools(backend: Backend) -> None:

    @tool
    async def who(ctx: RunContext[dict[str, str]]) -> str:
        """Return the user's name and city."""
        return f"{ctx.context['user']} of {ctx.values['city']}"

    model = await backend.start([call("who"), "I see."])
    runner = make_runner(RealtimeAgent("Desk", tools=[who]), model)
    async with record_session(runner.connect(context={"user": "Ada"}, values={"city": "Paris"})) as recorder:
        await recorder.session.send_text("Who am I?")
        await recorder.wait_for(AgentResponded, 2)
    assert recorder.tool_results == [("who", "Ada of Paris")]
    assert backend.complaints == []


async def test_errors_on_opening_are_raised_by_async_with(websocket_backend: WebSocketBackend) -> None:
    await websocket_backend.start([])
    wrong = OpenAIRealtimeModel(api_key="wrong", base_url=websocket_backend.server.base_url)
    unreachable = OpenAIRealtimeModel(api_key="any", base_url="http://127.0.0.1:9")
    for model, error in ((wrong, AuthenticationError), (unreachable, ModelConnectionError)):
        with pytest.raises(error):
            async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=TEXT_ONLY).connect():
                raise AssertionError("the session was opened")
        await model.aclose()


async def test_a_failed_response_is_reported_and_the_session_continues(backend: Backend) -> None:
    model = await backend.start([OverloadedError("too many at once"), "Here I am again."])
    async with record_session(make_runner(RealtimeAgent("Desk"), model).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(SessionErrorReported)
        await recorder.session.send_text("Hi?")
        await recorder.wait_for_response()
    assert recorder.response_texts == ["Here I am again."]
    assert recorder.failure is None


async def test_concurrent_sessions_do_not_mix(backend: Backend) -> None:
    # One runner, one model.

    def echo(request: Any) -> str:
        return f"You said {request.messages[-1].content}"

    model = await backend.start([echo] * 40)
    runner = make_runner(RealtimeAgent("Desk"), model)

    async def run_session(number: int) -> list[str]:
        async with record_session(runner.connect()) as recorder:
            for turn in (1, 2):
                await recorder.session.send_text(f"{number}.{turn}")
                await recorder.wait_for_response(turn)
        return recorder.response_texts

    texts = await asyncio.gather(*[run_session(number) for number in range(20)])
    assert texts == [[f"You said {number}.1", f"You said {number}.2"] for number in range(20)]
    assert backend.complaints == []


async def test_exit_ends_the_session(backend: Backend) -> None:
    # A model can end a session, as it can end every run.
    model = await backend.start([call("exit", final_result="Goodbye.")])
    async with record_session(make_runner(RealtimeAgent("Desk", exit_tool=True), model).connect()) as recorder:
        await recorder.session.send_text("Bye")
        await recorder.wait_until_ended()
    assert recorder.session.result.output == "Goodbye."
    assert recorder.session.result.status == "completed"
    assert recorder.of_type(ControlTransferred) == []
    assert [result.tool_name for result in recorder.of_type(ToolReturned)] == ["exit"]
    assert backend.complaints == []
