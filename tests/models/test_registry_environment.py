"""A model named by a string is made with the environment of the moment at which it is named."""

import pytest
from tests.servers import AnthropicServer, GoogleServer, OpenAIServer, ProviderServer

from batonkit import Agent, Runner
from batonkit.errors import SetupError
from batonkit.models import resolve_model
from batonkit.models.openai import OpenAIModel

CASES = [
    (OpenAIServer, "openai:gpt-5", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    (AnthropicServer, "anthropic:claude-sonnet-5", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    (GoogleServer, "google:gemini-3-flash", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_API_KEY"),
]


@pytest.mark.parametrize(("server_type", "model", "url_name", "key_name"), CASES, ids=["openai", "anthropic", "google"])
async def test_a_later_base_url_and_key_are_used_together(
    server_type: type[ProviderServer], model: str, url_name: str, key_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server_type(["One."], api_key="first") as first, server_type(["Two."], api_key="second") as second:
        answers: list[str] = []
        for server in (first, second):
            monkeypatch.setenv(url_name, server.base_url)
            monkeypatch.setenv(key_name, server.api_key)
            answers.append((await Runner(Agent("Clerk", model=model)).run("Hello")).output)
        assert answers == ["One.", "Two."]


def test_a_string_resolves_to_one_object_while_its_variables_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    first = resolve_model("openai:cached")
    monkeypatch.setenv("UNRELATED", "1")
    assert resolve_model("openai:cached") is first
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2/v1")
    assert resolve_model("openai:cached") is not first


async def test_a_later_key_is_not_sent_to_an_earlier_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OpenAIServer(["never asked for"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        runner = Runner(Agent("Clerk", model=OpenAIModel("gpt-5")))
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "for another host")
        with pytest.raises(SetupError, match="OPENAI_BASE_URL has changed since `openai:gpt-5` was made"):
            await runner.run("Hello")
        assert server.requests == []


async def test_a_key_that_is_set_later_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OpenAIServer(["Hello."]) as server:
        runner = Runner(Agent("Clerk", model=OpenAIModel("gpt-5", base_url=server.base_url)))
        monkeypatch.setenv("OPENAI_API_KEY", server.api_key)
        assert (await runner.run("Hello")).output == "Hello."
