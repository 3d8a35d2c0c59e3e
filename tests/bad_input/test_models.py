"""Models that misbehave: each ends in a typed error or is corrected, and never in an endless run."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from batonkit import Agent, Limits, ModelError, Runner, tool
from batonkit.errors import EmptyResponseError, LimitError, TransferError, TurnLimitError, UnknownToolError
from batonkit.log import AgentResponded, ToolReturned
from batonkit.messages import AssistantMessage, Reasoning, ToolCall, ToolMessage, text_of
from batonkit.models import Chunk, ModelRequest, ModelResponse, TextChunk, ToolCallChunk
from batonkit.testing import ScriptedModel, ScriptedStream, call, transcript, transfer_to


@tool
async def look_up(city: str) -> str:
    """Look up."""
    return f"sunny in {city}"


class Faulty:
    """A model made of a function."""

    def __init__(self, respond: Any) -> None:
        self.name = "faulty"
        self.respond = respond


@pytest.mark.parametrize("failure", [OSError("gone"), ValueError("bad"), KeyError("x"), TimeoutError("slow")])
@pytest.mark.parametrize("listens", [True, False])
async def test_a_model_that_raises(failure: Exception, listens: bool) -> None:
    runner = Runner(Agent("A", model=ScriptedModel([failure], name="m")))
    live = runner.stream("hi")

    async def drive() -> None:
        if not listens:
            return await live._drive()
        async with live:
            _ = [event async for event in live]
        return None

    with pytest.raises(ModelError, match=f"the model `m` of `A` raised {type(failure).__name__}: ") as caught:
        await drive()
    assert (caught.value.model, caught.value.retryable) == ("m", False)
    assert caught.value.__cause__ is failure
    assert live.result.status == "failed"
    assert live.result.error is caught.value


async def test_a_model_that_raises_in_the_middle_of_its_answer() -> None:
    # What was heard of it is not recorded.
    runner = Runner(Agent("A", model=ScriptedModel([ScriptedStream("I thi", OSError("gone")), "I think so"])))
    live = runner.stream("hi")
    with pytest.raises(ModelError):
        await live._drive()
    assert not any(isinstance(event, AgentResponded) for event in live.result.events)
    assert (await runner.resume(live.run_id)).output == "I think so"


@pytest.mark.parametrize(
    "nothing",
    [
        AssistantMessage(),
        AssistantMessage(()),
        AssistantMessage(reasoning=(Reasoning("hm"),)),
        ModelResponse(None),
        ScriptedStream(),
        ScriptedStream(""),
    ],
)
async def test_a_model_that_returns_nothing(nothing: Any) -> None:
    with pytest.raises(EmptyResponseError, match="the model `m` of `A` answered with neither text nor calls") as caught:
        await Runner(Agent("A", model=ScriptedModel([nothing] * 2, name="m"))).run("hi")
    assert (caught.value.model, caught.value.retryable) == ("m", True)


async def test_a_model_that_ends_without_a_response() -> None:
    # The chunks are the answer; nothing else is needed.
    async def respond(request: ModelRequest) -> AsyncIterator[Chunk]:
        yield TextChunk("hel")
        yield TextChunk("lo")

    assert (await Runner(Agent("A", model=Faulty(respond))).run("hi")).output == "hello"


async def test_a_model_that_returns_something_else() -> None:
    def respond(request: ModelRequest) -> Any:
        return None

    with pytest.raises(ModelError, match="the model `faulty` of `A` raised TypeError"):
        await Runner(Agent("A", model=Faulty(respond))).run("hi")


async def test_a_model_whose_respond_raises_at_once() -> None:
    def respond(request: ModelRequest) -> Any:
        raise OSError("no connection")

    with pytest.raises(ModelError, match="the model `faulty` of `A` raised OSError: no connection"):
        await Runner(Agent("A", model=Faulty(respond))).run("hi")


@pytest.mark.parametrize(
    "arguments", ["", "not json", "[1]", '{"city": 7}', '{"town": "Rome"}', "null", '{"city": "Rome"']
)
async def test_a_model_that_writes_garbage_arguments(arguments: str) -> None:
    # The model is told what is wrong, and may try again.
    garbage = AssistantMessage(tool_calls=(ToolCall("x", "look_up", arguments),))
    model = ScriptedModel([garbage, call("look_up", city="Rome"), "sunny"])
    result = await Runner(Agent("A", model=model, tools=[look_up])).run("hi")
    told = model.requests[1].messages[-1]
    assert isinstance(told, ToolMessage)
    assert told.is_error
    assert "`look_up` do not fit" in text_of(told.content)
    assert result.output == "sunny"


async def test_a_model_that_writes_garbage_arguments_for_ever() -> None:
    model = ScriptedModel([AssistantMessage(tool_calls=(ToolCall("x", "look_up", "garbage"),))], cycle=True)
    with pytest.raises(TurnLimitError):
        await Runner(Agent("A", model=model, tools=[look_up], max_turns=5)).run("hi")
    assert len(model.requests) == 6


async def test_a_model_that_calls_unknown_tools_for_ever() -> None:
    model = ScriptedModel([call("nope")], cycle=True)
    with pytest.raises(
        UnknownToolError, match="the model of `A` keeps calling `nope`; its tools are: `look_up`"
    ) as caught:
        await Runner(Agent("A", model=model, tools=[look_up])).run("hi")
    assert (caught.value.agent, caught.value.tool, caught.value.available) == ("A", "nope", ("look_up",))
    assert isinstance(caught.value, ModelError)


async def test_a_model_without_tools_that_calls_some() -> None:
    model = ScriptedModel([call("nope"), "sorry"])
    result = await Runner(Agent("A", model=model)).run("hi")
    assert result.output == "sorry"
    assert result.messages[2].content == "There is no tool `nope`; the tools are: nothing."


async def test_a_model_that_transfers_to_unknown_agents_for_ever() -> None:
    model = ScriptedModel([transfer_to("Kitchen")], cycle=True)
    with pytest.raises(TransferError, match="`A` cannot transfer to `Kitchen`; it can reach: `B`") as caught:
        await Runner(Agent("A", model=model, sub_agents=[Agent("B")])).run("hi")
    assert (caught.value.source, caught.value.target, caught.value.reachable) == ("A", "Kitchen", ("B",))


async def test_a_model_that_alternates_between_mistakes() -> None:
    # One budget for all of them.
    model = ScriptedModel([transfer_to("Kitchen"), call("nope")], cycle=True)
    with pytest.raises(TransferError):
        await Runner(Agent("A", model=model, sub_agents=[Agent("B")])).run("hi")
    assert len(model.requests) == 3


async def test_a_model_that_never_stops_calling_tools() -> None:
    model = ScriptedModel([call("look_up", city="Rome")], cycle=True)
    live = Runner(Agent("A", model=model, tools=[look_up])).stream("hi")
    with pytest.raises(TurnLimitError, match="`A` has no answer after 20 turns"):
        await live._drive()
    assert len(model.requests) == 21
    assert model.requests[-1].tools == ()
    assert sum(isinstance(event, ToolReturned) for event in live.result.events) == 20


async def test_models_that_never_stop_in_many_agents() -> None:
    # Turns are per agent, but model calls are limited for the whole run.
    model = ScriptedModel({"A": [call("look_up", city="Rome"), transfer_to("B")], "B": [transfer_to("A")]}, cycle=True)
    limits = Limits(transfers=None, idle_cycles=None)
    runner = Runner(Agent("A", tools=[look_up], sub_agents=[Agent("B")]), model=model, limits=limits)
    with pytest.raises(LimitError, match="limit of 100 model_calls"):
        await runner.run("hi")
    assert len(model.requests) == 100


async def test_a_model_that_gives_two_calls_one_id() -> None:
    twice = AssistantMessage(
        tool_calls=(ToolCall("x", "look_up", '{"city":"Rome"}'), ToolCall("x", "look_up", '{"city":"Oslo"}'))
    )
    model = ScriptedModel([twice, "done"])
    result = await Runner(Agent("A", model=model, tools=[look_up])).run("hi")
    results = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert [message.content for message in results] == ["sunny in Rome", "sunny in Oslo"]
    assert len({message.tool_call_id for message in results}) == 2
    said = result.messages[1]
    assert isinstance(said, AssistantMessage)
    assert [each.id for each in said.tool_calls] == [message.tool_call_id for message in results]


async def test_a_call_without_a_name() -> None:
    async def respond(request: ModelRequest) -> AsyncIterator[Chunk]:
        if len(request.messages) == 1:
            yield ToolCallChunk(0, "x", "", "{}")
        else:
            yield TextChunk("sorry")

    result = await Runner(Agent("A", model=Faulty(respond), tools=[look_up])).run("hi")
    assert result.output == "sorry"
    assert transcript(result.events)[3] == "A:  failed -> There is no tool ``; the tools are: `look_up`."


async def test_a_model_that_cancels_itself_fails_the_run() -> None:
    async def respond(request: ModelRequest) -> AsyncIterator[Chunk]:
        yield TextChunk("x")
        raise asyncio.CancelledError

    live = Runner(Agent("A", model=Faulty(respond))).stream("hi")
    with pytest.raises(ModelError, match="it awaited something that was cancelled"):
        await live._drive()
    assert live.result.status == "failed"
