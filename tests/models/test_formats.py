"""Messages as dicts for OpenAI and Anthropic: what is kept, what has no place, and the official request types."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import ValidationError
from tests.models.official_types import validate

from batonkit import Agent, Runner
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
    to_messages,
)
from batonkit.models import to_anthropic, to_openai, to_responses
from batonkit.testing import ScriptedModel, call

Format = Callable[[Sequence[Message]], list[dict[str, Any]]]
FORMATS = (to_openai, to_responses, to_anthropic)

CALL = ToolCall("x", "weather", '{"city":"Rome"}')
OPENAI = {
    "id": "r",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "zz",
    "calls_before": 0,
}
CONVERSATION: list[Message] = [
    SystemMessage("Be short."),
    UserMessage((Text("Hot here?"), Image("https://a/b.png", detail="low"))),
    AssistantMessage(
        "Let me see.",
        (CALL,),
        (Reasoning("hm", "openai", OPENAI), Reasoning("oh", "anthropic", {"signature": "s"})),
    ),
    ToolMessage("x", "weather", "38"),
    AssistantMessage("Yes."),
]


def test_chat_completions() -> None:
    assert to_openai(CONVERSATION) == [
        {"role": "system", "content": "Be short."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hot here?"},
                {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "x", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "x", "content": "38"},
        {"role": "assistant", "content": "Yes."},
    ]


def test_responses() -> None:
    assert to_responses(CONVERSATION)[2:] == [
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "zz",
        },
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "x", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "x", "output": "38"},
        {"role": "assistant", "content": "Yes."},
    ]


def test_anthropic() -> None:
    # The last turn may be the model's, because the user speaks next.
    assert to_anthropic(CONVERSATION) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Be short."},
                {"type": "text", "text": "Hot here?"},
                {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "oh", "signature": "s"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "x", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "x", "content": "38"}],
        },
        {"role": "assistant", "content": "Yes."},
    ]


@pytest.mark.parametrize("to_format", FORMATS)
def test_nothing_is_nothing(to_format: Format) -> None:
    assert to_format([]) == []
    assert to_format([AssistantMessage(reasoning=(Reasoning("hm", "google"),))]) == []


@pytest.mark.parametrize(
    ("to_format", "part", "message"),
    [
        (to_openai, File("https://a/b.pdf"), r"`to_openai\(\)` does not accept a file by URL"),
        (to_responses, Audio(data=b"x"), r"`to_responses\(\)` does not accept audio"),
        (to_anthropic, Audio(data=b"x"), r"`to_anthropic\(\)` does not accept audio"),
    ],
)
def test_a_part_without_a_place_in_the_format_is_refused(to_format: Format, part: Any, message: str) -> None:
    with pytest.raises(ModelRequestError, match=message):
        to_format([UserMessage((part,))])


async def test_a_result_is_the_input_of_the_next_run() -> None:
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"38 in {city}"

    model = ScriptedModel([call("weather", city="Rome"), "Hot."] + ["Bye."] * 3)
    runner = Runner(Agent("A", tools=[weather], model=model))
    result = await runner.run("Hot in Rome?")
    assert result.to_openai() == to_openai(result.messages)
    for given in (result.to_openai(), result.to_responses(), result.to_anthropic()):
        following = await runner.run([*given, {"role": "user", "content": "Thanks."}])
        assert following.messages == (*result.messages, UserMessage("Thanks."), AssistantMessage("Bye."))


def test_the_official_request_types_accept_the_dicts() -> None:
    media = (Text("see"), Image(data=b"x"), File(None, b"%PDF", "application/pdf", "a.pdf"))
    conversation = [
        *CONVERSATION,
        UserMessage(media),
        AssistantMessage("", (CALL,)),
        ToolMessage("x", "weather", media),
    ]
    for to_format in FORMATS:
        dicts = to_format(conversation)
        validate(to_format, dicts)
        assert to_messages(dicts)
        with pytest.raises(ValidationError):
            validate(to_format, [{"role": "user", "content": [{"type": "hologram"}]}])
