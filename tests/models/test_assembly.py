"""Assembling chunks gives the response, however it was split."""

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from batonkit.messages import AssistantMessage, Content, Image, Part, Reasoning, Text, ToolCall, Usage
from batonkit.models import (
    Chunk,
    ModelResponse,
    PartChunk,
    ReasoningChunk,
    RestartChunk,
    TextChunk,
    ToolCallChunk,
    assemble_response,
    collect_response,
)

IMAGE = Image(url="https://example.org/cat.png")


def assembled(*chunks: Chunk, model_name: str = "fake") -> ModelResponse:
    return assemble_response(chunks, model_name)


def message_of(*chunks: Chunk) -> AssistantMessage:
    message = assembled(*chunks).message
    assert message is not None
    return message


def test_text_chunks_become_one_string() -> None:
    assert message_of(TextChunk("Hel"), TextChunk(""), TextChunk("lo")) == AssistantMessage("Hello")


def test_calls_are_assembled_by_index_and_ordered_by_it() -> None:
    """Interleaved calls are all kept."""
    message = message_of(
        ToolCallChunk(1, "b", "second", '{"x":'),
        ToolCallChunk(0, "a", "first"),
        ToolCallChunk(1, arguments="1}"),
        ToolCallChunk(0, arguments='{"y":2}'),
    )
    assert message == AssistantMessage(
        tool_calls=(ToolCall("a", "first", '{"y":2}'), ToolCall("b", "second", '{"x":1}'))
    )


def test_repeated_ids_and_names_are_not_concatenated() -> None:
    message = message_of(ToolCallChunk(0, "a", "look_up", "{"), ToolCallChunk(0, "a", "look_up", "}"))
    assert message.tool_calls == (ToolCall("a", "look_up", "{}"),)


def test_empty_arguments_become_an_empty_object() -> None:
    assert message_of(ToolCallChunk(0, "a", "now")).tool_calls == (ToolCall("a", "now", "{}"),)
    whole = AssistantMessage("Let me see", (ToolCall("a", "now", ""), ToolCall("b", "then", '{"x":1}')))
    assert assembled(ModelResponse(whole, id="r1")).id == "r1"
    assert message_of(ModelResponse(whole)) == AssistantMessage(
        "Let me see", (ToolCall("a", "now", "{}"), ToolCall("b", "then", '{"x":1}'))
    )


def test_text_around_a_part_keeps_its_position() -> None:
    message = message_of(TextChunk("A "), TextChunk("cat: "), PartChunk(IMAGE), TextChunk("!"))
    assert message.content == (Text("A cat: "), IMAGE, Text("!"))


def test_a_reasoning_block_without_text_takes_the_text_before_it() -> None:
    message = message_of(
        ReasoningChunk("Hm, "),
        ReasoningChunk("yes"),
        ReasoningChunk(whole=Reasoning(provider="p", signature="signature")),
        ReasoningChunk("pie"),
        ReasoningChunk(whole=Reasoning("pieces")),
        ReasoningChunk(whole=Reasoning(signature="redacted")),
        ReasoningChunk("never closed"),
    )
    assert message.reasoning == (
        Reasoning("Hm, yes", "p", "signature"),
        Reasoning("pieces"),
        Reasoning(signature="redacted"),
        Reasoning("never closed"),
    )


def test_a_response_with_a_message_replaces_earlier_chunks() -> None:
    whole = ModelResponse(AssistantMessage("Hello", (ToolCall("b", "wave"),)), Usage(3, 4), "stop", "fake-2")
    assert assembled(TextChunk("Goodb"), ToolCallChunk(0, "a", "leave"), whole) is whole


def test_a_response_without_a_message_completes_the_chunks() -> None:
    response = assembled(TextChunk("Hello"), ModelResponse(usage=Usage(3, 4), stop_reason="length", model="fake-2"))
    assert response == ModelResponse(AssistantMessage("Hello"), Usage(3, 4), "length", "fake-2")


def test_the_model_name_is_added_if_the_response_has_none() -> None:
    assert assembled(TextChunk("Hello"), model_name="fake").model == "fake"
    assert assembled(ModelResponse(AssistantMessage("Hello")), model_name="fake").model == "fake"


def test_an_empty_response_is_not_an_error_here() -> None:
    assert assembled(model_name="fake") == ModelResponse(AssistantMessage(), model="fake")
    assert assembled(ModelResponse()).message == AssistantMessage()


async def test_collect_response_reads_an_iterator_to_its_end() -> None:
    async def chunks() -> AsyncIterator[Chunk]:
        yield TextChunk("Hel")
        yield TextChunk("lo")
        yield ModelResponse(stop_reason="stop")

    assert await collect_response(chunks(), "fake") == ModelResponse(AssistantMessage("Hello"), None, "stop", "fake")


texts = st.text(max_size=12)
media = st.builds(Image, url=st.sampled_from(["https://example.org/1.png", "https://example.org/2.png"]))


@st.composite
def contents(draw: st.DrawFn) -> Content:
    """Generate a string, or parts that chunks can represent: at least one that is not text, no adjacent texts."""
    if draw(st.booleans()):
        return draw(texts)
    parts: list[Part] = []
    for image in draw(st.lists(media, min_size=1, max_size=3)):
        if text_before := draw(texts):
            parts.append(Text(text_before))
        parts.append(image)
    return tuple(parts)


messages = st.builds(
    AssistantMessage,
    contents(),
    st.lists(
        st.builds(ToolCall, st.text(min_size=1), st.text(min_size=1), st.text(min_size=1, max_size=20)), max_size=3
    ).map(tuple),
    st.lists(st.builds(Reasoning, st.text(min_size=1), signature=st.none() | st.text()), max_size=2).map(tuple),
)


def cut(draw: st.DrawFn, text: str) -> list[str]:
    positions = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *positions], [*positions, len(text)], strict=True)]


@st.composite
def messages_with_chunks(draw: st.DrawFn) -> tuple[AssistantMessage, list[Chunk]]:
    """Generate a message and one of the ways in which a provider could split it into chunks."""
    message = draw(messages)
    content = message.content
    text_chunks: list[Chunk] = []
    for part in (Text(content),) if isinstance(content, str) else content:
        text_chunks += (
            [TextChunk(part_text) for part_text in cut(draw, part.text)]
            if isinstance(part, Text)
            else [PartChunk(part)]
        )
    reasoning_chunks: list[Chunk] = []
    for block in message.reasoning:
        reasoning_chunks += [ReasoningChunk(part_text) for part_text in cut(draw, block.text)]
        closing_text = draw(st.sampled_from(["", block.text]))
        reasoning_chunks.append(ReasoningChunk(whole=Reasoning(closing_text, block.provider, block.signature)))
    sequences: list[list[Chunk]] = [text_chunks, reasoning_chunks]
    gap = draw(st.integers(1, 3))
    for position, call in enumerate(message.tool_calls):
        first, *rest = cut(draw, call.arguments)
        sequence: list[Chunk] = [ToolCallChunk(position * gap, call.id, call.name, first)]
        sequences.append(sequence + [ToolCallChunk(position * gap, arguments=part_text) for part_text in rest])
    order = draw(st.permutations([number for number, sequence in enumerate(sequences) for _ in sequence]))
    return message, [sequences[number].pop(0) for number in order]


@given(messages_with_chunks())
def test_any_split_of_a_response_is_assembled_to_that_response(
    case: tuple[AssistantMessage, list[Chunk]],
) -> None:
    message, chunks = case
    end = ModelResponse(stop_reason="stop", id="r1")
    assert assembled(*chunks, end) == ModelResponse(message, None, "stop", "fake", id="r1")


def test_a_restart_discards_all_chunks_before_it() -> None:
    discarded = [ReasoningChunk("Hm"), TextChunk("Good"), ToolCallChunk(0, "a", "wave")]
    response = assemble_response([*discarded, RestartChunk(), TextChunk("Hello"), ModelResponse(stop_reason="stop")])
    assert response == ModelResponse(AssistantMessage("Hello"), stop_reason="stop")
