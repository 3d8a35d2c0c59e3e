"""Providers that fail in the middle of a run: who is asked again, who is asked instead, and what nobody hears twice."""

from itertools import permutations
from typing import Any

import pytest
from tests.journeys.provided import PROVIDERS, Provider

from baton import Agent, FallbackModel, RetryModel, Runner, tool
from baton.errors import (
    AuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    RateLimitError,
)
from baton.events import AgentResponded, TextDelta
from baton.messages import AssistantMessage, Reasoning, ToolMessage, text_of
from baton.runner import RunStream
from baton.testing import ScriptedStream, call, transcript

every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)


@tool
async def look_up(city: str) -> str:
    """Look up a city."""
    return f"{city} is sunny"


def desk() -> Agent:
    return Agent("Desk", tools=[look_up])


def patient(model: Any, waits: list[float]) -> RetryModel:
    """A Retry that notes how long it would wait."""

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return RetryModel(model, initial_delay=0.5, jitter=0, sleep=sleep)


async def listened(run: RunStream[Any], heard: list[str]) -> None:
    """Note the text that a listener hears."""
    async with run:
        async for event in run:
            if isinstance(event, TextDelta):
                heard.append(event.text)  # noqa: PERF401 - what was heard before it failed counts


@every_provider
async def test_who_asks_for_rest_gets_it_and_is_asked_again(provider: Provider) -> None:
    limited = RateLimitError("Slow down.", retry_after=3.0)
    waits: list[float] = []
    steps = [call("look_up", city="Rome"), limited, OverloadedError("Too much."), "It is sunny."]
    async with provider.playing(steps) as (server, model):
        result = await Runner(desk(), model=patient(model, waits)).run("How is Rome?")
        server.assert_done()
    assert result.output == "It is sunny."
    # To the second as the provider says; where it says nothing, twice the first wait of half a second.
    assert waits == [3.0, 1.0]
    assert [received.rejection is not None for received in server.requests] == [False, True, True, False]
    # The same question each time: nothing of a failed attempt gets into the history.
    assert server.requests[1].raw == server.requests[2].raw == server.requests[3].raw
    assert [event.text for event in result.events if isinstance(event, AgentResponded)] == ["", "It is sunny."]


@every_provider
@pytest.mark.parametrize("error", [AuthenticationError("No."), ModelNotFoundError("No.")], ids=["key", "model"])
async def test_what_would_fail_again_is_not_tried_again(provider: Provider, error: ModelError) -> None:
    waits: list[float] = []
    async with provider.playing([error, "Never asked for."]) as (server, model):
        with pytest.raises(type(error)):
            await Runner(desk(), model=patient(model, waits)).run("How is Rome?")
    assert (len(server.requests), waits) == (1, [])


@every_provider
async def test_a_connection_that_is_cut_before_the_answer_is_tried_again(provider: Provider) -> None:
    waits: list[float] = []
    async with provider.playing([ModelConnectionError("cut"), "It is sunny."]) as (_, model):
        result = await Runner(desk(), model=patient(model, waits)).run("How is Rome?")
    assert (result.output, waits) == ("It is sunny.", [0.5])


@every_provider
async def test_what_was_heard_is_not_said_twice(provider: Provider) -> None:
    waits: list[float] = []
    broken = ScriptedStream("Rome ", "is ", ModelConnectionError("cut"))
    async with (
        provider.playing([call("look_up", city="Rome"), broken, "Rome is sunny."]) as (server, model),
        provider.playing(["Never asked for."]) as (spare, other),
    ):
        runner = Runner(desk(), model=FallbackModel(patient(model, waits), other))
        run = runner.stream("How is Rome?")
        heard: list[str] = []
        with pytest.raises(ModelConnectionError, match="in the middle of the response"):
            await listened(run, heard)
        assert "".join(heard) == "Rome is "
        assert (waits, len(server.requests), len(spare.requests)) == ([], 2, 0)
        # Half an answer is not in the log; whoever resumes the run gets a whole one, and the tool is not run again.
        result = await runner.resume(run.result.run_id)
    assert result.output == "Rome is sunny."
    happened = [line for line in transcript(result.events) if not line.startswith("run failed")]
    assert happened[-5:] == [
        "Desk: look_up -> Rome is sunny",
        "run resumed",
        'Desk: said "Rome is sunny."',
        "Desk finished",
        "run completed",
    ]


@pytest.mark.parametrize("pair", [*permutations(PROVIDERS, 2)], ids=lambda pair: f"{pair[0].id} to {pair[1].id}")
async def test_a_conversation_that_changes_the_provider_twice(pair: tuple[Provider, Provider]) -> None:
    first, second = pair
    thoughtful = AssistantMessage("One moment.", (call("look_up", city="Rome"),), (Reasoning("They want weather."),))
    async with (
        first.playing([thoughtful, OverloadedError("Too much."), "Both are sunny."]) as (one, model),
        second.playing([[call("look_up", city="Oslo"), call("look_up", city="Bergen")]]) as (two, spare),
    ):
        result = await Runner(desk(), model=FallbackModel(model, spare)).run("How is the weather?")
        one.assert_done()
        two.assert_done()
    assert result.output == "Both are sunny."
    said = [event for event in result.events if isinstance(event, AgentResponded)]
    assert [event.model for event in said] == [model.name, spare.name, model.name]
    # Neither refuses what the other one said, nor loses any of it; but thoughts are for those who thought them.
    assert [received.rejection.status for received in one.rejected if received.rejection is not None] in ([503], [529])
    assert two.rejected == []
    assert _told(two.understood[0].messages) == (["look_up"], ["Rome is sunny"])
    assert _told(one.understood[-1].messages) == (
        ["look_up", "look_up", "look_up"],
        ["Rome is sunny", "Oslo is sunny", "Bergen is sunny"],
    )
    assert b"They want weather." not in two.requests[0].raw


def _told(messages: Any) -> tuple[list[str], list[str]]:
    """The calls and the results in a history."""
    calls = [each.name for message in messages if isinstance(message, AssistantMessage) for each in message.tool_calls]
    return calls, [text_of(message.content) for message in messages if isinstance(message, ToolMessage)]
