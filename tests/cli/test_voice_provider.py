"""`baton voice` with a local server that has the format of OpenAI's realtime API."""

import asyncio
import wave
from pathlib import Path

import pytest
from tests.cli.programs import Invoke, Write
from tests.servers import OpenAIRealtimeServer
from tests.servers.realtime import ServedSession, speech

from batonkit.cli.audio import read_wav
from batonkit.testing import call, say

DESK = """
from batonkit.realtime import *

@tool
async def find_invoice(number: str) -> str:
    return f"{number}: paid twice"

billing = RealtimeAgent("Billing", instructions="BILLING", description="Settles invoices.", tools=[find_invoice])
triage = RealtimeAgent("Triage", instructions="TRIAGE", handoffs=[billing])
"""


def agent_of(session: ServedSession) -> str:
    return "Billing" if "BILLING" in str(session.settings["instructions"]) else "Triage"


def server(**options: object) -> OpenAIRealtimeServer:
    steps = {
        "Triage": [say("I get you the billing desk.", call("transfer_to_billing"))],
        "Billing": [call("find_invoice", number="R-7"), "You have paid twice."],
    }
    return OpenAIRealtimeServer(steps, by=agent_of, hears=["My invoice?"], **options)  # pyright: ignore[reportArgumentType]


def question_file(path: Path) -> str:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(speech("My invoice?"))
    return str(path)


EXPECTED_LINES = [
    "● Triage",
    "you › My invoice?",
    "I get you the billing desk.",
    "  → Billing",
    "● Billing",
    '  ▸ find_invoice(number="R-7")',
    "  ◂ find_invoice: R-7: paid twice",
    "You have paid twice.",
]


def assert_expected_lines(lines: list[str]) -> None:
    """Assert the output; the transcript of the input may arrive after the answer."""
    assert lines.count(EXPECTED_LINES[1]) == 1
    assert [line for line in lines if line != EXPECTED_LINES[1]] == [EXPECTED_LINES[0], *EXPECTED_LINES[2:]]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")


async def test_the_model_option_connects_to_the_provider(write: Write, baton: Invoke, tmp_path: Path) -> None:
    """`base_url` points it at a local server."""
    write(DESK)
    async with server() as provider:
        model_options = ["--model", "openai:gpt-realtime", "--base-url", provider.base_url]
        files = [
            "--wav-in",
            question_file(tmp_path / "in.wav"),
            "--wav-out",
            "out.wav",
            "--wav-speed",
            "0",
            "--voice",
            "marin",
        ]
        result = await asyncio.to_thread(baton, "voice", "desk:triage", *model_options, *files)
        assert (result.exit_code, provider.complaints) == (0, [])
        provider.assert_done()
    lines = result.output.splitlines()
    assert_expected_lines(lines[:-2])
    assert lines[-1] == "recorded 2.0 s to out.wav"
    assert read_wav(Path("out.wav")) == speech("I get you the billing desk.") + speech("You have paid twice.")


async def test_text_only_requests_no_audio(write: Write, baton: Invoke) -> None:
    write(DESK)
    async with server() as provider:
        model_options = ["--model", "openai:gpt-realtime", "--base-url", provider.base_url]
        result = await asyncio.to_thread(
            baton, "voice", "desk:triage", *model_options, "--text-only", input="My invoice?\n"
        )
        assert provider.complaints == []
        assert provider.sessions[0].settings["output_modalities"] == ["text"]
    assert result.output.splitlines()[:-1] == [line for line in EXPECTED_LINES if not line.startswith("you")]


async def test_turn_detection_recognises_the_end_of_a_file(write: Write, baton: Invoke, tmp_path: Path) -> None:
    async with server() as provider:
        write(
            f"""{DESK}
from batonkit.realtime.openai import OpenAIRealtimeModel
runner = RealtimeRunner(triage, model=OpenAIRealtimeModel(base_url="{provider.base_url}"))
"""
        )
        files = ["--wav-in", question_file(tmp_path / "in.wav"), "--wav-speed", "0"]
        result = await asyncio.to_thread(baton, "voice", "desk:runner", *files)
        assert (result.exit_code, provider.complaints) == (0, [])
    assert_expected_lines(result.output.splitlines()[:-1])


async def test_audio_at_unlimited_speed_interrupts_nothing(write: Write, baton: Invoke, tmp_path: Path) -> None:
    """With unlimited speed, the whole response counts as played."""
    async with OpenAIRealtimeServer(["First answer.", "Second answer."], hears=["One?", "Two?"]) as provider:
        write(
            f"""{DESK}
from batonkit.realtime.openai import OpenAIRealtimeModel
runner = RealtimeRunner(triage, model=OpenAIRealtimeModel(base_url="{provider.base_url}"))
"""
        )
        files = ["--wav-in", question_file(tmp_path / "in.wav")] * 2
        options = [*files, "--wav-out", "out.wav", "--wav-speed", "0"]
        result = await asyncio.to_thread(baton, "voice", "desk:runner", *options)
        assert (result.exit_code, provider.complaints) == (0, [])
    assert "interrupted" not in result.output
    assert read_wav(Path("out.wav")) == speech("First answer. Second answer.")


async def test_a_rejected_key_is_a_one_line_error(write: Write, baton: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    write(DESK)
    async with server() as provider:
        model_options = ["--model", "openai:gpt-realtime", "--base-url", provider.base_url]
        result = await asyncio.to_thread(baton, "voice", "desk:triage", *model_options, input="Hello\n")
    assert result.exit_code == 1
    assert "Incorrect API key provided" in result.output
    assert "Traceback" not in result.output
