"""One live conversation while it lasts: who speaks, what is under way and what is owed, whoever has the floor."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from ..agents import AgentContext
from ..context import HistoryEntry, RunContext
from ..context.run_state import RunState
from ..events import AgentResponded, Delta, Origin
from ..events.base import RUN_ORIGIN
from ..messages import Message, ToolMessage
from .connection import ReconnectingConnection
from .definition import PreparedAgent, RealtimeDefinition, prepared, prepared_for
from .events import SessionErrorReported, SessionReconnected, SessionReconnecting
from .mailbox import Happening, RefreshRequested, SessionEnded
from .pending import CallLedger, OpenInterrupts, ResponseScheduler
from .protocol import (
    AudioChunk,
    AudioCommitted,
    Command,
    ProviderErrorReceived,
    RealtimeModel,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    Signal,
    TranscriptionCompleted,
    TranscriptionFailed,
    UserSpeechEnded,
    UserSpeechStarted,
)
from .settings import RealtimeSettings, SessionConfig
from .speech import PlaybackTracker, SpeechTracker
from .turns import RunningTurns

_logger = logging.getLogger("baton.realtime")
_HARMLESS = frozenset({"response_cancel_not_active", "item_truncate_invalid_item_id"})
_QUEUED = (ResponseStarted, ResponseEnded, AudioCommitted, TranscriptionCompleted, TranscriptionFailed)
_REMEMBERED = 32
_GRACE = 1.0
"""How long what is being done may still take when the conversation is closed, or cut off."""


class ActiveSpeaker(Protocol):
    """Whoever has the floor."""

    @property
    def origin(self) -> Origin:
        """The activation."""
        ...

    is_listening: bool
    """Whether it waits for something to happen."""

    @property
    def is_working(self) -> bool:
        """Whether calls are being carried out."""
        ...

    def everything_said(self) -> Iterable[Message]:
        """All that was said so far."""
        ...

    def words(self, response_id: str, text: str) -> None:
        """A piece of what it says."""
        ...

    def stop_working(self) -> None:
        """Have all calls stop that are being carried out."""
        ...


class SessionController:
    """A live conversation. It is the run's `live`, and listens to the line."""

    def __init__(
        self,
        model: RealtimeModel,
        manners: RealtimeSettings,
        *,
        name: str,
        playback: PlaybackTracker | None = None,
        max_reconnects: int = 5,
        reconnect_pause: float = 0.25,
        waits_for_tools: bool = False,
        guardrail_step: int = 100,
    ) -> None:
        self.model = model
        self.manners = manners
        self.waits_for_tools = waits_for_tools
        self.guardrail_step = guardrail_step
        self.line = ReconnectingConnection(model, self, max_reconnects=max_reconnects, pause=reconnect_pause, name=name)
        self.speech = SpeechTracker(self, playback or PlaybackTracker(), manners)
        self.happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self.responses = ResponseScheduler(self.line, manners, self._may_speak)
        self.speaker: ActiveSpeaker | None = None
        self.run: RunState[Any] | None = None
        self.has_begun = asyncio.Event()
        """Set once the application has something to do: the model has been reached, or somebody asks before that."""
        self.is_open = asyncio.Event()
        """Set once the model has been reached."""
        self.calls = CallLedger()
        self.questions = OpenInterrupts(self._asked)
        self.on_question: Callable[[str], object] | None = None
        self.unheard: dict[str, None] = {}
        """What the user said and nobody has written down yet, in order."""
        self.spoken: dict[str, tuple[AgentResponded, HistoryEntry]] = {}
        """What was said last, by the provider's items: it may still be cut short."""
        self.elsewhere: list[RunningTurns] = []
        """Calls that go on though who made them has given up the floor."""
        self._gone: set[str] = set()
        """The activations whose calls these are."""
        self.is_closing = False
        self._is_opening = False
        """Whether it is being worked out what the model will be told first."""
        self._ready: PreparedAgent | None = None
        self._claimed = ""
        self._settings: SessionConfig | None = None
        self._deadline: asyncio.Timeout | None = None
        self._moved = asyncio.Event()

    # What the run's code asks of it (see `Live`).

    async def answer_to(self, key: str) -> Any:
        """The answer to a question, when somebody gives one. Ends with Suspend if the conversation ends before."""
        return await self.questions.answer_to(key)

    def claim(self, target: str, origin: Origin) -> str | None:
        """Promise the floor to an agent; why that cannot be, if it is promised to another or no longer this one's."""
        if origin.id in self._gone:
            return f"Not transferred to [{target}]: [{origin.agent}] no longer has the floor."
        if self._claimed:
            return f"Not transferred to [{target}]: the conversation is already going to [{self._claimed}]."
        self._claimed = target
        return None

    def unclaim(self) -> None:
        """Take the promise back."""
        self._claimed = ""

    async def readiness(self, ctx: RunContext[Any], target: str) -> str | None:
        """Work out what the model will be told when this agent has the floor; why it cannot have it, if it cannot."""
        found = await prepared_for(target, ctx, ctx._caller, model=self.model, manners=self.manners)
        if isinstance(found, str):
            return found
        self._ready = found
        return None

    # What the agent that has the floor asks of it.

    async def enter(
        self, agent: RealtimeDefinition[Any], ctx: AgentContext[Any], speaker: ActiveSpeaker
    ) -> PreparedAgent:
        """Let an agent have the floor: the model is told who it is now, then what calls came to; then it may speak."""
        ready = self._ready if self._ready is not None and self._ready.agent is agent else None
        if ready is None:
            self._is_opening = not self.is_open.is_set()
            ready = await prepared(agent, ctx, model=self.model, manners=self.manners)
            self._is_opening = False
        self._ready, self._claimed = None, ""
        self._settings, self.speaker, self.run = ready.settings, speaker, ctx._run
        if self.is_open.is_set():
            await self._configure(ready.settings, changes_floor=True)
        else:
            ctx._run.opened[self] = self
            await self.line.open()
            self.is_open.set()
            self.has_begun.set()
        return ready

    async def refresh(
        self, agent: RealtimeDefinition[Any], ctx: AgentContext[Any], known: PreparedAgent
    ) -> PreparedAgent:
        """Tell the model what has changed about the agent that has the floor: instructions, tools, whom it can reach.

        If that cannot be worked out, it stays as it was, and whoever listens is told.
        """
        if not agent.changes_in_time and not ctx._routes.conditional:
            return known
        try:
            ready = await prepared(agent, ctx, model=self.model, manners=self.manners)
        except Exception as error:  # noqa: BLE001 - a conversation goes on with what it has
            self.deliver(SessionErrorReported(self.origin, "not_refreshed", f"{type(error).__name__}: {error}"))
            return known
        if ready.settings != known.settings:
            self._settings = ready.settings
            await self._configure(ready.settings, changes_floor=False)
        return ready

    async def give(self, results: Iterable[ToolMessage]) -> None:
        """Tell the model what calls came to; each once on each connection."""
        for result in results:
            if not self.line.has_told(result.tool_call_id):
                await self.line.tell(result, result.tool_call_id)

    def spoke(self, item_id: str, said: AgentResponded, entry: HistoryEntry) -> None:
        """Remember what was said as this item."""
        self.spoken[item_id] = (said, entry)
        while len(self.spoken) > _REMEMBERED:
            del self.spoken[next(iter(self.spoken))]

    @property
    def response(self) -> str:
        """The response that is under way."""
        return self.responses.under_way

    def go_on_elsewhere(self, turns: RunningTurns, origin: Origin) -> None:
        """Let calls go on though who made them has given up the floor."""
        self._gone.add(origin.id)
        self.elsewhere = [each for each in (*self.elsewhere, turns) if each.are_running]

    async def ask(self) -> None:
        """Have the model answer, as soon as nobody speaks."""
        await self.responses.ask()

    async def stop_response(self) -> None:
        """Stop what the model is saying, if it is saying anything."""
        await self.responses.stop()

    @asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None, None]:
        """For as long as the conversation is open; if it is closed meanwhile, for a moment longer, and then no more."""
        try:
            async with asyncio.timeout(_GRACE if self.is_closing else None) as self._deadline:
                yield
        except TimeoutError:
            if not self.is_closing:
                raise
            _logger.warning("`%s` did not come to an end when the conversation was closed", self.origin.agent)
        finally:
            self._deadline = None

    async def send(self, command: Command) -> bool:
        """Send a command; whether it was sent."""
        return await self.line.send(command)

    def happened(self, happening: Happening) -> None:
        """Have whoever has the floor take note of something."""
        self.happenings.put_nowait(happening)

    def words(self, response_id: str, text: str) -> None:
        """A piece of what whoever has the floor says."""
        if self.speaker is not None:
            self.speaker.words(response_id, text)

    def deliver(self, delta: Delta) -> None:
        """Tell whoever listens."""
        if self.run is not None:
            self.run.log.deliver(delta)

    @property
    def origin(self) -> Origin:
        """The activation that has the floor."""
        return self.speaker.origin if self.speaker is not None else RUN_ORIGIN

    def moved(self) -> None:
        """Something has happened: whoever waits for quiet may look again."""
        self._moved.set()
        self._moved = asyncio.Event()

    # What the session asks of it.

    async def quiet(self) -> None:
        """Return when nothing more is to come by itself: all was answered, or there is an open question."""
        while not self._is_quiet:
            await self._moved.wait()

    @property
    def _is_quiet(self) -> bool:
        speaker = self.speaker
        is_working = speaker is not None and (speaker.is_working or any(each.are_running for each in self.elsewhere))
        if speaker is None or not speaker.is_listening or (is_working and not self.questions.are_open):
            return False
        is_unwritten = bool(self.unheard) and self.manners.transcription is not None
        is_owed = self.responses.are_owed or is_unwritten or not self.happenings.empty()
        return not (is_owed or self.response or self.speech.is_user_speaking or not self.line.is_up)

    def hang_up(self) -> None:
        """Have everything stop. Nothing is sent from now on."""
        if self.is_closing:
            return
        self.line.stop()
        self._break_off()
        self._stop_waiting()
        if self.speaker is not None:
            self.speaker.stop_working()
        for turns in self.elsewhere:
            turns.cancel()
        if self._deadline is not None:
            self._deadline.reschedule(asyncio.get_running_loop().time() + _GRACE)
        self.happenings.put_nowait(SessionEnded())

    async def close(self) -> None:
        """Stop what still goes on, and close the line; called when the run has stopped."""
        self.is_closing = True
        for turns in self.elsewhere:
            await turns.stop()
        await self.line.close()

    # What the line tells it (see `Listener`).

    def present_settings(self) -> SessionConfig:
        """What the model is to be."""
        assert self._settings is not None
        return self._settings

    def everything_said(self) -> Iterable[Message]:
        """All that was said so far."""
        return self.speaker.everything_said() if self.speaker is not None else ()

    async def lost(self, attempt: int, because: str) -> None:
        """The connection is gone, and with it what was being said."""
        self._break_off()
        for item_id in self.unheard:
            self.happenings.put_nowait(TranscriptionFailed(item_id, because))
        self.responses.lost()
        self.speech.forget()
        self.deliver(SessionReconnecting(self.origin, attempt, because))
        # What was said until now is to be told on the next connection, so it has to be on record first.
        noted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.happenings.put_nowait(RefreshRequested(noted))
        await asyncio.wait([noted], timeout=_GRACE)

    async def restored(self) -> None:
        """There is a connection again; what was owed is asked for."""
        self.deliver(SessionReconnected(self.origin))
        await self.responses.ask_if_free()
        self.moved()

    def told_late(self) -> None:
        """The provider knows something that it did not take before."""
        self.responses.told_late()

    def ended(self, error: BaseException | None) -> None:
        """The provider has closed the conversation, or it is lost."""
        self._break_off()
        self._stop_waiting()
        self.happenings.put_nowait(SessionEnded(is_by_provider=True, error=error))

    async def hear(self, signal: Signal) -> None:
        """Take in what the model says."""
        if type(signal) is AudioChunk:
            # Most of what comes is this. It is passed on and nothing else: nothing is recorded, nobody has to wait.
            self.speech.hear(signal)
            return
        is_stale = self.responses.is_stale(getattr(signal, "response_id", ""))
        match signal:
            case ResponseStarted(response_id):
                self.speech.begin(response_id)
                is_stale = not await self.responses.started(signal)
                if is_stale:
                    self.speech.hush(response_id)
            case ResponseEnded():
                self._ended(signal)
            case SessionConfigured():
                self.responses.configured()
            case UserSpeechStarted() | UserSpeechEnded():
                await self.speech.user_speaks(signal)
                if isinstance(signal, UserSpeechEnded):
                    self.responses.user_has_spoken()
            case ProviderErrorReceived():
                self._trouble(signal)
            case _:
                self.speech.hear(signal)
        if isinstance(signal, AudioCommitted):
            self.responses.user_has_spoken()
        if isinstance(signal, _QUEUED) and not is_stale:
            self.happenings.put_nowait(signal)
        if isinstance(signal, ResponseEnded | UserSpeechEnded):
            await self._ask_after(signal)
        if self.run is not None and self.run.log.sink is not None:
            await self.run.log.settle()
        self.moved()

    async def _ask_after(self, signal: ResponseEnded | UserSpeechEnded) -> None:
        detection = self.manners.turn_detection
        # A provider that answers what the user has just said by itself is not asked on top of it.
        if isinstance(signal, ResponseEnded) or detection is None or not detection.create_response:
            await self.responses.ask_if_free()

    def _break_off(self) -> None:
        """What was being said when the connection went is all that will be said of it."""
        if self.response and not self.responses.is_stale(self.response):
            self.happenings.put_nowait(self.speech.broken_off(self.response))

    def _stop_waiting(self) -> None:
        self.is_closing = True
        self.questions.give_up()

    def _asked(self, key: str) -> None:
        if self._is_opening:
            self.has_begun.set()
        if self.on_question is not None:
            self.on_question(key)
        self.moved()

    def _may_speak(self) -> bool:
        return not self.speech.is_user_speaking and not self.is_closing

    def _ended(self, signal: ResponseEnded) -> None:
        self.responses.ended(signal)
        self.speech.end(signal.response_id)
        if signal.status == "failed":
            self.deliver(SessionErrorReported(self.origin, signal.reason or "response_failed", signal.error))

    def _trouble(self, trouble: ProviderErrorReceived) -> None:
        if not self.responses.is_about_asking(trouble) and trouble.code not in _HARMLESS:
            self.deliver(SessionErrorReported(self.origin, trouble.code, trouble.message))

    async def _configure(self, settings: SessionConfig, *, changes_floor: bool) -> None:
        is_free = not self.speech.was_heard
        await self.responses.configure(settings, changes_voice=is_free, changes_floor=changes_floor)
