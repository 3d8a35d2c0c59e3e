"""Any history in the format of a provider and back: what the provider reads stays the same."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.conversations import messages, unpaired_conversations
from tests.models.official_types import validate

from batonkit.errors import ModelRequestError
from batonkit.messages import (
    AssistantMessage,
    Audio,
    File,
    Image,
    Message,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    pair_calls_with_results,
    to_messages,
)
from batonkit.models import to_anthropic, to_openai, to_responses

Format = Callable[[Sequence[Message]], list[dict[str, Any]]]
FORMATS = (to_openai, to_responses, to_anthropic)
KEPT_REASONING: dict[Any, str] = {to_openai: "", to_responses: "openai", to_anthropic: "anthropic"}
"""The provider whose reasoning has a place in a format."""

_words = st.text("abc é漢.\n", min_size=1, max_size=8).filter(str.strip)
_arguments = st.dictionaries(_words, st.integers(0, 9) | _words, max_size=2).map(
    lambda value: msgspec.json.encode(value).decode()
)
_images = st.one_of(
    st.builds(Image, url=st.just("https://example.org/x")),
    st.builds(Image, data=st.binary(max_size=4), media_type=st.sampled_from(["image/png", "image/jpeg"])),
)
_documents = st.builds(
    File, data=st.binary(max_size=4), media_type=st.just("application/pdf"), name=st.sampled_from(["a.pdf", "b"])
)
_contents = _words | st.lists(st.builds(Text, _words) | _images | _documents, min_size=2, max_size=3).map(tuple)
Thoughts = tuple[Reasoning, ...]


def _encrypted(text: str) -> Reasoning:
    summary = [{"type": "summary_text", "text": text}]
    return Reasoning(text, "openai", {"id": "r", "summary": summary, "encrypted_content": "secret", "calls_before": 0})


def _signed(text: str) -> Reasoning:
    return Reasoning(text, "anthropic", {"signature": "secret"})


_no_thoughts: st.SearchStrategy[Thoughts] = st.just(())
_encrypted_thoughts = st.lists(st.builds(_encrypted, _words), max_size=2).map(tuple)
_signed_thoughts = st.lists(st.builds(_signed, _words), max_size=2).map(tuple)


@st.composite
def conversations(draw: st.DrawFn, thoughts: st.SearchStrategy[Thoughts]) -> list[Message]:
    """Draw a conversation of what all formats can express: turns that alternate, and calls with their results."""
    drawn: list[Message] = []
    for turn in range(draw(st.integers(1, 4))):
        drawn.append(UserMessage(draw(_contents)))
        calls = [ToolCall(f"c{turn}_{number}", "look", draw(_arguments)) for number in range(draw(st.integers(0, 2)))]
        text = draw(_words | st.just("")) if calls else draw(_words)
        drawn.append(AssistantMessage(text, tuple(calls), draw(thoughts)))
        drawn += [ToolMessage(call.id, "look", draw(_words)) for call in calls]
        if calls:
            drawn.append(AssistantMessage(draw(_words)))
    return drawn


@given(conversation=conversations(_no_thoughts), system=_words)
def test_chat_completions_and_back(conversation: list[Message], system: str) -> None:
    given_messages = [SystemMessage(system), *conversation]
    assert list(to_messages(to_openai(given_messages))) == given_messages


@given(conversation=conversations(_encrypted_thoughts), system=_words)
def test_responses_and_back(conversation: list[Message], system: str) -> None:
    given_messages = [SystemMessage(system), *conversation]
    assert list(to_messages(to_responses(given_messages))) == given_messages


@given(conversation=conversations(_signed_thoughts), is_error=st.booleans())
def test_anthropic_and_back(conversation: list[Message], is_error: bool) -> None:
    # Unlike the other formats, it can express that a tool failed.
    given_messages = [
        replace(each, is_error=is_error) if isinstance(each, ToolMessage) else each for each in conversation
    ]
    assert list(to_messages(to_anthropic(given_messages))) == given_messages


@pytest.mark.parametrize("to_format", FORMATS)
@given(conversation=conversations(_signed_thoughts | _encrypted_thoughts))
def test_only_the_documented_losses(conversation: list[Message], to_format: Format) -> None:
    returned = to_messages(to_format(conversation))

    assert list(returned) == [_with_reasoning_of(KEPT_REASONING[to_format], each) for each in conversation]


def _with_reasoning_of(provider: str, message: Message) -> Message:
    if not isinstance(message, AssistantMessage):
        return message
    return replace(message, reasoning=tuple(each for each in message.reasoning if each.provider == provider))


ANY = unpaired_conversations | st.lists(messages, max_size=8)


@pytest.mark.parametrize("to_format", FORMATS)
@given(conversation=ANY)
def test_a_provider_reads_the_same_after_any_history_came_back(conversation: list[Message], to_format: Format) -> None:
    conversation = [_sane(message) for message in conversation]
    try:
        dicts = to_format(conversation)
    except ModelRequestError:
        # No format has a place for all media.
        reject()
    returned = to_messages(dicts)

    assert [_as_read(each) for each in to_format(returned)] == [_as_read(each) for each in dicts]
    assert pair_calls_with_results(returned) == list(returned)


@pytest.mark.parametrize("to_format", FORMATS)
@given(conversation=ANY)
def test_the_official_types_accept_any_history(conversation: list[Message], to_format: Format) -> None:
    try:
        dicts = to_format([_sane(message) for message in conversation])
    except ModelRequestError:
        reject()
    validate(to_format, dicts)


def _sane(message: Message) -> Message:
    """Replace media types, details and signatures that no program would write."""
    if isinstance(message, AssistantMessage):
        message = replace(message, reasoning=())
    if isinstance(message.content, str):
        return message
    parts = tuple(
        replace(part, media_type="image/png", detail=None)
        if isinstance(part, Image)
        else replace(part, media_type="application/pdf")
        if isinstance(part, File)
        else replace(part, media_type="audio/wav")
        if isinstance(part, Audio)
        else part
        for part in message.content
    )
    return replace(message, content=parts)


def _as_read(turn: dict[str, Any]) -> dict[str, Any]:
    """Join the texts of a model's turn, where Anthropic has consecutive responses."""
    content: Any = turn.get("content")
    if not isinstance(content, list) or turn["role"] != "assistant":
        return turn if isinstance(content, list) or content is None else {**turn, "content": content.replace("\n", "")}
    blocks = cast("list[dict[str, Any]]", content)
    text = "".join(block["text"] for block in blocks if block["type"] == "text").replace("\n", "")
    others = [block for block in blocks if block["type"] != "text"]
    return {**turn, "content": [text, *others] if others else text}
