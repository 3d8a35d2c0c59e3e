"""Providers that fail during a run: retries, fallbacks, and no repeated output."""

from itertools import permutations
from typing import Any

import pytest
from tests.journeys.providers import PROVIDERS, Provider

from batonkit import Agent, FallbackModel, RetryModel, Runner, tool
from batonkit.errors import (
    AuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    RateLimitError,
)
from batonkit.log import AgentResponded, TextDelta
from batonkit.messages import AssistantMessage, Reasoning, ToolMessage, text_of
from batonkit.runs import RunStream
from batonkit.testing import ScriptedStream, call, transcript

every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)


@tool
async def look_up(city: str) -> str:
    """Look up a city."""
    return f"{city} is sunny"


def desk() -> Agent:
    return Agent("Desk", tools=[look_up])


def with_retries(model: Any, delays: list[float]) -> RetryModel:
    """Wrap a model in a `RetryModel` that records its delays instead of sleeping."""

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    return RetryModel(model, initial_delay=0.5, jitter=0, sleep=sleep)


async def read_stream(run: RunStream[Any], received_text: list[str]) -> None:
    """Read a stream and record its text."""
    async with run:
        async for event in run:
            if isinstance(event, TextDelta):
                received_text.append(event.text)  # noqa: PERF401 - the text before a failure counts


@every_provider
async def test_rate_limits_and_overload_are_retried_after_a_delay(provider: Provider) -> None:
    limited = RateLimitError("Slow down.", retry_after=3.0)
    delays: list[float] = []
    steps = [call("look_up", city="Rome"), limited, OverloadedError("Too much."), "It is sunny."]
    async with provider.scripted(steps) as (server, model):
        result = await Runner(desk(), model=with_retries(model, delays)).run("How is Rome?")
        server.assert_done()
    assert result.output == "It is sunny."
    # The delay that the provider asks for; otherwise twice the initial delay of half a second.
    assert delays == [3.0, 1.0]
    assert [received.rejection is not None for received in server.requests] == [False, True, True, False]
    # All three requests are equal: a failed attempt adds nothing to the history.
    assert server.requests[1].raw == server.requests[2].raw == server.requests[3].raw
    assert [event.text for event in result.events if isinstance(event, AgentResponded)] == ["", "It is sunny."]


@every_provider
@pytest.mark.parametrize("error", [AuthenticationError("No."), ModelNotFoundError("No.")], ids=["key", "model"])
async def test_permanent_errors_are_not_retried(provider: Provider, error: ModelError) -> None:
    delays: list[float] = []
    async with provider.scripted([error, "Never asked for."]) as (server, model):
        with pytest.raises(type(error)):
            await Runner(desk(), model=with_retries(model, delays)).run("How is Rome?")
    assert (len(server.requests), delays) == (1, [])


@every_provider
async def test_a_connection_lost_before_the_response_is_retried(provider: Provider) -> None:
    delays: list[float] = []
    async with provider.scripted([ModelConnectionError("cut"), "It is sunny."]) as (_, model):
        result = await Runner(desk(), model=with_retries(model, delays)).run("How is Rome?")
    assert (result.output, delays) == ("It is sunny.", [0.5])


@every_provider
async def test_a_response_that_fails_after_its_first_text_is_not_retried(provider: Provider) -> None:
    delays: list[float] = []
    broken = ScriptedStream("Rome ", "is ", ModelConnectionError("cut"))
    async with (
        provider.scripted([call("look_up", city="Rome"), broken, "Rome is sunny."]) as (server, model),
        provider.scripted(["Never asked for."]) as (spare, other),
    ):
        runner = Runner(desk(), model=FallbackModel(with_retries(model, delays), other))
        run = runner.stream("How is Rome?")
        received_text: list[str] = []
        with pytest.raises(ModelConnectionError, match="in the middle of the response"):
            await read_stream(run, received_text)
        assert "".join(received_text) == "Rome is "
        assert (delays, len(server.requests), len(spare.requests)) == ([], 2, 0)
        # The partial response is not in the log; the resumed run gets a whole one, and the tool does not run again.
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
async def test_a_conversation_can_switch_providers_twice(pair: tuple[Provider, Provider]) -> None:
    first, second = pair
    thoughtful = AssistantMessage("One moment.", (call("look_up", city="Rome"),), (Reasoning("They want weather."),))
    async with (
        first.scripted([thoughtful, OverloadedError("Too much."), "Both are sunny."]) as (one, model),
        second.scripted([[call("look_up", city="Oslo"), call("look_up", city="Bergen")]]) as (two, spare),
    ):
        result = await Runner(desk(), model=FallbackModel(model, spare)).run("How is the weather?")
        one.assert_done()
        two.assert_done()
    assert result.output == "Both are sunny."
    said = [event for event in result.events if isinstance(event, AgentResponded)]
    assert [event.model for event in said] == [model.name, spare.name, model.name]
    # Each provider accepts all messages of the other; only its reasoning is not passed on.
    assert [received.rejection.status for received in one.rejected if received.rejection is not None] in ([503], [529])
    assert two.rejected == []
    assert _calls_and_results(two.understood[0].messages) == (["look_up"], ["Rome is sunny"])
    assert _calls_and_results(one.understood[-1].messages) == (
        ["look_up", "look_up", "look_up"],
        ["Rome is sunny", "Oslo is sunny", "Bergen is sunny"],
    )
    assert b"They want weather." not in two.requests[0].raw


def _calls_and_results(messages: Any) -> tuple[list[str], list[str]]:
    """Return the names of the calls and the texts of the results in a history."""
    calls = [each.name for message in messages if isinstance(message, AssistantMessage) for each in message.tool_calls]
    return calls, [text_of(message.content) for message in messages if isinstance(message, ToolMessage)]
