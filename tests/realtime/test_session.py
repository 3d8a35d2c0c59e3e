"""R2: a live conversation as an application holds it: everything it can do, and everything it is told."""

import asyncio
from typing import Any

import pytest
from tests.otel.spans import Traced
from tests.realtime.backends import Backend, InMemory, OverTheWire, says
from tests.realtime.listener import WRITTEN, listening_to, make_runner
from tests.servers.realtime import speech

from baton import Limits, RunContext, RunHooks, tool
from baton.errors import (
    AnswerError,
    AuthenticationError,
    LimitError,
    ModelConnectionError,
    OverloadedError,
    RunError,
    TransferError,
)
from baton.events import (
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
from baton.messages import Usage
from baton.otel import OTelObserver
from baton.realtime import (
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
from baton.realtime.openai import OpenAIRealtimeModel
from baton.runner import Interrupt
from baton.testing import ScriptedRealtimeModel, ScriptedStream, call, say


async def test_deltas_are_delivered_and_events_are_logged(backend: Backend) -> None:
    """R2."""
    model = await backend.plays(["Good morning to you."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=RealtimeSettings()).connect()) as heard:
        await says(backend, heard.session, "Hello there")
        await heard.said()
        await heard.until(UserMessageAdded)
        await heard.session.wait_until_idle()
    kinds = {type(event) for event in heard.events}
    assert kinds == {
        *(RunStarted, AgentStarted, UserMessageAdded, AgentResponded, AgentFinished, RunCompleted),
        *(SpeechStarted, SpeechStopped, TranscriptDelta, AudioDelta, AudioCompleted),
    }
    logged = [type(event) for event in heard.session.log.events]
    assert logged == [RunStarted, AgentStarted, UserMessageAdded, AgentResponded, AgentFinished, RunCompleted]
    words = "".join(delta.text for delta in heard.all(TranscriptDelta) if delta.speaker == "agent")
    assert words == heard.words[0] == "Good morning to you."
    assert sum(len(delta.audio) for delta in heard.all(AudioDelta)) == 48 * 200 * 4
    assert {event.agent for event in heard.events if isinstance(event, AudioDelta | AgentResponded)} == {"Desk"}
    assert heard.session.result.output == "Good morning to you."
    assert backend.complaints == []


async def test_audio_is_committed_manually_without_turn_detection(backend: Backend) -> None:
    """R2: `send_audio(…, commit=True)`, and `clear_audio`."""
    settings = RealtimeSettings(turn_detection=None)
    if isinstance(backend, OverTheWire):
        model: Any = await backend.plays(["I heard you."])
        backend.words.append("Hello there")
    else:
        assert isinstance(backend, InMemory)
        model = backend.model = ScriptedRealtimeModel(["I heard you."], hears=["Hello there"])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model, settings=settings).connect()) as heard:
        await heard.session.send_audio(speech("a cough"))
        await heard.session.clear_audio()
        await heard.session.send_audio(speech("Hello"))
        await heard.session.send_audio(speech("there"), commit=True)
        await heard.said()
        await heard.until(UserMessageAdded)
        await heard.session.wait_until_idle()
    assert backend.commands() == ["clear", "commit", "respond"]
    assert [event.text for event in heard.all(UserMessageAdded)] == ["Hello there"]
    assert backend.complaints == []


async def test_words_can_be_sent_without_wanting_an_answer(backend: Backend) -> None:
    """R2."""
    model = await backend.plays(["Yes."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        await heard.session.send_text("I am in Paris.", respond=False)
        await heard.session.wait_until_idle()
        assert heard.words == []
        await heard.session.send_text("Did you get that?")
        await heard.said()
    assert backend.commands() == ["user", "user", "respond"]
    assert backend.complaints == []


async def test_before_it_is_open_nothing_can_be_sent(scripted: InMemory) -> None:
    """R2."""
    model = await scripted.plays([])
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
    """R2."""
    model = await backend.plays(["Still here."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        with pytest.raises(TransferError, match="Kitchen"):
            await heard.session.handoff_to("Kitchen")
        with pytest.raises(AnswerError):
            await heard.session.answer("nothing", True)
        await heard.session.send_text("Hi")
        await heard.said()
    assert heard.failure is None
    assert backend.complaints == []


async def test_a_target_that_cannot_be_set_up_is_refused_to_the_application(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """R2, R4: `handoff_to` and `update_agent`."""

    def broken(ctx: Any) -> str:
        raise LookupError("no such customer")

    desk = RealtimeAgent("Desk", handoffs=[RealtimeAgent("Billing", instructions=broken)])
    model = await backend.plays(["Still me."])
    async with listening_to(make_runner(desk, model).connect()) as heard:
        with pytest.raises(RunError, match="could not be set up: no such customer"):
            await heard.session.handoff_to("Billing")
        with pytest.raises(RunError, match="could not be set up: no such customer"):
            await heard.session.update_agent(desk.clone(instructions=broken))
        await heard.session.send_text("Hi")
        await heard.said()
        assert heard.session.active_agent == "Desk"
    assert backend.commands() == ["user", "respond"]
    assert "could not set up `" in caplog.text
    assert backend.complaints == []


async def test_the_application_hands_over_while_the_agent_speaks(backend: Backend) -> None:
    """R2: what it was saying is stopped first."""
    billing = RealtimeAgent("Billing", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing])
    model = await backend.plays(
        {"Desk": [ScriptedStream("One two three", asyncio.Event())], "Billing": ["Billing here."]}
    )
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("Count")
        await heard.until(TranscriptDelta, where=lambda delta: "three" in delta.text)
        await heard.session.handoff_to("Billing")
        await heard.until(AgentResponded, where=lambda said: said.text == "Billing here.")
    assert heard.words == ["One two three", "Billing here."]
    assert backend.commands() == ["user", "respond", "cancel", "configure", "respond"]
    assert backend.complaints == []


async def test_usage_is_counted(backend: Backend) -> None:
    """R2."""
    model = await backend.plays([say("One.", usage=Usage(10, 5)), say("Two.", usage=Usage(20, 7, cached_tokens=3))])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        for number in (1, 2):
            await heard.session.send_text("Hi")
            await heard.said(number)
    usage = heard.session.result.usage.total
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (30, 12, 3)
    assert backend.complaints == []


@pytest.mark.parametrize(
    ("limits", "what"), [(Limits(model_calls=1), "model_calls"), (Limits(tokens=12), "tokens")], ids=["calls", "tokens"]
)
async def test_limits_hold(backend: Backend, limits: Limits, what: str) -> None:
    """R2."""
    model = await backend.plays([say("One.", usage=Usage(10, 5)), say("Two.", usage=Usage(10, 5))])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect(limits=limits)) as heard:
        await heard.session.send_text("Hi")
        if what == "model_calls":
            await heard.said()
            await heard.session.send_text("Hi again")
        await heard.until_over()
    assert isinstance(heard.failure, LimitError)
    assert heard.failure.limit == what
    assert backend.complaints == []


async def test_a_conversation_can_have_its_time(backend: Backend) -> None:
    """R2."""
    model = await backend.plays(["One."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect(limits=Limits(seconds=2.0))) as heard:
        await heard.until_over()
    assert isinstance(heard.failure, LimitError)
    assert backend.complaints == []


async def test_transfers_can_be_limited(backend: Backend) -> None:
    """R2."""
    billing = RealtimeAgent("Billing", description="Settles.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", sub_agents=[billing])
    model = await backend.plays({"Desk": ["Hi."], "Billing": ["Hi."]})
    async with listening_to(make_runner(desk, model).connect(limits=Limits(transfers=1))) as heard:
        await heard.session.handoff_to("Billing")
        await heard.said()
        await heard.session.handoff_to("Desk")
        await heard.until_over()
    assert isinstance(heard.failure, LimitError)


class Told(RunHooks):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_run_start(self, ctx: RunContext[Any], agent: Any) -> Any:
        self.told.append("run starts")

    def on_run_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> Any:
        self.told.append(f"run ends: {output}")

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: Any) -> Any:
        self.told.append(f"model is asked: {len(request.messages)}")

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: Any) -> Any:
        self.told.append("model has answered")

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: Any, result: Any) -> Any:
        self.told.append(f"{call.name}: {result.content}")

    async def on_interrupt(self, ctx: RunContext[Any], interrupt: Interrupt) -> None:
        self.told.append("question")


async def test_hooks_are_told_as_in_every_run(backend: Backend) -> None:
    """R2."""
    told = Told()

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = await backend.plays([call("pay"), "It is paid."])
    async with listening_to(make_runner(RealtimeAgent("Desk", tools=[pay]), model, hooks=told).connect()) as heard:
        await heard.session.send_text("Pay")
        asked = await heard.until(InterruptRaised)
        await heard.session.answer(asked.key, True)
        await heard.until(AgentResponded, 2)
    assert told.told == [
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
        type(event) for event in heard.session.log.events if isinstance(event, InterruptRaised | InterruptAnswered)
    ] == [
        InterruptRaised,
        InterruptAnswered,
    ]
    assert backend.complaints == []


async def test_spans_are_made_of_it_as_of_every_run(backend: Backend) -> None:
    """R2: tracing is a reading of the log, also of a live one."""

    @tool
    async def look_up() -> str:
        """Look it up."""
        return "found"

    billing = RealtimeAgent("Billing", description="Settles.", instructions="Billing: be kind.")
    desk = RealtimeAgent("Desk", instructions="Desk: be kind.", handoffs=[billing], tools=[look_up])
    model = await backend.plays({"Desk": [call("look_up"), call("transfer_to_billing")], "Billing": ["Hello."]})
    traced = Traced()
    readers = [OTelObserver(traced.provider)]
    async with listening_to(make_runner(desk, model, observers=readers).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
    names = ["chat" if span.name == f"chat {model.name}" else span.name for span in traced.spans]
    assert sorted(names) == sorted(
        [
            *("invoke_workflow Desk", "invoke_agent Desk", "invoke_agent Billing"),
            *("chat", "chat", "chat", "execute_tool look_up", "handoff Desk to Billing"),
        ]
    )
    assert backend.complaints == []


async def test_values_and_context_reach_tools(backend: Backend) -> None:
    """R2."""

    @tool
    async def who(ctx: RunContext[dict[str, str]]) -> str:
        """Say who it is."""
        return f"{ctx.context['user']} of {ctx.values['city']}"

    model = await backend.plays([call("who"), "I see."])
    runner = make_runner(RealtimeAgent("Desk", tools=[who]), model)
    async with listening_to(runner.connect(context={"user": "Ada"}, values={"city": "Paris"})) as heard:
        await heard.session.send_text("Who am I?")
        await heard.until(AgentResponded, 2)
    assert heard.results == [("who", "Ada of Paris")]
    assert backend.complaints == []


async def test_if_it_cannot_be_opened_the_error_comes_from_async_with(wire: OverTheWire) -> None:
    """R2."""
    await wire.plays([])
    wrong = OpenAIRealtimeModel(api_key="wrong", base_url=wire.server.base_url)
    nowhere = OpenAIRealtimeModel(api_key="any", base_url="http://127.0.0.1:9")
    for model, error in ((wrong, AuthenticationError), (nowhere, ModelConnectionError)):
        with pytest.raises(error):
            async with RealtimeRunner(RealtimeAgent("Desk"), model=model, settings=WRITTEN).connect():
                raise AssertionError("it was opened")
        await model.aclose()


async def test_a_response_that_fails_is_told_and_the_conversation_goes_on(backend: Backend) -> None:
    """R2."""
    model = await backend.plays([OverloadedError("too many at once"), "Here I am again."])
    async with listening_to(make_runner(RealtimeAgent("Desk"), model).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(SessionErrorReported)
        await heard.session.send_text("Hi?")
        await heard.said()
    assert heard.words == ["Here I am again."]
    assert heard.failure is None


async def test_many_conversations_at_once_do_not_mix(backend: Backend) -> None:
    """R2: one runner, one model."""

    def echo(request: Any) -> str:
        return f"You said {request.messages[-1].content}"

    model = await backend.plays([echo] * 40)
    runner = make_runner(RealtimeAgent("Desk"), model)

    async def hold(number: int) -> list[str]:
        async with listening_to(runner.connect()) as heard:
            for turn in (1, 2):
                await heard.session.send_text(f"{number}.{turn}")
                await heard.said(turn)
        return heard.words

    held = await asyncio.gather(*[hold(number) for number in range(20)])
    assert held == [[f"You said {number}.1", f"You said {number}.2"] for number in range(20)]
    assert backend.complaints == []


async def test_exit_ends_the_conversation(backend: Backend) -> None:
    """R2: a model may end it, as it may end every run."""
    model = await backend.plays([call("exit", final_result="Goodbye.")])
    async with listening_to(make_runner(RealtimeAgent("Desk", exit_tool=True), model).connect()) as heard:
        await heard.session.send_text("Bye")
        await heard.until_over()
    assert heard.session.result.output == "Goodbye."
    assert heard.session.result.status == "completed"
    assert heard.all(ControlTransferred) == []
    assert [result.tool_name for result in heard.all(ToolReturned)] == ["exit"]
    assert backend.complaints == []
