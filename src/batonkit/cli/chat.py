"""The command `baton chat`: a conversation with a team, one run for each message."""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Literal, TypeAlias, cast, get_args

import click

from .._wording import printable
from ..context.values import THREAD_PREFIX
from ..errors import BatonError
from ..log import OpenTask
from ..messages import Usage, UserMessage
from ..runs import Dismiss, Interrupt, RunResult, RunStream
from ..runs.opening import new_id
from ..stores import FINISHED_STATUSES, MemoryStore, RunRecord
from ..stores.parts import innermost_store
from .cli_errors import FAILED, SUSPENDED, print_error
from .cli_options import SCREEN, RunArguments, choice_option, run_options, target
from .display import DISMISS, Screen, ask_interrupts, shorten
from .keyboard import CTRL_D, typed_lines
from .targets import RunSetup, get_result, is_driven, last_unfinished_run, open_interrupts, set_up_run

LEAVE = ("exit", "quit", "/exit", "/quit")
SendMode: TypeAlias = Literal["queue", "steer", "preempt"]
"""The use of a message that is typed while a run is in progress."""
_COMMAND = re.compile(r"/[a-z]+")
_WITH_TEXT = re.compile(r"/(queue|steer|preempt|dismiss)(?:\s+(.*))?")
_FORK = re.compile(r"/fork(?:\s+(.*))?")
_BETWEEN_RUNS = ("/agents", "/reset")
_QUESTION_COMMANDS = ("/help", "/cancel", "/exit", "/quit")
_HELP = """\
Type a message and the team answers; the conversation is remembered.
  /help            show this help
  /agents          show the agents; the next message goes to the one with the arrow
  /fork N          continue in a copy of the conversation, without its last N messages (default: with all)
  /reset           start a new conversation
  /resume          answer the open questions of a run that is suspended
  /dismiss REASON  do not answer: the call that asks is not executed; also at a question
  /cancel          cancel that run, or the current one
  /quit, exit      leave (or Ctrl-D)
  Ctrl-C           stop the current run, or leave a question open
The team's questions appear here. Answer an approval with y, n, or n and a reason; anything else with text or JSON.
In a terminal you can type on while the team answers. What happens with the message is set with --when-busy:
  /queue TEXT      answer it afterwards (default)
  /steer TEXT      let the agents read it before their next model call, or else answer it afterwards
  /preempt TEXT    stop the run after its turn, then answer it"""


class ChatSession:
    """A conversation in a terminal: a thread of runs, in memory if there is no store."""

    def __init__(self, setup: RunSetup, when_busy: SendMode = "queue") -> None:
        self._setup = setup
        self._when_busy: SendMode = when_busy
        has_store = setup.runner._access.store is not None
        self._runner = setup.runner if has_store else setup.runner.clone(store="memory:")
        self._store = self._runner._require_store("baton chat")
        self._is_kept = not isinstance(innermost_store(self._store), MemoryStore)
        self._screen = click.get_current_context().meta[SCREEN] = Screen()
        self._values: Mapping[str, Any] = setup.arguments.values
        self._total = Usage()
        self._thread = setup.arguments.thread or new_id()
        self._answers: tuple[str, dict[str, Any]] = "", {}
        """A suspended run and the answers to its questions so far; it is resumed when none is missing."""
        self._has_left = False
        self._has_failed = False
        self._tasks: Sequence[OpenTask] = ()
        """The open tasks of the thread, the innermost last."""
        self._queued: list[str] = []
        """Messages that were typed while a run was in progress; they are sent when it has ended."""
        self._steering: dict[str, str] = {}
        """Messages that were sent to steer a run, by the id of the run that each becomes if no agent reads it."""

    def run(self) -> int:
        """Run one turn for each line until the input ends or the user leaves; return the exit code."""
        if sys.stdin.isatty():
            _enable_line_editing()
            self._screen.line(f"chat with {self._runner.team.root}; /help for help, Ctrl-D to leave", "dim")
        if self._is_kept:
            self._tasks = self._setup.loop.run(self._runner.thread(self._thread).open_tasks())
            self._continue_thread()
        while not self._has_left:
            try:
                if not self._drive_next():
                    self._execute(self._screen.read(self._prompt()))
            except EOFError:
                break
            except KeyboardInterrupt:
                self._screen.line("use Ctrl-D or /quit to leave", "dim")
        for text in self._queued:
            self._refuse(f"not sent: {shorten(text)}")
        if self._total.model_calls:
            self._screen.usage(self._total, label="total")
        return self._exit_code()

    def _exit_code(self) -> int:
        """Return how a piped conversation ended; a user at a terminal has seen it."""
        if sys.stdin.isatty():
            return 0
        if self._has_failed:
            return FAILED
        last = self._last_run()
        return SUSPENDED if last is not None and last.status == "suspended" else 0

    def _refuse(self, text: str) -> None:
        """Say why something was not done."""
        self._has_failed = True
        self._screen.line(text, "red")

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
        elif line == "/agents":
            self._show_agents()
        elif line == "/reset":
            self._start_thread("a new conversation")
        elif fork := _FORK.fullmatch(line):
            self._fork(fork[1] or "0")
        elif command := _WITH_TEXT.fullmatch(line):
            self._execute_with_text(command[1], command[2] or "")
        elif _COMMAND.fullmatch(line):
            self._refuse(f"unknown command {line}; see /help")
        elif line:
            self._send(line, self._when_busy)

    def _execute_with_text(self, name: str, text: str) -> None:
        """Execute a command that is followed by a text."""
        if name == "dismiss":
            self._finish_last_run(DISMISS, Dismiss(text) if text else Dismiss())
        elif text:
            self._send(text, cast("SendMode", name))
        else:
            self._refuse(f"/{name} needs a text: /{name} TEXT")

    def _show_agents(self) -> None:
        """Show the agents of the team, and which one the next message goes to."""
        team = self._runner.team
        active = self._setup.loop.run(self._runner.thread(self._thread).active_agent())
        active = active if active in team.members else team.root
        for name, member in team.members.items():
            description = f" — {member.agent.description}" if member.agent.description else ""
            mark, style = ("→", "bold") if name == active else (" ", None)
            self._screen.line(f"{mark} {shorten(f'{name}{description}')}", style)

    def _start_thread(self, label: str, thread: str | None = None) -> None:
        """Continue with another thread, a new one by default."""
        before = self._thread
        self._thread = thread or new_id()
        self._values = self._setup.arguments.values
        self._tasks = ()
        self._answers = ("", {})
        kept = f"; thread {self._thread}. --thread {before} continues the other one" if self._is_kept else ""
        self._screen.line(f"{label}{kept}", "dim")

    def _fork(self, number: str) -> None:
        """Continue in a copy of the conversation without its last messages."""
        if not number.isdecimal():
            self._refuse(f"/fork {number}: write how many messages to leave out, such as /fork 1")
            return
        without = int(number)
        runs = self._setup.loop.run(self._runner.thread(self._thread).runs())
        if without > len(runs) or not runs:
            count = f"{len(runs) or 'no'} message{'' if len(runs) == 1 else 's'}"
            self._refuse(f"this conversation has {count}")
        elif without == len(runs):
            self._start_thread("a new conversation")
        elif (last := runs[-1 - without]).status != "completed":
            self._refuse(f"run {last.run_id} is {last.status}; a conversation can be forked after a completed run")
        else:
            thread = new_id()
            values = self._values
            try:
                result = self._setup.loop.run(self._copy(last.run_id, thread))
            except BatonError as error:
                self._has_failed = True
                print_error(error)
                return
            self._start_thread("a copy of the conversation", thread)
            self._values = _own_values(result.values) if without else values
            self._tasks = result.open_tasks

    async def _copy(self, run_id: str, thread: str) -> RunResult[Any]:
        """Copy a completed run to a new thread; nothing is executed again."""
        return await self._runner.resume(await self._runner.runs.fork(run_id, thread=thread))

    def _send(self, text: str, mode: SendMode) -> None:
        last = self._last_run()
        message = [UserMessage(text)]
        values = self._values
        limits = self._setup.limits
        thread = self._thread
        if last is not None and not is_driven(last):
            self._refuse(f"not sent: run {last.run_id} is {last.status}; /resume resumes it, /cancel cancels it")
        elif last is not None:
            self._screen.line(f"run {last.run_id} of this thread is running elsewhere; waiting …", "dim")
            stream = self._runner.stream(message, values=values, limits=limits, thread=thread, when_busy=mode)
            self._drive(stream)
        else:
            self._drive(self._runner.stream(message, values=values, limits=limits, thread=thread))

    def _drive_next(self) -> bool:
        """Answer the next message that was typed during a run; return whether there is one."""
        if not self._queued and not self._steering:
            return False
        last = self._last_run()
        if last is None and self._steering:
            # All have been read, unless the end of the run could not make a run of the next one.
            self._setup.loop.run(self._runner._repository.inbox.promote(self._thread))
            last = self._last_run()
        if last is None:
            self._steering.clear()
            if not self._queued:
                return False
            text = self._queued.pop(0)
            self._screen.line(f"you › {text}", "bold")
            self._send(text, self._when_busy)
            return True
        text = self._steering.pop(last.run_id, None)
        if text is None:
            return False
        self._screen.line(f"you › {text}", "bold")
        self._drive(self._runner.runs.stream_drive(last.run_id))
        return True

    async def _handle_typed(self, stream: RunStream[Any], line: str) -> None:
        """Handle a line that was typed while a run is in progress."""
        if line != CTRL_D:
            self._screen.line_entered(line)
        command = _WITH_TEXT.fullmatch(line)
        if line == CTRL_D:
            self._has_left = True
            self._screen.line("leaving when this run has ended", "dim")
        elif line.lower() in LEAVE or line == "/cancel":
            self._has_left = line != "/cancel"
            await stream.cancel()
        elif line == "/help":
            self._screen.line(_HELP)
        elif command is not None and command[1] in get_args(SendMode):
            if command[2]:
                await self._send_while_busy(stream, command[2], cast("SendMode", command[1]))
            else:
                self._screen.line(f"{line} needs a text: {line} TEXT", "red")
        elif line in _BETWEEN_RUNS or _FORK.fullmatch(line):
            self._screen.line(f"{line}: the run is in progress; wait until it has ended, or /cancel it", "red")
        elif command is not None or line == "/resume":
            self._screen.line(f"{line}: there is no open question; the run is in progress", "red")
        elif _COMMAND.fullmatch(line):
            self._refuse(f"unknown command {line}; see /help")
        else:
            await self._send_while_busy(stream, line, self._when_busy)

    async def _send_while_busy(self, stream: RunStream[Any], text: str, mode: SendMode) -> None:
        if mode != "steer":
            self._queued.append(text)
            self._screen.line("  (queued)" if mode == "queue" else "  (queued; the run stops after this turn)", "dim")
            if mode == "preempt":
                await stream.cancel("after_turn")
            return
        values = stream._opened.flow.run.values if stream._opened is not None else self._values
        try:
            run_id = await self._runner.submit(
                [UserMessage(text)],
                # Those of the thread are taken over anyway, with their latest values.
                values={
                    name: value for name, value in _own_values(values).items() if not name.startswith(THREAD_PREFIX)
                },
                limits=self._setup.limits,
                thread=self._thread,
                when_busy="steer",
            )
        except BatonError as error:
            self._screen.line(f"not sent: {error}", "red")
        else:
            self._steering[run_id] = text
            self._screen.line("  (sent)", "dim")

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

    def _finish_last_run(self, command: str, dismiss: Dismiss | None = None) -> None:
        """Resume or cancel the thread's last run, or dismiss its open questions."""
        last = self._last_run()
        if last is None:
            self._refuse("no run of this conversation is suspended")
        elif command == "/cancel":
            self._cancel(last.run_id)
        elif dismiss is not None:
            self._drive(self._runner.stream_resume(last.run_id, dismiss, limits=self._setup.limits))
        elif self._ask(self._setup.loop.run(open_interrupts(self._runner, last.run_id)), last.run_id):
            self._drive(self._resumed(last.run_id))

    def _cancel(self, run_id: str) -> None:
        self._screen.line(f"it is now {self._setup.loop.run(self._runner.runs.cancel(run_id))}", "dim")

    def _ask(self, interrupts: Sequence[Interrupt], run_id: str) -> bool:
        """Ask the questions that have no answer yet; return whether all are answered."""
        if self._answers[0] != run_id:
            self._answers = run_id, {}
        command = ask_interrupts(interrupts, self._answers[1], screen=self._screen, commands=_QUESTION_COMMANDS)
        if command == "/help":
            self._screen.line(_HELP)
            return self._ask(interrupts, run_id)
        if command == "/cancel":
            self._cancel(run_id)
        elif command is not None:
            self._has_left = command in LEAVE
            self._screen.line("not answered; the run stays suspended", "red")
            if not self._has_left:
                self._screen.line(
                    "/resume asks again; /cancel cancels the run; /dismiss goes on without an answer", "dim"
                )
        return command is None

    def _resumed(self, run_id: str) -> RunStream[Any]:
        answers = self._answers[1]
        self._answers = ("", {})
        return self._runner.stream_resume(run_id, answers, limits=self._setup.limits)

    def _drive(self, stream: RunStream[Any]) -> None:
        """Drive a run with all its interrupts. An error ends the turn, not the conversation."""
        started = monotonic()
        result = self._show_run(stream)
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
        typed = partial(typed_lines, partial(self._handle_typed, stream))
        try:
            self._setup.show(stream, self._screen.show, spinner=self._screen.spinner, alongside=typed)
        except KeyboardInterrupt:
            self._screen.cancelled()
        except Exception as error:  # noqa: BLE001 - displayed, and the conversation continues
            self._has_failed = True
            self._screen.end_line()
            print_error(error)
        else:
            if (result := get_result(stream)) is not None and result.status == "cancelled":
                self._screen.line("cancelled", "red")
        return get_result(stream)

    def _drop_unanswered(self, run_id: str, result: RunResult[Any] | None) -> None:
        """Delete a run that has no answer, or that did not stop when it was cancelled."""
        page = self._setup.loop.run(self._store.list(thread=self._thread, limit=1))
        record = page.records[0] if page.records else None
        if record is not None and record.run_id != run_id:
            return  # A message that was typed meanwhile follows it.
        has_no_answer = result is not None and result.status in ("failed", "cancelled") and len(result.messages) < 2
        if has_no_answer or (record is not None and record.status == "running"):
            self._setup.loop.run(self._store.delete(run_id))

    def _update(self, result: RunResult[Any]) -> None:
        """Keep the values and tasks for the next run, unless nothing was answered."""
        self._total += result.usage.total
        if self._is_kept or result.status == "completed" or len(result.messages) > 1:
            self._tasks = result.open_tasks
        if result.status == "completed" or len(result.messages) > 1:
            self._values = _own_values(result.values)


def _own_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for the next run."""
    # Standing approvals are stored under these names and apply to one run only.
    return {name: value for name, value in values.items() if not name.startswith("baton.")}


def _enable_line_editing() -> None:
    # Importing readline gives input() a history and cursor keys; some platforms lack it.
    with suppress(ImportError):
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]


@click.command("chat")
@target
@choice_option(
    "--when-busy",
    "when_busy",
    get_args(SendMode),
    "What to do with a message that is typed while the team answers, or while another process drives the thread.",
)
@run_options
def chat_command(*, target: str, arguments: RunArguments, when_busy: SendMode) -> int:
    """Talk with a team in the terminal.

    Shows the active agent, its answers while they stream, and its tool calls. The team's questions are asked in the
    terminal. Ctrl-C stops the run, not the program; Ctrl-D, exit or /quit leave. With --store, or the store of a
    Runner, the conversation is stored; --thread continues one, and offers to resume its last run if that has not ended.

    In a terminal you can type the next message while the team answers: --when-busy queue answers it afterwards, steer
    lets the agents read it before their next model call, preempt stops the run after its turn.

    Lines that are piped in are messages, one after the other. The exit code is then 1 if a run failed or a line could
    not be used, and 3 if the last run waits for an answer.

    \b
    Examples:
      baton chat desk:router
      baton chat desk:router --store runs.db --thread u42
      baton chat examples/first_steps/transfer.py --model openai:gpt-5
      printf 'Hello\\nAnd now?\\n' | baton chat desk:router
    """
    with set_up_run(target, arguments) as setup:
        return ChatSession(setup, when_busy).run()
