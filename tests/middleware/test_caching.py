"""`Cache` and `PromptCache`."""

import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.journeys.providers import CHAT, CLAUDE, GEMINI, RESPONSES, Provider

from batonkit import Agent, ModelSettings, Runner, SetupError, tool
from batonkit.log import AgentResponded
from batonkit.messages import AssistantMessage, Usage, UserMessage
from batonkit.middleware import Cache, PromptCache
from batonkit.middleware.responses import request_hash
from batonkit.models import ModelRequest, PromptCaching
from batonkit.models.openai.chat import ChatDialect
from batonkit.testing import ScriptedModel, call, say


@tool
async def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is sunny"


@pytest.mark.parametrize("kind", ["dict", "file"])
async def test_an_equal_request_is_answered_without_the_model(kind: str, tmp_path: Path) -> None:
    store: Any = {} if kind == "dict" else tmp_path / "cache.db"
    answer = replace(say("It is sunny.", usage=Usage(9)), id="r2")
    steps = [say("", call("look", city="Rome"), usage=Usage(5)), answer]
    first_cache, second_cache = Cache(store), Cache(store)
    desk = Agent("Desk", tools=[look])
    first = await Runner(desk, model=ScriptedModel(steps), middleware=[first_cache]).run("Rome?")
    spent = ScriptedModel([])
    second = await Runner(desk, model=spent, middleware=[second_cache]).run("Rome?")
    assert (second.output, second.messages) == ("It is sunny.", first.messages)
    assert (first.usage.total.input_tokens, second.usage.total.input_tokens, spent.requests) == (14, 0, [])
    responses = [event for event in second.events if isinstance(event, AgentResponded)]
    # The id is still that of the response.
    assert [(event.model_calls, event.response_id) for event in responses] == [(0, ""), (0, "r2")]
    first_cache.close()
    second_cache.close()


async def test_a_closed_file_is_opened_again(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "cache.db"))
    runner = Runner(Agent("A"), model=ScriptedModel(["once"]), middleware=[cache])
    assert (await runner.run("Hi")).output == "once"
    cache.close()
    assert (await runner.run("Hi")).output == "once"
    cache.close()


async def test_an_invalid_stored_response_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    store: dict[str, bytes] = {}
    runner = Runner(Agent("A"), model=ScriptedModel(["one", "two"]), middleware=[Cache(store)])
    await runner.run("Hi")
    store.update(dict.fromkeys(store, b"{"))
    with caplog.at_level(logging.WARNING, "baton.middleware"):
        assert (await runner.run("Hi")).output == "two"
    assert "invalid response" in caplog.text


def test_the_hash_depends_on_what_the_response_depends_on() -> None:
    request = ModelRequest([UserMessage("Hi")], "Be kind.", model="openai:a")
    different = [
        replace(request, messages=[AssistantMessage("Hi")]),
        replace(request, instructions="Be brief."),
        replace(request, model="openai:b"),
        replace(request, settings=ModelSettings(temperature=0.5)),
        replace(request, tool_choice="none"),
        replace(request, tools=(look.spec,)),
    ]
    assert len({request_hash(each) for each in [request, *different]}) == 7
    headers = ModelSettings(extra_headers={"x-key": "secret"}, timeout=3)
    for same in (replace(request, stream=False), replace(request, settings=headers), replace(request, agent="B")):
        assert request_hash(same) == request_hash(request)


@pytest.mark.parametrize("store", [None, 3, "", ["a"]])
def test_a_wrong_store_says_what_to_give(store: Any) -> None:
    with pytest.raises(SetupError, match=r'give a file, such as "cache.db", or a dict'):
        Cache(store)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 30)
    for path in (tmp_path / "none" / "cache.db", tmp_path / "text"):
        with pytest.raises(SetupError, match="cannot open the file"):
            Cache(path)


async def wire_bodies(provider: Provider, middleware: PromptCache) -> list[Any]:
    desk = Agent("Desk", instructions="Be kind.", tools=[look])
    async with provider.scripted([call("look", city="Rome"), "It is sunny."]) as (server, model):
        await Runner(desk, model=model, middleware=[middleware]).run("How is Rome?")
    assert server.rejected == []
    return [received.body for received in server.requests]


@pytest.mark.parametrize("provider", [CHAT, RESPONSES], ids=lambda provider: provider.id)
async def test_openai_receives_a_cache_key(provider: Provider) -> None:
    assert [body["prompt_cache_key"] for body in await wire_bodies(provider, PromptCache())] == ["Desk", "Desk"]
    by_tenant = PromptCache(key=lambda ctx, request: f"acme-{ctx.agent}-" + "x" * 80)
    (body, _) = await wire_bodies(provider, by_tenant)
    assert body["prompt_cache_key"] == ("acme-Desk-" + "x" * 80)[:64]


@pytest.mark.parametrize(("ttl", "marker"), [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})])
async def test_anthropic_receives_cache_markers(ttl: Any, marker: dict[str, str]) -> None:
    first, second = await wire_bodies(CLAUDE, PromptCache(ttl=ttl))
    assert first["system"] == [{"type": "text", "text": "Be kind.", "cache_control": marker}]
    assert [turn["content"][-1].get("cache_control") for turn in first["messages"]] == [marker]
    # The last two user turns are marked, the response between them is not.
    assert [turn["content"][-1].get("cache_control") for turn in second["messages"]] == [marker, None, marker]
    assert second["messages"][-1]["content"][-1]["type"] == "tool_result"


async def test_without_instructions_anthropics_tools_are_marked() -> None:
    async with CLAUDE.scripted(["Hi."]) as (server, model):
        await Runner(Agent("Desk", tools=[look]), model=model, middleware=[PromptCache()]).run("Hi")
    body = server.requests[0].body
    assert "system" not in body
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral"}


async def test_other_models_ignore_the_hint() -> None:
    for body in await wire_bodies(GEMINI, PromptCache()):
        assert "cache" not in str(body).lower()
    request = ModelRequest([UserMessage("Hi")], prompt_cache=PromptCaching("key"))
    assert "prompt_cache_key" not in ChatDialect("m", "vllm:m", "vllm").body(request)
    assert ChatDialect("m", "azure:m", "azure").body(request)["prompt_cache_key"] == "key"


@pytest.mark.parametrize("options", [{"ttl": "2h"}, {"key": 3}, {"key": lambda: "x"}])
def test_wrong_arguments_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match="PromptCache"):
        PromptCache(**options)
