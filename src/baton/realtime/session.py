"""A live conversation as an application holds it: it speaks, listens, answers questions and hands over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ..agents import RunHooks
from ..agents.hooks import maybe_await
from ..context import RunContext
from ..errors import RunError, SetupError, TransferError
from ..events import Delta, Event, InterruptRaised
from ..events.base import RUN_ORIGIN
from ..log import Log
from ..messages import Content, UserMessage
from ..runner import Interrupt, RunResult, RunStream
from ..runner.answers import answer_events
from ..runner.result import to_interrupt
from .controller import SessionController
from .definition import RealtimeDefinition
from .mailbox import TextReceived, TransferRequested
from .protocol import AppendAudio, ClearAudio, CommitAudio
from .speech import PlaybackTracker


class RealtimeSession:
    """A live conversation: `async with runner.connect() as session: async for event in session: …`.

    Everything that a run logs is delivered, and besides that what is heard while it is said. Send from any task.
    """

    def __init__(self, live: RunStream[str], talk: SessionController, *, team: Any, hooks: RunHooks | None) -> None:
        self.run_id = live.run_id
        """The id of the run that this conversation is."""
        self._live = live
        self._talk = talk
        self._team = team
        self._hooks = hooks
        self._asked: set[asyncio.Task[Any]] = set()
        self._is_entered = False
        talk.on_question = self._tell_question

    @property
    def active_agent(self) -> str:
        """The name of the agent that has the floor."""
        return self._talk.origin.agent

    @property
    def playback(self) -> PlaybackTracker:
        """Tell it what you have really played, so that an interruption is cut at the right word."""
        return self._talk.speech.playback

    @property
    def log(self) -> Log:
        """Everything that has happened so far."""
        return self._live._log

    @property
    def result(self) -> RunResult[str]:
        """How the conversation stands, once it is over."""
        return self._live.result

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """Every open question."""
        return tuple(to_interrupt(asked) for asked in self._live._log.open_interrupts().values())

    async def send_text(self, content: Content, *, respond: bool = True) -> None:
        """Say something as the user, in writing; returns when it is on record and the model has been told."""
        self._refuse_unless_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._talk.happened(TextReceived(UserMessage(content), done, respond))
        await self._unless_over(done)

    async def respond(self) -> None:
        """Have the agent answer, as soon as nobody speaks; for conversations in which you decide when that is."""
        self._refuse_unless_open()
        await self._talk.ask()

    async def send_audio(self, audio: bytes, *, commit: bool = False) -> None:
        """Pass on a piece of what the user says. `commit` says that it is the last, where no turn detection finds out.

        Waits while there is no connection; nothing is lost then.
        """
        self._refuse_unless_open()
        if audio:
            await self._send(AppendAudio(audio))
        if commit:
            await self._send(CommitAudio())
            # A provider that takes turns answers what it has found the end of itself, and nothing else.
            await self._talk.ask()

    async def clear_audio(self) -> None:
        """Forget what the user has said since the last commit."""
        self._refuse_unless_open()
        await self._send(ClearAudio())

    async def interrupt(self) -> None:
        """Stop what the agent is saying, as if the user had begun to speak."""
        self._refuse_unless_open()
        await self._talk.speech.interrupt()

    async def handoff_to(self, name: str) -> None:
        """Give the floor to another agent of the team; returns when it is settled that it gets it."""
        if name not in self._team.members:
            raise TransferError(self.active_agent, name, [*self._team.members])
        await self._want(name, None)

    async def update_agent(self, agent: RealtimeDefinition[Any]) -> None:
        """Give the floor to an agent that need not be in the team, or to one of its agents with something changed."""
        if not isinstance(agent, RealtimeDefinition):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(f"update_agent({agent!r}) needs a RealtimeAgent; a text agent can be a tool: as_tool()")
        await self._want(agent.name, agent)

    async def answer(self, interrupt_id: str, value: Any) -> None:
        """Answer an open question. Raises AnswerError if it is not open, or the answer does not fit."""
        self._refuse_unless_entered()
        log = self._live._log
        for event in answer_events(log.open_interrupts(), {interrupt_id: value}):
            log.write(event)
            await log.settle()
            self._talk.questions.answered(event.interrupt_id, event.answer)

    async def wait_until_idle(self) -> None:
        """Return when nothing more is to come by itself: all that was said has been answered, and what was called has
        been done; or there is an open question, or the conversation is over. Playing may take longer.
        """
        with suppress(RunError):
            await self._unless_over(self._talk.quiet())

    async def close(self) -> None:
        """End the conversation: everything that runs is stopped, and nothing is sent any more. Returns when it is over.

        What asks a question then stays open, if there is a store: the run can be resumed with the answer.
        """
        self._talk.hang_up()
        await self._live.wait()

    async def __aenter__(self) -> Self:
        await self._live.__aenter__()
        self._is_entered = True
        try:
            await self._unless_over(self._talk.has_begun.wait(), raises=True)
        except BaseException:
            await self._live.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                await self.close()
        finally:
            await self._live.__aexit__(kind, error, traceback)

    def __aiter__(self) -> AsyncIterator[Event | Delta]:
        return self._live.__aiter__()

    async def _send(self, command: AppendAudio | CommitAudio | ClearAudio) -> None:
        if not await self._talk.line.send(command):
            raise self._over()

    async def _want(self, target: str, guest: RealtimeDefinition[Any] | None) -> None:
        self._refuse_unless_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._talk.happened(TransferRequested(target, done, guest))
        await self._unless_over(done)

    def _refuse_unless_entered(self) -> None:
        if not self._is_entered:
            raise RunError("open the conversation first: async with runner.connect() as session")
        if self._talk.is_closing:
            raise self._over()

    def _refuse_unless_open(self) -> None:
        self._refuse_unless_entered()
        if not self._talk.is_open.is_set():
            raise RunError(
                "the model has not been reached yet, because somebody asks something first: see `interrupts`"
            )

    def _over(self) -> RunError:
        with suppress(RunError):
            error = self._live.result.error
            if error is not None:
                over = RunError(f"the conversation `{self.run_id}` is over; it failed: {error}")
                over.__cause__ = error
                return over
        return RunError(f"the conversation `{self.run_id}` is over; nothing can be sent in it any more")

    async def _unless_over(self, work: Awaitable[Any], *, raises: bool = False) -> None:
        """Wait for something, unless the conversation ends before."""
        waiting = asyncio.ensure_future(work)
        over = asyncio.ensure_future(self._live.wait())
        try:
            await asyncio.wait([waiting, over], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                if raises:
                    self._live._raise_failure()
                raise self._over()
            waiting.result()
        finally:
            for task in (waiting, over):
                task.cancel()
            await asyncio.wait((waiting, over))

    def _tell_question(self, key: str) -> None:
        if self._hooks is None or self._talk.run is None:
            return
        asked = self._live._log.find(key, InterruptRaised)
        told = (
            maybe_await(self._hooks.on_interrupt(RunContext(self._talk.run, RUN_ORIGIN, "run"), to_interrupt(asked)))
            if asked
            else None
        )
        if told is not None:
            task = asyncio.ensure_future(told)
            self._asked.add(task)
            task.add_done_callback(self._asked.discard)
