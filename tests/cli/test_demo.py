"""`baton demo` selects and names a model, and shows the transfer, the call and the answer."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.cli.programs import Invoke
from tests.waiting import PATIENCE

from batonkit.cli import models
from batonkit.cli.demo import choose_demo_model
from batonkit.cli.display import Screen
from batonkit.models import register_model, resolve_model
from batonkit.testing import ScriptedModel, call, transfer_to

SCRIPTED = "scripted model: no language model is called"


@pytest.fixture(autouse=True)
def no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all models unavailable: none is configured, installed or downloadable, and Ollama is not running."""
    monkeypatch.delenv("BATON_MODEL", raising=False)
    monkeypatch.setenv("BATON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(models, "TAGS_URL", "http://127.0.0.1:9/api/tags")


@pytest.fixture
def tags(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Serve Ollama's tags on this machine; the list has the response and the URL."""
    monkeypatch.setattr(models, "_TIMEOUT", PATIENCE)
    response = [b'{"models": [{"name": "nomic-embed-text"}, {"name": "llama3.2:1b"}]}']

    class TagsHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(response[0])

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), TagsHandler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    response.append(f"http://127.0.0.1:{server.server_port}/api/tags".encode())
    yield response
    server.shutdown()
    thread.join()
    server.server_close()


def _weather_model(name: str) -> ScriptedModel:
    steps = {
        "RouterAgent": [transfer_to("WeatherAgent")],
        "WeatherAgent": [call("get_weather", city="Oslo"), "Mild."],
    }
    return ScriptedModel(steps, name=f"toy:{name}", stream=True)


def test_the_script_shows_the_transfer_the_call_and_the_answer(baton: Invoke) -> None:
    result = baton("demo", "--model", "scripted")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith(SCRIPTED)
    assert lines[3:] == [
        "you › What's the weather in Beijing?",
        "● RouterAgent",
        "  → WeatherAgent",
        "● WeatherAgent",
        '  ▸ get_weather(city="Beijing")',
        "  ◂ get_weather: the temperature in Beijing is 25°C",
        "It is 25 °C in Beijing right now: a good day for a walk in the hutongs.",
        "used: 3 model calls · 620 tokens in, 56 out",
    ]


def test_the_demo_in_chinese(baton: Invoke) -> None:
    result = baton("demo", "--model", "scripted", "--language", "zh").stdout
    assert "you › 北京今天天气怎么样？" in result
    assert '▸ get_weather(city="北京")' in result


def test_a_given_model_and_question_are_used(baton: Invoke) -> None:
    register_model("toy", _weather_model)
    result = baton("demo", "Is it warm in Oslo?", "--model", "toy:one").stdout
    assert result.startswith("model: toy:one\n")
    assert "you › Is it warm in Oslo?" in result
    assert "  ◂ get_weather: the temperature in Oslo is 25°C\nMild.\n" in result


def test_the_model_is_read_from_the_environment(baton: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    register_model("toy", _weather_model)
    monkeypatch.setenv("BATON_MODEL", "toy:two")
    assert baton("demo").stdout.startswith("model: toy:two\n")
    assert baton("demo", "--model", "scripted").stdout.startswith(SCRIPTED)


def test_the_script_does_not_answer_other_questions(baton: Invoke) -> None:
    result = baton("demo", "Is it warm in Oslo?", "--model", "scripted").stdout
    assert "yours is not asked" in result
    assert "you › What's the weather in Beijing?" in result


def test_ollama_is_preferred_to_the_embedded_model(tags: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "TAGS_URL", tags[1].decode())
    demo = choose_demo_model(None, Screen())
    assert demo.notice == "model: ollama:llama3.2:1b, served by Ollama on this machine"
    assert demo.model is resolve_model("ollama:llama3.2:1b")


@pytest.mark.parametrize("response", [b'{"models": []}', b"nonsense", b'{"models": [{"name": "all-embed"}]}'])
def test_ollama_without_a_chat_model_is_ignored(tags: list[bytes], response: bytes) -> None:
    tags[0] = response
    assert models.find_ollama_model(tags[1].decode()) is None


def test_the_demo_ends_with_the_line_that_opens_studio_on_its_run(baton: Invoke, tmp_path: Path) -> None:
    # Issue 19
    result = baton("demo", "--model", "scripted", "--store", str(tmp_path / "demo.db"))
    last = result.output.strip().splitlines()[-1]
    run_id = last.rpartition("--run ")[2]
    assert f"baton studio --store {tmp_path / 'demo.db'} --run {run_id}" in result.output.replace("\n", "")
    assert run_id in baton("runs", "ls", "--store", str(tmp_path / "demo.db")).output
