"""Guardrails in parallel with the first model call; its response has no effect before they pass."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.agents.guardrail_fakes import HangingModel, RecordingGuardrail, ask, run_to_failure
from tests.waiting import forever

from batonkit import Agent, AgentContext, GuardrailVerdict, RunContext, Runner, SetupError, agent
from batonkit.agents import with_guardrails
from batonkit.errors import GuardrailTrippedError, ModelError
from batonkit.log import Delta, Event, StepCompleted, TextDelta
from batonkit.messages import AssistantMessage, Message, Reasoning, text_of
from batonkit.middleware import model_middleware
from batonkit.models import Chunk, CompleteResponse, ModelRequest, ModelResponse
from batonkit.testing import ScriptedModel, ScriptedStream, call, transfer_to


async def delivered_events(runner: Runner[Any, Any], input: str = "go") -> list[Event | Delta]:
    """Return the events and deltas that a run delivers, also if a guardrail stops it."""
    events: list[Event | Delta] = []
    async with runner.stream(input) as run:
        try:
            async for event in run:
                events.append(event)  # noqa: PERF401 - events before an error must be kept
        except GuardrailTrippedError:
            pass
    return events


@pytest.mark.parametrize("model_of", ["agent", "runner"])
async def test_guardrails_run_concurrently_with_the_first_model_call(model_of: str) -> None:
    model_is_called, check_is_running = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        model_is_called.set()
        await check_is_running.wait()
        return "hi"

    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        check_is_running.set()
        await model_is_called.wait()
        return True

    model = ScriptedModel([answer])
    inner = Agent("Desk", model=model if model_of == "agent" else None)
    desk = with_guardrails(inner, input_guardrails=[check], mode="parallel")
    result = await Runner(desk, model=model if model_of == "runner" else None).run("go")
    assert result.output == "hi"


async def test_the_response_is_held_back_until_the_guardrails_have_passed() -> None:
    response_is_complete, may_pass = asyncio.Event(), asyncio.Event()
    steps = ScriptedStream("one ", "two", call("note"))

    async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in model.respond(request):
            yield chunk
        response_is_complete.set()

    class SignallingModel:
        name = "signalling"
        respond = staticmethod(answer)

    def note() -> str:
        """Note."""
        return "noted"

    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await may_pass.wait()
        return True

    model = ScriptedModel([steps, "done"])
    events: list[Event | Delta] = []
    runner = Runner(
        with_guardrails(Agent("Desk", model=SignallingModel(), tools=[note]), input_guardrails=[check], mode="parallel")
    )
    async with runner.stream("go") as run:
        reading = asyncio.ensure_future(anext(collect(run, events)))
        await response_is_complete.wait()
        # The response is complete, but nothing of it was delivered and the tool was not called.
        assert [type(event).__name__ for event in run.events] == ["RunStarted", "AgentStarted"]
        assert not any(isinstance(event, Delta) for event in events)
        may_pass.set()
        await reading
    kinds = [type(event).__name__ for event in events]
    assert (
        kinds.index("StepCompleted")
        < kinds.index("TextDelta")
        < kinds.index("AgentResponded")
        < kinds.index("ToolReturned")
    )
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "one two"


async def collect(run: Any, events: list[Event | Delta]) -> AsyncIterator[None]:
    """Append the events of a run to the list until it ends."""
    async for event in run:
        events.append(event)  # noqa: PERF401
    yield


async def test_a_response_is_streamed_once_the_guardrails_have_passed() -> None:
    may_continue = asyncio.Event()
    model = ScriptedModel([ScriptedStream("one ", may_continue, "two")])
    runner = Runner(
        with_guardrails(Agent("Desk", model=model), input_guardrails=[RecordingGuardrail("j")], mode="parallel")
    )
    texts: list[str] = []
    async with runner.stream("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                texts.append(event.text)
                # The model writes the second piece only after the first was delivered.
                may_continue.set()
    assert texts == ["one ", "two"]


@pytest.mark.parametrize("step", [call("note"), transfer_to("Other"), "text", [call("note"), transfer_to("Other")]])
async def test_a_negative_verdict_prevents_tool_calls_transfers_and_text(step: Any) -> None:
    is_answered = asyncio.Event()
    noted: list[str] = []

    def note() -> str:
        """Note."""
        noted.append("noted")
        return "noted"

    def answer(request: ModelRequest) -> Any:
        is_answered.set()
        return step

    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await is_answered.wait()
        return False

    model = ScriptedModel({"Desk": [answer], "Other": []}, stream=True)
    inner = Agent("Desk", tools=[note], sub_agents=[Agent("Other", description="o")])
    events = await delivered_events(
        Runner(with_guardrails(inner, input_guardrails=[check], mode="parallel"), model=model)
    )
    assert [type(event).__name__ for event in events] == ["RunStarted", "AgentStarted", "StepCompleted", "RunFailed"]
    assert noted == []


async def test_a_negative_verdict_cancels_the_model_call_and_closes_its_stream() -> None:
    model, other_check_is_done = HangingModel(), asyncio.Event()

    async def check(ctx: RunContext, messages: Sequence[Message]) -> GuardrailVerdict:
        await model.is_called.wait()
        return GuardrailVerdict(False, "no")

    async def thorough(ctx: RunContext, messages: Sequence[Message]) -> GuardrailVerdict:
        # The call is closed at the first negative verdict, while other guardrails are still running.
        await model.is_closed.wait()
        other_check_is_done.set()
        return GuardrailVerdict(True)

    desk = with_guardrails(Agent("Desk", model=model), input_guardrails=[thorough, check], mode="parallel")
    error, result = await run_to_failure(Runner(desk))
    assert isinstance(error, GuardrailTrippedError)
    assert other_check_is_done.is_set()
    assert {said.name: said.verdict.passed for said in result.guardrail_results} == {"thorough": True, "check": False}


async def test_an_immediate_negative_verdict_closes_a_started_model_call() -> None:
    desk = with_guardrails(
        Agent("Desk", model=(model := HangingModel())),
        input_guardrails=[RecordingGuardrail("j", False)],
        mode="parallel",
    )
    error, _ = await run_to_failure(Runner(desk))
    assert isinstance(error, GuardrailTrippedError)
    assert model.is_closed.is_set() == model.is_called.is_set()


async def test_the_error_of_a_model_does_not_wait_for_a_guardrail() -> None:
    is_waiting = asyncio.Event()
    was_cancelled: list[bool] = []

    async def answer(request: ModelRequest) -> Any:
        await is_waiting.wait()
        return OSError("no line")

    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        if was_cancelled:
            return True
        is_waiting.set()
        try:
            await forever()
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise

    model = ScriptedModel([answer, "hi"])
    runner = Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[check], mode="parallel"))
    error, result = await run_to_failure(runner)
    assert isinstance(error, ModelError)
    assert "no line" in str(error)
    assert was_cancelled == [True]
    # There is no verdict yet: the guardrail and the model are called again.
    assert result.guardrail_results == ()
    resumed = await runner.resume(result.run_id)
    assert (resumed.output, [said.verdict.passed for said in resumed.guardrail_results]) == ("hi", [True])


async def test_a_verdict_before_the_error_of_a_model_is_recorded() -> None:
    has_passed = asyncio.Event()

    async def answer(request: ModelRequest) -> Any:
        await has_passed.wait()
        return OSError("no line")

    check = RecordingGuardrail("polite")
    desk = with_guardrails(
        Agent("Desk", model=ScriptedModel([answer, "hi"])), input_guardrails=[check], mode="parallel"
    )
    runner = Runner(desk)
    stream = runner.stream("go")

    async def read() -> None:
        async with stream:
            async for event in stream:
                if isinstance(event, StepCompleted):
                    has_passed.set()

    with pytest.raises(ModelError, match="no line"):
        await read()
    assert [said.verdict.passed for said in stream.result.guardrail_results] == [True]
    assert (await runner.resume(stream.run_id)).output == "hi"
    assert len(check.seen) == 1


async def test_parallel_mode_requires_an_agent_that_calls_a_model() -> None:
    @agent("Desk")
    async def desk(ctx: AgentContext) -> None:
        await ctx.say("hi")

    with pytest.raises(
        SetupError, match=r'with_guardrails\(`Desk`\) has mode="parallel", but FunctionAgent\(\'Desk\'\) does not call'
    ):
        with_guardrails(desk, input_guardrails=[RecordingGuardrail("j")], mode="parallel")
    assert (await Runner(with_guardrails(desk, input_guardrails=[RecordingGuardrail("j")])).run("go")).output == "hi"


async def test_an_agent_that_never_calls_its_model_is_checked_before_it_finishes() -> None:
    class AgentWithoutModelCall(Agent):
        async def run(self, ctx: AgentContext[Any]) -> None:
            await ctx.say("from memory")

    runner = Runner(
        with_guardrails(
            AgentWithoutModelCall("Desk"), input_guardrails=[RecordingGuardrail("j", False)], mode="parallel"
        ),
        model=ScriptedModel([]),
    )
    error, _ = await run_to_failure(runner)
    assert isinstance(error, GuardrailTrippedError)
    runner = Runner(
        with_guardrails(AgentWithoutModelCall("Desk"), input_guardrails=[RecordingGuardrail("j")], mode="parallel"),
        model=ScriptedModel([]),
    )
    result = await runner.run("go")
    assert result.output == "from memory"
    await runner.runs.replay(result.events)


async def test_parallel_guardrails_can_be_nested() -> None:
    inner = with_guardrails(
        Agent("Desk", model=(model := HangingModel())),
        input_guardrails=[RecordingGuardrail("inner", False)],
        mode="parallel",
    )
    both = [RecordingGuardrail("outer"), RecordingGuardrail("outer too")]
    error, result = await run_to_failure(Runner(with_guardrails(inner, input_guardrails=both, mode="parallel")))
    assert isinstance(error, GuardrailTrippedError)
    assert error.guardrail == "inner"
    assert "inner" in [said.name for said in result.guardrail_results]
    assert model.is_closed.is_set() == model.is_called.is_set()
    passing = with_guardrails(
        Agent("Desk", model=ScriptedModel([call("ask", question="?"), "hi"]), tools=[ask]),
        input_guardrails=[RecordingGuardrail("a")],
        mode="parallel",
    )
    runner = Runner(with_guardrails(passing, input_guardrails=[RecordingGuardrail("b")], mode="parallel"))
    result = await runner.run("go")
    result = await runner.resume(result.run_id, "yes")
    assert (result.output, sorted(said.name for said in result.guardrail_results)) == ("hi", ["a", "b"])


async def test_a_model_with_a_complete_response_works_with_parallel_guardrails() -> None:
    class CachedModel:
        name = "cache"

        def respond(self, request: ModelRequest) -> CompleteResponse:
            return CompleteResponse(ModelResponse(AssistantMessage("from the cache")))

    result = await Runner(
        with_guardrails(Agent("Desk", model=CachedModel()), input_guardrails=[RecordingGuardrail("j")], mode="parallel")
    ).run("go")
    assert (result.output, len(result.guardrail_results)) == ("from the cache", 1)


async def test_the_error_of_a_parallel_guardrail_keeps_its_cause() -> None:
    cause = OSError("no line")
    desk = with_guardrails(
        Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[RecordingGuardrail("j", cause)], mode="parallel"
    )
    error, _ = await run_to_failure(Runner(desk))
    assert error.__cause__ is cause


async def test_the_response_is_held_back_until_nested_guardrails_have_all_passed() -> None:
    is_answered, first_passed, may_pass = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in ScriptedModel([ScriptedStream("one ", "two")]).respond(request):
            yield chunk
        is_answered.set()

    class SignallingModel:
        name = "signalling"
        respond = staticmethod(answer)

    async def quick(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await is_answered.wait()
        first_passed.set()
        return True

    async def slow(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await may_pass.wait()
        return True

    for outer, inner in ((quick, slow), (slow, quick)):
        for event in (is_answered, first_passed, may_pass):
            event.clear()
        desk = with_guardrails(Agent("Desk", model=SignallingModel()), input_guardrails=[inner], mode="parallel")
        runner = Runner(with_guardrails(desk, input_guardrails=[outer], mode="parallel"))
        events: list[Event | Delta] = []
        async with runner.stream("go") as run:
            reading = asyncio.ensure_future(anext(collect(run, events)))
            await first_passed.wait()
            for _ in range(50):  # Long enough for deltas that are released too early.
                await asyncio.sleep(0)
            assert not any(isinstance(event, Delta) for event in events)
            may_pass.set()
            await reading
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["one ", "two"]


async def test_a_held_back_empty_response_is_restarted_once_and_in_order() -> None:
    model = ScriptedModel([AssistantMessage(reasoning=(Reasoning("hm"),)), "hi"], stream=True)

    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        while len(model.requests) < 2:
            await asyncio.sleep(0)
        return True

    desk = with_guardrails(Agent("Desk", model=model), input_guardrails=[check], mode="parallel")
    deltas = [event for event in await delivered_events(Runner(desk)) if isinstance(event, Delta)]
    assert [type(delta).__name__ for delta in deltas] == ["ReasoningDelta", "ResponseRestarted", "TextDelta"]


async def test_middleware_inside_parallel_guardrails_keeps_its_recorded_results() -> None:
    # The guardrails are the outermost middleware, before and after a resume.
    @model_middleware
    async def ask_twice(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        await next(request)
        return await next(request)

    @model_middleware
    async def confirm(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        response = await next(request)
        if response.message is not None and text_of(response.message.content) == "final":
            await ctx.interrupt("send it?")
        return response

    model, check = ScriptedModel(["draft", "final", "never"]), RecordingGuardrail("j")
    inner = Agent("Desk", model=model, middleware=[ask_twice, confirm])
    runner = Runner(with_guardrails(inner, input_guardrails=[check], mode="parallel"))
    result = await runner.run("go")
    result = await runner.resume(result.run_id, "yes")
    assert (result.output, len(model.requests), len(check.seen)) == ("final", 2, 1)
    assert (await runner.runs.replay(result.events)).output == "final"
