"""`baton demo`: the desk of its story, and the choice of a model."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.waiting import PATIENCE

from batonkit import Approval, Runner, RunResult
from batonkit.cli import models
from batonkit.cli.demo import choose_demo_model
from batonkit.cli.demo_desk import TEXTS, make_desk, make_script
from batonkit.cli.display import Screen
from batonkit.handoffs import PromptLanguage
from batonkit.models import resolve_model
from batonkit.stores import MemoryStore
from batonkit.testing import transcript


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


async def _pay(language: PromptLanguage, ledger: Path, answer: Approval) -> RunResult[Any]:
    """Play the story in this process: one runner asks, another one resumes with a new script."""
    texts = TEXTS[language]
    store = MemoryStore()
    first = Runner(make_desk(texts, ledger), model=make_script(texts), store=store)
    asked = await first.run(texts.question)
    assert asked.status == "suspended"
    assert not ledger.exists()
    script = make_script(texts)
    script.fast_forward(asked.events)
    second = Runner(make_desk(texts, ledger), model=script, store=store)
    result = await second.resume(asked.run_id, {each.id: answer for each in asked.interrupts})
    assert result.output == texts.answer
    return result


async def test_the_desk_hands_over_with_a_reason_and_pays_once(tmp_path: Path) -> None:
    ledger = tmp_path / "payments.txt"
    result = await _pay("en", ledger, Approval(True))
    assert transcript(result.events) == snapshot(
        [
            'run of Desk started with "My lamp arrived broken: order A-17, 80 EUR. I want my money back!"',
            "Desk started",
            'Desk: called transfer_to_refunds({"order":"A-17","reason":"arrived broken"})',
            'Desk: transfer_to_refunds -> {"assistant":"Refunds"}',
            'Desk → Refunds with {"order":"A-17","reason":"arrived broken"}',
            "Desk finished",
            "Refunds started",
            'Refunds: called refund({"order":"A-17","euros":80})',
            "Refunds: step needs_approval -> true",
            'Refunds: asked {"kind":"approval","tool":"refund","arguments":{"order":"A-17","euros":80}} '
            'about refund({"order":"A-17","euros":80})',
            "run suspended with 1 open question",
            "run resumed",
            'Refunds: got the answer {"approved":true}',
            'Refunds: step intent -> "refund"',
            "Refunds: refund -> 80 EUR for order A-17 paid back",
            'Refunds: said "I am sorry about the lamp. Your 80 EUR are on their way back to you."',
            "Refunds finished",
            "run completed",
        ]
    )
    assert ledger.read_text(encoding="utf-8") == "80 EUR for order A-17 paid back\n"


async def test_the_desk_in_chinese(tmp_path: Path) -> None:
    ledger = tmp_path / "payments.txt"
    await _pay("zh", ledger, Approval(True))
    assert ledger.read_text(encoding="utf-8") == "订单 A-17 已退款 80 欧元\n"


async def test_a_refund_that_is_declined_is_not_paid(tmp_path: Path) -> None:
    ledger = tmp_path / "payments.txt"
    await _pay("en", ledger, Approval(False, "not yet"))
    assert not ledger.exists()


def test_ollama_is_preferred_to_the_embedded_model(tags: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "TAGS_URL", tags[1].decode())
    demo = choose_demo_model(None, Screen())
    assert demo.notice == "model: ollama:llama3.2:1b, served by Ollama on this machine"
    assert demo.model is resolve_model("ollama:llama3.2:1b")


@pytest.mark.parametrize("response", [b'{"models": []}', b"nonsense", b'{"models": [{"name": "all-embed"}]}'])
def test_ollama_without_a_chat_model_is_ignored(tags: list[bytes], response: bytes) -> None:
    tags[0] = response
    assert models.find_ollama_model(tags[1].decode()) is None
