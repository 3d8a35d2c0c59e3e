"""`baton chat`: a conversation with a team, one run for each thing the person says."""

import asyncio
import re
import sys
from collections.abc import Mapping
from time import monotonic
from typing import Any

from ..messages import Message, Usage, UserMessage
from ..runner import LiveRun, RunResult
from .ask import answers_to
from .failures import tell
from .show import Screen
from .start import Start, result_of, watch

_PROMPT = "you › "
_LEAVE = ("exit", "quit", "/exit", "/quit")
_COMMAND = re.compile(r"/[a-z]+")
_HELP = """\
Say something, and the team answers; it remembers the conversation.
  /help           this
  /quit, exit     leave (so does Ctrl-D)
  Ctrl-C          stop what the team is doing
Questions are asked in place: y or n for a tool call, or why not; anything else as text or JSON."""


def chat(start: Start, *, debug: bool) -> None:
    """Talk until the person leaves."""
    with asyncio.Runner() as loop:
        Chat(start, loop, screen=Screen(), debug=debug).go_on()


class Chat:
    """A conversation in a terminal, and what is carried from one turn to the next."""

    def __init__(self, start: Start, loop: asyncio.Runner, *, screen: Screen, debug: bool) -> None:
        self._start = start
        self._loop = loop
        self._screen = screen
        self._debug = debug
        self._is_interactive = sys.stdin.isatty()
        self._messages: tuple[Message, ...] = ()
        self._values: Mapping[str, Any] = start.values
        self._total = Usage()
        if self._is_interactive:
            _edit_lines()

    def go_on(self) -> None:
        """Take turns until there is nothing more to read, or the person wants to leave."""
        if self._is_interactive:
            self._screen.line(f"chat with {self._start.runner.team.root}; /help helps, Ctrl-D leaves", "dim")
        while (line := self._next_line()) is not None:
            if line == "/help":
                self._screen.line(_HELP)
            elif _COMMAND.fullmatch(line):
                self._screen.line(f"there is no {line}; /help lists what there is", "red")
            elif line:
                self._take_turn(line)
        if self._total.model_calls:
            self._screen.usage(self._total, label="in all")

    def _next_line(self) -> str | None:
        """What the person says next; None if they leave."""
        while True:
            try:
                line = self._read(_PROMPT).strip()
            except EOFError:
                return None
            except KeyboardInterrupt:
                self._screen.line("Ctrl-D or /quit leaves", "dim")
                continue
            return None if line.lower() in _LEAVE else line

    def _read(self, prompt: str) -> str:
        self._screen.end_line()
        if self._is_interactive:
            try:
                return input(prompt)
            except (EOFError, KeyboardInterrupt):
                self._screen.line("")
                raise
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line

    def _take_turn(self, text: str) -> None:
        """One run, with all its questions. Whatever ends it ends the turn, not the conversation."""
        began = monotonic()
        said = (*self._messages, UserMessage(text))
        live: LiveRun[Any] | None = self._start.runner.stream(said, values=self._values, limits=self._start.limits)
        result: RunResult[Any] | None = None
        while live is not None:
            result = self._outcome_of(live)
            live = self._resumed(result) if result is not None and result.status == "suspended" else None
        if result is not None:
            self._keep(result, len(said))
            if result.usage.total.model_calls:
                self._screen.usage(result.usage.total, seconds=monotonic() - began)

    def _outcome_of(self, live: LiveRun[Any]) -> RunResult[Any] | None:
        """Where the run stands after it has been driven and shown."""
        try:
            self._loop.run(watch(live, self._screen.show))
        except KeyboardInterrupt:
            self._screen.cancelled()
        except Exception as error:  # noqa: BLE001 - here a failure becomes something to read
            self._screen.end_line()
            tell(self._start.explained(error, live), debug=self._debug)
        return result_of(live)

    def _resumed(self, result: RunResult[Any]) -> LiveRun[Any] | None:
        """The run with a person's answers in it; None if the person does not want to answer."""
        try:
            answers = answers_to(result.interrupts, self._read, screen=self._screen)
        except (EOFError, KeyboardInterrupt):
            self._screen.line("not answered; the run is left where it was", "red")
            return None
        return self._start.runner.stream_resume(result.run_id, answers, limits=self._start.limits)

    def _keep(self, result: RunResult[Any], said: int) -> None:
        """Carry over what was said and done. A message nobody reacted to is forgotten: it can be said again."""
        self._total += result.usage.total
        if result.status == "completed" or len(result.messages) > said:
            self._messages = result.messages
            # Approvals for good are for one run, and kept under names of this kind.
            self._values = {name: value for name, value in result.values.items() if not name.startswith("baton.")}


def _edit_lines() -> None:
    # Importing it is what gives input() a history and cursor keys; some platforms do not have it.
    try:
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return
