"""While a run is in progress, a spinner shows what is done and for how long; only in a terminal that can show it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Write = Callable[..., Path]

# The model waits for the file `go`, so that the test decides how long it works.
SLOW = """
import asyncio
from pathlib import Path

async def think(request):
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "Thought."

agent = Agent("Thinker", model=ScriptedModel([think, "Again."]))
"""
FRAME = re.compile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] working  0:0[0-9] ")


def test_the_spinner_in_a_real_terminal(write: Write, terminal: Callable[..., Any]) -> None:
    go = write(SLOW).parent / "go"
    program = terminal("chat", "desk:agent", is_real=True, term="xterm")
    program.read_until("you › ")
    program.type("hello")
    shown = program.read_until(" 0:01 ")
    assert FRAME.search(shown), shown
    go.touch()
    # It is removed before the answer is written.
    written = program.read_until("Thought.")
    assert "\r\x1b[K" in written
    assert not FRAME.search(written.rpartition("\r\x1b[K")[2])
    program.read_until("you › ")
    program.type("/quit")
    assert program.process.wait(timeout=60) == 0


def test_without_a_terminal_there_is_no_spinner(write: Write, terminal: Callable[..., Any]) -> None:
    go = write(SLOW.replace("0.01", "0.8")).parent / "go"
    program = terminal("run", "desk:agent", "hello")
    program.read_until("● Thinker")
    go.touch()
    code, rest = program.leave()
    assert code == 0
    assert "Thought." in rest
    assert not FRAME.search(rest)
    assert "\x1b" not in rest


SYNC = """
import time
from pathlib import Path

@tool
def block() -> str:
    while not Path("go").exists():
        time.sleep(0.01)
    return "done"

agent = Agent("Desk", tools=[block], model=ScriptedModel([call("block"), "Finished.", "Here."]))
"""


def test_ctrl_c_is_answered_at_once_while_a_tool_cannot_stop(write: Write, terminal: Callable[..., Any]) -> None:
    # A thread cannot be stopped, so the run waits for the tool for a while; the user must see that it stops.
    go = write(SYNC).parent / "go"
    program = terminal("chat", "desk:agent", is_real=True, term="xterm")
    program.read_until("you › ")
    program.type("go")
    program.read_until("block  0:0")
    program.press("\x03")
    program.read_until("stopping; Ctrl-C again does not wait  0:0")
    go.touch()
    program.read_until("cancelled")
    program.read_until("you › ")
    program.type("/quit")
    assert program.process.wait(timeout=60) == 0


def test_log_records_are_not_written_into_the_line_of_the_spinner(write: Write, terminal: Callable[..., Any]) -> None:
    go = (
        write(
            SLOW.replace(
                '    return "Thought."',
                '    import logging; logging.getLogger("desk").warning("look out")\n    return "Thought."',
            )
        ).parent
        / "go"
    )
    program = terminal("chat", "desk:agent", is_real=True, term="xterm")
    program.read_until("you › ")
    program.type("hello")
    program.read_until(" 0:00 ")
    go.touch()
    assert program.read_until("look out").endswith("\r\x1b[Kwarning: look out")
    program.read_until("you › ")
    program.type("/quit")
    assert program.process.wait(timeout=60) == 0
