"""The command `baton chat`: a conversation with a team, one run for each message."""

import asyncio
import re
import sys
from collections.abc import Mapping
from time import monotonic, time
from typing import Any

import click

from ..log import Log
from ..messages import Message, Usage, UserMessage
from ..runner import RunResult, RunStream
from ..runner.backends import new_id
from ..runner.result import to_interrupt
from ..stores import FINISHED_STATUSES
from .display import Screen, ask_interrupts
from .errors import print_error, warnings_on_stderr
from .options import is_debugging, run_arguments, run_options, target
from .targets import RunSetup, default_model, get_result, set_up_run, show_events

_PROMPT = "you › "
_LEAVE = ("exit", "quit", "/exit", "/quit")
_COMMAND = re.compile(r"/[a-z]+")
_HELP = """\
Type a message and the team answers; the conversation is remembered.
  /help           show this help
  /quit, exit     leave (or Ctrl-D)
  Ctrl-C          stop the current run
The team's questions appear here. Answer an approval with y, n or a reason; anything else with text or JSON."""


def chat(setup: RunSetup, *, debug: bool) -> None:
    """Hold a conversation until the user leaves."""
    with asyncio.Runner() as loop:
        try:
            ChatSession(setup, loop, screen=Screen(), debug=debug).run()
        finally:
            loop.run(setup.runner.close())


class ChatSession:
    """A conversation in a terminal, and its state between runs.

    Args:
        setup: The runner and its arguments.
        loop: The event loop.
        screen: Displays the conversation.
        debug: Show tracebacks of errors.
    """

    def __init__(self, setup: RunSetup, loop: asyncio.Runner, *, screen: Screen, debug: bool) -> None:
        self._setup = setup
        self._loop = loop
        self._screen = screen
        self._debug = debug
        self._is_interactive = sys.stdin.isatty()
        self._messages: tuple[Message, ...] = ()
        self._values: Mapping[str, Any] = setup.values
        self._total = Usage()
        self._thread = setup.thread or (new_id() if setup.store else None)
        if self._is_interactive:
            _enable_line_editing()

    def run(self) -> None:
        """Run one turn for each line until the input ends or the user leaves."""
        if self._is_interactive:
            self._screen.line(f"chat with {self._setup.runner.team.root}; /help for help, Ctrl-D to leave", "dim")
        if self._thread is not None:
            self._continue_thread(self._thread)
        while (line := self._next_line()) is not None:
            if line == "/help":
                self._screen.line(_HELP)
            elif _COMMAND.fullmatch(line):
                self._screen.line(f"unknown command {line}; see /help", "red")
            elif line:
                self._run_turn(line)
        if self._total.model_calls:
            self._screen.usage(self._total, label="total")

    def _next_line(self) -> str | None:
        """Return the user's next line; None if they leave."""
        while True:
            try:
                line = self._read(_PROMPT).strip()
            except EOFError:
                return None
            except KeyboardInterrupt:
                self._screen.line("use Ctrl-D or /quit to leave", "dim")
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

    def _continue_thread(self, thread: str) -> None:
        """Show the thread's state and offer to resume its last run if that has not ended."""
        runner, line = self._setup.runner, self._screen.line
        runs = self._loop.run(runner.thread(thread).runs())
        line(f"thread {thread}, {len(runs)} run{'' if len(runs) == 1 else 's'} so far", "dim")
        last = runs[-1] if runs else None
        if last is None or last.status in FINISHED_STATUSES:
            return
        if last.status == "running" and last.lease_until > time():
            line(f"run {last.run_id} of this thread is running elsewhere; wait until it has ended", "red")
            return
        interrupts = Log(self._loop.run(runner.events(last.run_id))).open_interrupts().values()
        line(f"run {last.run_id} of this thread has not ended", "bold yellow")
        try:
            if self._read("resume it? y, or n to cancel it › ").strip().lower() not in ("y", "yes"):
                line(f"it is now {self._loop.run(runner.cancel(last.run_id))}", "dim")
                return
            answers = ask_interrupts([*map(to_interrupt, interrupts)], self._read, screen=self._screen)
        except (EOFError, KeyboardInterrupt):
            line("not answered; the run stays suspended", "red")
            return
        self._drive(runner.stream_resume(last.run_id, answers))

    def _run_turn(self, text: str) -> None:
        setup, messages = self._setup, (*self._messages, UserMessage(text))
        self._drive(setup.runner.stream(messages, values=self._values, limits=setup.limits, thread=self._thread))

    def _drive(self, run: RunStream[Any]) -> None:
        """Drive a run with all its interrupts. An error ends the turn, not the conversation."""
        started, stream, result = monotonic(), run, None
        while stream is not None:
            result = self._show_run(stream)
            stream = self._resume(result) if result is not None and result.status == "suspended" else None
        if result is not None:
            self._update(result)
            if result.usage.total.model_calls:
                self._screen.usage(result.usage.total, seconds=monotonic() - started)

    def _show_run(self, stream: RunStream[Any]) -> RunResult[Any] | None:
        """Drive and display a run; return its result if there is one."""
        try:
            self._loop.run(show_events(stream, self._screen.show))
        except KeyboardInterrupt:
            self._screen.cancelled()
        except Exception as error:  # noqa: BLE001 - displayed, and the conversation continues
            self._screen.end_line()
            print_error(self._setup.explain(error, stream), debug=self._debug)
        return get_result(stream)

    def _resume(self, result: RunResult[Any]) -> RunStream[Any] | None:
        """Resume a run with the user's answers; None if the user does not answer."""
        try:
            answers = ask_interrupts(result.interrupts, self._read, screen=self._screen)
        except (EOFError, KeyboardInterrupt):
            self._screen.line("not answered; the run stays suspended", "red")
            return None
        return self._setup.runner.stream_resume(result.run_id, answers, limits=self._setup.limits)

    def _update(self, result: RunResult[Any]) -> None:
        """Keep messages and values for the next run. An unanswered message is dropped."""
        self._total += result.usage.total
        messages = len(self._messages) + 1
        if result.status == "completed" or len(result.messages) > messages:
            # The messages of a thread are in the store.
            self._messages = result.messages if self._thread is None else ()
            # Standing approvals are stored under these names and apply to one run only.
            self._values = {name: value for name, value in result.values.items() if not name.startswith("baton.")}


def _enable_line_editing() -> None:
    # Importing readline gives input() a history and cursor keys; some platforms lack it.
    try:
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return


@click.command("chat")
@target
@run_options
@click.pass_context
def chat_command(ctx: click.Context, /, *, target: str, **rest: Any) -> None:
    """Talk with a team in the terminal.

    Shows the active agent, its answers while they stream, and its tool calls. The team's questions are asked in the
    terminal. Ctrl-C stops the run, not the program; Ctrl-D, exit or /quit leave. With --store the conversation is
    stored; --thread continues one, and offers to resume its last run if that has not ended.

    \b
    Examples:
      baton chat desk:router
      baton chat desk:router --store runs.db --thread u42
      baton chat examples/03_transfer.py --model openai:gpt-5
      printf 'Hello\\nAnd now?\\n' | baton chat desk:router
    """
    debug, arguments = is_debugging(ctx), run_arguments(**rest)
    with warnings_on_stderr(debug=debug, quiet=False), default_model(arguments.model):
        chat(set_up_run(target, arguments), debug=debug)
