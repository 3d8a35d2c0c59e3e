"""`baton voice`: a live conversation with lines of text, files or a terminal."""

import os
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Invoke, Terminal, Write

from baton.cli.audio import read_wav
from baton.testing import speech

LIVE = """
from baton.realtime import *
"""
DESK = f"""{LIVE}
@tool
async def find_invoice(number: str) -> str:
    return f"{{number}}: paid twice"

billing = RealtimeAgent("Billing", description="Settles invoices.", tools=[find_invoice], handoffs=["Triage"])
triage = RealtimeAgent("Triage", description="Finds out who can help.", handoffs=[billing])
model = ScriptedRealtimeModel({{
    "Triage": [say("I get you the billing desk.", call("transfer_to_billing")), "Anything else?"],
    "Billing": [call("find_invoice", number="R-7"), "You have paid twice.", "It is on its way."],
}}, ms_per_word=100, hears=["My invoice?", "My money?"])
runner = RealtimeRunner(triage, model=model, settings=RealtimeSettings(turn_detection=None))
"""
ECHO = f"""{LIVE}
def told(request):
    return f"{{len(request.messages)}} messages, the last: {{request.messages[-1].content}}"

runner = RealtimeRunner(RealtimeAgent("Echo"), model=ScriptedRealtimeModel([told], cycle=True))
"""


def speech_file(path: Path, words: str, *, rate: int = 24_000) -> str:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(speech(words))
    return str(path)


def test_each_line_is_sent_after_the_previous_answer(write: Write, baton: Invoke) -> None:
    write(DESK)
    result = baton("voice", "desk:runner", input="My invoice?\n\nMy money?\n/handoff Triage\n")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "● Triage",
        "I get you the billing desk.",
        "  → Billing",
        "● Billing",
        '  ▸ find_invoice(number="R-7")',
        "  ◂ find_invoice: R-7: paid twice",
        "You have paid twice.",
        "It is on its way.",
        "  → Triage",
        "● Triage",
        "Anything else?",
        "total: 5 model calls · 64 tokens in, 19 out",
    ]


def test_wav_input_and_output(write: Write, baton: Invoke, tmp_path: Path) -> None:
    write(DESK)
    first = speech_file(tmp_path / "first.wav", "one two three", rate=16_000)
    second = speech_file(tmp_path / "second.wav", "four")
    files = ["--wav-in", first, "--wav-in", second, "--wav-out", "out.wav", "--wav-speed", "0"]
    told = baton("voice", "desk:runner", *files, input="/handoff Triage\n").output.splitlines()
    assert [line for line in told if line.startswith("you › ")] == ["you › My invoice?", "you › My money?"]
    assert told[-1] == "recorded 1.7 s to out.wav"
    expected_text = "I get you the billing desk. You have paid twice. It is on its way. Anything else?"
    assert read_wav(Path("out.wav")) == speech(expected_text, ms_per_word=100)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("y", "30 paid"),
        ("no, too much", "was not approved: too much"),
        ("", "unclear answer; after /answer write y"),
    ],
)
def test_interrupts_are_answered_during_the_conversation(write: Write, baton: Invoke, answer: str, told: str) -> None:
    write(
        f"""{LIVE}
@tool(needs_approval=True)
def refund(amount: int) -> str:
    return f"{{amount}} paid"
model = ScriptedRealtimeModel([call("refund", amount=30), "Meanwhile: hello.", "That is that."])
runner = RealtimeRunner(RealtimeAgent("Desk", tools=[refund]), model=model)
"""
    )
    output = baton("voice", "desk:runner", input=f"refund me\nhello?\n/answer {answer}\n/answer n\n").output
    assert "? Desk: allow refund(amount=30)?" in output
    assert "Meanwhile: hello." in output.splitlines()
    assert told in output
    assert "That is that." in output
    assert ("there is no open interrupt" in output) == bool(answer)


def test_unanswered_interrupt_is_answered_in_a_later_session(write: Write, baton: Invoke) -> None:
    write(
        f"""{LIVE}
@tool
async def survey(ctx: RunContext) -> str: return repr(await ctx.interrupt("Which colour?"))
runner = RealtimeRunner(RealtimeAgent("Desk", tools=[survey]), model=ScriptedRealtimeModel([call("survey")]))
later = RealtimeRunner(RealtimeAgent("Desk", tools=[survey]), model=ScriptedRealtimeModel(["Thanks."]))
"""
    )
    store_options = ["--store", "calls.db", "--thread", "u42"]
    first = baton("voice", "desk:runner", *store_options, input="ask me\n").output
    assert "not answered; the run stays suspended" in first
    second = baton("voice", "desk:later", *store_options, input="/answer blue\n").output.splitlines()
    assert second[0] == "thread u42, 1 run so far"
    assert second[1].startswith("resuming run ")
    assert "  ◂ survey: 'blue'" in second
    assert "Thanks." in second


def test_thread_continues_with_its_history(write: Write, baton: Invoke) -> None:
    write(ECHO)
    store_options = ["--store", "calls.db", "--thread", "u42"]
    assert "1 messages, the last: hello" in baton("voice", "desk:runner", *store_options, input="hello\n").output
    assert "3 messages, the last: again" in baton("voice", "desk:runner", *store_options, input="again\n").output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/handoff Unknown", "`Triage` cannot transfer to `Unknown`; it can reach: "),
        ("/handoff", "/handoff needs the name of an agent"),
        ("/sing", "unknown command /sing; see /help"),
        ("/answer y", "there is no open interrupt"),
        ("/help", "  /handoff NAME     hand control to another agent"),
        ("/interrupt", ""),
    ],
)
def test_command_errors_do_not_end_the_conversation(write: Write, baton: Invoke, line: str, told: str) -> None:
    write(DESK)
    result = baton("voice", "desk:runner", input=f"{line}\nMy invoice?\n")
    assert result.exit_code == 0
    assert told in result.output
    assert "You have paid twice." in result.output


@pytest.mark.parametrize("farewell", ["exit", "/quit", "QUIT"])
def test_farewell_words_end_the_conversation(write: Write, baton: Invoke, farewell: str) -> None:
    write(ECHO)
    assert baton("voice", "desk:runner", input=f"{farewell}\nhello\n").output == "● Echo\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["desk:agent"], 2, "is for text (type Agent); use `baton chat desk:agent`"),
        (["desk:live"], 2, "`desk:live` needs a realtime model; use --model openai:gpt-realtime"),
        (["desk:live", "--model", "abacus"], 1, "`abacus` does not name a realtime model"),
        (["desk:runner", "--model", "a:b", "--voice", "ash"], 2, "leave out --model and --voice, or name the agent"),
        (["desk:live", "--model", "a:b", "--thread", "u42"], 2, "pass --store as well"),
        (
            ["desk:runner", "--text-only", "--wav-out", "out.wav"],
            2,
            "--text-only cannot be combined with",
        ),
        (["desk:runner", "--wav-in", "nothing.wav"], 2, "--wav-in: there is no file `nothing.wav`"),
        (
            ["desk:phone", "--wav-out", "out.wav"],
            2,
            "`desk:phone` expects g711_ulaw, but this command supports only pcm16",
        ),
        (["desk:lost"], 1, "error: the line is dead"),
    ],
)
def test_invalid_arguments_are_one_line(
    write: Write, baton: Invoke, arguments: list[str], code: int, told: str
) -> None:
    write(
        f"""{ECHO}
from baton.errors import ModelConnectionError
agent = Agent("Desk")
live = RealtimeAgent("Live")
model = ScriptedRealtimeModel([])
phone = RealtimeRunner(
    live, model=model, settings=RealtimeSettings(input_format="g711_ulaw", output_format="g711_ulaw")
)
dead = ScriptedRealtimeModel([])
dead.fail_to_connect(ModelConnectionError("the line is dead"))
lost = RealtimeRunner(live, model=dead, max_reconnects=0)
"""
    )
    result = baton("voice", *arguments, input="hello\n")
    assert (result.exit_code, "Traceback" in result.output) == (code, False)
    assert told in result.output


@pytest.mark.parametrize("verb", [["chat"], ["run"], ["mcp"], ["serve"]])
def test_realtime_targets_are_referred_to_voice(write: Write, baton: Invoke, verb: list[str]) -> None:
    write(ECHO)
    result = baton(*verb, "desk:runner", *(["hello"] if verb == ["run"] else []))
    assert result.exit_code == 2
    assert "is a RealtimeRunner, for live conversations; use `baton voice desk:runner`" in result.output


def test_lost_connection_is_reconnected_and_shown(write: Write, baton: Invoke) -> None:
    """R9."""
    write(
        f"""{LIVE}
from baton.errors import ModelConnectionError
steps = [ScriptedStream("Let me", ModelConnectionError("the cable is out")), "Here I am again."]
runner = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps), reconnect_delay=0.0)
gone = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps[:1]), max_reconnects=0)
"""
    )
    told = baton("voice", "desk:runner", input="hello\n").output.splitlines()
    assert "  … lost the connection (the cable is out); attempt 1" in told
    assert "  … reconnected" in told
    assert "Here I am again." in told
    lost = baton("voice", "desk:gone", input="hello\n")
    assert lost.exit_code == 1
    assert "lost its connection, and 0 reconnect attempts failed: the cable is out" in lost.output


HELD = f"""{LIVE}
import asyncio
steps = [ScriptedStream("Once upon", asyncio.Event()), "Yes?"]
runner = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps))
"""


def test_ctrl_c_in_a_terminal_interrupts_the_response(write: Write, terminal: Callable[..., Terminal]) -> None:
    """R7."""
    write(HELD)
    session = terminal("voice", "desk:runner", "--text-only", is_real=True)
    session.read_until("live with Desk; /help for help, Ctrl-D to leave")
    session.type("tell me a story")
    session.read_until("Once upon")
    session.press("\x03")
    session.read_until("cancelled")
    session.type("hello?")
    session.read_until("Yes?")
    session.type("/quit")
    session.read_until("total: 2 model calls")
    assert session.process.wait(timeout=20) == 0


def test_a_terminal_without_audio_devices_says_why(write: Write, terminal: Callable[..., Terminal]) -> None:
    write(ECHO)
    Path("sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    session = terminal("voice", "desk:runner", is_real=True)
    session.read_until("no microphone or speaker available: PortAudio library not found")
    session.press("\x04")
    assert session.process.wait(timeout=20) == 0


SYSTEM = """
import threading

class _Stream:
    def __init__(self, *, samplerate, channels, dtype, blocksize, callback):
        self.size, self.callback, self.is_open = 2 * blocksize, callback, True
    def start(self):
        threading.Thread(target=self.run, daemon=True).start()
    def close(self):
        self.is_open = False

class RawInputStream(_Stream):
    def run(self):
        self.callback(b"\\x01\\x00" * (self.size // 2), self.size // 2, None, None)

class RawOutputStream(_Stream):
    def run(self):
        while self.is_open:
            block = bytearray(self.size)
            self.callback(memoryview(block), self.size // 2, None, None)
            if any(block):
                # A pipe: this blocks until the test reads it.
                with open("played", "wb") as pipe:
                    pipe.write(block)
                return
"""


def test_a_conversation_with_microphone_and_speaker(write: Write, terminal: Callable[..., Terminal]) -> None:
    """Audio of the microphone is sent, and responses are played."""
    Path("sounddevice.py").write_text(SYSTEM)
    os.mkfifo("played")
    write(
        f"""{LIVE}
def told(request):
    return f"I heard {{len(model.connections[0].heard)}} bytes"
model = ScriptedRealtimeModel([told])
runner = RealtimeRunner(RealtimeAgent("Desk"), model=model)
"""
    )
    session = terminal("voice", "desk:runner", is_real=True)
    session.read_until("live with Desk")
    session.type("what do you hear?")
    session.read_until("I heard 960 bytes")
    played = Path("played").read_bytes()
    assert (len(played), played) == (960, speech("I")[:960])
    session.type("/quit")
    assert session.process.wait(timeout=20) == 0


def test_the_help_lists_commands_and_options(baton: Any) -> None:
    told = baton("voice", "--help").output
    for word in ("/handoff NAME", "/interrupt", "/answer", "--wav-in", "--wav-out", "--wav-speed", "--base-url"):
        assert word in told


CLOCKED = """
import threading

class _Stream:
    def __init__(self, *, samplerate, channels, dtype, blocksize, callback):
        self.size, self.callback, self.is_closed = 2 * blocksize, callback, threading.Event()
    def start(self):
        threading.Thread(target=self.run, daemon=True).start()
    def close(self):
        self.is_closed.set()

class RawInputStream(_Stream):
    def run(self): pass

class RawOutputStream(_Stream):
    def run(self):
        played = 0
        while not self.is_closed.wait(0.005):
            block = bytearray(self.size)
            self.callback(memoryview(block), self.size // 2, None, None)
            played += any(block)
            if played == 25:
                on_half_a_second()

def on_half_a_second(): pass
"""


def test_speech_stops_playback_at_the_played_word(write: Write, terminal: Callable[..., Terminal]) -> None:
    """R7: the speaker reports its position, and the response is truncated to the played part."""
    Path("sounddevice.py").write_text(CLOCKED)
    write(
        f"""{LIVE}
import asyncio, sounddevice
def story(request):
    loop = asyncio.get_running_loop()
    def stop():
        sounddevice.on_half_a_second = lambda: None
        loop.call_soon_threadsafe(model.connections[0].user_speaks, "Stop!")
    sounddevice.on_half_a_second = stop
    return ScriptedStream(" ".join(str(number) for number in range(100)), asyncio.Event())
model = ScriptedRealtimeModel([story, "Yes?"])
runner = RealtimeRunner(RealtimeAgent("Teller"), model=model)
"""
    )
    session = terminal("voice", "desk:runner", is_real=True)
    session.read_until("live with Teller")
    session.type("tell me a story")
    session.read_until("interrupted; heard: 0 1")
    rest = session.read_until("Yes?")
    assert "99" not in rest
    assert "you › Stop!" in rest
    session.type("/quit")
    assert session.process.wait(timeout=20) == 0
