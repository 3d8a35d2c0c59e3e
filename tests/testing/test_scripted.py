"""A scripted model plays what it was told, and says clearly when it cannot."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit.errors import ModelError, SetupError
from batonkit.log import AgentResponded, Event, Origin
from batonkit.messages import (
    AssistantMessage,
    Content,
    Image,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from batonkit.models import (
    Chunk,
    Model,
    ModelRequest,
    ModelResponse,
    PartChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    collect_response,
)
from batonkit.testing import ScriptedModel, ScriptedStream, ScriptStep, call, say, transfer_to

WAVE, BOW = ToolCall("a", "wave"), ToolCall("b", "bow")
PICTURE = Image(url="https://example.org/cat.png")


def request(agent: str = "Desk", text: str = "Hi") -> ModelRequest:
    return ModelRequest((UserMessage(text),), agent=agent)


async def chunks_of(model: Model, agent: str = "Desk") -> list[Chunk]:
    return [chunk async for chunk in model.respond(request(agent))]


async def message_of(model: Model, agent: str = "Desk") -> AssistantMessage:
    message = (await collect_response(model.respond(request(agent)))).message
    assert message is not None
    return message


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("Hello", AssistantMessage("Hello")),
        (WAVE, AssistantMessage(tool_calls=(WAVE,))),
        ([WAVE, BOW], AssistantMessage(tool_calls=(WAVE, BOW))),
        (AssistantMessage("Hello", (WAVE,)), AssistantMessage("Hello", (WAVE,))),
        (say("Hello", WAVE), AssistantMessage("Hello", (WAVE,))),
    ],
)
async def test_a_plain_step_is_one_response(step: ScriptStep, message: AssistantMessage) -> None:
    assert await chunks_of(ScriptedModel([step])) == [ModelResponse(message, model="scripted")]


async def test_a_response_is_given_as_it_is_and_named_if_it_has_no_name() -> None:
    model = ScriptedModel(
        [
            ModelResponse(AssistantMessage("Hello"), Usage(3, 4), "stop", "other"),
            say("Bye", usage=Usage(1, 2)),
            ModelResponse(),
        ],
        name="mine",
    )
    assert await chunks_of(model) == [ModelResponse(AssistantMessage("Hello"), Usage(3, 4), "stop", "other")]
    assert await chunks_of(model) == [ModelResponse(AssistantMessage("Bye"), Usage(1, 2), model="mine")]
    assert await chunks_of(model) == [ModelResponse(model="mine")]


async def test_an_exception_is_raised() -> None:
    error = ModelError("overloaded", retryable=True)
    with pytest.raises(ModelError) as raised:
        await chunks_of(ScriptedModel([error]))
    assert raised.value is error


async def test_a_function_of_the_request_computes_the_step() -> None:
    def shout(request: ModelRequest) -> str:
        last = request.messages[-1]
        assert isinstance(last, UserMessage)
        return f"{last.content}!"

    async def wave(request: ModelRequest) -> ToolCall:
        await asyncio.sleep(0)
        return call("wave", at=request.agent)

    model = ScriptedModel([shout, wave, lambda request: shout])  # pyright: ignore[reportArgumentType]
    assert (await message_of(model)).content == "Hi!"
    assert (await message_of(model)).tool_calls == (ToolCall("call_1", "wave", '{"at":"Desk"}'),)
    assert (await message_of(model)).content == "Hi!"


async def test_a_stream_gives_its_pieces_one_by_one() -> None:
    step = ScriptedStream(
        Reasoning("Hm", signature="signature"),
        "Hel",
        "lo",
        PICTURE,
        call("wave", times=2),
        ToolCall("mine", "bow", ""),
        TextChunk("!"),
        usage=Usage(3, 4),
        stop_reason="tool_calls",
    )
    assert await chunks_of(ScriptedModel([step])) == [
        ReasoningChunk("Hm", Reasoning("Hm", signature="signature")),
        TextChunk("Hel"),
        TextChunk("lo"),
        PartChunk(PICTURE),
        ToolCallChunk(0, "call_1", "wave"),
        ToolCallChunk(0, arguments='{"times":2}'),
        ToolCallChunk(1, "mine", "bow"),
        ToolCallChunk(1, arguments=""),
        TextChunk("!"),
        ModelResponse(usage=Usage(3, 4), stop_reason="tool_calls", model="scripted"),
    ]


async def test_a_stream_with_a_response_of_its_own_gets_no_other() -> None:
    assert await chunks_of(ScriptedModel([ScriptedStream("Hello", ModelResponse())])) == [
        TextChunk("Hello"),
        ModelResponse(),
    ]


async def test_a_stream_can_fail_in_the_middle() -> None:
    answer = ScriptedModel([ScriptedStream("Hel", ConnectionError("lost"), "lo")]).respond(request())
    assert await anext(answer) == TextChunk("Hel")
    with pytest.raises(ConnectionError):
        await anext(answer)


async def test_a_stream_waits_for_an_event() -> None:
    gate = asyncio.Event()
    answer = ScriptedModel([ScriptedStream("Hel", gate, "lo")]).respond(request())
    assert await anext(answer) == TextChunk("Hel")
    rest = asyncio.ensure_future(collect_response(answer))
    await asyncio.sleep(0)
    assert not rest.done()
    gate.set()
    assert (await rest).message == AssistantMessage("lo")


async def test_a_stream_that_waits_can_be_cancelled() -> None:
    """Leaving early leaves nothing running."""
    reached = asyncio.Event()

    async def read(answer: AsyncIterator[Chunk]) -> None:
        async for _ in answer:
            reached.set()

    task = asyncio.create_task(read(ScriptedModel([ScriptedStream("Hel", asyncio.Event())]).respond(request())))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_calls_get_ids_in_order_unless_they_have_one() -> None:
    model = ScriptedModel(
        [[call("a"), ToolCall("mine", "b"), call("c")], say("", call("d")), ScriptedStream(call("e"))]
    )
    ids = [[each.id for each in (await message_of(model)).tool_calls] for _ in range(3)]
    assert ids == [["call_1", "mine", "call_2"], ["call_3"], ["call_4"]]


async def test_a_step_that_is_played_again_gets_new_ids() -> None:
    model = ScriptedModel([call("a"), "Hello"], cycle=True)
    assert [[each.id for each in (await message_of(model)).tool_calls] for _ in range(3)] == [
        ["call_1"],
        [],
        ["call_2"],
    ]


def test_call_writes_its_arguments_as_json() -> None:
    assert call("look_up", name="Zoë", days=[1, 2]) == ToolCall("", "look_up", '{"name":"Zoë","days":[1,2]}')
    assert call("now") == ToolCall("", "now", "{}")


def test_transfer_to_is_the_one_tool_for_transfers() -> None:
    """One tool `transfer_to_agent` with a required `agent_name`."""
    assert transfer_to("Weather") == ToolCall("", "transfer_to_agent", '{"agent_name":"Weather"}')


async def test_each_agent_has_its_own_steps_in_any_order_of_requests() -> None:
    script: dict[str, list[ScriptStep]] = {"Left": [call("a"), "left"], "Right": [call("b"), "right"]}
    first, second = ScriptedModel(script), ScriptedModel(script)
    in_turns = {agent: await message_of(first, agent) for agent in ("Left", "Right")}
    the_other_way = {agent: await message_of(second, agent) for agent in ("Right", "Left")}
    assert in_turns == the_other_way
    assert in_turns["Right"].tool_calls == (ToolCall("call_Right_1", "b"),)
    assert (await message_of(first, "Right")).content == "right"
    assert first.remaining == 1


async def test_an_agent_without_steps_is_named() -> None:
    with pytest.raises(
        ModelError, match="`scripted` has no steps for the agent `Midle`; it has steps for: `Left`, `Right`"
    ):
        await chunks_of(ScriptedModel({"Left": [], "Right": []}), "Midle")


async def test_running_out_of_steps_says_who_asked_what() -> None:
    model = ScriptedModel(["Hello", "Bye"])
    await chunks_of(model)
    await chunks_of(model)
    with pytest.raises(ModelError) as raised:
        await collect_response(model.respond(request("Desk", "Are you " + "still " * 50 + "there?")))
    assert str(raised.value) == (
        "`scripted` has no step left for the agent `Desk`: 2 steps were given to all agents together, and it was asked "
        f"once more, last message UserMessage('{('Are you ' + 'still ' * 50)[:200]}…'); "
        "add a step, or pass cycle=True"
    )
    assert not raised.value.retryable
    assert raised.value.model == "scripted"


async def test_running_out_of_an_agents_own_steps_says_so() -> None:
    model = ScriptedModel({"Desk": ["Hello"]})
    await chunks_of(model)
    after_a_tool = ModelRequest((UserMessage("Hi"), ToolMessage("a", "wave", "done")), agent="Desk")
    with pytest.raises(ModelError, match=r"1 step was given to it, .* last message ToolMessage\('done'\)"):
        await collect_response(model.respond(after_a_tool))
    with pytest.raises(ModelError, match="once more, without any message"):
        await collect_response(model.respond(ModelRequest((), agent="Desk")))


async def test_cycle_starts_over_but_not_with_nothing() -> None:
    model = ScriptedModel(["one", "two"], cycle=True)
    assert [(await message_of(model)).content for _ in range(5)] == ["one", "two", "one", "two", "one"]
    model.assert_done()
    with pytest.raises(ModelError, match="0 steps were given"):
        await chunks_of(ScriptedModel([], cycle=True))


async def test_requests_are_kept_in_order_unless_told_otherwise() -> None:
    model = ScriptedModel(["one", ModelError("overloaded")])
    await chunks_of(model, "Left")
    with pytest.raises(ModelError):
        await chunks_of(model, "Right")
    assert model.requests == [request("Left"), request("Right")]
    forgetful = ScriptedModel(["one"], record=False)
    await chunks_of(forgetful)
    assert forgetful.requests == []


async def test_assert_done_lists_what_was_never_played() -> None:
    def compute(request: ModelRequest) -> str:
        return "never"

    rest: list[ScriptStep] = [
        say("Let me see", call("look_up", city="Rome")),
        [call("a"), call("b")],
        ModelResponse(),
        ScriptedStream("Hel", call("wave")),
        ValueError("lost"),
        compute,
    ]
    model = ScriptedModel({"Desk": ["Hello", *rest], "Kitchen": ["Soup"]})
    await chunks_of(model)
    assert model.remaining == 7
    with pytest.raises(AssertionError) as raised:
        model.assert_done()
    assert str(raised.value).splitlines() == [
        "7 steps were not played by `scripted`:",
        '  `Desk` step 2: said "Let me see" + look_up({"city":"Rome"})',
        "  `Desk` step 3: called a({}) + b({})",
        "  `Desk` step 4: said nothing",
        "  `Desk` step 5: ScriptedStream('Hel', wave({}))",
        "  `Desk` step 6: raise ValueError('lost')",
        "  `Desk` step 7: computed by compute",
        '  `Kitchen` step 1: said "Soup"',
    ]


async def test_assert_done_is_content_when_all_was_played() -> None:
    model = ScriptedModel(["Hello"])
    with pytest.raises(AssertionError, match='1 step was not played by `scripted`:\n  step 1: said "Hello"'):
        model.assert_done()
    await chunks_of(model)
    model.assert_done()
    assert model.remaining == 0


async def test_streaming_gives_text_word_by_word_and_calls_in_pieces() -> None:
    model = ScriptedModel([say(" It is  sunny.\n", call("wave"), usage=Usage(3, 4))], stream=True)
    assert await chunks_of(model) == [
        TextChunk(" "),
        TextChunk("It "),
        TextChunk("is  "),
        TextChunk("sunny.\n"),
        ToolCallChunk(0, "call_1", "wave"),
        ToolCallChunk(0, arguments="{}"),
        ModelResponse(usage=Usage(3, 4), model="scripted"),
    ]


async def test_streaming_an_answer_of_nothing_gives_just_its_end() -> None:
    model = ScriptedModel(["", ModelResponse(stop_reason="length")], stream=True)
    assert await chunks_of(model) == [ModelResponse(model="scripted")]
    assert await chunks_of(model) == [ModelResponse(stop_reason="length", model="scripted")]


contents: st.SearchStrategy[Content] = st.text() | st.lists(st.builds(Text, st.text()) | st.just(PICTURE)).map(tuple)


@given(
    message=st.builds(
        AssistantMessage,
        contents,
        st.lists(st.builds(ToolCall, st.just(""), st.text(), st.text(min_size=1))).map(tuple),
        st.lists(st.builds(Reasoning, st.text(), signature=st.none() | st.text())).map(tuple),
    ),
    usage=st.none() | st.builds(Usage, st.integers(0, 9)),
)
def test_streaming_or_not_the_collected_answer_is_the_same(message: AssistantMessage, usage: Usage | None) -> None:
    """Streaming on or off changes no logged event."""

    async def answer(*, stream: bool) -> ModelResponse:
        return await collect_response(ScriptedModel([ModelResponse(message, usage)], stream=stream).respond(request()))

    assert asyncio.run(answer(stream=True)) == asyncio.run(answer(stream=False))


async def test_many_runs_at_once_share_the_steps_without_losing_or_repeating_one() -> None:
    async def compute(request: ModelRequest) -> str:
        await asyncio.sleep(0)
        return "computed"

    numbers: list[ScriptStep] = [str(number) for number in range(50)]
    model = ScriptedModel([*numbers, *[compute] * 50])
    answers = await asyncio.gather(*(message_of(model) for _ in range(100)))
    assert sorted(str(answer.content) for answer in answers) == sorted([*map(str, range(50)), *["computed"] * 50])
    model.assert_done()


@pytest.mark.parametrize("step", [None, 7, [], ["text in a list"], ValueError, {"role": "assistant"}])
async def test_an_invalid_step_is_refused_at_construction(step: object) -> None:
    with pytest.raises(SetupError, match="cannot be a step of a ScriptedModel; give text, calls"):
        ScriptedModel([step])  # pyright: ignore[reportArgumentType]


async def test_an_invalid_computed_step_is_refused_when_it_is_used() -> None:
    with pytest.raises(SetupError, match="None cannot be a step"):
        await chunks_of(ScriptedModel([lambda request: None]))  # pyright: ignore[reportArgumentType]


def test_a_lone_string_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(SetupError, match=r"`scripted` needs a list of steps; write \['Hello'\] for a single one"):
        ScriptedModel("Hello")


def test_an_invalid_part_of_a_stream_is_refused_at_construction() -> None:
    with pytest.raises(SetupError, match="7 cannot be a piece of a ScriptedStream"):
        ScriptedStream("Hel", 7)  # pyright: ignore[reportArgumentType]


def test_it_is_a_model() -> None:
    assert isinstance(ScriptedModel([]), Model)


async def test_it_goes_on_after_what_a_log_has() -> None:
    steps = {"A": [call("wave"), ModelError("no"), [call("bow"), call("wave")], "bye"], "B": ["b1", "b2"]}
    first = ScriptedModel(steps)
    origins = {name: Origin(name, name) for name in "AB"}
    log: list[Event] = [AgentResponded("1", origins["A"], 0.0, await message_of(first, "A"), "scripted")]
    with pytest.raises(ModelError):
        await message_of(first, "A")
    log.append(AgentResponded("2", origins["A"], 0.0, await message_of(first, "A"), "scripted"))
    log.append(AgentResponded("3", origins["B"], 0.0, AssistantMessage("by itself")))

    second = ScriptedModel(steps)
    second.fast_forward(log[:1])
    with pytest.raises(ModelError):
        await message_of(second, "A")
    assert [each.id for each in (await message_of(second, "A")).tool_calls] == ["call_A_2", "call_A_3"]
    second.fast_forward(log)
    assert (await message_of(second, "A"), await message_of(second, "B")) == (
        AssistantMessage("bye"),
        AssistantMessage("b1"),
    )
    second.fast_forward([])
    assert [each.id for each in (await message_of(second, "A")).tool_calls] == ["call_A_1"]
