"""Guardrails beside the first model call: truly at the same time, and nothing of the answer counts before they pass."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.agents.judges import Hanging, Judge, ask, failure_of

from baton import Agent, AgentContext, GuardrailVerdict, RunContext, Runner, SetupError, agent
from baton.agents import with_guardrails
from baton.errors import GuardrailTrippedError, ModelError
from baton.events import Delta, Event, TextDelta
from baton.messages import AssistantMessage, Message
from baton.models import Chunk, CompleteResponse, ModelRequest, ModelResponse
from baton.testing import ScriptedModel, ScriptedStream, call, transfer_to


async def heard(runner: Runner[Any, Any], input: str = "go") -> list[Event | Delta]:
    """Everything a listener hears of a run, whatever its end."""
    events: list[Event | Delta] = []
    async with runner.stream(input) as run:
        try:
            async for event in run:
                events.append(event)  # noqa: PERF401 - what came before an error counts
        except GuardrailTrippedError:
            pass
    return events


@pytest.mark.parametrize("whose", ["agent", "runner"])
async def test_beside_is_at_the_same_time_as_the_first_model_call(whose: str) -> None:
    model_is_asked, judge_is_asked = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        model_is_asked.set()
        await judge_is_asked.wait()
        return "hi"

    async def judge(ctx: RunContext, messages: Sequence[Message]) -> bool:
        judge_is_asked.set()
        await model_is_asked.wait()
        return True

    model = ScriptedModel([answer])
    inner = Agent("Desk", model=model if whose == "agent" else None)
    desk = with_guardrails(inner, input_guardrails=[judge], mode="parallel")
    result = await Runner(desk, model=model if whose == "runner" else None).run("go")
    assert result.output == "hi"


async def test_beside_holds_the_answer_back_until_the_guardrails_have_passed() -> None:
    is_written, may_pass = asyncio.Event(), asyncio.Event()
    steps = ScriptedStream("one ", "two", call("note"))

    async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
        async for chunk in model.respond(request):
            yield chunk
        is_written.set()

    class Watched:
        name = "watched"
        respond = staticmethod(answer)

    def note() -> str:
        """Note."""
        return "noted"

    async def judge(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await may_pass.wait()
        return True

    model = ScriptedModel([steps, "done"])
    events: list[Event | Delta] = []
    runner = Runner(
        with_guardrails(Agent("Desk", model=Watched(), tools=[note]), input_guardrails=[judge], mode="parallel")
    )
    async with runner.stream("go") as run:
        reading = asyncio.ensure_future(anext(aiter_of(run, events)))
        await is_written.wait()
        # The whole answer is there, and nobody has heard a word of it, nor has the tool been called.
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


async def aiter_of(run: Any, into: list[Event | Delta]) -> AsyncIterator[None]:
    """Read a run to its end."""
    async for event in run:
        into.append(event)  # noqa: PERF401
    yield


async def test_beside_a_stream_goes_on_live_once_the_guardrails_have_passed() -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([ScriptedStream("one ", go_on, "two")])
    runner = Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[Judge("j")], mode="parallel"))
    texts: list[str] = []
    async with runner.stream("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                texts.append(event.text)
                # Only when the first piece has been heard does the model write the second.
                go_on.set()
    assert texts == ["one ", "two"]


@pytest.mark.parametrize("step", [call("note"), transfer_to("Other"), "text", [call("note"), transfer_to("Other")]])
async def test_beside_a_no_prevents_tools_transfers_and_text(step: Any) -> None:
    is_answered = asyncio.Event()
    noted: list[str] = []

    def note() -> str:
        """Note."""
        noted.append("noted")
        return "noted"

    def answer(request: ModelRequest) -> Any:
        is_answered.set()
        return step

    async def judge(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await is_answered.wait()
        return False

    model = ScriptedModel({"Desk": [answer], "Other": []}, stream=True)
    inner = Agent("Desk", tools=[note], sub_agents=[Agent("Other", description="o")])
    events = await heard(Runner(with_guardrails(inner, input_guardrails=[judge], mode="parallel"), model=model))
    assert [type(event).__name__ for event in events] == ["RunStarted", "AgentStarted", "StepCompleted", "RunFailed"]
    assert noted == []


async def test_beside_a_no_cancels_the_model_call_and_closes_its_stream() -> None:
    model, others_are_done = Hanging(), asyncio.Event()

    async def judge(ctx: RunContext, messages: Sequence[Message]) -> GuardrailVerdict:
        await model.is_asked.wait()
        return GuardrailVerdict(False, "no")

    async def thorough(ctx: RunContext, messages: Sequence[Message]) -> GuardrailVerdict:
        # The call is closed at the first no, while others are still being heard.
        await model.is_closed.wait()
        others_are_done.set()
        return GuardrailVerdict(True)

    desk = with_guardrails(Agent("Desk", model=model), input_guardrails=[thorough, judge], mode="parallel")
    error, result = await failure_of(Runner(desk))
    assert isinstance(error, GuardrailTrippedError)
    assert others_are_done.is_set()
    assert {said.name: said.verdict.passed for said in result.guardrail_results} == {"thorough": True, "judge": False}


async def test_beside_a_quick_no_comes_before_the_model_is_asked_for_long() -> None:
    desk = with_guardrails(
        Agent("Desk", model=(model := Hanging())), input_guardrails=[Judge("j", False)], mode="parallel"
    )
    error, _ = await failure_of(Runner(desk))
    assert isinstance(error, GuardrailTrippedError)
    assert model.is_closed.is_set() == model.is_asked.is_set()


@pytest.mark.parametrize("passes", [True, False])
async def test_beside_a_model_that_fails_waits_for_the_verdict(passes: bool) -> None:
    has_failed = asyncio.Event()

    def answer(request: ModelRequest) -> Any:
        has_failed.set()
        return OSError("no line")

    async def judge(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await has_failed.wait()
        return passes

    model = ScriptedModel([answer, "hi"])
    runner = Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[judge], mode="parallel"))
    error, result = await failure_of(runner)
    assert isinstance(error, ModelError if passes else GuardrailTrippedError)
    assert [said.verdict.passed for said in result.guardrail_results] == [passes]
    if passes:
        assert "no line" in str(error)
        # What was judged is not judged again; the model is asked again.
        has_failed.clear()
        assert (await runner.resume(result.run_id)).output == "hi"


async def test_beside_needs_an_agent_that_asks_a_model() -> None:
    @agent("Desk")
    async def desk(ctx: AgentContext) -> None:
        await ctx.say("hi")

    with pytest.raises(
        SetupError, match=r'with_guardrails\(`Desk`\) has mode="parallel", but FunctionAgent\(\'Desk\'\) does not call'
    ):
        with_guardrails(desk, input_guardrails=[Judge("j")], mode="parallel")
    assert (await Runner(with_guardrails(desk, input_guardrails=[Judge("j")])).run("go")).output == "hi"


async def test_beside_an_agent_that_does_without_its_model_is_judged_before_it_ends() -> None:
    class Quick(Agent):
        async def run(self, ctx: AgentContext[Any]) -> None:
            await ctx.say("from memory")

    runner = Runner(
        with_guardrails(Quick("Desk"), input_guardrails=[Judge("j", False)], mode="parallel"), model=ScriptedModel([])
    )
    error, _ = await failure_of(runner)
    assert isinstance(error, GuardrailTrippedError)
    runner = Runner(
        with_guardrails(Quick("Desk"), input_guardrails=[Judge("j")], mode="parallel"), model=ScriptedModel([])
    )
    result = await runner.run("go")
    assert result.output == "from memory"
    await runner.replay(result.events)


async def test_beside_another_beside() -> None:
    inner = with_guardrails(
        Agent("Desk", model=(model := Hanging())), input_guardrails=[Judge("inner", False)], mode="parallel"
    )
    both = [Judge("outer"), Judge("outer too")]
    error, result = await failure_of(Runner(with_guardrails(inner, input_guardrails=both, mode="parallel")))
    assert isinstance(error, GuardrailTrippedError)
    assert error.guardrail == "inner"
    assert "inner" in [said.name for said in result.guardrail_results]
    assert model.is_closed.is_set() == model.is_asked.is_set()
    fine = with_guardrails(
        Agent("Desk", model=ScriptedModel([call("ask", question="?"), "hi"]), tools=[ask]),
        input_guardrails=[Judge("a")],
        mode="parallel",
    )
    runner = Runner(with_guardrails(fine, input_guardrails=[Judge("b")], mode="parallel"))
    result = await runner.run("go")
    result = await runner.resume(result.run_id, "yes")
    assert (result.output, sorted(said.name for said in result.guardrail_results)) == ("hi", ["a", "b"])


async def test_beside_a_model_that_has_its_answer_ready() -> None:
    class Cache:
        name = "cache"

        def respond(self, request: ModelRequest) -> CompleteResponse:
            return CompleteResponse(ModelResponse(AssistantMessage("from the cache")))

    result = await Runner(
        with_guardrails(Agent("Desk", model=Cache()), input_guardrails=[Judge("j")], mode="parallel")
    ).run("go")
    assert (result.output, len(result.guardrail_results)) == ("from the cache", 1)


async def test_beside_the_cause_of_a_failure_is_kept() -> None:
    cause = OSError("no line")
    desk = with_guardrails(
        Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[Judge("j", cause)], mode="parallel"
    )
    error, _ = await failure_of(Runner(desk))
    assert error.__cause__ is cause
