"""The side of a scripted provider: what it does with commands, and when the user speaks.

What goes from a scripted provider to its client: signals in order, and how it ends.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Literal, Protocol, assert_never

from ...errors import ModelConnectionError, ModelError, SetupError
from ...messages import UserMessage
from ...models import Chunk, ModelRequest
from ...realtime.protocol import (
    AddItem,
    AppendAudio,
    AudioCommitted,
    CancelResponse,
    ClearAudio,
    Command,
    CommitAudio,
    ConfigureSession,
    CreateResponse,
    ItemAdded,
    ItemTruncated,
    ProviderErrorReceived,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    Signal,
    TranscriptionCompleted,
    TranscriptionFailed,
    TruncateItem,
    UserSpeechEnded,
    UserSpeechStarted,
)
from ...realtime.settings import SessionConfig, milliseconds_of
from .conversation import CommandRejectedError, ProviderConversation, ResponseContext, ScriptedResponse


class SignalQueue:
    """Signals that were told, how far the client has read them, and what comes after the last of them."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.end: Literal["", "ended", "closed"] | BaseException = ""
        """"" while it is open; whether the provider ended it or the client closed it; or what cut it."""
        self._read = 0
        self._happened = asyncio.Event()

    @property
    def read(self) -> list[Signal]:
        """What the client has read."""
        return self.signals[: self._read]

    @property
    def unread(self) -> list[Signal]:
        """What is on its way to the client."""
        return self.signals[self._read :]

    def tell(self, *signals: Signal) -> None:
        """Tell the client this."""
        self.signals += signals
        self.wake()

    def stop(self, end: Literal["ended", "closed"] | BaseException) -> None:
        """Let this come after all that was told; whatever it was stopped with first stays, unless the client closes."""
        if not self.end or end == "closed":
            self.end = end
        self.wake()

    async def __aiter__(self) -> AsyncIterator[Signal]:
        while self.end != "closed":
            if self._read < len(self.signals):
                self._read += 1
                self.wake()
                yield self.signals[self._read - 1]
            elif isinstance(self.end, BaseException):
                raise self.end
            elif self.end:
                return
            else:
                await self._happened.wait()

    def wake(self) -> None:
        """Something has happened: whoever waits may look again."""
        self._happened.set()
        self._happened = asyncio.Event()

    async def until(self, is_so: Callable[[], bool], *, within: float, wanted: Callable[[], str]) -> None:
        """Until this is so. Raises AssertionError, saying what was wanted, if it is not so in time."""
        try:
            async with asyncio.timeout(within):
                while not is_so():
                    await self._happened.wait()
        except TimeoutError:
            raise AssertionError(f"waited {within:g} s for {wanted()}") from None


class RealtimeScript(Protocol):
    """What the provider of a connection is told by its model: what to say, what it hears, how to number things."""

    ms_per_word: int

    @property
    def name(self) -> str: ...
    def new_id(self, kind: str) -> str: ...
    def next_heard(self) -> str | None: ...
    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]: ...


class ScriptedProvider:
    """Carries out the commands of one connection, as strictly as real ones do."""

    def __init__(self, script: RealtimeScript, settings: SessionConfig, wire: SignalQueue) -> None:
        self.settings = settings
        self.voice = settings.voice or settings.settings.voice
        self.conversation = ProviderConversation(lambda: script.new_id("piece"))
        self._script = script
        self._wire = wire
        self._stage = ResponseContext(self.conversation, wire.tell, script.ms_per_word, script.name)
        self._playing: ScriptedResponse | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_spoken = False
        self._speech = ""
        self._uncommitted = 0

    def carry_out(self, command: Command) -> None:
        """Do it, and tell what comes of it. Raises Objection if it cannot be done."""
        match command:
            case ConfigureSession():
                self._configure(command)
            case AppendAudio(audio):
                self._uncommitted += len(audio)
            case ClearAudio():
                self._uncommitted = 0
            case CommitAudio():
                self._commit()
            case AddItem(message, item_id):
                for item in self.conversation.add(message, item_id):
                    self._wire.tell(ItemAdded(item.id, item.role, item.call_id))
            case CreateResponse():
                self._begin_to_answer()
            case CancelResponse(response_id):
                self._stop_answering(response_id)
            case TruncateItem(item_id, _, audio_end_ms):
                self.conversation.truncate(item_id, audio_end_ms, ms_per_word=self._script.ms_per_word)
                self._wire.tell(ItemTruncated(item_id, audio_end_ms))
            case _:
                assert_never(command)

    def begin_speech(self) -> str:
        """The user begins to speak; that stops a response, if the conversation is held so."""
        detection = self.settings.settings.turn_detection
        if detection is None:
            raise SetupError("nobody listens for speech here: the turn_detection of its Manners is None")
        self._speech = self._script.new_id("piece")
        self._wire.tell(UserSpeechStarted(self._speech))
        if detection.interrupt_response and self._playing is not None:
            self._cancel("turn_detected")
        return self._speech

    def end_speech(self, text: str | None) -> str:
        """The user has said this; None is something that nobody can make out."""
        if not self._speech:
            raise SetupError("the user has not begun to speak; call user_begins first, or user_speaks")
        item_id, self._speech = self._speech, ""
        self._wire.tell(UserSpeechEnded(item_id))
        self._take_in(text, item_id, why="nobody could make it out")
        self._answer_by_itself()
        return item_id

    def stop(self) -> list[asyncio.Task[None]]:
        """Say nothing more; what is still to be waited for."""
        self._playing = None
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    def _configure(self, command: ConfigureSession) -> None:
        voice = command.settings.voice
        if voice is not None and command.changes_voice and voice != self.voice:
            if self._has_spoken or (self._playing is not None and self._playing.has_audio):
                told = f"the voice cannot become {voice!r}: something was said already, in the voice {self.voice!r}"
                raise CommandRejectedError("cannot_update_voice", told)
            self.voice = voice
        self.settings = command.settings
        self._wire.tell(SessionConfigured())

    def _commit(self) -> None:
        if not self._uncommitted:
            raise CommandRejectedError("input_audio_buffer_commit_empty", "there is no audio to commit")
        audio_ms = int(milliseconds_of(self._uncommitted, self.settings.settings.input_format))
        self._uncommitted = 0
        text = self._script.next_heard()
        self._take_in(text, self._script.new_id("piece"), why="`hears` has no text left", audio_ms=audio_ms)

    def _take_in(self, text: str | None, item_id: str, *, why: str, audio_ms: int = 0) -> None:
        manners, tell = self.settings.settings, self._wire.tell
        self.conversation.add(UserMessage(text or "(inaudible)"), item_id, audio_ms=audio_ms)
        tell(AudioCommitted(item_id))
        if manners.transcription is not None:
            tell(TranscriptionCompleted(item_id, text) if text is not None else TranscriptionFailed(item_id, why))

    def _answer_by_itself(self) -> None:
        detection = self.settings.settings.turn_detection
        if detection is not None and detection.create_response:
            try:
                self._begin_to_answer()
            except CommandRejectedError as objection:
                self._wire.tell(ProviderErrorReceived(objection.code, str(objection)))

    def _begin_to_answer(self) -> None:
        playing = self._playing
        if playing is not None:
            is_known = ResponseStarted(playing.response_id) not in self._wire.unread
            told = f"`{playing.response_id}` is under way"
            raise CommandRejectedError("conversation_already_has_active_response", told, is_foreseeable=is_known)
        settings, messages = self.settings, self.conversation.messages
        self._playing = ScriptedResponse(self._script.new_id("response"), self._stage, settings.settings)
        request = ModelRequest(messages, settings.instructions, settings.tools, agent=settings.agent)
        task = asyncio.get_running_loop().create_task(self._answer(self._playing, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, playing: ScriptedResponse, request: ModelRequest) -> None:
        try:
            await playing.play(self._script.respond(request))
        except ModelConnectionError as error:
            self._wire.stop(error)
        except ModelError as error:
            playing.end("failed", reason=type(error).__name__, error=str(error))
        except Exception as error:  # noqa: BLE001 - what a test's own step raises is raised where the test sees it
            self._wire.stop(error)
        self._has_spoken = self._has_spoken or playing.has_audio
        if self._playing is playing:
            self._playing = None

    def _stop_answering(self, response_id: str) -> None:
        playing = self._playing
        if playing is None or response_id not in ("", playing.response_id):
            told = f"`{response_id or 'any response'}` is not under way"
            # The end of a response that is still unread may be that of the one to be stopped.
            crossed = any(isinstance(signal, ResponseEnded) for signal in self._wire.unread)
            raise CommandRejectedError("response_cancel_not_active", told, is_foreseeable=not crossed)
        self._cancel("client_cancelled")

    def _cancel(self, reason: str) -> None:
        playing, self._playing = self._playing, None
        if playing is not None:
            for task in self._tasks:
                task.cancel()
            playing.end("cancelled", reason=reason)
            self._has_spoken = self._has_spoken or playing.has_audio
