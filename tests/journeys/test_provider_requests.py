"""Settings, tool choices, output types and images reach every provider; usage and refusals come back."""

from typing import Any

import pytest
from pydantic import BaseModel
from tests.journeys.providers import CHAT, CLAUDE, GEMINI, PROVIDERS, RESPONSES, Provider

from batonkit import Agent, Runner, tool
from batonkit.errors import ContentFilterError, OutputError
from batonkit.log import AgentResponded
from batonkit.messages import AssistantMessage, Image, Text, Usage, UserMessage
from batonkit.models import ModelResponse, ModelSettings
from batonkit.testing import call, say

every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
# A PNG of one pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c626001000000"
    "0500010a2db40000000049454e44ae426082"
)


@tool
async def look_up(city: str) -> str:
    """Look up a city."""
    return f"{city} is sunny"


class Report(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int
    winds: list[str]


@every_provider
async def test_an_agents_settings_override_the_runners_settings(provider: Provider) -> None:
    common: dict[str, Any] = {"max_tokens": 500, "reasoning_effort": None}
    optional: dict[str, Any] = {"temperature": 0.5, "seed": 7, "stop_sequences": ("END",)}
    common |= {name: value for name, value in optional.items() if name in provider.supports}
    if "sequential calls" in provider.supports:
        common["parallel_tool_calls"] = False
    writer = Agent("Writer", tools=[look_up], model_settings=ModelSettings(max_tokens=50))
    desk = Agent("Desk", handoffs=[writer])
    async with provider.scripted([call("transfer_to_writer"), "Done."]) as (server, model):
        settings = ModelSettings(**common, extra_headers={"x-tenant": "acme"})
        assert (await Runner(desk, model=model, model_settings=settings).run("Hi")).output == "Done."
    for asked, most in zip(server.understood, (500, 50), strict=True):
        assert {name: getattr(asked.settings, name) for name in common} == {**common, "max_tokens": most}
    assert [received.headers["x-tenant"] for received in server.requests] == ["acme", "acme"]


@every_provider
async def test_an_agents_reasoning_effort_overrides_the_runners(provider: Provider) -> None:
    thinker = Agent("Thinker", model_settings=ModelSettings(reasoning_effort="low"))
    async with provider.scripted(["Forty-two."]) as (server, model):
        await Runner(thinker, model=model, model_settings=ModelSettings(reasoning_effort="high")).run("Why?")
    assert server.understood[0].settings.reasoning_effort == "low"


@pytest.mark.parametrize(
    ("provider", "extra", "field"),
    [
        (CHAT, {"metadata": {"tenant": "acme"}}, "metadata"),
        (RESPONSES, {"metadata": {"tenant": "acme"}}, "metadata"),
        (CLAUDE, {"metadata": {"user_id": "acme"}}, "metadata"),
        (GEMINI, {"labels": {"tenant": "acme"}}, "labels"),
    ],
    ids=lambda given: given.id if isinstance(given, Provider) else "",
)
async def test_extra_body_reaches_the_provider(provider: Provider, extra: dict[str, Any], field: str) -> None:
    async with provider.scripted(["Done."]) as (server, model):
        await Runner(Agent("Desk"), model=model, model_settings=ModelSettings(extra_body=extra)).run("Hi")
    assert server.requests[0].body[field] == extra[field]


@every_provider
@pytest.mark.parametrize("choice", ["required", "none", "look_up"])
async def test_tool_choice_applies_to_the_first_turn_only(provider: Provider, choice: str) -> None:
    steps = ["It is sunny."] if choice == "none" else [call("look_up", city="Rome"), "It is sunny."]
    desk = Agent("Desk", tools=[look_up], tool_choice=choice)
    async with provider.scripted(steps) as (server, model):
        assert (await Runner(desk, model=model).run("How is Rome?")).output == "It is sunny."
    first, *later = [asked.tool_choice for asked in server.understood]
    assert first == choice
    assert all(each in (None, "auto") for each in later)


@every_provider
async def test_an_output_type_is_sent_as_a_schema_and_validated(provider: Provider) -> None:
    wrong, right = '{"city":"Rome","degrees":"hot","winds":[]}', '{"city":"Rome","degrees":25,"winds":["scirocco"]}'
    desk = Agent("Desk", tools=[look_up], output_type=Report)
    async with provider.scripted([call("look_up", city="Rome"), wrong, right]) as (server, model):
        result = await Runner(desk, model=model).run("How is Rome?")
    assert result.output == Report(city="Rome", degrees=25, winds=["scirocco"])
    assert server.rejected == []
    for asked in server.understood:
        assert asked.output_schema is not None
        properties = asked.output_schema.schema["properties"]
        assert [properties[name]["type"] for name in ("city", "degrees", "winds")] == ["string", "integer", "array"]
    assert "does not fit the required schema" in str(server.understood[-1].messages[-1].content)


@every_provider
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_usage_is_added_up_over_all_model_calls(provider: Provider, stream: bool) -> None:
    steps = [
        say("", call("look_up", city="Rome"), usage=Usage(100, 20, cached_tokens=60, reasoning_tokens=8)),
        say("It is sunny.", usage=Usage(140, 30, cached_tokens=100, reasoning_tokens=2)),
    ]
    desk = Agent("Desk", tools=[look_up])
    async with provider.scripted(steps) as (_, model):
        runner = Runner(desk, model=model)
        if stream:
            async with runner.stream("How is Rome?") as run:
                assert [event async for event in run]
            result = run.result
        else:
            result = await runner.run("How is Rome?")
    # Every provider has a price, with that of cached tokens.
    total = result.usage.total
    assert total.cost > 0
    assert total == Usage(240, 50, cached_tokens=160, reasoning_tokens=10, model_calls=2, cost=total.cost)
    assert list(result.usage.by_model) == [model.name]


@pytest.mark.parametrize("provider", [CHAT, RESPONSES, CLAUDE], ids=lambda provider: provider.id)
async def test_a_refusal_is_an_answer(provider: Provider) -> None:
    refusal = ModelResponse(AssistantMessage("I will not help with that."), stop_reason="refusal")
    async with provider.scripted([refusal]) as (_, model):
        result = await Runner(Agent("Desk"), model=model).run("Do something bad")
    assert result.output == "I will not help with that."
    assert [event.stop_reason for event in result.events if isinstance(event, AgentResponded)] == ["refusal"]


@pytest.mark.parametrize("provider", [CHAT, RESPONSES, CLAUDE], ids=lambda provider: provider.id)
async def test_a_refusal_of_a_typed_output_raises_without_a_retry(provider: Provider) -> None:
    refusal = ModelResponse(AssistantMessage("I will not help with that."), stop_reason="refusal")
    async with provider.scripted([refusal]) as (server, model):
        with pytest.raises(OutputError, match="refused: I will not help with that"):
            await Runner(Agent("Desk", output_type=Report), model=model).run("Do something bad")
    assert len(server.requests) == 1


@every_provider
async def test_a_content_filter_raises(provider: Provider) -> None:
    # This is also Google's only form of a refusal.
    async with provider.scripted([ContentFilterError("It is not safe.")]) as (_, model):
        with pytest.raises(ContentFilterError, match="stopped"):
            await Runner(Agent("Desk"), model=model).run("Do something bad")


@every_provider
async def test_an_image_in_the_input_also_reaches_the_next_agent(provider: Provider) -> None:
    image = Image(data=PIXEL)
    desk = Agent("Desk", handoffs=[Agent("Painter", description="Knows pictures.")])
    async with provider.scripted([call("transfer_to_painter"), "A pixel."]) as (server, model):
        result = await Runner(desk, model=model).run(UserMessage((Text("What is this?"), image)))
    assert result.output == "A pixel."
    assert server.rejected == []
    for asked in server.understood:
        shown = [part for part in asked.messages[0].content if isinstance(part, Image)]
        assert [(part.data, part.media_type) for part in shown] == [(PIXEL, "image/png")]


@every_provider
async def test_an_image_returned_by_a_tool_reaches_the_model(provider: Provider) -> None:
    @tool
    async def paint() -> Image:
        """Paint a picture."""
        return Image(data=PIXEL)

    async with provider.scripted([call("paint"), "A pixel."]) as (server, model):
        result = await Runner(Agent("Painter", tools=[paint]), model=model).run("Paint")
    assert result.output == "A pixel."
    assert server.rejected == []
    seen = [part for message in server.understood[1].messages for part in message.content if isinstance(part, Image)]
    assert [part.data for part in seen] == [PIXEL]
