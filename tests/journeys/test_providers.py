"""Every provider produces the same log for a team and a script."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from tests.journeys.providers import CLAUDE, GEMINI, GEMINI_WITHOUT_IDS, PROVIDERS, Provider, close_model
from tests.servers import AnthropicServer, GoogleServer

from batonkit import Agent, RunContext, Runner, RunResult, handoff, tool
from batonkit.log import AgentResponded, Delta, Event, TextDelta, ToolCallDelta, encode_event
from batonkit.messages import AssistantMessage, Reasoning, Usage
from batonkit.models import Model, ModelResponse
from batonkit.testing import ScriptedModel, call, transcript

QUESTION = "How is the weather in Rome and Oslo? Wake me if it is worth it."
ANSWER = "Rome has 25 degrees and Oslo 7. I shall wake you at six: 旅行 🎒!"


class Trip(BaseModel):
    """The router's information about a journey."""

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


def comparable(events: Sequence[Event | Delta]) -> list[dict[str, Any]]:
    """Return the log as JSON, without the fields that may differ between two runs of one script.

    - `timestamp` and `run_id` are different in every run.
    - `model` and `response_id` are the provider's, and a scripted model does not count `usage.model_calls`.
    - Call ids are the provider's or Baton's; results, interrupts and keys refer to them. They are numbered in order of
      appearance, so that the references are still compared.
    - `reasoning` is opaque: Chat Completions does not return it, and the other providers sign it in their own way.
    - The hashes in `request` cover call ids and reasoning; their number is compared.
    """
    logged = [event for event in events if isinstance(event, Event)]
    ids = [each.id for event in logged if isinstance(event, AgentResponded) for each in event.message.tool_calls]
    lines: list[dict[str, Any]] = []
    for event in logged:
        text = encode_event(event).decode()
        for number, id in enumerate(ids, start=1):
            text = text.replace(id, f"<call {number}>")
        line = cast("dict[str, Any]", msgspec.json.decode(text))
        for name in ("timestamp", "run_id", "model", "response_id"):
            line.pop(name, None)
        line.get("usage", {}).pop("model_calls", None)
        line.get("message", {}).pop("reasoning", None)
        if request := line.pop("request", None):
            line["request"] = request.get("kept", 0), len(request.get("added", ()))
        lines.append(line)
    return lines


async def run_until_stopped(
    runner: Runner, *, stream: bool, resumed: str = ""
) -> tuple[RunResult, list[Event | Delta]]:
    """Run until the end or an interrupt; return the result and, if streamed, the delivered events."""
    if not stream:
        return (await runner.resume(resumed, True) if resumed else await runner.run(QUESTION)), []
    async with runner.stream_resume(resumed, True) if resumed else runner.stream(QUESTION) as run:
        delivered = [event async for event in run]
    return run.result, delivered


async def run_script(
    model: Model, later: Model, *, stream: bool, store: Path | None = None
) -> tuple[RunResult, list[Event | Delta]]:
    """Run the whole script. With a store, the interrupt is answered in a second runner with another model object."""
    runner = Runner(team(), model=model, store=store, prices=False)
    suspended, delivered = await run_until_stopped(runner, stream=stream)
    assert suspended.status == "suspended"
    if store is not None:
        await runner.close()
        runner = Runner(team(), model=later, store=store, prices=False)
    result, rest = await run_until_stopped(runner, stream=stream, resumed=suspended.run_id)
    if store is not None:
        assert [encode_event(event) for event in await runner.runs.events(result.run_id)] == [
            encode_event(event) for event in result.events
        ]
        await runner.close()
    return result, [*delivered, *rest]


async def reference_result(store: Path | None = None) -> RunResult:
    """Run the script with a scripted model, without HTTP."""
    model = ScriptedModel(script())
    result, _ = await run_script(model, model, stream=False, store=store)
    return result


async def test_the_reference_run_has_the_expected_transcript() -> None:
    result = await reference_result()
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
    async with provider.scripted(script()) as (server, model):
        later = provider.model_for(server)
        path = tmp_path / "runs.db" if store else None
        result, delivered = await run_script(model, later, stream=stream, store=path)
        await close_model(later)
        server.assert_done()
    assert server.rejected == []
    assert result.output == ANSWER
    responses = [event for event in result.events if isinstance(event, AgentResponded)]
    assert {event.model for event in responses} == {model.name}
    assert len({event.response_id for event in responses if event.response_id}) == len(responses)
    assert comparable(result.events) == comparable((await reference_result(path and tmp_path / "reference.db")).events)
    # The stream delivers the log, and deltas before each response.
    assert not stream or comparable(delivered) == comparable(result.events)
    assert_streamed_in_deltas([delta for delta in delivered if isinstance(delta, Delta)], stream=stream)


def assert_streamed_in_deltas(deltas: Sequence[Delta], *, stream: bool) -> None:
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(texts) == ("Let me look." + ANSWER if stream else "")
    calls = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert [delta.name for delta in calls if delta.name] == (
        ["transfer_to_weather", "get_weather", "get_weather", "set_alarm"] if stream else []
    )
    assert not stream or len(texts) > 5


@tool
async def look_up(city: str) -> str:
    """Look up a city."""
    return f"{city} is sunny"


async def test_a_handoff_from_claude_to_gemini_passes_on_everything_but_reasoning() -> None:
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
    # Claude gets its own reasoning back; Gemini does not get it, nor a signature for Claude's calls.
    assert [block["type"] for block in claude.requests[1].body["messages"][1]["content"]] == [
        *("thinking", "text", "tool_use"),
    ]
    first = gemini.requests[0].body["contents"][1]["parts"]
    assert [next(iter(part)) for part in first] == ["text", "functionCall"]
    assert "They want weather." not in gemini.requests[0].raw.decode()
