"""A run ends with a store as it ends without, whatever text tools, models and code bring into it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit import Agent, AgentContext, BaseAgent, RunContext, Runner, Transfer, agent, tool
from batonkit.errors import NotEncodableError, SetupError
from batonkit.log import (
    AgentResponded,
    ControlTransferred,
    Event,
    InterruptRaised,
    StepCompleted,
    ToolReturned,
    decode_log,
    encode_event,
    encode_log,
)
from batonkit.messages import AssistantMessage, Data, Reasoning, Text, ToolCall, UserMessage
from batonkit.models import Chunk, ModelRequest, ReasoningChunk, TextChunk, ToolCallChunk
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call

HALF = "caf\udce9.txt"
"""The name of a file that is not UTF-8, as Python decodes it."""
REPAIRED = "caf\ufffd.txt"

texts = st.text(st.sampled_from("aé😀\ud83d\ude00\udce9"), max_size=4)
data = st.recursive(
    texts | st.integers(0, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
parts = texts | st.tuples(st.builds(Text, texts), st.builds(Data, data))
calls = st.builds(ToolCall, st.just("c"), st.just("act"), st.sampled_from(["{}", '{"name": "\\ud800"}']) | texts)
answers = st.builds(AssistantMessage, texts, reasoning=st.lists(st.builds(Reasoning, texts), max_size=1).map(tuple))
requests = st.builds(AssistantMessage, texts, calls.map(lambda call: (call,)))


def _team(
    result: Any, value: Any, step: Any, progress: str, replies: list[AssistantMessage], error: str
) -> BaseAgent[Any]:
    @tool
    async def act(ctx: RunContext, name: str = "") -> Any:
        """Act."""
        ctx.values.set("value", value)
        await ctx.progress(progress)
        await ctx.emit(progress, step)
        done = await ctx.step(progress or "step", lambda: step)
        if error:
            raise ValueError(error)
        return result if not isinstance(result, str) else f"{result} {name} {done}"

    return Agent("A", model=ScriptedModel([*replies, "end"]), tools=[act], instructions=lambda ctx: progress)


def _shown(events: Any) -> list[Any]:
    """Return what events say, without times."""
    recorded = decode_log(encode_log(events))
    return [(type(event).__name__, event.key, _facts(event)) for event in recorded]


def _facts(event: Event) -> Any:
    match event:
        case ToolReturned():
            return event.content, event.is_error, event.value_changes
        case AgentResponded():
            return event.message, event.value_changes
        case StepCompleted():
            return event.name, event.result
        case InterruptRaised():
            return event.payload
        case ControlTransferred():
            return event.payload
        case _:
            return None


async def _outcome(runner: Runner[Any, Any], *, streams: bool) -> tuple[Any, ...]:
    try:
        if streams:
            async with runner.stream("go", run_id="r") as run:
                async for _ in run:
                    pass
            result = run.result
        else:
            result = await runner.run("go", run_id="r")
    except NotEncodableError as error:
        return type(error), str(error)
    return result.status, result.output, dict(result.values), _shown(result.events)


@given(
    result=parts | data, value=data, step=data, progress=texts, error=texts,
    replies=st.lists(requests, max_size=2), last=answers, streams=st.booleans(),
)  # fmt: skip
async def test_a_run_ends_with_a_store_as_it_ends_without(
    result: Any, value: Any, step: Any, progress: str, error: str, replies: Any, last: AssistantMessage, streams: bool
) -> None:
    team = [_team(result, value, step, progress, [*replies, last], error) for _ in range(2)]
    unstored = await _outcome(Runner(team[0]), streams=streams)
    assert await _outcome(Runner(team[1], store=MemoryStore()), streams=streams) == unstored


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("result", "read"),
    [
        (HALF, REPAIRED),
        ([HALF], f'["{REPAIRED}"]'),
        ({HALF: {"name": HALF}}, f'{{"{REPAIRED}":{{"name":"{REPAIRED}"}}}}'),
        ((Text(HALF), Data({"name": HALF})), (Text(REPAIRED), Data({"name": REPAIRED}))),
        (ValueError(HALF), f"tool `act` failed: ValueError: {REPAIRED}"),
    ],
)
async def test_models_read_valid_text_whatever_a_tool_returns(stored: bool, result: Any, read: Any) -> None:
    @tool
    async def act() -> Any:
        """Act."""
        if isinstance(result, Exception):
            raise result
        return result

    model = ScriptedModel([call("act"), "done"])
    done = await Runner(Agent("A", model=model, tools=[act]), store=MemoryStore() if stored else None).run("go")
    assert done.output == "done"
    assert [event.content for event in done.events if isinstance(event, ToolReturned)] == [read]


@pytest.mark.parametrize("stored", [False, True])
async def test_code_says_asks_and_records_valid_text(stored: bool) -> None:
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        ctx.values.set(HALF, {HALF: [HALF]})
        assert await ctx.step(HALF, lambda: HALF) == REPAIRED
        await ctx.stream_text(HALF)
        await ctx.say(HALF)
        await ctx.interrupt({HALF: HALF})
        return Transfer("B", payload={"name": HALF})

    b = Agent("B", model=ScriptedModel([AssistantMessage(HALF)]))
    runner = Runner(a, extra_agents=[b], store=MemoryStore() if stored else None)
    suspended = await runner.run("go", run_id="r")
    assert suspended.interrupts[0].payload == {REPAIRED: REPAIRED}
    result = await runner.resume("r", True)
    assert result.output == REPAIRED
    assert dict(result.values) == {REPAIRED: {REPAIRED: [REPAIRED]}}
    assert [event.payload for event in result.events if isinstance(event, ControlTransferred)] == [{"name": REPAIRED}]
    encode_log(result.events)


async def test_keys_that_would_be_equal_are_refused() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        ctx.values.set("files", {chr(0xDCE8): 1, chr(0xDCE9): 2})

    with pytest.raises(NotEncodableError, match="keys are equal"):
        await Runner(a).run("go")


class _Splitting:
    """A model that streams halves of characters."""

    name = "splitting"

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream a call or a text."""
        if len(request.messages) == 1:
            yield ReasoningChunk(HALF)
            yield TextChunk(HALF)
            yield ToolCallChunk(0, "c", "act", f'{{"name": "{HALF}"}}')
        else:
            yield TextChunk("\ud83d")
            yield TextChunk("\ude00")


@pytest.mark.parametrize("stored", [False, True])
async def test_a_model_that_streams_halves_of_characters_streams_valid_text(stored: bool) -> None:
    @tool
    async def act(name: str) -> str:
        """Act."""
        return name

    runner = Runner(Agent("A", model=_Splitting(), tools=[act]), store=MemoryStore() if stored else None)
    async with runner.stream("go") as run:
        pieces = [encode_event(piece) async for piece in run]
    assert run.result.output == "\U0001f600"
    assert [event.content for event in run.result.events if isinstance(event, ToolReturned)] == [REPAIRED]
    assert pieces


INPUTS: list[Any] = [HALF, UserMessage(HALF), [UserMessage((Text("a"), Text(HALF)))], {"role": "user", "content": HALF}]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("given", INPUTS, ids=["text", "message", "parts", "dict"])
async def test_input_that_is_not_valid_text_is_refused_before_anything_runs(stored: bool, given: Any) -> None:
    model = ScriptedModel(["hello"])
    runner = Runner(Agent("A", model=model), store=MemoryStore() if stored else None)
    with pytest.raises(NotEncodableError, match="half of a surrogate pair"):
        await runner.run(given, run_id="r")
    with pytest.raises(NotEncodableError):
        await runner.run("hi", values={"name": HALF}, run_id="r")
    assert not model.requests
    assert (await runner.run("hi", run_id="r")).output == "hello"


@pytest.mark.parametrize("stored", [False, True])
async def test_an_answer_or_message_that_is_not_valid_text_is_refused_and_nothing_is_lost(stored: bool) -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("name?"))

    model = ScriptedModel([call("ask"), "done"])
    runner = Runner(Agent("A", model=model, tools=[ask]), store=MemoryStore() if stored else None)
    await runner.run("go", run_id="r")
    refusals: list[tuple[Any, dict[str, Any]]] = [
        (HALF, {}),
        ({"x": [HALF]}, {}),
        ("a", {"message": HALF}),
        ("a", {"values": {HALF: 1}}),
    ]
    for answer, more in refusals:
        with pytest.raises(NotEncodableError):
            await runner.resume("r", {"1/m1.0/ask1": answer}, **more)
    assert (await runner.resume("r", "ok")).output == "done"


@pytest.mark.parametrize(
    "given",
    [
        "",
        UserMessage(""),
        [UserMessage("")],
        [UserMessage(()), UserMessage((Text(""),))],
        [{"role": "user", "content": ""}],
    ],
)
@pytest.mark.parametrize("args", [{}, {"thread": "t"}])
async def test_an_input_without_content_is_refused(given: Any, args: Any) -> None:
    model = ScriptedModel(["hello"])
    runner = Runner(Agent("A", model=model))
    with pytest.raises(SetupError, match="the input is empty; give a text"):
        await runner.run(given, **args)
    with pytest.raises(SetupError, match="the input is empty"):
        runner.stream(given, **args)
    assert not model.requests
