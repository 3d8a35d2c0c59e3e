"""Choose, fill, speak: which decodes an answer takes, and what becomes of them."""

import asyncio
from typing import Any

import pytest
from tests.models.local.stage import (
    GET_WEATHER,
    SECTION,
    TRANSFER,
    EndlessEngine,
    ScriptedEngine,
    answer_of,
    asked,
    call_in,
    text_in,
)

from baton import Agent, Runner, tool
from baton.errors import ModelRequestError, ModelTimeoutError
from baton.messages import AssistantMessage, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from baton.models import ModelResponse, ModelSettings, OutputSchema, TextChunk, ToolCallChunk
from baton.models.local import LocalModel

NOTHING = ToolSpec("ring", "Ring the bell.", {"type": "object", "properties": {}})


async def test_without_tools_it_only_speaks() -> None:
    engine = ScriptedEngine(speak=[["Good ", "day."]])
    chunks = await answer_of(engine, asked())
    assert engine.kinds == ["speak"]
    assert [type(chunk) for chunk in chunks] == [TextChunk, TextChunk, ModelResponse]
    assert text_in(chunks) == "Good day."
    assert chunks[-1] == ModelResponse(usage=Usage(100, 2, 60), stop_reason="stop", model="local:some")


async def test_a_tool_is_chosen_and_its_arguments_are_filled_in_under_its_schema() -> None:
    engine = ScriptedEngine(choose=[["get_", "weather"]], fill=[['{"city": ', '"Oslo"}']])
    chunks = await answer_of(engine, asked(tools=(GET_WEATHER,)))
    assert engine.kinds == ["choose", "fill"]
    assert engine.jobs[0].choices == ("get_weather", "reply")
    assert engine.jobs[1].schema == GET_WEATHER.parameters
    assert call_in(chunks) == ("get_weather", '{"city": "Oslo"}')
    assert len([chunk for chunk in chunks if isinstance(chunk, ToolCallChunk)]) == 3
    assert chunks[-1] == ModelResponse(usage=Usage(200, 4, 120), stop_reason="tool_calls", model="local:some")


async def test_a_reply_is_spoken() -> None:
    engine = ScriptedEngine(choose=[["reply"]], speak=[["Hi."]])
    chunks = await answer_of(engine, asked(tools=(GET_WEATHER,)))
    assert engine.kinds == ["choose", "speak"]
    assert text_in(chunks) == "Hi."


async def test_a_tool_that_takes_one_of_a_few_values_is_chosen_with_its_value() -> None:
    engine = ScriptedEngine(choose=[["Loans"]])
    chunks = await answer_of(engine, asked(tools=(TRANSFER, GET_WEATHER), instructions=SECTION))
    assert engine.kinds == ["choose"]
    assert engine.jobs[0].choices == ("Loans", "Front", "get_weather", "reply")
    assert call_in(chunks) == ("transfer_to_agent", '{"agent_name":"Loans"}')


async def test_a_tool_without_parameters_needs_no_filling() -> None:
    engine = ScriptedEngine(choose=[["ring"]])
    assert call_in(await answer_of(engine, asked(tools=(NOTHING,)))) == ("ring", "{}")


@pytest.mark.parametrize(
    ("wish", "choices", "kinds"),
    [
        ("none", None, ["speak"]),
        ("required", ("get_weather", "ring"), ["choose", "fill"]),
        ("get_weather", None, ["fill"]),
        ("auto", ("get_weather", "ring", "reply"), ["choose", "fill"]),
    ],
)
async def test_tool_choice_is_respected(wish: str, choices: tuple[str, ...] | None, kinds: list[str]) -> None:
    engine = ScriptedEngine(choose=[["get_weather"]], fill=[['{"city": "Oslo"}']], speak=[["No."]])
    await answer_of(engine, asked(tools=(GET_WEATHER, NOTHING), tool_choice=wish))
    assert engine.kinds == kinds
    if choices is not None:
        assert engine.jobs[0].choices == choices


async def test_a_tool_choice_that_is_not_there_is_explained() -> None:
    with pytest.raises(ModelRequestError, match="tool_choice is `sing`, and the tools are: `ring`"):
        await answer_of(ScriptedEngine(), asked(tools=(NOTHING,), tool_choice="sing"))


async def test_an_answer_of_a_type_is_spoken_under_its_schema() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"nights": {"type": "integer"}}}
    engine = ScriptedEngine(speak=[['{"nights": 3}']])
    await answer_of(engine, asked(output=OutputSchema("Trip", schema)))
    assert engine.jobs[0].schema == schema


async def test_settings_count_for_what_is_spoken_and_not_for_what_is_decided() -> None:
    settings = ModelSettings(temperature=0.7, top_p=0.9, seed=7, max_tokens=20, stop_sequences=("END",))
    engine = ScriptedEngine(choose=[["reply"]], speak=[["Hi."]])
    await answer_of(engine, asked(tools=(NOTHING,), settings=settings))
    decided, spoken = engine.jobs
    assert (decided.temperature, decided.seed) == (0.0, None)
    assert (spoken.temperature, spoken.top_p, spoken.seed, spoken.max_tokens) == (0.7, 0.9, 7, 20)
    assert spoken.stop == ("END",)


def _after_a_call(arguments: str) -> Any:
    call = AssistantMessage(tool_calls=(ToolCall("1", "get_weather", arguments),))
    result = ToolMessage("1", "get_weather", "25°C")
    return asked(UserMessage("Weather in Oslo and Rome?"), call, result, tools=(GET_WEATHER,))


async def test_a_call_that_was_made_already_is_not_made_again() -> None:
    engine = ScriptedEngine(choose=[["get_weather"]], fill=[['{"city": "Oslo"}']], speak=[["25°C."]])
    chunks = await answer_of(engine, _after_a_call('{"city":"Oslo"}'))
    assert engine.kinds == ["choose", "fill", "speak"]
    assert text_in(chunks) == "25°C."


async def test_the_same_tool_may_be_called_with_something_else() -> None:
    engine = ScriptedEngine(choose=[["get_weather"]], fill=[['{"city": ', '"Rome"}']])
    assert call_in(await answer_of(engine, _after_a_call('{"city":"Oslo"}'))) == ("get_weather", '{"city": "Rome"}')


async def test_of_two_names_that_begin_alike_the_whole_one_counts() -> None:
    longer = ToolSpec("ring_twice", "", {"type": "object", "properties": {}})
    engine = ScriptedEngine(choose=[["ring"]])
    assert call_in(await answer_of(engine, asked(tools=(longer, NOTHING)))) == ("ring", "{}")


async def test_what_the_engine_raises_comes_out() -> None:
    with pytest.raises(ModelRequestError, match="too odd"):
        await answer_of(ScriptedEngine(speak=[ModelRequestError("too odd")]), asked())


async def test_a_decode_that_takes_too_long_is_ended() -> None:
    with pytest.raises(ModelTimeoutError):
        await answer_of(EndlessEngine(), asked(settings=ModelSettings(timeout=0.01)))


async def test_closing_the_answer_ends_the_decode() -> None:
    engine = EndlessEngine()
    chunks = LocalModel("some", engine=engine).respond(asked())
    assert await anext(chunks) == TextChunk("on ")
    await chunks.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - it is a generator
    assert engine.has_ended.is_set()


async def test_cancelling_the_task_ends_the_decode() -> None:
    engine = EndlessEngine()
    has_begun = asyncio.Event()

    async def listen() -> None:
        async for _ in LocalModel("some", engine=engine).respond(asked()):
            has_begun.set()

    task = asyncio.create_task(listen())
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(engine.has_ended.wait, 5)


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
