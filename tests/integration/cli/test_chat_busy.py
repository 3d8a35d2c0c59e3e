"""`baton chat` takes messages while a run is in progress, and lets the user dismiss a question."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_chat_busy import SLOW

Write = Callable[..., Path]


def start(terminal: Callable[..., Any], *options: str) -> Any:
    """Start a chat whose first run waits for the file `go`."""
    program = terminal("chat", "desk:agent", *options, is_real=True)
    program.read_until("you › ")
    program.type("look around")
    program.read_until("LOOKING")
    return program


def finish(program: Any) -> None:
    """Leave at the prompt."""
    program.read_until("you › ")
    program.type("/quit")
    assert program.process.wait(timeout=60) == 0


@pytest.mark.parametrize("store", [(), ("--store", "runs.db")])
def test_a_message_that_is_typed_while_the_team_works_is_answered_afterwards(
    write: Write, terminal: Callable[..., Any], store: tuple[str, ...]
) -> None:
    # Queue
    go = write(SLOW).parent / "go"
    program = start(terminal, *store)
    program.type("and then?")
    program.read_until("(queued)")
    program.type("and last?")
    program.read_until("(queued)")
    go.touch()
    program.read_until("read: look around.")
    program.read_until("you › and then?")
    program.read_until("read: look around / and then?.")
    program.read_until("you › and last?")
    program.read_until("read: look around / and then? / and last?.")
    finish(program)


@pytest.mark.parametrize("store", [(), ("--store", "runs.db")])
def test_a_message_can_steer_the_run(write: Write, terminal: Callable[..., Any], store: tuple[str, ...]) -> None:
    # Steer
    go = write(SLOW).parent / "go"
    program = start(terminal, "--when-busy", "steer", *store)
    program.type("be brief")
    program.read_until("(sent)")
    go.touch()
    program.read_until("user: be brief")
    program.read_until("read: look around / be brief.")
    program.read_until("used: 2 model calls")
    finish(program)


LATE = """
import asyncio
from pathlib import Path

async def slow(request):
    print("ANSWERING", flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "The first answer."

@tool
def note(ctx: RunContext) -> str:
    ctx.values.set("notes", ["one"])
    return "noted"

@tool
def read_notes(ctx: RunContext) -> str:
    return f"notes: {ctx.values.get('notes')}"

def told(request):
    return f"{len(request.messages)} messages, {request.messages[-1].content}"

steps = [call("note"), slow, call("read_notes"), told]
agent = Agent("Desk", tools=[note, read_notes], model=ScriptedModel(steps))
"""


@pytest.mark.parametrize("store", [(), ("--store", "runs.db")])
def test_a_message_that_is_too_late_to_steer_is_answered_afterwards(
    write: Write, terminal: Callable[..., Any], store: tuple[str, ...]
) -> None:
    # Rows that are left when the run ends become runs, with the values of the conversation.
    go = write(LATE).parent / "go"
    program = terminal("chat", "desk:agent", *store, is_real=True)
    program.read_until("you › ")
    program.type("take a note")
    program.read_until("ANSWERING")
    program.type("/steer what do you know?")
    program.read_until("(sent)")
    go.touch()
    program.read_until("The first answer.")
    program.read_until("you › what do you know?")
    program.read_until("7 messages, notes: ['one']")
    finish(program)


def test_a_message_can_preempt_the_run(write: Write, terminal: Callable[..., Any]) -> None:
    # Preempt
    go = write(SLOW).parent / "go"
    program = start(terminal, "--when-busy", "preempt")
    program.type("stop, something else")
    program.read_until("the run stops after this turn")
    go.touch()
    program.read_until("seen 1")
    assert "read:" not in program.read_until("cancelled")
    program.read_until("you › stop, something else")
    program.read_until("read: look around / stop, something else.")
    finish(program)


def test_commands_work_while_the_team_works(write: Write, terminal: Callable[..., Any]) -> None:
    write(SLOW)
    program = start(terminal)
    program.type("/help")
    program.read_until("/preempt TEXT")
    program.type("/steer")
    program.read_until("/steer needs a text: /steer TEXT")
    program.type("/resume")
    program.read_until("/resume: there is no open question; the run is in progress")
    program.type("/nonsense")
    program.read_until("unknown command /nonsense; see /help")
    program.type("/cancel")
    program.read_until("cancelled")
    program.read_until("you › ")
    program.type("are you there?")
    program.read_until("read: ")
    finish(program)


@pytest.mark.parametrize("key", ["/quit\n", "\x04"])
def test_the_user_can_leave_while_the_team_works(write: Write, terminal: Callable[..., Any], key: str) -> None:
    go = write(SLOW).parent / "go"
    program = start(terminal)
    program.type("a last question")
    program.read_until("(queued)")
    program.press(key)
    if key == "\x04":
        program.read_until("leaving when this run has ended")
        go.touch()
        program.read_until("read: look around.")
    program.read_until("not sent: a last question")
    program.read_until("total: ")
    assert program.process.wait(timeout=60) == 0


def test_a_message_waits_for_a_run_of_another_process(write: Write, terminal: Callable[..., Any]) -> None:
    # Across processes; before, the message was refused.
    go = write(SLOW).parent / "go"
    thread = ("--store", "runs.db", "--thread", "u42")
    first = start(terminal, *thread)
    second = terminal("chat", "desk:agent", *thread, is_real=True)
    second.read_until("is running elsewhere")
    second.read_until("you › ")
    second.type("me too")
    second.read_until("is running elsewhere; waiting …")
    go.touch()
    first.read_until("read: look around.")
    second.read_until("read: ")
    second.read_until("you › ")
    finish(first)
