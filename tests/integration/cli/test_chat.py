"""`baton chat` keeps the history, shows events, asks for answers, and survives failures and Ctrl-C."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_chat import APPROVAL, ECHO, TWO_QUESTIONS

Write = Callable[..., Path]

CTRL_D = "\x04"


def test_ctrl_c_cancels_only_the_run(write: Write, terminal: Callable[..., Any]) -> None:
    write(
        """
        import asyncio
        steps = [ScriptedStream("Once upon a time ", asyncio.Event()), say("Here I am.")]
        agent = Agent("Teller", model=ScriptedModel(steps, stream=True))
        """
    )
    program = terminal("chat", "desk:agent")
    program.type("tell me a story")
    program.read_until("Once upon a time ")
    program.press_ctrl_c()
    program.read_until("cancelled\n")
    program.type("are you there?")
    assert "● Teller\nHere I am.\n" in program.read_until("used: 1 model call")
    code, rest = program.leave()
    assert code == 0
    assert "total: 1 model call" in rest


def test_second_ctrl_c_does_not_wait(write: Write, terminal: Callable[..., Any]) -> None:
    write(
        """
        import asyncio
        class Stubborn:
            name = "stubborn"
            asked = 0
            async def respond(self, request):
                from batonkit.models import ModelResponse, TextChunk
                Stubborn.asked += 1
                if Stubborn.asked == 1:
                    yield TextChunk("I will not stop. ")
                    try:
                        await asyncio.Event().wait()
                    finally:
                        print("still here", flush=True)
                        await asyncio.Event().wait()
                yield TextChunk("Well then.")
                yield ModelResponse()
        agent = Agent("Mule", model=Stubborn())
        """
    )
    program = terminal("chat", "desk:agent")
    program.type("go")
    program.read_until("I will not stop.")
    program.press_ctrl_c()
    program.read_until("still here")
    program.press_ctrl_c()
    program.read_until("cancelled\n")
    program.type("and now?")
    program.read_until("Well then.")
    assert program.leave()[0] == 0


def test_a_conversation_in_a_real_terminal(write: Write, terminal: Callable[..., Any]) -> None:
    write(ECHO)
    program = terminal("chat", "desk", is_real=True)
    program.read_until("chat with Echo; /help for help, Ctrl-D to leave")
    program.read_until("you › ")
    program.press("half a line")
    program.press_ctrl_c_until("use Ctrl-D or /quit to leave")
    program.read_until("you › ")
    program.type_until("hello", "1 messages, the last: hello")
    program.read_until("you › ")
    program.press(CTRL_D)
    program.read_until("total: ")
    assert program.process.wait(timeout=20) == 0


@pytest.mark.parametrize("key", ["Ctrl-C", "Ctrl-D"])
def test_an_interrupt_in_a_real_terminal_can_be_left_open(write: Write, terminal: Callable[..., Any], key: str) -> None:
    write(APPROVAL)
    program = terminal("chat", "desk:agent", is_real=True)
    program.read_until("you › ")
    program.type("refund me")
    program.read_until("y, n, a (always), or n and a reason › ")
    unanswered = "not answered; the run stays suspended"
    if key == "Ctrl-C":
        program.press_ctrl_c_until(unanswered)
    else:
        program.press(CTRL_D)
        program.read_until(unanswered)
    program.read_until("you › ")
    program.type("/quit")
    assert program.process.wait(timeout=20) == 0


@pytest.mark.parametrize("store", [(), ("--store", "runs.db")])
def test_ctrl_c_at_a_question_leaves_a_way_out(write: Write, terminal: Callable[..., Any], store: tuple[str]) -> None:
    # The next message was refused because the thread was busy.
    write(APPROVAL)
    program = terminal("chat", "desk:agent", *store, is_real=True)
    program.read_until("you › ")
    program.type("refund me")
    program.read_until("n and a reason › ")
    program.press_ctrl_c_until("/resume asks again; /cancel cancels the run")
    program.read_until("you › ")
    program.type_until("hello?", "is suspended; /resume resumes it, /cancel cancels it")
    program.read_until("you › ")
    program.type("/resume")
    program.read_until("n and a reason › ")
    program.type("/cancel")
    program.read_until("it is now cancelled")
    program.read_until("you › ")
    program.type("hello?")
    program.read_until("It said: ")
    program.read_until("you › ")
    program.type("/quit")
    assert program.process.wait(timeout=60) == 0


@pytest.mark.parametrize("store", [(), ("--store", "runs.db")])
def test_answers_given_are_not_asked_again(write: Write, terminal: Callable[..., Any], store: tuple[str]) -> None:
    write(TWO_QUESTIONS)
    program = terminal("chat", "desk:agent", *store, is_real=True)
    program.read_until("you › ")
    program.type("go")
    program.read_until("? Desk: colour?")
    program.read_until("answer › ")
    program.type("red")
    program.read_until("? Desk: size?")
    program.read_until("answer › ")
    program.press_ctrl_c_until("not answered; the run stays suspended")
    program.read_until("you › ")
    program.type_until("/resume", "? Desk: ")
    asked_again = program.read_until("answer › ")
    assert "size?" in asked_again
    assert "colour" not in asked_again
    program.type("XL")
    program.read_until("colour: red and size: XL")
    program.read_until("you › ")
    program.type("/quit")
    assert program.process.wait(timeout=60) == 0
