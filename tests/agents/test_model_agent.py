"""Activations of an agent that calls a model: requests, turns, limits and output."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, Field

from batonkit import Agent, BatonError, Limits, ModelError, RunContext, Runner, tool
from batonkit.errors import EmptyResponseError, LimitError, OutputError, TurnLimitError
from batonkit.log import AgentResponded, Delta, ResponseRestarted, TextDelta, ToolReturned
from batonkit.messages import AssistantMessage, Reasoning, ToolCall, ToolMessage, Usage, UserMessage, text_of
from batonkit.models import CompleteResponse, FallbackModel, Model, ModelRequest, ModelResponse, RetryModel
from batonkit.testing import ScriptedModel, ScriptedStream, call, say, transcript

_FINAL_REQUEST = "Answer now, as well as you can"


@tool
async def look_up(city: str) -> str:
    """Look up the weather."""
    return f"sunny in {city}"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


class Report(BaseModel):
    """A structured answer."""

    city: str
    degrees: int = Field(ge=-90, le=60)


REPORT = '{"city": "Rome", "degrees": 25}'


# --- model calls and tool calls


async def test_an_agent_without_tools_is_one_model_call() -> None:
    model = ScriptedModel(["hello"])
    result = await Runner(Agent("A", model=model, instructions="Be kind.")).run("hi")
    assert result.output == "hello"
    (request,) = model.requests
    assert list(request.messages) == [UserMessage("hi")]
    assert request.tools == ()
    assert request.agent == "A"
    assert request.output_schema is None


async def test_results_are_appended_and_the_model_is_called_again() -> None:
    model = ScriptedModel([call("look_up", city="Rome"), say("Now Oslo.", call("look_up", city="Oslo")), "both sunny"])
    result = await Runner(Agent("A", model=model, tools=[look_up])).run("hi")
    assert result.output == "both sunny"
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]
    rome, oslo = ToolCall("call_1", "look_up", '{"city":"Rome"}'), ToolCall("call_2", "look_up", '{"city":"Oslo"}')
    assert list(model.requests[2].messages) == [
        UserMessage("hi"),
        AssistantMessage(tool_calls=(rome,)),
        ToolMessage("call_1", "look_up", "sunny in Rome"),
        AssistantMessage("Now Oslo.", (oslo,)),
        ToolMessage("call_2", "look_up", "sunny in Oslo"),
    ]
    assert [spec.name for spec in model.requests[2].tools] == ["look_up"]


async def test_text_in_a_response_with_calls_is_not_the_output() -> None:
    # A response with calls is not final.
    model = ScriptedModel([say("One moment.", call("look_up", city="Rome")), "done"])
    result = await Runner(Agent("A", model=model, tools=[look_up])).run("hi")
    assert result.output == "done"
    assert text_of(result.messages[1].content) == "One moment."


async def test_repeated_call_ids_are_made_unique() -> None:
    # Calls and results are paired by id.
    def calls(request: ModelRequest) -> AssistantMessage:
        return AssistantMessage(tool_calls=(ToolCall("0", "look_up", '{"city":"Rome"}'),))

    model = ScriptedModel([calls, calls, "done"])
    result = await Runner(Agent("A", model=model, tools=[look_up])).run("hi")
    ids = [call.id for event in result.events if isinstance(event, AgentResponded) for call in event.message.tool_calls]
    assert len(set(ids)) == 2
    assert [event.call_id for event in result.events if isinstance(event, ToolReturned)] == ids
    assert all(ids)


# --- turns


async def test_at_the_turn_limit_the_model_is_called_once_more_without_tools() -> None:
    model = ScriptedModel([call("look_up", city="Rome"), call("look_up", city="Oslo"), "best effort"])
    result = await Runner(Agent("A", model=model, tools=[look_up], max_turns=2)).run("hi")
    assert result.output == "best effort"
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["look_up"], ["look_up"], []]
    last = model.requests[2].messages[-1]
    assert isinstance(last, UserMessage)
    assert _FINAL_REQUEST in text_of(last.content)
    # The request for a final answer is not part of the history.
    assert not any(_FINAL_REQUEST in text_of(message.content) for message in result.messages)


async def test_an_answer_in_the_last_turn_needs_no_final_call() -> None:
    model = ScriptedModel([call("look_up", city="Rome"), "done"])
    result = await Runner(Agent("A", model=model, tools=[look_up], max_turns=2)).run("hi")
    assert result.output == "done"
    assert len(model.requests) == 2
    assert [spec.name for spec in model.requests[1].tools] == ["look_up"]


async def test_tool_calls_in_the_final_response_end_the_run() -> None:
    model = ScriptedModel([call("look_up", city="Rome")], cycle=True)
    with pytest.raises(TurnLimitError, match="`A` has no answer after 2 turns; raise the limit with Agent") as caught:
        await Runner(Agent("A", model=model, tools=[look_up], max_turns=2)).run("hi")
    assert (caught.value.agent, caught.value.max_turns) == ("A", 2)
    assert len(model.requests) == 3


async def test_invalid_output_in_the_final_response_ends_the_run() -> None:
    model = ScriptedModel([call("look_up", city="Rome"), "not JSON"])
    agent = Agent("A", model=model, tools=[look_up], max_turns=1, output_type=Report)
    with pytest.raises(TurnLimitError):
        await Runner(agent).run("hi")
    model.assert_done()


async def test_on_max_turns_error_skips_the_final_call() -> None:
    model = ScriptedModel([call("look_up", city="Rome")], cycle=True)
    with pytest.raises(TurnLimitError):
        await Runner(Agent("A", model=model, tools=[look_up], max_turns=2, on_max_turns="error")).run("hi")
    assert len(model.requests) == 2


async def test_turns_before_a_resume_count_towards_the_limit() -> None:
    model = ScriptedModel([call("look_up", city="Rome"), call("ask", question="?"), call("look_up", city="Rome")])
    runner = Runner(Agent("A", model=model, tools=[look_up, ask], max_turns=2, on_max_turns="error"))
    suspended = await runner.run("hi")
    assert suspended.status == "suspended"
    with pytest.raises(TurnLimitError):
        await runner.resume(suspended.run_id, "yes")
    assert len(model.requests) == 2


async def test_turns_are_counted_per_activation() -> None:
    # A second activation of an agent starts at zero.
    model = ScriptedModel(
        {
            "A": [call("look_up", city="Rome"), call("transfer_to_b"), call("look_up", city="Rome"), "done"],
            "B": [call("transfer_to_a")],
        }
    )
    b = Agent("B", handoffs=["A"])
    result = await Runner(
        Agent("A", tools=[look_up], handoffs=[b], max_turns=2, on_max_turns="error"), model=model
    ).run("x")
    assert result.output == "done"


# --- output_key


async def test_output_key_stores_the_answer() -> None:
    result = await Runner(Agent("A", model=ScriptedModel(["hello"]), output_key="greeting")).run("hi")
    assert result.values == {"greeting": "hello"}


async def test_output_key_stores_structured_output_as_plain_data() -> None:
    agent = Agent("A", model=ScriptedModel([REPORT]), output_key="report", output_type=Report)
    assert (await Runner(agent).run("hi")).values == {"report": {"city": "Rome", "degrees": 25}}


async def test_output_key_stores_nothing_on_error() -> None:
    @tool(on_error="raise")
    async def fail() -> str:
        raise OSError("disk full")

    runner = Runner(Agent("A", model=ScriptedModel([say("text", call("fail"))]), tools=[fail], output_key="x"))
    stream = runner.stream("hi")
    with pytest.raises(BatonError):
        await stream._drive()
    assert stream.result.status == "failed"
    assert stream.result.values == {}


async def test_output_key_stores_the_answer_only_after_an_interrupt_is_answered() -> None:
    model = ScriptedModel([say("text", call("ask", question="?")), "done"])
    runner = Runner(Agent("A", model=model, tools=[ask], output_key="x"))
    suspended = await runner.run("hi")
    assert suspended.values == {}
    assert (await runner.resume(suspended.run_id, "yes")).values == {"x": "done"}


async def test_output_key_stores_nothing_on_transfer() -> None:
    model = ScriptedModel({"A": [say("over to B", call("transfer_to_b"))], "B": ["done"]})
    result = await Runner(Agent("A", handoffs=[Agent("B")], output_key="x"), model=model).run("hi")
    assert result.output == "done"
    assert result.values == {}


# --- output types


async def test_an_answer_is_parsed_as_the_output_type() -> None:
    model = ScriptedModel([REPORT])
    result = await Runner(Agent("A", model=model, output_type=Report)).run("hi")
    assert result.output == Report(city="Rome", degrees=25)
    schema = model.requests[0].output_schema
    assert schema is not None
    assert schema.name == "Report"
    assert set(schema.schema["properties"]) == {"city", "degrees"}


async def test_invalid_output_is_returned_to_the_model_with_the_problems() -> None:
    model = ScriptedModel(["Rome is warm", '{"city": "Rome", "degrees": 99}', REPORT])
    result = await Runner(Agent("A", model=model, output_type=Report)).run("hi")
    assert result.output == Report(city="Rome", degrees=25)
    first, second = (text_of(request.messages[-1].content) for request in model.requests[1:])
    assert "not JSON" in first
    assert "degrees" in second
    assert "less than or equal to 60" in second
    roles = [type(message).__name__ for message in model.requests[2].messages]
    assert roles == ["UserMessage", "AssistantMessage", "UserMessage", "AssistantMessage", "UserMessage"]


async def test_output_that_is_nested_too_deeply_is_returned_to_the_model() -> None:
    model = ScriptedModel(["[" * 1_000_000 + "]" * 1_000_000, REPORT])
    result = await Runner(Agent("A", model=model, output_type=Report)).run("hi")
    assert result.output == Report(city="Rome", degrees=25)
    assert "not JSON" in text_of(model.requests[1].messages[-1].content)


async def test_the_third_invalid_output_ends_the_run() -> None:
    model = ScriptedModel(['{"city": "Rome"}'], cycle=True)
    with pytest.raises(OutputError, match="`A` must answer with `Report`") as caught:
        await Runner(Agent("A", model=model, output_type=Report)).run("hi")
    assert (caught.value.agent, caught.value.expected) == ("A", "`Report`")
    assert "degrees" in caught.value.problems
    assert len(model.requests) == 3


async def test_output_corrections_before_a_resume_count() -> None:
    # Two corrections per activation, not two after every resume.
    model = ScriptedModel(["no", call("ask", question="?"), "no", "no", REPORT])
    runner = Runner(Agent("A", model=model, tools=[ask], output_type=Report))
    suspended = await runner.run("hi")
    with pytest.raises(OutputError):
        await runner.resume(suspended.run_id, "yes")
    assert model.remaining == 1


# --- empty responses, errors and usage


async def test_two_empty_responses_raise_a_retryable_error() -> None:
    with pytest.raises(EmptyResponseError, match="`quiet` of `A` answered with neither text nor calls") as caught:
        await Runner(Agent("A", model=ScriptedModel([AssistantMessage()] * 2, name="quiet"))).run("hi")
    assert caught.value.model == "quiet"
    assert caught.value.retryable


async def test_a_response_with_only_reasoning_is_empty() -> None:
    reasoning_only = AssistantMessage(reasoning=(Reasoning("hm"),))
    with pytest.raises(EmptyResponseError):
        await Runner(Agent("A", model=ScriptedModel([reasoning_only] * 2))).run("hi")


EMPTY_RESPONSES = (
    AssistantMessage(),
    AssistantMessage(reasoning=(Reasoning("hm"),)),
    ScriptedStream(""),
    EmptyResponseError("nothing", retryable=True),
)


@pytest.mark.parametrize("empty", EMPTY_RESPONSES)
async def test_a_model_is_called_again_after_an_empty_response(empty: Any) -> None:
    # The run ended although the error was retryable.
    model = ScriptedModel([empty, "hello"])
    runner = Runner(Agent("A", model=model))
    async with runner.stream("hi") as run:
        async for _ in run:
            pass
    assert run.result.output == "hello"
    assert model.requests[0] == model.requests[1]
    (responded,) = [event for event in run.result.events if isinstance(event, AgentResponded)]
    assert responded.text == "hello"


async def test_usage_and_limits_count_the_empty_response() -> None:
    first = ModelResponse(AssistantMessage(), usage=Usage(3, 1))
    model = ScriptedModel([first, ModelResponse(AssistantMessage("hello"), usage=Usage(3, 2))])
    result = await Runner(Agent("A", model=model)).run("hi")
    assert (result.usage.total.input_tokens, result.usage.total.output_tokens) == (6, 3)
    model = ScriptedModel([first, "hello"])
    with pytest.raises(LimitError, match="model_calls"):
        await Runner(Agent("A", model=model), limits=Limits(model_calls=1)).run("hi")


def with_retry(model: Model) -> Model:
    return RetryModel(model, attempts=2, initial_delay=0)


def with_fallback(model: Model) -> Model:
    return FallbackModel(model, model)


@pytest.mark.parametrize("wrap", [with_retry, with_fallback])
async def test_a_wrapper_decides_how_often_an_empty_response_is_retried(wrap: Callable[[Model], Model]) -> None:
    model = ScriptedModel([AssistantMessage()] * 9)
    with pytest.raises(EmptyResponseError):
        await Runner(Agent("A", model=wrap(model))).run("hi")
    assert len(model.requests) == 2


async def test_an_empty_response_that_is_not_retryable_ends_the_run() -> None:
    model = ScriptedModel([EmptyResponseError("max_tokens is used up"), "never requested"])
    with pytest.raises(EmptyResponseError, match="used up"):
        await Runner(Agent("A", model=model)).run("hi")


async def test_an_exception_in_a_model_becomes_a_model_error_with_its_cause() -> None:
    with pytest.raises(ModelError, match="the model `m` of `A` raised OSError: gone") as caught:
        await Runner(Agent("A", model=ScriptedModel([OSError("gone")], name="m"))).run("hi")
    assert caught.value.model == "m"
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_model_error_is_raised_unchanged() -> None:
    overloaded = ModelError("overloaded", model="m", retryable=True, retry_after=3.0)
    with pytest.raises(ModelError) as caught:
        await Runner(Agent("A", model=ScriptedModel([overloaded]))).run("hi")
    assert caught.value is overloaded


async def test_usage_is_summed_by_agent_and_by_model() -> None:
    used = Usage(input_tokens=10, output_tokens=2, cost=0.5)
    model = ScriptedModel([say("", call("look_up", city="Rome"), usage=used), say("done", usage=used)], name="m")
    result = await Runner(Agent("A", model=model, tools=[look_up])).run("hi")
    total = Usage(input_tokens=20, output_tokens=4, cost=1.0, model_calls=2)
    assert result.usage.total == total
    assert result.usage.by_agent == {"A": total}
    assert result.usage.by_model == {"m": total}


# --- types that are not objects


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        (int, '{"response": 3}', 3),
        (int, "3", 3),
        (list[str], '{"response": ["a", "b"]}', ["a", "b"]),
        (date, '"2026-02-03"', date(2026, 2, 3)),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Report, f"```json\n{REPORT}\n```", Report(city="Rome", degrees=25)),
        (Report, f"```\n{REPORT}```", Report(city="Rome", degrees=25)),
    ],
)
async def test_an_output_type_can_be_any_type_that_pydantic_validates(kind: Any, answer: str, expected: Any) -> None:
    model = ScriptedModel([answer])
    result = await Runner(Agent("A", model=model, output_type=kind)).run("hi")
    assert result.output == expected
    schema = model.requests[0].output_schema
    assert schema is not None
    assert schema.schema.get("type") == "object" or "$ref" in schema.schema


async def test_an_output_type_that_is_not_an_object_is_wrapped() -> None:
    # Providers require an object.
    model = ScriptedModel(['{"response": [{"city": "Rome", "degrees": 25}]}'])
    result = await Runner(Agent("A", model=model, output_type=list[Report])).run("hi")
    assert result.output == [Report(city="Rome", degrees=25)]
    schema = model.requests[0].output_schema
    assert schema is not None
    assert (schema.schema["required"], schema.schema["additionalProperties"]) == (["response"], False)
    assert list(schema.schema["$defs"]) == ["Report"]
    assert "$defs" not in schema.schema["properties"]["response"]


async def test_the_log_contains_invalid_output_but_not_the_correction_request() -> None:
    result = await Runner(Agent("A", model=ScriptedModel(["no", REPORT]), output_type=Report)).run("hi")
    assert transcript(result.events) == [
        'run of A started with "hi"',
        "A started",
        'A: said "no"',
        'A: said "{\\"city\\": \\"Rome\\", \\"degrees\\": 25}"',
        "A finished",
        "run completed",
    ]


async def test_a_falsy_model_is_called() -> None:
    # A model that is also an empty list was ignored.
    class RecordingModel(list[ModelRequest]):
        name = "recording"

        def respond(self, request: ModelRequest) -> CompleteResponse:
            self.append(request)
            return CompleteResponse(ModelResponse(AssistantMessage("mine")))

    model = RecordingModel()
    assert (await Runner(Agent("A", model=model), model=ScriptedModel(["other"])).run("hi")).output == "mine"


async def test_a_retry_tells_subscribers_that_the_streamed_response_is_discarded() -> None:
    # They received the text of both attempts as one response.
    broken = ScriptedStream("Good", ModelError("broken", retryable=True))
    model = RetryModel(ScriptedModel([broken, ScriptedStream("Hel", "lo")]), initial_delay=0, after_output=True)
    async with Runner(Agent("A", model=model)).stream("hi") as run:
        deltas = [event async for event in run if isinstance(event, Delta)]
    assert [getattr(delta, "text", "restarted") for delta in deltas] == ["Good", "restarted", "Hel", "lo"]
    assert [type(delta) for delta in deltas].count(ResponseRestarted) == 1
    assert deltas[1].agent == "A"
    assert run.result.output == "Hello"


async def test_a_second_call_tells_subscribers_that_the_reasoning_is_discarded() -> None:
    model = ScriptedModel([AssistantMessage(reasoning=(Reasoning("hm"),)), ScriptedStream("hello")])
    async with Runner(Agent("A", model=model)).stream("hi") as run:
        kinds = [type(event) for event in [event async for event in run] if isinstance(event, Delta)]
    assert kinds.index(ResponseRestarted) < kinds.index(TextDelta)
