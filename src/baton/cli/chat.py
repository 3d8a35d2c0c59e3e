"""The command `baton chat`: a conversation with a team, one run for each message."""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import click

from ..events import OpenTask
from ..messages import Usage, UserMessage
from ..runner import Interrupt, RunResult, RunStream
from ..runner.backends import new_id
from ..stores import FINISHED_STATUSES, MemoryStore, RunRecord
from ..wording import printable
from .display import Screen, ask_interrupts
from .errors import print_error
from .options import RunArguments, run_options, target
from .targets import RunSetup, get_result, is_driven, last_unfinished_run, open_interrupts, set_up_run

LEAVE = ("exit", "quit", "/exit", "/quit")
_COMMAND = re.compile(r"/[a-z]+")
_QUESTION_COMMANDS = ("/help", "/cancel", "/exit", "/quit")
_HELP = """\
Type a message and the team answers; the conversation is remembered.
  /help           show this help
  /resume         answer the open questions of a run that is suspended
  /cancel         cancel that run
  /quit, exit     leave (or Ctrl-D)
  Ctrl-C          stop the current run, or leave a question open
The team's questions appear here. Answer an approval with y, n, or n and a reason; anything else with text or JSON."""


class ChatSession:
    """A conversation in a terminal: a thread of runs, in memory if there is no store.

    Args:
        setup: The runner and its arguments.
    """

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        has_store = setup.runner._stored_runs is not None
        self._runner = setup.runner if has_store else setup.runner.with_store("memory:")
        self._store = self._runner._require_store("baton chat")
        self._is_kept = not isinstance(self._store, MemoryStore)
        self._screen = Screen()
        self._values: Mapping[str, Any] = setup.arguments.values
        self._total = Usage()
        self._thread = setup.arguments.thread or new_id()
        self._answers: tuple[str, dict[str, Any]] = "", {}
        """A suspended run and the answers to its questions so far; it is resumed when none is missing."""
        self._has_left = False
        self._tasks: Sequence[OpenTask] = ()
        """The open tasks of the thread, the innermost last."""

    def run(self) -> None:
        """Run one turn for each line until the input ends or the user leaves."""
        if sys.stdin.isatty():
            _enable_line_editing()
            self._screen.line(f"chat with {self._runner.team.root}; /help for help, Ctrl-D to leave", "dim")
        if self._is_kept:
            self._tasks = self._setup.loop.run(self._runner.thread(self._thread).open_tasks())
            self._continue_thread()
        while not self._has_left:
            try:
                self._execute(self._screen.read(self._prompt()))
            except EOFError:
                break
            except KeyboardInterrupt:
                self._screen.line("use Ctrl-D or /quit to leave", "dim")
        if self._total.model_calls:
            self._screen.usage(self._total, label="total")

    def _prompt(self) -> str:
        """Return the prompt, with the agents of the open tasks: the message goes to the last one."""
        names = [self._tasks[0].caller, *(task.agent for task in self._tasks)] if self._tasks else []
        return f"you ({printable(' → '.join(names))}) › " if names else "you › "

    def _execute(self, line: str) -> None:
        """Execute a command, or send the line to the team."""
        if line.lower() in LEAVE:
            self._has_left = True
        elif line == "/help":
            self._screen.line(_HELP)
        elif line in ("/resume", "/cancel"):
            self._finish_last_run(line)
        elif _COMMAND.fullmatch(line):
            self._screen.line(f"unknown command {line}; see /help", "red")
        elif line:
            self._send(line)

    def _send(self, text: str) -> None:
        last = self._last_run()
        if last is not None and is_driven(last):
            problem = f"run {last.run_id} of this thread is still running; wait until it has ended"
        elif last is not None:
            problem = f"run {last.run_id} is {last.status}; /resume resumes it, /cancel cancels it"
        else:
            message = [UserMessage(text)]
            values, limits = self._values, self._setup.limits
            self._drive(self._runner.stream(message, values=values, limits=limits, thread=self._thread))
            return
        self._screen.line(f"not sent: {problem}", "red")

    def _last_run(self) -> RunRecord | None:
        """Return the last run of the thread if it has not ended."""
        page = self._setup.loop.run(self._store.list(thread=self._thread, limit=1))
        return next((record for record in page.records if record.status not in FINISHED_STATUSES), None)

    def _continue_thread(self) -> None:
        """Show the thread's state and offer to resume its last run if that has not ended."""
        line = self._screen.line
        last = self._setup.loop.run(last_unfinished_run(self._runner, self._thread, screen=self._screen))
        if last is None:
            return
        if is_driven(last):
            line(f"run {last.run_id} of this thread is running elsewhere; wait until it has ended", "red")
            return
        line(f"run {last.run_id} of this thread has not ended", "bold yellow")
        commands = {"y": "/resume", "yes": "/resume", "n": "/cancel", "no": "/cancel"}
        try:
            while (reply := self._screen.read("resume it? y, or n to cancel it › ").lower()) not in (*commands, *LEAVE):
                line("  y resumes it; n cancels it; /quit leaves", "dim")
            self._execute(commands.get(reply, reply))
        except (EOFError, KeyboardInterrupt):
            line("not answered; the run stays suspended", "red")

    def _finish_last_run(self, command: str) -> None:
        """Resume or cancel the thread's last run."""
        last = self._last_run()
        if last is None:
            self._screen.line("no run of this conversation is suspended", "red")
        elif command == "/cancel":
            self._cancel(last.run_id)
        elif self._ask(self._setup.loop.run(open_interrupts(self._runner, last.run_id)), last.run_id):
            self._drive(self._resumed(last.run_id))

    def _cancel(self, run_id: str) -> None:
        self._screen.line(f"it is now {self._setup.loop.run(self._runner.cancel(run_id))}", "dim")

    def _ask(self, interrupts: Sequence[Interrupt], run_id: str) -> bool:
        """Ask the questions that have no answer yet; return whether all are answered."""
        if self._answers[0] != run_id:
            self._answers = run_id, {}
        answers = self._answers[1]
        unanswered = [each for each in interrupts if each.id not in answers]
        command = ask_interrupts(unanswered, answers, screen=self._screen, commands=_QUESTION_COMMANDS)
        if command == "/help":
            self._screen.line(_HELP)
            return self._ask(interrupts, run_id)
        if command == "/cancel":
            self._cancel(run_id)
        elif command is not None:
            self._has_left = command in LEAVE
            self._screen.line("not answered; the run stays suspended", "red")
            if not self._has_left:
                self._screen.line("/resume asks again; /cancel cancels the run", "dim")
        return command is None

    def _resumed(self, run_id: str) -> RunStream[Any]:
        answers, self._answers = self._answers[1], ("", {})
        return self._runner.stream_resume(run_id, answers, limits=self._setup.limits)

    def _drive(self, stream: RunStream[Any]) -> None:
        """Drive a run with all its interrupts. An error ends the turn, not the conversation."""
        started, result = monotonic(), self._show_run(stream)
        while result is not None and result.status == "suspended" and self._ask(result.interrupts, result.run_id):
            result = self._show_run(self._resumed(result.run_id))
        if not self._is_kept:
            self._drop_unanswered(stream.run_id, result)
        if result is not None:
            self._update(result)
            if result.usage.total.model_calls:
                self._screen.usage(result.usage.total, seconds=monotonic() - started)

    def _show_run(self, stream: RunStream[Any]) -> RunResult[Any] | None:
        """Drive and display a run; return its result if there is one."""
        try:
            self._setup.show(stream, self._screen.show)
        except KeyboardInterrupt:
            self._screen.cancelled()
        except Exception as error:  # noqa: BLE001 - displayed, and the conversation continues
            self._screen.end_line()
            print_error(error)
        return get_result(stream)

    def _drop_unanswered(self, run_id: str, result: RunResult[Any] | None) -> None:
        """Delete a run that has no answer, or that did not stop when it was cancelled."""
        record = self._setup.loop.run(self._store.record(run_id))
        has_no_answer = result is not None and result.status in ("failed", "cancelled") and len(result.messages) < 2
        if has_no_answer or (record is not None and record.status == "running"):
            self._setup.loop.run(self._store.delete(run_id))

    def _update(self, result: RunResult[Any]) -> None:
        """Keep the values and tasks for the next run, unless nothing was answered."""
        self._total += result.usage.total
        if self._is_kept or result.status == "completed" or len(result.messages) > 1:
            self._tasks = result.open_tasks
        if result.status == "completed" or len(result.messages) > 1:
            # Standing approvals are stored under these names and apply to one run only.
            self._values = {name: value for name, value in result.values.items() if not name.startswith("baton.")}


def _enable_line_editing() -> None:
    # Importing readline gives input() a history and cursor keys; some platforms lack it.
    with suppress(ImportError):
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]


@click.command("chat")
@target
@run_options
def chat_command(*, target: str, arguments: RunArguments) -> None:
    """Talk with a team in the terminal.

    Shows the active agent, its answers while they stream, and its tool calls. The team's questions are asked in the
    terminal. Ctrl-C stops the run, not the program; Ctrl-D, exit or /quit leave. With --store, or the store of a
    Runner, the conversation is stored; --thread continues one, and offers to resume its last run if that has not ended.

    \b
    Examples:
      baton chat desk:router
      baton chat desk:router --store runs.db --thread u42
      baton chat examples/03_transfer.py --model openai:gpt-5
      printf 'Hello\\nAnd now?\\n' | baton chat desk:router
    """
    with set_up_run(target, arguments) as setup:
        ChatSession(setup).run()
