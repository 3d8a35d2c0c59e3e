"""Cassettes: responses that are recorded once in a text file and replayed in tests."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.journeys.providers import CHAT

from batonkit import Agent, ModelSettings, Runner, SetupError, tool
from batonkit.middleware import Cache
from batonkit.testing import ScriptedModel, call


@tool
async def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is sunny"


DESK = Agent("Desk", instructions="Be brief.", tools=[look])


def new_model(*steps: Any) -> ScriptedModel:
    return ScriptedModel([*steps], name="openai:gpt-5")


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    """A cassette with one conversation."""
    path = tmp_path / "cassettes" / "rome.jsonl"
    model = new_model(call("look", city="Rome"), "It is sunny.")
    assert Runner(DESK, model=model, middleware=[Cache(path)]).run_sync("How is Rome?").output == "It is sunny."
    return path


def replay(path: Path, agent: Agent, message: str) -> Any:
    model = new_model()
    result = Runner(agent, model=model, middleware=[Cache(path, on_miss="error")]).run_sync(message)
    assert model.requests == []
    return result


def test_a_recorded_conversation_is_replayed_without_the_model(cassette: Path) -> None:
    before = cassette.read_bytes()
    assert replay(cassette, DESK, "How is Rome?").output == "It is sunny."
    assert cassette.read_bytes() == before
    assert [line.startswith(b'{"request":"Desk asks openai:gpt-5, last') for line in before.splitlines()] == [True] * 2


def test_a_miss_says_which_request_what_has_changed_and_how_to_record_it(cassette: Path) -> None:
    with pytest.raises(SetupError) as caught:
        replay(cassette, Agent("Desk", instructions="Be kind.", tools=[look]), "How is Rome?")
    assert str(caught.value) == (
        f'Cache({str(cassette)!r}, on_miss="error") has no response for this request: Desk asks openai:gpt-5, last '
        "message: How is Rome? (the most similar of 2 recorded requests differs in `instructions`). To record it, run "
        f"once with Cache({str(cassette)!r}) and the provider's key"
    )
    with pytest.raises(SetupError, match=r"last message: How is Oslo\? .* differs in `messages`"):
        replay(cassette, DESK, "How is Oslo?")


def test_a_long_message_is_shortened(cassette: Path) -> None:
    with pytest.raises(SetupError, match=r"last message: x{80}… \("):
        replay(cassette, DESK, "x" * 1000)


def test_a_missing_cassette_is_not_created_by_a_replay(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"\(the file has no responses\)"):
        replay(tmp_path / "none.jsonl", DESK, "How is Rome?")
    assert list(tmp_path.iterdir()) == []


def test_a_miss_in_a_dict_names_the_file_that_would_say_more() -> None:
    runner = Runner(DESK, model=new_model(), middleware=[Cache({}, on_miss="error")])
    with pytest.raises(SetupError, match=r'^Cache\(a dict, on_miss="error"\) .*a file that ends in \.jsonl'):
        runner.run_sync("Hi")


def test_a_miss_in_an_agent_that_is_a_tool_ends_the_run(tmp_path: Path) -> None:
    path = tmp_path / "nested.jsonl"
    model = new_model(call("ask_desk", request="Rome?"), "Sunny.", "It is sunny.")
    outer = Agent("Outer", tools=[DESK.as_tool("ask_desk", "Asks the desk.")])
    assert Runner(outer, model=model, middleware=[Cache(path)]).run_sync("Hi").output == "It is sunny."
    changed = Agent("Desk", instructions="Be kind.", tools=[look])
    with pytest.raises(SetupError, match=r"Desk asks openai:gpt-5, last message: Rome\? .* in `instructions`"):
        replay(path, Agent("Outer", tools=[changed.as_tool("ask_desk", "Asks the desk.")]), "Hi")


def test_a_damaged_line_is_named(cassette: Path) -> None:
    with open(cassette, "a") as file:
        file.write("{}\n")
    with pytest.raises(SetupError, match="line 3 is not a recorded response"):
        Cache(cassette)


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(SetupError, match="cannot open the file"):
        Cache(tmp_path / "folder.jsonl")


async def test_keys_and_headers_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "wire.jsonl"
    settings = ModelSettings(extra_headers={"x-tenant": "header-secret"})
    async with CHAT.scripted(["Hello."]) as (server, model):
        await Runner(Agent("Desk", model_settings=settings), model=model, middleware=[Cache(path)]).run("Hi")
        (received,) = server.requests
    sent = {name.lower(): value for name, value in received.headers.items()}
    assert sent["x-tenant"] == "header-secret"
    text = path.read_text()
    assert "Hello." in text
    for secret in ("header-secret", sent["authorization"].removeprefix("Bearer ")):
        assert secret not in text


async def test_a_database_that_cannot_be_read_any_more_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cache.db"
    cache = Cache(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("DROP TABLE responses")
    runner = Runner(Agent("A", model=ScriptedModel(["hi"])), middleware=[cache])
    with pytest.raises(SetupError, match=r"Cache\('.*cache.db'\): cannot use the file: no such table"):
        await runner.run("hello")
    cache.close()
