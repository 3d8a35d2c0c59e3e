"""The decoding steps of a response: choose a tool or a reply, fill in arguments, write the reply."""

import asyncio
from typing import Any

import pytest
from tests.models.local.scripted_engine import (
    GET_WEATHER,
    SECTION,
    TRANSFER,
    EndlessEngine,
    ScriptedEngine,
    call_in,
    make_request,
    read_response,
    text_in,
)
from tests.waiting import PATIENCE

from batonkit import Agent, Runner, tool
from batonkit.errors import ModelRequestError, ModelTimeoutError
from batonkit.messages import AssistantMessage, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from batonkit.models import ModelResponse, ModelSettings, OutputSchema, TextChunk, ToolCallChunk
from batonkit.models.local import LocalModel

RING = ToolSpec("ring", "Ring the bell.", {"type": "object", "properties": {}})


async def test_without_tools_only_the_reply_is_decoded() -> None:
    engine = ScriptedEngine(speak=[["Good ", "day."]])
    chunks = await read_response(engine, make_request())
    assert engine.kinds == ["speak"]
    assert [type(chunk) for chunk in chunks] == [TextChunk, TextChunk, ModelResponse]
    assert text_in(chunks) == "Good day."
    assert chunks[-1] == ModelResponse(usage=Usage(100, 2, 60), stop_reason="stop", model="local:some")


async def test_a_tool_is_chosen_and_its_arguments_follow_its_schema() -> None:
    engine = ScriptedEngine(choose=[["get_", "weather"]], fill=[['{"city": ', '"Oslo"}']])
    chunks = await read_response(engine, make_request(tools=(GET_WEATHER,)))
    assert engine.kinds == ["choose", "fill"]
    assert engine.jobs[0].choices == ("get_weather", "reply")
    assert engine.jobs[1].schema == GET_WEATHER.parameters
    assert call_in(chunks) == ("get_weather", '{"city": "Oslo"}')
    assert len([chunk for chunk in chunks if isinstance(chunk, ToolCallChunk)]) == 3
    assert chunks[-1] == ModelResponse(usage=Usage(200, 4, 120), stop_reason="tool_calls", model="local:some")


async def test_choosing_reply_decodes_a_reply() -> None:
    engine = ScriptedEngine(choose=[["reply"]], speak=[["Hi."]])
    chunks = await read_response(engine, make_request(tools=(GET_WEATHER,)))
    assert engine.kinds == ["choose", "speak"]
    assert text_in(chunks) == "Hi."


async def test_a_tool_with_one_enum_parameter_is_chosen_with_its_value() -> None:
    engine = ScriptedEngine(choose=[["Loans"]])
    chunks = await read_response(engine, make_request(tools=(TRANSFER, GET_WEATHER), instructions=SECTION))
    assert engine.kinds == ["choose"]
    assert engine.jobs[0].choices == ("Loans", "Front", "get_weather", "reply")
    assert call_in(chunks) == ("transfer_to_agent", '{"agent_name":"Loans"}')


async def test_a_tool_without_parameters_is_called_without_filling() -> None:
    engine = ScriptedEngine(choose=[["ring"]])
    assert call_in(await read_response(engine, make_request(tools=(RING,)))) == ("ring", "{}")


@pytest.mark.parametrize(
    ("tool_choice", "choices", "kinds"),
    [
        ("none", None, ["speak"]),
        ("required", ("get_weather", "ring"), ["choose", "fill"]),
        ("get_weather", None, ["fill"]),
        ("auto", ("get_weather", "ring", "reply"), ["choose", "fill"]),
    ],
)
async def test_tool_choice_is_respected(tool_choice: str, choices: tuple[str, ...] | None, kinds: list[str]) -> None:
    engine = ScriptedEngine(choose=[["get_weather"]], fill=[['{"city": "Oslo"}']], speak=[["No."]])
    await read_response(engine, make_request(tools=(GET_WEATHER, RING), tool_choice=tool_choice))
    assert engine.kinds == kinds
    if choices is not None:
        assert engine.jobs[0].choices == choices


async def test_an_unknown_tool_choice_raises_an_error_with_the_tool_names() -> None:
    with pytest.raises(ModelRequestError, match="tool_choice is `sing`, and the tools are: `ring`"):
        await read_response(ScriptedEngine(), make_request(tools=(RING,), tool_choice="sing"))


async def test_a_typed_answer_follows_its_schema() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"nights": {"type": "integer"}}}
    engine = ScriptedEngine(speak=[['{"nights": 3}']])
    await read_response(engine, make_request(output=OutputSchema("Trip", schema)))
    assert engine.jobs[0].schema == schema


async def test_sampling_settings_apply_to_the_reply_only() -> None:
    settings = ModelSettings(temperature=0.7, top_p=0.9, seed=7, max_tokens=20, stop_sequences=("END",))
    engine = ScriptedEngine(choose=[["reply"]], speak=[["Hi."]])
    await read_response(engine, make_request(tools=(RING,), settings=settings))
    choosing, speaking = engine.jobs
    assert (choosing.temperature, choosing.seed) == (0.0, None)
    assert (speaking.temperature, speaking.top_p, speaking.seed, speaking.max_tokens) == (0.7, 0.9, 7, 20)
    assert speaking.stop == ("END",)


def _after_a_call(arguments: str) -> Any:
    call = AssistantMessage(tool_calls=(ToolCall("1", "get_weather", arguments),))
    result = ToolMessage("1", "get_weather", "25°C")
    return make_request(UserMessage("Weather in Oslo and Rome?"), call, result, tools=(GET_WEATHER,))


async def test_a_call_is_not_repeated_with_the_same_arguments() -> None:
    engine = ScriptedEngine(choose=[["get_weather"]], fill=[['{"city": "Oslo"}']], speak=[["25°C."]])
    chunks = await read_response(engine, _after_a_call('{"city":"Oslo"}'))
    assert engine.kinds == ["choose", "fill", "speak"]
    assert text_in(chunks) == "25°C."


async def test_a_tool_can_be_called_again_with_other_arguments() -> None:
    engine = ScriptedEngine(choose=[["get_weather"]], fill=[['{"city": ', '"Rome"}']])
    assert call_in(await read_response(engine, _after_a_call('{"city":"Oslo"}'))) == ("get_weather", '{"city": "Rome"}')


async def test_a_name_that_is_a_prefix_of_another_is_matched_exactly() -> None:
    longer = ToolSpec("ring_twice", "", {"type": "object", "properties": {}})
    engine = ScriptedEngine(choose=[["ring"]])
    assert call_in(await read_response(engine, make_request(tools=(longer, RING)))) == ("ring", "{}")


async def test_errors_of_the_engine_reach_the_caller() -> None:
    with pytest.raises(ModelRequestError, match="too odd"):
        await read_response(ScriptedEngine(speak=[ModelRequestError("too odd")]), make_request())


async def test_a_decode_that_exceeds_the_timeout_is_stopped() -> None:
    with pytest.raises(ModelTimeoutError):
        await read_response(EndlessEngine(), make_request(settings=ModelSettings(timeout=0.01)))


async def test_closing_the_response_stops_the_decode() -> None:
    engine = EndlessEngine()
    chunks = LocalModel("some", engine=engine).respond(make_request())
    assert await anext(chunks) == TextChunk("on ")
    await chunks.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - it is a generator
    assert engine.has_ended.is_set()


async def test_cancelling_the_task_stops_the_decode() -> None:
    engine = EndlessEngine()
    has_begun = asyncio.Event()

    async def listen() -> None:
        async for _ in LocalModel("some", engine=engine).respond(make_request()):
            has_begun.set()

    task = asyncio.create_task(listen())
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(engine.has_ended.wait, PATIENCE)


def test_a_whole_run_transfers_calls_and_answers() -> None:
    @tool
    def get_weather(city: str) -> str:
        """Get the weather."""
        return f"25°C in {city}"

    weather = Agent("Weather", description="Knows the weather.", tools=[get_weather])
    router = Agent("Router", description="Routes.", sub_agents=[weather])
    engine = ScriptedEngine(
        choose=[["Weather"], ["get_weather"], ["reply"]], fill=[['{"city": "Oslo"}']], speak=[["25°C ", "in Oslo."]]
    )
    result = Runner(router, model=LocalModel("some", engine=engine)).run_sync("Is it warm in Oslo?")
    assert engine.kinds == ["choose", "choose", "fill", "choose", "speak"]
    assert engine.jobs[0].choices == ("Weather", "reply")
    assert engine.jobs[1].choices == ("get_weather", "Router", "reply")
    assert (result.agent, result.output) == ("Weather", "25°C in Oslo.")
    assert list(result.usage.by_model) == ["local:some"]
