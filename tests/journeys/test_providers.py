"""One journey, whoever is behind the models: the same team and script leave the same log."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from tests.journeys.provided import CLAUDE, GEMINI, GEMINI_WITHOUT_IDS, PROVIDERS, Provider, closed
from tests.servers import AnthropicServer, GoogleServer

from baton import Agent, RunContext, Runner, RunResult, handoff, tool
from baton.events import AgentResponded, Delta, Event, TextDelta, ToolCallDelta, encode_event
from baton.messages import AssistantMessage, Reasoning, Usage
from baton.models import Model, ModelResponse
from baton.testing import ScriptedModel, call, transcript

QUESTION = "How is the weather in Rome and Oslo? Wake me if it is worth it."
ANSWER = "Rome has 25 degrees and Oslo 7. I shall wake you at six: 旅行 🎒!"


class Trip(BaseModel):
    """What the router knows about a journey."""

    cities: list[str]
    purpose: Literal["work", "leisure"]


@tool
async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"{city}: {25 if city == 'Rome' else 7} degrees"


@tool(needs_approval=True)
async def set_alarm(ctx: RunContext, hour: int) -> str:
    """Set an alarm."""
    ctx.values.set("alarm", hour)
    return f"alarm at {hour}"


async def note(ctx: RunContext, trip: Trip) -> None:
    ctx.values.set("purpose", trip.purpose)


def team() -> Agent:
    weather = Agent(
        "Weather",
        description="Knows the weather.",
        instructions="Look it up, then tell.",
        tools=[get_weather, set_alarm],
    )
    to_weather = handoff(weather, input_type=Trip, on_handoff=note)
    return Agent("Router", instructions="Find the expert.", handoffs=[to_weather])


def script() -> list[ModelResponse]:
    both = (call("get_weather", city="Rome"), call("get_weather", city="Oslo"))
    thought = (Reasoning("They want the weather of two cities."),)
    return [
        ModelResponse(
            AssistantMessage("", (call("transfer_to_weather", cities=["Rome", "Oslo"], purpose="leisure"),), thought),
            Usage(100, 20, cached_tokens=60, reasoning_tokens=8),
            "tool_calls",
        ),
        ModelResponse(AssistantMessage("Let me look.", both), Usage(120, 12), "tool_calls"),
        ModelResponse(AssistantMessage("", (call("set_alarm", hour=6),)), Usage(150, 9), "tool_calls"),
        ModelResponse(AssistantMessage(ANSWER), Usage(170, 30), "stop"),
    ]


def plain(events: Sequence[Event | Delta]) -> list[dict[str, Any]]:
    """The log as JSON, without what may differ between two runs of one script.

    - `at` and `run_id`: no two runs have the same.
    - `model`, and `usage.model_calls`, which a scripted model does not count: who answered is not what happened.
    - Call ids are the provider's own where it gives any, and ours where it does not; results, questions and keys refer
      to them. They are numbered in the order in which they appear, so that what refers to what is still compared.
    - `reasoning` is opaque: Chat Completions do not show it, and the others sign it in their own way.
    """
    logged = [event for event in events if isinstance(event, Event)]
    ids = [each.id for event in logged if isinstance(event, AgentResponded) for each in event.message.tool_calls]
    lines: list[dict[str, Any]] = []
    for event in logged:
        text = encode_event(event).decode()
        for number, id in enumerate(ids, start=1):
            text = text.replace(id, f"<call {number}>")
        line = cast("dict[str, Any]", msgspec.json.decode(text))
        for name in ("timestamp", "run_id", "model"):
            line.pop(name, None)
        line.get("usage", {}).pop("model_calls", None)
        line.get("message", {}).pop("reasoning", None)
        lines.append(line)
    return lines


async def heard(runner: Runner, *, stream: bool, resumed: str = "") -> tuple[RunResult, list[Event | Delta]]:
    """A run to where it stops, and all that was delivered on the way, if anybody listened."""
    if not stream:
        return (await runner.resume(resumed, True) if resumed else await runner.run(QUESTION)), []
    async with runner.stream_resume(resumed, True) if resumed else runner.stream(QUESTION) as run:
        delivered = [event async for event in run]
    return run.result, delivered


async def journey(
    model: Model, later: Model, *, stream: bool, store: Path | None = None
) -> tuple[RunResult, list[Event | Delta]]:
    """The whole of it. With a store, the question is answered in another runner, by another model object."""
    runner = Runner(team(), model=model, store=store)
    suspended, delivered = await heard(runner, stream=stream)
    assert suspended.status == "suspended"
    if store is not None:
        await runner.close()
        runner = Runner(team(), model=later, store=store)
    result, rest = await heard(runner, stream=stream, resumed=suspended.run_id)
    if store is not None:
        assert [encode_event(event) for event in await runner.events(result.run_id)] == [
            encode_event(event) for event in result.events
        ]
        await runner.close()
    return result, [*delivered, *rest]


async def reference(store: Path | None = None) -> RunResult:
    """The same with a scripted model, which no wire is behind."""
    model = ScriptedModel(script())
    result, _ = await journey(model, model, stream=False, store=store)
    return result


async def test_what_happens_on_the_journey() -> None:
    result = await reference()
    assert transcript(result.events) == snapshot(
        [
            'run of Router started with "How is the weather in Rome and Oslo? Wake me if it is worth it."',
            "Router started",
            'Router: called transfer_to_weather({"cities":["Rome","Oslo"],"purpose":"leisure"})',
            'Router: step on_handoff -> null [purpose="leisure"]',
            'Router: transfer_to_weather -> {"assistant":"Weather"}',
            'Router → Weather with {"cities":["Rome","Oslo"],"purpose":"leisure"}',
            "Router finished",
            "Weather started",
            'Weather: said "Let me look." + get_weather({"city":"Rome"}) + get_weather({"city":"Oslo"})',
            "Weather: get_weather -> Rome: 25 degrees",
            "Weather: get_weather -> Oslo: 7 degrees",
            'Weather: called set_alarm({"hour":6})',
            "Weather: step needs_approval -> true",
            'Weather: asked {"kind":"approval","tool":"set_alarm","arguments":{"hour":6}} about set_alarm({"hour":6})',
            "run suspended with 1 open question",
            "run resumed",
            'Weather: got the answer {"approved":true}',
            "Weather: set_alarm -> alarm at 6 [alarm=6]",
            'Weather: said "Rome has 25 degrees and Oslo 7. I shall wake you at six: 旅行 🎒!"',
            "Weather finished",
            "run completed",
        ]
    )
    assert result.values == {"purpose": "leisure", "alarm": 6}


@pytest.mark.parametrize("store", [False, True], ids=["in memory", "in SQLite, with a fresh runner"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", [*PROVIDERS, GEMINI_WITHOUT_IDS], ids=lambda provider: provider.id)
async def test_the_log_is_the_same_with_every_provider(
    provider: Provider, stream: bool, store: bool, tmp_path: Path
) -> None:
    async with provider.playing(script()) as (server, model):
        later = provider.model_for(server)
        place = tmp_path / "runs.db" if store else None
        result, delivered = await journey(model, later, stream=stream, store=place)
        await closed(later)
        server.assert_done()
    assert server.rejected == []
    assert result.output == ANSWER
    assert {event.model for event in result.events if isinstance(event, AgentResponded)} == {model.name}
    assert plain(result.events) == plain((await reference(place and tmp_path / "reference.db")).events)
    # What listeners hear is the log, and before each answer the pieces of it.
    assert not stream or plain(delivered) == plain(result.events)
    assert_told_in_pieces([delta for delta in delivered if isinstance(delta, Delta)], is_heard=stream)


def assert_told_in_pieces(deltas: Sequence[Delta], *, is_heard: bool) -> None:
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(texts) == ("Let me look." + ANSWER if is_heard else "")
    calls = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert [delta.name for delta in calls if delta.name] == (
        ["transfer_to_weather", "get_weather", "get_weather", "set_alarm"] if is_heard else []
    )
    assert not is_heard or len(texts) > 5


@tool
async def look_up(city: str) -> str:
    """Look up a city."""
    return f"{city} is sunny"


async def test_a_handoff_from_claude_to_gemini() -> None:
    thoughtful = AssistantMessage("One moment.", (call("look_up", city="Rome"),), (Reasoning("They want weather."),))
    async with (
        AnthropicServer([thoughtful, call("transfer_to_reporter")]) as claude,
        GoogleServer([call("look_up", city="Oslo"), "Both are sunny."]) as gemini,
    ):
        reporter = Agent(
            "Reporter",
            model=GEMINI.model_for(gemini),
            tools=[look_up],
            history="verbatim",
        )
        desk = Agent(
            "Desk",
            model=CLAUDE.model_for(claude),
            tools=[look_up],
            handoffs=[handoff(reporter)],
        )
        result = await Runner(desk).run("How is the weather in Rome and Oslo?")
        claude.assert_done()
        gemini.assert_done()
    assert (result.output, result.agent) == ("Both are sunny.", "Reporter")
    assert claude.rejected == []
    assert gemini.rejected == []
    # Claude reads its own thoughts again; Gemini does not read them, and knows that the calls are not its own.
    assert [block["type"] for block in claude.requests[1].body["messages"][1]["content"]] == [
        *("thinking", "text", "tool_use"),
    ]
    first = gemini.requests[0].body["contents"][1]["parts"]
    assert [next(iter(part)) for part in first] == ["text", "functionCall"]
    assert "They want weather." not in gemini.requests[0].raw.decode()
