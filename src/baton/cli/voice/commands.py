"""What a person can type during a live conversation besides what is to be said."""

import re
from collections.abc import Awaitable, Callable

from ...errors import BatonError
from ...realtime import RealtimeSession
from ..ask import understood
from ..show import Screen

_COMMAND = re.compile(r"(/[a-z]+)(?:\s+(.*))?")
_HELP = """\
What you type is said to whoever has the floor.
  /to NAME          give somebody else the floor
  /interrupt        stop whoever speaks (so does Ctrl-C)
  /answer ANSWER    answer the oldest open question: y, n, a (always) or why not; anything else as text or JSON
  /help             this
  /quit, exit       leave (so does Ctrl-D)"""


class VoiceCommands:
    """Does what a line says. What goes wrong is shown; it ends neither the conversation nor the program."""

    def __init__(self, session: RealtimeSession, screen: Screen) -> None:
        self._session = session
        self._screen = screen
        self._known: dict[str, Callable[[str], Awaitable[None]]] = {
            "": session.send_text,
            "/to": self._hand_over,
            "/interrupt": self._interrupt,
            "/answer": self._answer,
            "/help": self._help,
        }

    async def obey(self, line: str) -> None:
        """Do what a line says, or say it."""
        command = _COMMAND.fullmatch(line)
        word, rest = (command[1], command[2] or "") if command else ("", line)
        known = self._known.get(word)
        if known is None:
            self._screen.line(f"there is no {word}; /help lists what there is", "red")
            return
        try:
            await known(rest.strip())
        except BatonError as error:
            self._screen.line(str(error), "red")

    async def _hand_over(self, name: str) -> None:
        if name:
            await self._session.handoff_to(name)
        else:
            self._screen.line("to whom? write the name of an agent after /to", "red")

    async def _interrupt(self, _: str) -> None:
        await self._session.interrupt()

    async def _answer(self, text: str) -> None:
        questions = self._session.interrupts
        if not questions:
            self._screen.line("there is no open question", "red")
            return
        answer = understood(questions[0], text)
        if answer is None:
            self._screen.line("that is not clear; after /answer write y, n, a or why not; or text or JSON", "red")
        else:
            await self._session.answer(questions[0].id, answer[0])

    async def _help(self, _: str) -> None:
        self._screen.line(_HELP)
