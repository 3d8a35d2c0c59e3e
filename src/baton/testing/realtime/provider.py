"""The provider's side of a scripted session: it executes commands and sends signals."""

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
from .turn_detection import DetectedEnd, DetectedStart, TurnDetector


class SignalQueue:
    """The signals of a connection, how many of them the client has read, and how it ends."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.end: Literal["", "ended", "closed"] | BaseException = ""
        """Empty while open; "ended" by the provider, "closed" by the client, or the error that cut it."""
        self._read = 0
        self._changed = asyncio.Event()

    @property
    def read(self) -> list[Signal]:
        """The signals that the client has read."""
        return self.signals[: self._read]

    @property
    def unread(self) -> list[Signal]:
        """The signals that the client has not read."""
        return self.signals[self._read :]

    def send(self, *signals: Signal) -> None:
        """Send signals to the client.

        Args:
            *signals: The signals, in order.
        """
        self.signals += signals
        self.wake()

    def stop(self, end: Literal["ended", "closed"] | BaseException) -> None:
        """End the queue after the signals sent so far.

        The first end stays, unless the client closes the connection.

        Args:
            end: How it ends; an exception is raised to the reader.
        """
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
                await self._changed.wait()

    def wake(self) -> None:
        """Wake the tasks that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, is_so: Callable[[], bool], *, within: float, wanted: Callable[[], str]) -> None:
        """Wait until a condition is true.

        Args:
            is_so: The condition.
            within: Timeout in seconds.
            wanted: Describes what was waited for, for the AssertionError on timeout.
        """
        try:
            async with asyncio.timeout(within):
                while not is_so():
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"waited {within:g} s for {wanted()}") from None


class RealtimeScript(Protocol):
    """The script of a provider: responses, transcriptions and ids."""

    ms_per_word: int

    @property
    def name(self) -> str:
        """The name of the model."""
        ...

    def new_id(self, kind: str) -> str:
        """Return a new id that starts with `kind`."""
        ...

    def next_heard(self) -> str | None:
        """Return the transcript of the user's next turn, None if there is none."""
        ...

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        """Play the next response."""
        ...


class ScriptedProvider:
    """Executes the commands of one connection, as strictly as real providers do."""

    def __init__(self, script: RealtimeScript, settings: SessionConfig, queue: SignalQueue) -> None:
        self.settings = settings
        self.voice = settings.voice or settings.settings.voice
        self.conversation = ProviderConversation(lambda: script.new_id("piece"))
        self._script = script
        self._queue = queue
        self._response_context = ResponseContext(self.conversation, queue.send, script.ms_per_word, script.name)
        self._response: ScriptedResponse | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_spoken = False
        self._speech_item = ""
        self._detector = TurnDetector()

    def execute(self, command: Command) -> None:
        """Execute a command and send the resulting signals.

        Args:
            command: The command.

        Raises:
            CommandRejectedError: It is not valid now.
        """
        match command:
            case ConfigureSession():
                self._configure(command)
            case AppendAudio(audio):
                self._append(audio)
            case ClearAudio():
                self._detector.clear()
            case CommitAudio():
                self._commit()
            case AddItem(message, item_id):
                for item in self.conversation.add(message, item_id):
                    self._queue.send(ItemAdded(item.id, item.role, item.call_id))
            case CreateResponse():
                self._start_response()
            case CancelResponse(response_id):
                self._cancel_response(response_id)
            case TruncateItem(item_id, _, audio_end_ms):
                self.conversation.truncate(item_id, audio_end_ms, ms_per_word=self._script.ms_per_word)
                self._queue.send(ItemTruncated(item_id, audio_end_ms))
            case _:
                assert_never(command)

    def start_speech(self, at_ms: int = 0) -> str:
        """Start the user's speech, which cancels a response if the settings say so.

        Args:
            at_ms: Its position in the input audio.

        Returns:
            The id of the user's item.
        """
        detection = self.settings.settings.turn_detection
        if detection is None:
            raise SetupError("the session detects no speech: its RealtimeSettings have turn_detection=None")
        self._speech_item = self._script.new_id("piece")
        self._queue.send(UserSpeechStarted(self._speech_item, at_ms))
        if detection.interrupt_response and self._response is not None:
            self._cancel("turn_detected")
        return self._speech_item

    def end_speech(self, text: str | None, at_ms: int = 0, audio_ms: int = 0) -> str:
        """End the user's speech, which starts a response if the settings say so.

        Args:
            text: Its transcript; None if it cannot be transcribed.
            at_ms: Its position in the input audio.
            audio_ms: Its duration.

        Returns:
            The id of the user's item.
        """
        if not self._speech_item:
            raise SetupError("the user has not started to speak; call user_begins first, or user_speaks")
        item_id, self._speech_item = self._speech_item, ""
        self._queue.send(UserSpeechEnded(item_id, at_ms))
        self._add_speech(text, item_id, why="the audio is unintelligible", audio_ms=audio_ms)
        self._respond_automatically()
        return item_id

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop responding; return the tasks that are still ending."""
        self._response = None
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    def _configure(self, command: ConfigureSession) -> None:
        voice = command.settings.voice
        if voice is not None and command.changes_voice and voice != self.voice:
            if self._has_spoken or (self._response is not None and self._response.has_audio):
                reason = f"the voice cannot change to {voice!r} after audio in the voice {self.voice!r}"
                raise CommandRejectedError("cannot_update_voice", reason)
            self.voice = voice
        self.settings = command.settings
        self._queue.send(SessionConfigured())

    def _append(self, audio: bytes) -> None:
        settings = self.settings.settings
        for turn in self._detector.append(audio, settings.input_format, settings.turn_detection):
            match turn:
                case DetectedStart(at_ms):
                    self.start_speech(at_ms)
                case DetectedEnd(at_ms, speech):
                    self.end_speech(self._script.next_heard(), at_ms, self._duration_ms(speech))
                case _:
                    assert_never(turn)

    def _commit(self) -> None:
        is_speech, audio = self._detector.is_speech, self._detector.take()
        if not audio:
            raise CommandRejectedError("input_audio_buffer_commit_empty", "there is no audio to commit")
        item_id = self._speech_item if is_speech else self._script.new_id("piece")
        if is_speech:
            self._queue.send(UserSpeechEnded(item_id))
        self._speech_item, text = "", self._script.next_heard()
        self._add_speech(text, item_id, why="`hears` has no text left", audio_ms=self._duration_ms(audio))

    def _duration_ms(self, audio: bytes) -> int:
        return int(milliseconds_of(len(audio), self.settings.settings.input_format))

    def _add_speech(self, text: str | None, item_id: str, *, why: str, audio_ms: int = 0) -> None:
        self.conversation.add(UserMessage(text or "(inaudible)"), item_id, audio_ms=audio_ms)
        self._queue.send(AudioCommitted(item_id))
        if self.settings.settings.transcription is not None:
            failed = TranscriptionFailed(item_id, why)
            self._queue.send(failed if text is None else TranscriptionCompleted(item_id, text))

    def _respond_automatically(self) -> None:
        detection = self.settings.settings.turn_detection
        if detection is not None and detection.create_response:
            try:
                self._start_response()
            except CommandRejectedError as error:
                self._queue.send(ProviderErrorReceived(error.code, str(error)))

    def _start_response(self) -> None:
        response = self._response
        if response is not None:
            is_known = ResponseStarted(response.response_id) not in self._queue.unread
            reason = f"`{response.response_id}` is in progress"
            raise CommandRejectedError("conversation_already_has_active_response", reason, is_avoidable=is_known)
        settings, messages = self.settings, self.conversation.messages
        self._response = ScriptedResponse(self._script.new_id("response"), self._response_context, settings.settings)
        request = ModelRequest(messages, settings.instructions, settings.tools, agent=settings.agent)
        task = asyncio.get_running_loop().create_task(self._play(self._response, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, response: ScriptedResponse, request: ModelRequest) -> None:
        try:
            await response.play(self._script.respond(request))
        except ModelConnectionError as error:
            self._queue.stop(error)
        except ModelError as error:
            response.end("failed", reason=type(error).__name__, error=str(error))
        except Exception as error:  # noqa: BLE001 - errors of a scripted step are raised to the reader
            self._queue.stop(error)
        self._has_spoken = self._has_spoken or response.has_audio
        if self._response is response:
            self._response = None

    def _cancel_response(self, response_id: str) -> None:
        response = self._response
        if response is None or response_id not in ("", response.response_id):
            reason = f"`{response_id or 'any response'}` is not in progress"
            # The client may not have read yet that the response has ended.
            crossed = any(isinstance(signal, ResponseEnded) for signal in self._queue.unread)
            raise CommandRejectedError("response_cancel_not_active", reason, is_avoidable=not crossed)
        self._cancel("client_cancelled")

    def _cancel(self, reason: str) -> None:
        response, self._response = self._response, None
        if response is not None:
            for task in self._tasks:
                task.cancel()
            response.end("cancelled", reason=reason)
            self._has_spoken = self._has_spoken or response.has_audio
