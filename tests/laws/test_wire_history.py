"""Strict provider servers accept the requests built from any conversation (T26)."""

import msgspec
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from tests.laws.conversations import messages, unpaired_conversations
from tests.servers import AnthropicServer, GoogleServer, ProviderServer, ReceivedRequest
from tests.servers.base import APIEndpoint

from baton.errors import ModelRequestError
from baton.messages import Message, ToolSpec
from baton.models import ModelRequest
from baton.models.anthropic.request import build_parameters as for_anthropic
from baton.models.google.request import build_parameters as for_google

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
