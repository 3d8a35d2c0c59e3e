"""`baton chat`: a conversation with a team, one run for each thing the person says."""

import asyncio
import re
import sys
from collections.abc import Mapping
from time import monotonic, time
from typing import Any

from ..log import Log
from ..messages import Message, Usage, UserMessage
from ..runner import RunResult, RunStream
from ..runner.backends import new_id
from ..runner.result import to_interrupt
from ..stores import FINISHED_STATUSES
from .display import Screen, answers_to
from .errors import print_error
from .targets import RunSetup, result_of, watch

_PROMPT = "you › "
_LEAVE = ("exit", "quit", "/exit", "/quit")
_COMMAND = re.compile(r"/[a-z]+")
_HELP = """\
Say something, and the team answers; it remembers the conversation.
  /help           this
  /quit, exit     leave (so does Ctrl-D)
  Ctrl-C          stop what the team is doing
Questions are asked in place: y or n for a tool call, or why not; anything else as text or JSON."""


def chat(start: RunSetup, *, debug: bool) -> None:
    """Talk until the person leaves."""
    with asyncio.Runner() as loop:
        try:
            ChatSession(start, loop, screen=Screen(), debug=debug).go_on()
        finally:
            loop.run(start.runner.close())


class ChatSession:
    """A conversation in a terminal, and what is carried from one turn to the next."""

    def __init__(self, start: RunSetup, loop: asyncio.Runner, *, screen: Screen, debug: bool) -> None:
        self._start = start
        self._loop = loop
        self._screen = screen
        self._debug = debug
        self._is_interactive = sys.stdin.isatty()
        self._messages: tuple[Message, ...] = ()
        self._values: Mapping[str, Any] = start.values
        self._total = Usage()
        self._thread = start.thread or (new_id() if start.store else None)
        if self._is_interactive:
            _edit_lines()

    def go_on(self) -> None:
        """Take turns until there is nothing more to read, or the person wants to leave."""
        if self._is_interactive:
            self._screen.line(f"chat with {self._start.runner.team.root}; /help helps, Ctrl-D leaves", "dim")
        if self._thread is not None:
            self._take_up(self._thread)
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

    def _take_up(self, thread: str) -> None:
        """Say where the conversation is kept, and go on with its last run if that was stopped."""
        runner, line = self._start.runner, self._screen.line
        runs = self._loop.run(runner.thread(thread).runs())
        line(f"thread {thread}, {len(runs)} run{'' if len(runs) == 1 else 's'} so far", "dim")
        last = runs[-1] if runs else None
        if last is None or last.status in FINISHED_STATUSES:
            return
        if last.status == "running" and last.lease_until > time():
            line(f"run {last.run_id} of it is under way elsewhere; until it has ended nothing can be said here", "red")
            return
        questions = Log(self._loop.run(runner.events(last.run_id))).open_interrupts().values()
        line(f"run {last.run_id} of it has not ended", "bold yellow")
        try:
            if self._read("go on with it? y, or n to give it up › ").strip().lower() not in ("y", "yes"):
                line(f"it is {self._loop.run(runner.cancel(last.run_id))}", "dim")
                return
            answers = answers_to([*map(to_interrupt, questions)], self._read, screen=self._screen)
        except (EOFError, KeyboardInterrupt):
            line("not answered; the run is left where it was", "red")
            return
        self._carry_on(runner.stream_resume(last.run_id, answers))

    def _take_turn(self, text: str) -> None:
        """One run for one thing that the person says."""
        start, said = self._start, (*self._messages, UserMessage(text))
        self._carry_on(start.runner.stream(said, values=self._values, limits=start.limits, thread=self._thread))

    def _carry_on(self, run: RunStream[Any]) -> None:
        """One run, with all its questions. Whatever ends it ends the turn, not the conversation."""
        began, live, result = monotonic(), run, None
        while live is not None:
            result = self._outcome_of(live)
            live = self._resumed(result) if result is not None and result.status == "suspended" else None
        if result is not None:
            self._keep(result)
            if result.usage.total.model_calls:
                self._screen.usage(result.usage.total, seconds=monotonic() - began)

    def _outcome_of(self, live: RunStream[Any]) -> RunResult[Any] | None:
        """Where the run stands after it has been driven and shown."""
        try:
            self._loop.run(watch(live, self._screen.show))
        except KeyboardInterrupt:
            self._screen.cancelled()
        except Exception as error:  # noqa: BLE001 - here a failure becomes something to read
            self._screen.end_line()
            print_error(self._start.explained(error, live), debug=self._debug)
        return result_of(live)

    def _resumed(self, result: RunResult[Any]) -> RunStream[Any] | None:
        """The run with a person's answers in it; None if the person does not want to answer."""
        try:
            answers = answers_to(result.interrupts, self._read, screen=self._screen)
        except (EOFError, KeyboardInterrupt):
            self._screen.line("not answered; the run is left where it was", "red")
            return None
        return self._start.runner.stream_resume(result.run_id, answers, limits=self._start.limits)

    def _keep(self, result: RunResult[Any]) -> None:
        """Carry over what was said and done. A message nobody reacted to is forgotten: it can be said again."""
        self._total += result.usage.total
        said = len(self._messages) + 1
        if result.status == "completed" or len(result.messages) > said:
            # What was said in a thread is in the store.
            self._messages = result.messages if self._thread is None else ()
            # Approvals for good are for one run, and kept under names of this kind.
            self._values = {name: value for name, value in result.values.items() if not name.startswith("baton.")}


def _edit_lines() -> None:
    # Importing it is what gives input() a history and cursor keys; some platforms do not have it.
    try:
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return
