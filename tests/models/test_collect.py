"""However an answer is cut into chunks, collecting them gives the answer."""

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from baton.messages import AssistantMessage, Content, Image, Part, Reasoning, Text, ToolCall, Usage
from baton.models import (
    Chunk,
    ModelResponse,
    PartChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
    assemble_response,
    collect_response,
)

PICTURE = Image(url="https://example.org/cat.png")


def collected(*chunks: Chunk, model_name: str = "fake") -> ModelResponse:
    return assemble_response(chunks, model_name)


def message_of(*chunks: Chunk) -> AssistantMessage:
    message = collected(*chunks).message
    assert message is not None
    return message


def test_text_pieces_become_one_plain_string() -> None:
    assert message_of(TextChunk("Hel"), TextChunk(""), TextChunk("lo")) == AssistantMessage("Hello")


def test_calls_are_assembled_by_index_and_ordered_by_it() -> None:
    """S5: several calls that arrive mixed all count."""
    message = message_of(
        ToolCallChunk(1, "b", "second", '{"x":'),
        ToolCallChunk(0, "a", "first"),
        ToolCallChunk(1, arguments="1}"),
        ToolCallChunk(0, arguments='{"y":2}'),
    )
    assert message == AssistantMessage(
        tool_calls=(ToolCall("a", "first", '{"y":2}'), ToolCall("b", "second", '{"x":1}'))
    )


def test_id_and_name_that_are_repeated_with_every_piece_are_not_joined() -> None:
    message = message_of(ToolCallChunk(0, "a", "look_up", "{"), ToolCallChunk(0, "a", "look_up", "}"))
    assert message.tool_calls == (ToolCall("a", "look_up", "{}"),)


def test_empty_arguments_become_an_empty_object_in_chunks_and_in_whole_messages() -> None:
    assert message_of(ToolCallChunk(0, "a", "now")).tool_calls == (ToolCall("a", "now", "{}"),)
    whole = AssistantMessage("Let me see", (ToolCall("a", "now", ""), ToolCall("b", "then", '{"x":1}')))
    assert message_of(ModelResponse(whole)) == AssistantMessage(
        "Let me see", (ToolCall("a", "now", "{}"), ToolCall("b", "then", '{"x":1}'))
    )


def test_text_around_a_part_keeps_its_place() -> None:
    message = message_of(TextChunk("A "), TextChunk("cat: "), PartChunk(PICTURE), TextChunk("!"))
    assert message.content == (Text("A cat: "), PICTURE, Text("!"))


def test_a_block_of_reasoning_takes_the_text_before_it_unless_it_has_its_own() -> None:
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


def test_a_response_with_a_message_is_the_whole_answer_whatever_came_before() -> None:
    whole = ModelResponse(AssistantMessage("Hello", (ToolCall("b", "wave"),)), Usage(3, 4), "stop", "fake-2")
    assert collected(TextChunk("Goodb"), ToolCallChunk(0, "a", "leave"), whole) is whole


def test_a_response_without_a_message_says_how_the_chunks_ended() -> None:
    response = collected(TextChunk("Hello"), ModelResponse(usage=Usage(3, 4), stop_reason="length", model="fake-2"))
    assert response == ModelResponse(AssistantMessage("Hello"), Usage(3, 4), "length", "fake-2")


def test_the_model_is_named_even_if_the_answer_does_not() -> None:
    assert collected(TextChunk("Hello"), model_name="fake").model == "fake"
    assert collected(ModelResponse(AssistantMessage("Hello")), model_name="fake").model == "fake"


def test_an_answer_of_nothing_is_not_an_error_here() -> None:
    assert collected(model_name="fake") == ModelResponse(AssistantMessage(), model="fake")
    assert collected(ModelResponse()).message == AssistantMessage()


async def test_collect_reads_an_iterator_to_its_end() -> None:
    async def chunks() -> AsyncIterator[Chunk]:
        yield TextChunk("Hel")
        yield TextChunk("lo")
        yield ModelResponse(stop_reason="stop")

    assert await collect_response(chunks(), "fake") == ModelResponse(AssistantMessage("Hello"), None, "stop", "fake")


texts = st.text(max_size=12)
media = st.builds(Image, url=st.sampled_from(["https://example.org/1.png", "https://example.org/2.png"]))


@st.composite
def contents(draw: st.DrawFn) -> Content:
    """A string, or parts as chunks can tell them apart: something other than text, and no two texts in a row."""
    if draw(st.booleans()):
        return draw(texts)
    parts: list[Part] = []
    for picture in draw(st.lists(media, min_size=1, max_size=3)):
        if between := draw(texts):
            parts.append(Text(between))
        parts.append(picture)
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
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@st.composite
def messages_with_chunks(draw: st.DrawFn) -> tuple[AssistantMessage, list[Chunk]]:
    """A message, and one of the many ways in which a provider could send it."""
    message = draw(messages)
    content = message.content
    said: list[Chunk] = []
    for part in (Text(content),) if isinstance(content, str) else content:
        said += [TextChunk(piece) for piece in cut(draw, part.text)] if isinstance(part, Text) else [PartChunk(part)]
    thought: list[Chunk] = []
    for block in message.reasoning:
        thought += [ReasoningChunk(piece) for piece in cut(draw, block.text)]
        closing_text = draw(st.sampled_from(["", block.text]))
        thought.append(ReasoningChunk(whole=Reasoning(closing_text, block.provider, block.signature)))
    strands: list[list[Chunk]] = [said, thought]
    gap = draw(st.integers(1, 3))
    for position, call in enumerate(message.tool_calls):
        first, *rest = cut(draw, call.arguments)
        strand: list[Chunk] = [ToolCallChunk(position * gap, call.id, call.name, first)]
        strands.append(strand + [ToolCallChunk(position * gap, arguments=piece) for piece in rest])
    order = draw(st.permutations([number for number, strand in enumerate(strands) for _ in strand]))
    return message, [strands[number].pop(0) for number in order]


@given(messages_with_chunks())
def test_any_cutting_and_mixing_of_an_answer_collects_to_that_answer(
    case: tuple[AssistantMessage, list[Chunk]],
) -> None:
    message, chunks = case
    assert collected(*chunks, ModelResponse(stop_reason="stop")) == ModelResponse(message, None, "stop", "fake")
