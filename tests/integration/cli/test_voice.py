"""`baton voice`: a live conversation with lines of text, files or a terminal."""

import os
from collections.abc import Callable
from pathlib import Path

from tests.cli.programs import Write
from tests.cli.test_voice import ECHO, LIVE
from tests.integration.cli.conftest import Terminal

from batonkit.testing import speech

HELD = f"""{LIVE}
import asyncio
steps = [ScriptedStream("Once upon", asyncio.Event()), "Yes?"]
runner = RealtimeRunner(RealtimeAgent("Desk"), model=ScriptedRealtimeModel(steps))
"""


def test_ctrl_c_in_a_terminal_interrupts_the_response(write: Write, terminal: Callable[..., Terminal]) -> None:
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
    """The speaker reports its position, and the response is truncated to the played part."""
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
