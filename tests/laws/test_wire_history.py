"""Strict provider servers accept the requests built from any conversation, also from one that grows."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from tests.laws.conversations import messages, unpaired_conversations
from tests.servers import AnthropicServer, GoogleServer, ProviderServer, ReceivedRequest
from tests.servers.base import APIEndpoint

from batonkit.errors import ModelRequestError
from batonkit.log.view import MessageWindow
from batonkit.messages import (
    AssistantMessage,
    Audio,
    Message,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    pair_calls_with_results,
)
from batonkit.models import ModelRequest, PromptCaching
from batonkit.models.anthropic.anthropic_request import build_parameters as for_anthropic
from batonkit.models.google.google_request import build_parameters as for_google

CONVERSATIONS = unpaired_conversations | st.lists(messages, max_size=8)
TOOLS = st.sampled_from([(), (ToolSpec("wave"),)])


def parse_with(server: ProviderServer, path: str, body: object) -> ModelRequest:
    headers = {"x-api-key": "test-key", "x-goog-api-key": "test-key", "anthropic-version": "2026-10-21"}
    raw = msgspec.json.encode(body)
    received = ReceivedRequest("POST", path, query={"alt": "sse"}, headers=headers, raw=raw)
    endpoint = server.route(received)
    assert isinstance(endpoint, APIEndpoint)
    return endpoint.read(received).request


@given(conversation=CONVERSATIONS, tools=TOOLS)
def test_anthropic_accepts_any_conversation(conversation: list[Message], tools: tuple[ToolSpec, ...]) -> None:
    request = ModelRequest(conversation, tools=tools)
    try:
        body = for_anthropic(request, "claude-opus-5-5", "anthropic:claude-opus-5-5")
    except ModelRequestError:
        # Claude does not accept all media types.
        reject()
    parsed = parse_with(AnthropicServer([]), "/v1/messages", body)

    assert parsed.messages


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3.8-flash"])
@given(conversation=CONVERSATIONS, tools=TOOLS)
def test_google_accepts_any_conversation(conversation: list[Message], tools: tuple[ToolSpec, ...], model: str) -> None:
    parameters = for_google(ModelRequest(conversation, tools=tools), model, f"google:{model}")
    config = parameters["config"]
    body = {"contents": parameters["contents"], "tools": config.get("tools", [])}
    parsed = parse_with(GoogleServer([]), f"/v1/models/{model}:streamGenerateContent", body)

    assert parsed.messages


Build = Callable[[ModelRequest, str, str], dict[str, Any]]
BUILDERS = [
    pytest.param(for_anthropic, "claude-opus-5-5", id="anthropic"),
    pytest.param(for_google, "gemini-2.5-flash", id="google"),
    pytest.param(for_google, "gemini-3.8-flash", id="google with signatures"),
]
GROWING = CONVERSATIONS.map(pair_calls_with_results) | CONVERSATIONS


def build_or_error(build: Build, model: str, request: ModelRequest) -> dict[str, Any] | str:
    try:
        return build(request, model, f"provider:{model}")
    except ModelRequestError as error:
        return str(error)


@pytest.mark.parametrize(("build", "model"), BUILDERS)
@given(
    conversation=GROWING,
    lengths=st.lists(st.integers(0, 12), max_size=8),
    tools=TOOLS,
    caching=st.sampled_from([None, PromptCaching("k")]),
)
def test_converting_what_is_new_equals_converting_everything(
    build: Build,
    model: str,
    conversation: list[Message],
    lengths: list[int],
    tools: tuple[ToolSpec, ...],
    caching: PromptCaching | None,
) -> None:
    source: list[Message] = []
    forms: dict[Any, Any] = {}
    sent: list[tuple[object, object]] = []
    for length in [*lengths, len(conversation)]:
        # A request may be shorter than the one before it: it is sent again.
        source += conversation[len(source) : length]
        stop = min(length, len(source))
        window = MessageWindow(source, stop, forms)
        built = build_or_error(build, model, ModelRequest(window, tools=tools, prompt_cache=caching))
        everything = ModelRequest(conversation[:stop], tools=tools, prompt_cache=caching)
        assert built == build_or_error(build, model, everything)
        sent.append((built, deepcopy(built)))
    # What was sent is not changed by what is converted later.
    assert all(built == copy for built, copy in sent)


def converse(turns: int) -> list[Message]:
    """Return a conversation with a tool call in each turn."""
    return [
        message
        for number in range(turns)
        for message in (
            UserMessage("Go on."),
            AssistantMessage("", (ToolCall(f"c{number}", "wave", "{}"),)),
            ToolMessage(f"c{number}", "wave", "done"),
            AssistantMessage("It waved."),
        )
    ]


@pytest.mark.parametrize(("build", "model"), BUILDERS)
def test_a_message_is_converted_once(build: Build, model: str) -> None:
    field, block = ("messages", "content") if build is for_anthropic else ("contents", "parts")
    source, forms = [*converse(3), UserMessage("First.")], dict[Any, Any]()
    first = build(ModelRequest(MessageWindow(source, len(source), forms), prompt_cache=PromptCaching()), model, "m")
    source += [AssistantMessage("Second."), UserMessage("Third.")]
    second = build(ModelRequest(MessageWindow(source, len(source), forms), prompt_cache=PromptCaching()), model, "m")

    # The last two user turns have markers of the prompt cache in Anthropic's format; all before are the same objects.
    known = [each[block][0] for each in first[field]][:-3]
    assert known
    assert all(each[block][0] is block_before for each, block_before in zip(second[field], known, strict=False))


@pytest.mark.parametrize(("build", "model"), BUILDERS[:1])
def test_an_error_leaves_nothing_half_converted(build: Build, model: str) -> None:
    source: list[Message] = [*converse(1), UserMessage((Audio(data=b"x", media_type="audio/wav"),))]
    forms: dict[Any, Any] = {}
    for _ in range(2):
        with pytest.raises(ModelRequestError, match="audio"):
            build(ModelRequest(MessageWindow(source, 5, forms)), model, "m")
    built = build(ModelRequest(MessageWindow(source, 4, forms)), model, "m")
    assert built == build(ModelRequest(source[:4]), model, "m")
