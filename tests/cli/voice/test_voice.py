"""`baton voice`: a live conversation with lines, files or a person at a terminal."""

import os
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Invoke, Terminal, Write

from baton.cli.audio import sound_in
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
runner = RealtimeRunner(triage, model=model, manners=Manners(turn_detection=None))
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


def test_each_line_is_said_when_the_one_before_has_been_answered(write: Write, baton: Invoke) -> None:
    write(DESK)
    result = baton("voice", "desk:runner", input="My invoice?\n\nMy money?\n/to Triage\n")
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
        "in all: 5 model calls · 64 tokens in, 19 out",
    ]


def test_what_is_said_in_files_is_heard_and_answered_in_a_file(write: Write, baton: Invoke, tmp_path: Path) -> None:
    write(DESK)
    first = speech_file(tmp_path / "first.wav", "one two three", rate=16_000)
    second = speech_file(tmp_path / "second.wav", "four")
    files = ["--wav-in", first, "--wav-in", second, "--wav-out", "out.wav", "--pace", "0"]
    told = baton("voice", "desk:runner", *files, input="/to Triage\n").output.splitlines()
    assert [line for line in told if line.startswith("you › ")] == ["you › My invoice?", "you › My money?"]
    assert told[-1] == "1.7 s of sound in out.wav"
    spoken = "I get you the billing desk. You have paid twice. It is on its way. Anything else?"
    assert sound_in(Path("out.wav")) == speech(spoken, ms_per_word=100)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("y", "30 paid"),
        ("no, too much", "was not approved: too much"),
        ("", "that is not clear; after /answer write y"),
    ],
)
def test_questions_are_answered_while_the_conversation_goes_on(
    write: Write, baton: Invoke, answer: str, told: str
) -> None:
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
    assert ("there is no open question" in output) == bool(answer)


def test_a_question_that_nobody_answers_is_left_and_answered_another_day(write: Write, baton: Invoke) -> None:
    write(
        f"""{LIVE}
@tool
async def survey(ctx: RunContext) -> str: return repr(await ctx.interrupt("Which colour?"))
runner = RealtimeRunner(RealtimeAgent("Desk", tools=[survey]), model=ScriptedRealtimeModel([call("survey")]))
later = RealtimeRunner(RealtimeAgent("Desk", tools=[survey]), model=ScriptedRealtimeModel(["Thanks."]))
"""
    )
    kept = ["--store", "calls.db", "--thread", "u42"]
    first = baton("voice", "desk:runner", *kept, input="ask me\n").output
    assert "not answered; the run is left where it was" in first
    second = baton("voice", "desk:later", *kept, input="/answer blue\n").output.splitlines()
    assert second[0] == "thread u42, 1 run so far"
    assert second[1].endswith("of it has not ended, and goes on")
    assert "  ◂ survey: 'blue'" in second
    assert "Thanks." in second


def test_a_thread_goes_on_with_what_was_said(write: Write, baton: Invoke) -> None:
    write(ECHO)
    kept = ["--store", "calls.db", "--thread", "u42"]
    assert "1 messages, the last: hello" in baton("voice", "desk:runner", *kept, input="hello\n").output
    assert "3 messages, the last: again" in baton("voice", "desk:runner", *kept, input="again\n").output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/to Nobody", "`Triage` cannot transfer to `Nobody`; it can reach: "),
        ("/to", "to whom? write the name of an agent after /to"),
        ("/sing", "there is no /sing; /help lists what there is"),
        ("/answer y", "there is no open question"),
        ("/help", "  /to NAME          give somebody else the floor"),
        ("/interrupt", ""),
    ],
)
def test_commands_say_what_is_wrong_and_the_conversation_goes_on(
    write: Write, baton: Invoke, line: str, told: str
) -> None:
    write(DESK)
    result = baton("voice", "desk:runner", input=f"{line}\nMy invoice?\n")
    assert result.exit_code == 0
    assert told in result.output
    assert "You have paid twice." in result.output


@pytest.mark.parametrize("farewell", ["exit", "/quit", "QUIT"])
def test_words_to_leave_with(write: Write, baton: Invoke, farewell: str) -> None:
    write(ECHO)
    assert baton("voice", "desk:runner", input=f"{farewell}\nhello\n").output == "● Echo\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["desk:agent"], 2, "is of type Agent and answers in writing: `baton chat desk:agent` talks with it"),
        (["desk:live"], 2, "`desk:live` needs a model to speak with; say --model openai:gpt-realtime"),
        (["desk:live", "--model", "abacus"], 1, "`abacus` does not name a realtime model"),
        (["desk:runner", "--model", "a:b", "--voice", "ash"], 2, "leave out --model and --voice, or name the agent"),
        (["desk:live", "--model", "a:b", "--thread", "u42"], 2, "say --store as well"),
        (["desk:runner", "--text", "--wav-out", "out.wav"], 2, "--text uses no sound"),
        (["desk:runner", "--wav-in", "nothing.wav"], 2, "there is no file `nothing.wav` to listen to"),
        (["desk:phone", "--wav-out", "out.wav"], 2, "`desk:phone` listens to g711_ulaw, and sound here is pcm16"),
        (["desk:lost"], 1, "error: the line is dead"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    write: Write, baton: Invoke, arguments: list[str], code: int, told: str
) -> None:
    write(
        f"""{ECHO}
from baton.errors import ModelConnectionError
agent = Agent("Desk")
live = RealtimeAgent("Live")
model = ScriptedRealtimeModel([])
phone = RealtimeRunner(live, model=model, manners=Manners(input_format="g711_ulaw", output_format="g711_ulaw"))
dead = ScriptedRealtimeModel([])
dead.fail_to_connect(ModelConnectionError("the line is dead"))
lost = RealtimeRunner(live, model=dead, max_reconnects=0)
"""
    )
    result = baton("voice", *arguments, input="hello\n")
    assert (result.exit_code, "Traceback" in result.output) == (code, False)
    assert told in result.output


@pytest.mark.parametrize("verb", [["chat"], ["run"], ["mcp"], ["serve"]])
def test_what_is_for_live_conversations_is_sent_to_voice(write: Write, baton: Invoke, verb: list[str]) -> None:
    write(ECHO)
    result = baton(*verb, "desk:runner", *(["hello"] if verb == ["run"] else []))
    assert result.exit_code == 2
    assert "is a RealtimeRunner, for live conversations; `baton voice desk:runner` holds one" in result.output


def test_a_lost_connection_is_taken_up_again_and_shown(write: Write, baton: Invoke) -> None:
    """R9."""
    write(
        f"""{LIVE}
from baton.errors import ModelConnectionError
steps = [Stream("Let me", ModelConnectionError("the cable is out")), "Here I am again."]
runner = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps), reconnect_delay=0.0)
gone = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps[:1]), max_reconnects=0)
"""
    )
    told = baton("voice", "desk:runner", input="hello\n").output.splitlines()
    assert "  … the connection is gone (the cable is out); attempt 1" in told
    assert "  … connected again" in told
    assert "Here I am again." in told
    lost = baton("voice", "desk:gone", input="hello\n")
    assert lost.exit_code == 1
    assert "lost its connection, and 0 reconnect attempts failed: the cable is out" in lost.output


HELD = f"""{LIVE}
import asyncio
steps = [Stream("Once upon", asyncio.Event()), "Yes?"]
runner = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps))
"""


def test_a_person_at_a_terminal_talks_and_interrupts(write: Write, terminal: Callable[..., Terminal]) -> None:
    """R7."""
    write(HELD)
    session = terminal("voice", "desk:runner", "--text", is_real=True)
    session.read_until("live with Desk; /help helps, Ctrl-D leaves")
    session.type("tell me a story")
    session.read_until("Once upon")
    session.press("\x03")
    session.read_until("cancelled")
    session.type("hello?")
    session.read_until("Yes?")
    session.type("/quit")
    session.read_until("in all: 2 model calls")
    assert session.process.wait(timeout=20) == 0


def test_a_terminal_without_sound_says_how_to_have_it(write: Write, terminal: Callable[..., Terminal]) -> None:
    write(ECHO)
    Path("sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    session = terminal("voice", "desk:runner", is_real=True)
    session.read_until("there is no microphone and no speaker here: sounddevice says PortAudio library not found")
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
        self.callback(b"\\x01\\x20" * (self.size // 2), self.size // 2, None, None)

class RawOutputStream(_Stream):
    def run(self):
        while self.is_open:
            block = bytearray(self.size)
            self.callback(memoryview(block), self.size // 2, None, None)
            if any(block):
                # A pipe: this goes on when the test reads it.
                with open("played", "wb") as pipe:
                    pipe.write(block)
                return
"""


def test_a_person_with_a_microphone_and_a_speaker(write: Write, terminal: Callable[..., Terminal]) -> None:
    """What the microphone hears arrives; what is said is played."""
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


def test_the_help_names_the_commands(baton: Any) -> None:
    told = baton("voice", "--help").output
    for word in ("/to NAME", "/interrupt", "/answer", "--wav-in", "--wav-out", "--pace", "--base-url"):
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


def test_a_person_who_speaks_up_stops_the_speaker_at_the_word_that_was_played(
    write: Write, terminal: Callable[..., Terminal]
) -> None:
    """R7: the speaker feeds the playback, and what was heard is what it has played."""
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
    return Stream(" ".join(str(number) for number in range(100)), asyncio.Event())
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
