"""The state of one open realtime session, independent of the agent that is active in it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, assert_never, cast

from ..agents import AgentContext
from ..context import RunContext
from ..context.run_context import SuspendRun
from ..context.run_state import RunState
from ..errors import OpenInterruptError
from ..log import AgentResponded, Delta, Origin
from ..log.entries import HistoryEntry
from ..log.event import RUN_ORIGIN
from ..messages import Message, ToolMessage
from . import protocol
from .agent_definition import PreparedAgent, prepare_agent, prepare_target
from .connection import ReconnectingConnection
from .deltas import SessionErrorReported, SessionReconnected, SessionReconnecting
from .mailbox import MailboxEvent, RefreshRequested, SessionEnded
from .pending import ResponseScheduler
from .speech import PlaybackTracker, SpeechTracker
from .spoken_guardrails import ResponseGuards
from .turns import RunningTurns
from .voice_settings import RealtimeSettings, SessionConfig, SessionOptions

_logger = logging.getLogger("baton.realtime")
_HARMLESS_CODES = frozenset({"response_cancel_not_active", "item_truncate_invalid_item_id"})
_MAX_REMEMBERED = 32
_CLOSE_GRACE = 1.0
"""Seconds that running work may still take when the session is closed or disconnected."""


@dataclass(eq=False)
class ActiveSpeaker:
    """The activation that currently speaks, and the configuration it speaks with."""

    turns: RunningTurns
    guards: ResponseGuards
    prepared: PreparedAgent
    is_waiting: bool = False
    """True if it waits for the next mailbox event."""


class SessionController:
    """Connects the active agent, the model connection and the application of one session.

    It is the run's `live` conversation, and the connection reports to it.
    """

    def __init__(
        self,
        model: protocol.RealtimeModel,
        settings: RealtimeSettings,
        options: SessionOptions,
        *,
        name: str,
        playback: PlaybackTracker | None,
    ) -> None:
        self.model = model
        self.settings = settings
        self.options = options
        self.connection = ReconnectingConnection(model, self, name=name, options=options)
        self.speech = SpeechTracker(self, playback or PlaybackTracker(), settings)
        self.mailbox: asyncio.Queue[MailboxEvent] = asyncio.Queue()
        self.responses = ResponseScheduler(self.connection, settings, self._can_respond)
        self.speaker: ActiveSpeaker | None = None
        self.run: RunState[Any] | None = None
        self.is_ready = asyncio.Event()
        """Set once the session can be used: it is connected, or an interrupt is open before that."""
        self.is_open = asyncio.Event()
        """Set once the model is connected."""
        self.calls: dict[str, tuple[str, str]] = {}
        """Tool name and arguments of all calls, by call id."""
        self.on_interrupt: Callable[[str], object] | None = None
        """Called with the key of each new interrupt."""
        self._interrupts: dict[str, asyncio.Future[Any]] = {}
        """Interrupts whose answers are awaited, by key."""
        self.untranscribed: dict[str, None] = {}
        """Audio items of the user whose transcription is missing, in order."""
        self.spoken: dict[str, tuple[AgentResponded, HistoryEntry]] = {}
        """The most recent responses by item id; they may still be truncated."""
        self.detached_turns: list[RunningTurns] = []
        """Turns that continue after their agent transferred control."""
        self._detached_activations: set[str] = set()
        self.is_closing = False
        self._is_opening = False
        """True if the first configuration is being built."""
        self._prepared: PreparedAgent | None = None
        self._claimed = ""
        self._deadline: asyncio.Timeout | None = None
        self._changed = asyncio.Event()

    # Called by the run (see `LiveConversation`).

    async def answer_to(self, key: str) -> Any:
        """Wait for the answer to an interrupt. Raises SuspendRun if the session ends first."""
        if self.is_closing:
            raise SuspendRun(key)
        waiting = self._interrupts[key] = asyncio.get_running_loop().create_future()
        if self._is_opening:
            self.is_ready.set()
        if self.on_interrupt is not None:
            self.on_interrupt(key)
        self.notify_change()
        try:
            return await waiting
        except asyncio.CancelledError:
            # Closing cancels the tool as well; its question stays open, as at any other suspension.
            if self.is_closing:
                raise SuspendRun(key) from None
            raise
        finally:
            self._interrupts.pop(key, None)

    def claim(self, target: str, origin: Origin) -> str | None:
        """Reserve the next transfer; return the reason if that is not possible."""
        if origin.id in self._detached_activations:
            return f"Not transferred to [{target}]: [{origin.agent}] is no longer the active agent."
        if self._claimed:
            return f"Not transferred to [{target}]: the conversation is already going to [{self._claimed}]."
        self._claimed = target
        return None

    def unclaim(self) -> None:
        """Cancel the reservation."""
        self._claimed = ""

    async def readiness(self, ctx: RunContext[Any], target: str) -> str | None:
        """Build the target's configuration; return why it cannot become active, if so."""
        try:
            caller = cast("AgentContext[Any]", ctx._caller)
            self._prepared = await prepare_target(target, ctx, caller, model=self.model, settings=self.settings)
        except OpenInterruptError:
            raise
        except Exception as error:
            _logger.warning("could not set up `%s` for a transfer", target, exc_info=error)
            return f"Not transferred to [{target}]: it could not be set up: {error}"
        return None

    # Called by the active agent.

    async def enter(self, turns: RunningTurns, guards: ResponseGuards) -> ActiveSpeaker:
        """Make an agent active: connect if necessary, and send its configuration."""
        ctx = turns.ctx
        prepared = self._prepared
        # The task of a new activation is known only once the transfer is recorded.
        if prepared is None or prepared.agent is not turns.agent or prepared.task != ctx._task:
            self._is_opening = not self.is_open.is_set()
            prepared = await prepare_agent(turns.agent, ctx, model=self.model, settings=self.settings)
            self._is_opening = False
        self._prepared = None
        self._claimed = ""
        self.speaker = ActiveSpeaker(turns, guards, prepared)
        self.run = ctx._run
        if self.is_open.is_set():
            await self._configure(prepared.config, changes_agent=True)
        else:
            ctx._run.opened[self] = self
            await self.connection.open()
            self.is_open.set()
            self.is_ready.set()
        return self.speaker

    async def refresh(self, speaker: ActiveSpeaker) -> None:
        """Send the active agent's configuration again if it changed.

        If it cannot be built, the current one stays.
        """
        agent = speaker.turns.agent
        ctx = speaker.turns.ctx
        current = speaker.prepared
        if not agent.is_dynamic and not ctx._routes.conditional:
            return
        try:
            speaker.prepared = await prepare_agent(agent, ctx, model=self.model, settings=self.settings)
        except OpenInterruptError:
            raise
        except Exception as error:  # noqa: BLE001 - the session continues with the current configuration
            self.deliver(SessionErrorReported(self.origin, "not_refreshed", f"{type(error).__name__}: {error}"))
            return
        if speaker.prepared.config != current.config:
            await self._configure(speaker.prepared.config, changes_agent=False)

    async def send_results(self, results: Iterable[ToolMessage]) -> None:
        """Send tool results to the model, each once per connection."""
        for result in results:
            if not self.connection.was_sent(result.tool_call_id):
                await self.connection.send_item(result, result.tool_call_id)

    def remember_spoken(self, item_id: str, response: AgentResponded, entry: HistoryEntry) -> None:
        """Remember the response of an item, so that it can be truncated."""
        self.spoken[item_id] = (response, entry)
        while len(self.spoken) > _MAX_REMEMBERED:
            del self.spoken[next(iter(self.spoken))]

    def add_detached(self, turns: RunningTurns, origin: Origin) -> None:
        """Keep turns running whose agent is no longer active."""
        self._detached_activations.add(origin.id)
        self.detached_turns = [each for each in (*self.detached_turns, turns) if each.is_running]

    @property
    def has_detached_running(self) -> bool:
        """True if turns of earlier agents are running."""
        return any(turns.is_running for turns in self.detached_turns)

    @asynccontextmanager
    async def closing_timeout(self) -> AsyncGenerator[None, None]:
        """Limit the block to a grace period once the session is closing."""
        try:
            async with asyncio.timeout(_CLOSE_GRACE if self.is_closing else None) as self._deadline:
                yield
        except TimeoutError:
            if not self.is_closing:
                raise
            _logger.warning("`%s` did not finish in time when the session was closed", self.origin.agent)
        finally:
            self._deadline = None

    def post(self, event: MailboxEvent) -> None:
        """Add an event to the active agent's mailbox."""
        self.mailbox.put_nowait(event)

    def on_transcript(self, response_id: str, text: str) -> None:
        """Pass transcript text to the active agent."""
        if self.speaker is not None:
            self.speaker.guards.add_text(response_id, text)

    def deliver(self, delta: Delta) -> None:
        """Deliver a delta to the run's subscribers."""
        if self.run is not None:
            self.run.log.deliver(delta)

    @property
    def origin(self) -> Origin:
        """Origin of the active activation."""
        return self.speaker.turns.ctx._origin if self.speaker is not None else RUN_ORIGIN

    def notify_change(self) -> None:
        """Wake `wait_until_idle` to check again."""
        self._changed.set()
        self._changed = asyncio.Event()

    # Called by the session.

    def resolve_interrupt(self, key: str, answer: Any) -> None:
        """Deliver an answer to the code that waits for it."""
        waiting = self._interrupts.get(key)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def wait_until_idle(self) -> None:
        """Wait until nothing is pending, or only an open interrupt is."""
        while not self._is_idle:
            await self._changed.wait()

    @property
    def _is_idle(self) -> bool:
        speaker = self.speaker
        if speaker is None or not speaker.is_waiting:
            return False
        if (speaker.turns.is_running or self.has_detached_running) and not self._interrupts:
            return False
        awaits_transcript = bool(self.untranscribed) and self.settings.transcription is not None
        is_pending = self.responses.is_pending or awaits_transcript or not self.mailbox.empty()
        is_speaking = bool(self.responses.active_response) or self.speech.is_user_speaking
        return not (is_pending or is_speaking or not self.connection.is_connected)

    def shut_down(self) -> None:
        """Stop sending, cancel running tools, and end the active agent."""
        if self.is_closing:
            return
        self.connection.stop()
        self._abandon_response()
        self._stop_waiting()
        if self.speaker is not None:
            self.speaker.turns.cancel()
        for turns in self.detached_turns:
            turns.cancel()
        if self._deadline is not None:
            self._deadline.reschedule(asyncio.get_running_loop().time() + _CLOSE_GRACE)
        self.post(SessionEnded())

    async def close(self) -> None:
        """Stop all turns and close the connection; called when the run has stopped."""
        self.is_closing = True
        for turns in self.detached_turns:
            await turns.stop()
        await self.connection.close()

    # Called by the connection.

    def current_config(self) -> SessionConfig:
        """Return the configuration of the active agent."""
        assert self.speaker is not None
        return self.speaker.prepared.config

    def transcript_messages(self) -> Iterable[Message]:
        """Return the conversation so far."""
        return self.speaker.turns.transcript.messages() if self.speaker is not None else ()

    async def on_disconnected(self, attempt: int, reason: str) -> None:
        """Handle the loss of the connection, before a reconnect attempt."""
        self._abandon_response()
        for item_id in self.untranscribed:
            self.post(protocol.TranscriptionFailed(item_id, reason))
        self.responses.on_disconnected()
        self.speech.reset()
        self.deliver(SessionReconnecting(self.origin, attempt, reason))
        # The next connection starts with the transcript, so everything said until now has to be in it.
        processed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.post(RefreshRequested(processed))
        await asyncio.wait([processed], timeout=_CLOSE_GRACE)

    def on_item_resent(self) -> None:
        """Handle the resending of an item that the provider had rejected."""
        self.responses.on_item_resent()

    async def on_reconnected(self) -> None:
        """Handle a new connection: request the response that is queued, if any."""
        self.deliver(SessionReconnected(self.origin))
        await self.responses.request_if_idle()
        self.notify_change()

    def on_closed(self, error: BaseException | None) -> None:
        """Handle the end of the connection."""
        self._abandon_response()
        self._stop_waiting()
        self.post(SessionEnded(is_by_provider=True, error=error))

    async def on_signal(self, signal: protocol.Signal) -> None:
        """Handle a signal of the model."""
        if isinstance(signal, protocol.AudioChunk):
            # By far the most frequent signal: delivered at once, nothing is recorded.
            self.speech.on_signal(signal)
            return
        await self._handle(signal)
        if self.run is not None and self.run.log.sink is not None:
            await self.run.log.settle()
        self.notify_change()

    async def _handle(self, signal: protocol.Signal) -> None:
        match signal:
            case protocol.ResponseStarted():
                await self._on_response_started(signal)
            case protocol.ResponseEnded():
                await self._on_response_ended(signal)
            case protocol.SessionConfigured():
                self.responses.on_configured()
            case protocol.UserSpeechStarted():
                await self.speech.on_user_speech(signal)
            case protocol.UserSpeechEnded():
                await self._on_user_speech_ended(signal)
            case protocol.AudioCommitted():
                self.responses.on_user_turn()
                self.post(signal)
            case protocol.TranscriptionCompleted() | protocol.TranscriptionFailed():
                self.post(signal)
            case (
                protocol.AudioChunk()
                | protocol.AudioEnded()
                | protocol.TranscriptChunk()
                | protocol.TranscriptionChunk()
            ):
                self.speech.on_signal(signal)
            case protocol.ProviderErrorReceived():
                self._on_provider_error(signal)
            case protocol.SessionReady() | protocol.ItemAdded() | protocol.ItemTruncated():
                pass
            case _:
                assert_never(signal)

    async def _on_response_started(self, signal: protocol.ResponseStarted) -> None:
        self.speech.start_response()
        if await self.responses.on_started(signal):
            self.post(signal)
        else:
            self.speech.muted.add(signal.response_id)

    async def _on_user_speech_ended(self, signal: protocol.UserSpeechEnded) -> None:
        await self.speech.on_user_speech(signal)
        self.responses.on_user_turn()
        detection = self.settings.turn_detection
        # A provider that responds by itself must not be asked for a second response.
        if detection is None or not detection.create_response:
            await self.responses.request_if_idle()

    def _on_provider_error(self, signal: protocol.ProviderErrorReceived) -> None:
        if not self.responses.handle_error(signal) and signal.code not in _HARMLESS_CODES:
            self.deliver(SessionErrorReported(self.origin, signal.code, signal.message))

    async def _on_response_ended(self, signal: protocol.ResponseEnded) -> None:
        is_stale = signal.response_id in self.responses.stale
        self.responses.on_ended(signal)
        self.speech.muted.discard(signal.response_id)
        if signal.status == "failed":
            self.deliver(SessionErrorReported(self.origin, signal.reason or "response_failed", signal.error))
        if not is_stale:
            self.post(signal)
        await self.responses.request_if_idle()

    def _abandon_response(self) -> None:
        """End the active response with what has arrived of it."""
        active = self.responses.active_response
        if active and active not in self.responses.stale:
            self.post(self.speech.interrupted_response(active))

    def _stop_waiting(self) -> None:
        self.is_closing = True
        for key, waiting in self._interrupts.items():
            if not waiting.done():
                waiting.set_exception(SuspendRun(key))

    def _can_respond(self) -> bool:
        return not self.speech.is_user_speaking and not self.is_closing

    async def _configure(self, config: SessionConfig, *, changes_agent: bool) -> None:
        changes_voice = not self.speech.has_audio
        await self.responses.configure(config, changes_voice=changes_voice, changes_agent=changes_agent)
