"""A realtime session as the application uses it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ..agents.hooks import maybe_await
from ..context import RunContext
from ..errors import RunError, SetupError, TransferError
from ..log import Delta, Event, InterruptRaised
from ..log.event import RUN_ORIGIN
from ..log.log import Log
from ..messages import Content, UserMessage
from ..runs import Interrupt, Runner, RunResult, RunStream
from ..runs.answers import answer_events
from ..runs.result import to_interrupt
from .agent_definition import RealtimeDefinition
from .controller import SessionController
from .mailbox import MailboxEvent, TextReceived, TransferRequested
from .protocol import AppendAudio, ClearAudio, CommitAudio
from .speech import PlaybackTracker


class RealtimeSession:
    """A realtime conversation with a team.

    Open it with `async with runner.connect() as session` and iterate over it in a task of its own.
    Iteration yields the run's events and the deltas of speech. All methods may be called from any task. Sending in a
    session that is not open, or has ended, raises `RunError`.
    """

    def __init__(self, stream: RunStream[str], controller: SessionController, runner: Runner[Any, str]) -> None:
        """Create a session; use `RealtimeRunner.connect` instead.

        Args:
            stream: The stream of the run.
            controller: The state of the session.
            runner: The runner of the team.
        """
        self.run_id = stream.run_id
        """The id of the session's run."""
        self._stream = stream
        self._controller = controller
        self._runner = runner
        self._hook_tasks: set[asyncio.Task[Any]] = set()
        self._is_entered = False
        controller.on_interrupt = self._notify_interrupt

    @property
    def active_agent(self) -> str:
        """The name of the active agent."""
        return self._controller.origin.agent

    @property
    def playback(self) -> PlaybackTracker:
        """The playback tracker; report your playback progress to it for exact interruptions."""
        return self._controller.speech.playback

    @property
    def log(self) -> Log:
        """The log of the run so far."""
        return self._stream._log

    @property
    def result(self) -> RunResult[str]:
        """The result of the run, once the session has ended."""
        return self._stream.result

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """The open interrupts."""
        return tuple(to_interrupt(asked) for asked in self._stream._log.open_interrupts().values())

    async def send_text(self, content: Content, *, respond: bool = True) -> None:
        """Send a user message; return when it is logged and sent to the model.

        Args:
            content: Text or parts of the message.
            respond: Whether to request a response.
        """
        await self._post(lambda done: TextReceived(UserMessage(content), done, respond))

    async def respond(self) -> None:
        """Request a response as soon as neither side speaks."""
        self._require_open()
        await self._controller.responses.request()

    async def send_audio(self, audio: bytes, *, commit: bool = False) -> None:
        """Send a chunk of the user's audio; waits while the session reconnects.

        Args:
            audio: Audio in the session's input format; may be empty.
            commit: Whether this ends the user's turn; for sessions without turn detection.
        """
        self._require_open()
        if audio:
            await self._send(AppendAudio(audio))
        if commit:
            await self._send(CommitAudio())
            # A provider with turn detection only responds to turns whose end it has detected itself.
            await self._controller.responses.request()

    async def clear_audio(self) -> None:
        """Discard the user's audio that has not been committed."""
        self._require_open()
        await self._send(ClearAudio())

    async def interrupt(self) -> None:
        """Interrupt the agent's speech, as the user's speech would."""
        self._require_open()
        await self._controller.speech.interrupt()

    async def handoff_to(self, name: str) -> None:
        """Transfer control to another agent of the team; return when the transfer is accepted.

        Args:
            name: Name of the agent.

        Raises:
            TransferError: The team has no such agent.
            RunError: The agent could not be set up, or another transfer is in progress.
        """
        if name not in self._runner.team.members:
            raise TransferError(self.active_agent, name, [*self._runner.team.members])
        await self._post(lambda done: TransferRequested(name, done))

    async def update_agent(self, agent: RealtimeDefinition[Any]) -> None:
        """Transfer control to an agent outside the team, or to a changed agent of it.

        Args:
            agent: The agent.

        Raises:
            SetupError: It is not a `RealtimeAgent`.
            RunError: The agent could not be set up, or another transfer is in progress.
        """
        if not isinstance(agent, RealtimeDefinition):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(f"update_agent({agent!r}) needs a RealtimeAgent; a text agent can be a tool: as_tool()")
        await self._post(lambda done: TransferRequested(agent.name, done, agent))

    async def answer(self, interrupt_id: str, value: Any) -> None:
        """Answer an open interrupt.

        Args:
            interrupt_id: Id of the interrupt.
            value: The answer.

        Raises:
            AnswerError: The interrupt is not open, or the answer has the wrong type.
        """
        self._require_entered()
        log = self._stream._log
        for event in answer_events(log.open_interrupts(), {interrupt_id: value}):
            log.write(event)
            await log.settle()
            self._controller.resolve_interrupt(event.interrupt_id, event.answer)

    async def wait_until_idle(self) -> None:
        """Wait until nothing is pending.

        That is when every message is answered and every tool has ended, an interrupt is open, or the session has
        ended. Playback may take longer.
        """
        with suppress(RunError):
            await self._wait_unless_ended(self._controller.wait_until_idle())

    async def close(self) -> None:
        """End the session: cancel running tools, send nothing more, and wait for the run's end.

        With a store, a run with an open interrupt stays suspended and can be resumed with the answer.
        """
        self._controller.shut_down()
        await self._stream.wait()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        self._is_entered = True
        try:
            await self._wait_unless_ended(self._controller.is_ready.wait(), raise_failure=True)
        except BaseException:
            await self._stream.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                await self.close()
        finally:
            await self._stream.__aexit__(kind, error, traceback)

    def __aiter__(self) -> AsyncIterator[Event | Delta]:
        return self._stream.__aiter__()

    async def _send(self, command: AppendAudio | CommitAudio | ClearAudio) -> None:
        if not await self._controller.connection.send(command):
            raise self._ended_error()

    async def _post(self, make: "Callable[[asyncio.Future[None]], MailboxEvent]") -> None:
        """Post an event to the active agent and wait until it is processed."""
        self._require_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._controller.post(make(done))
        await self._wait_unless_ended(done)

    def _require_entered(self) -> None:
        if not self._is_entered:
            raise RunError("the session is not open; use `async with runner.connect() as session`")
        if self._controller.is_closing:
            raise self._ended_error()

    def _require_open(self) -> None:
        self._require_entered()
        if not self._controller.is_open.is_set():
            raise RunError("the model is not connected yet, because an interrupt is open: see `interrupts`")

    def _ended_error(self) -> RunError:
        with suppress(RunError):
            error = self._stream.result.error
            if error is not None:
                ended = RunError(f"the session `{self.run_id}` has failed: {error}")
                ended.__cause__ = error
                return ended
        return RunError(f"the session `{self.run_id}` has ended; nothing can be sent")

    async def _wait_unless_ended(self, work: Awaitable[Any], *, raise_failure: bool = False) -> None:
        waiting = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(self._stream.wait())
        try:
            await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                if raise_failure:
                    self._stream._raise_failure()
                raise self._ended_error()
            waiting.result()
        finally:
            for task in (waiting, ended):
                task.cancel()
            await asyncio.wait((waiting, ended))

    def _notify_interrupt(self, key: str) -> None:
        raised = self._stream._log.find(key, InterruptRaised)
        hooks = self._runner._config.options.hooks
        if hooks is None or self._controller.run is None or raised is None:
            return
        ctx = RunContext[Any](self._controller.run, RUN_ORIGIN, "run")
        task = asyncio.ensure_future(maybe_await(hooks.on_interrupt(ctx, to_interrupt(raised))))
        self._hook_tasks.add(task)
        task.add_done_callback(self._hook_tasks.discard)
