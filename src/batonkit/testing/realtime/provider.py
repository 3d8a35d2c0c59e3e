"""The engine of scripted providers: it executes the commands of one connection and sends events to a transport."""

import asyncio
from typing import Protocol, assert_never

from ...errors import ContentFilterError, ModelError, SetupError
from ...messages import UserMessage, is_empty
from ...models import ModelRequest
from ...realtime import protocol
from ...realtime.voice_settings import SessionConfig, milliseconds_of
from .conversation import CommandRejectedError, ProviderConversation
from .responses import ProviderEvent, RealtimeScript, ScriptedResponse
from .turn_detection import TurnDetector

_MIN_COMMIT_MS = 100


class ProviderTransport(Protocol):
    """The connection between a provider and its client."""

    def emit(self, event: ProviderEvent, /) -> None:
        """Send an event to the client, after all earlier ones."""

    def cut(self, error: BaseException, /) -> None:
        """Cut the connection because of an error of the script, after the events sent so far."""

    def has_unread(self, kind: type[protocol.Signal], /) -> bool:
        """Return whether a signal of a type is known to be still on its way to the client."""
        ...


class ScriptedProvider:
    """Executes the commands of one connection, as strictly as real providers do."""

    def __init__(self, script: RealtimeScript, settings: SessionConfig, transport: ProviderTransport) -> None:
        self.settings = settings
        self.voice = settings.voice or settings.settings.voice
        self.conversation = ProviderConversation(lambda: script.new_id("piece"))
        self.response: ScriptedResponse | None = None
        """The response in progress."""
        self._script = script
        self._transport = transport
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_response_due = False
        """True if the user's turn ended during a response, so that another follows it."""
        self._has_spoken = False
        self._speech_item = ""
        self._detector = TurnDetector()
        self._late_transcripts: list[protocol.Signal] = []

    def execute(self, command: protocol.Command) -> None:
        """Execute a command and send the resulting signals.

        Raises:
            CommandRejectedError: It is not valid now.
        """
        match command:
            case protocol.ConfigureSession():
                self._configure(command)
            case protocol.AppendAudio(audio):
                self._append(audio)
            case protocol.ClearAudio():
                self._detector.clear()
            case protocol.CommitAudio():
                self._commit()
            case protocol.AddItem(message, item_id):
                if is_empty(message):
                    raise CommandRejectedError("empty_item", f"a {type(message).__name__} has no content")
                for item in self.conversation.add(message, item_id):
                    self._transport.emit(protocol.ItemAdded(item.id, item.role, item.call_id))
            case protocol.CreateResponse():
                self.create_response()
            case protocol.CancelResponse(response_id):
                self._cancel_response(response_id)
            case protocol.TruncateItem(item_id, content_index, audio_end_ms):
                self.conversation.truncate(item_id, content_index, audio_end_ms)
                self._transport.emit(protocol.ItemTruncated(item_id, audio_end_ms))
            case _:
                assert_never(command)

    def create_response(self, settings: SessionConfig | None = None) -> None:
        """Start a response.

        Raises:
            CommandRejectedError: A response is in progress.
        """
        if self.response is not None:
            is_known = not self._transport.has_unread(protocol.ResponseStarted)
            reason = f"`{self.response.id}` is in progress"
            raise CommandRejectedError("conversation_already_has_active_response", reason, is_avoidable=is_known)
        settings = settings or self.settings
        messages = self.conversation.messages()
        request = ModelRequest(messages, settings.instructions, settings.tools, agent=settings.agent)
        self.response = ScriptedResponse(self._script, self.conversation, settings.settings, self._transport.emit)
        task = asyncio.get_running_loop().create_task(self._play(self.response, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def start_speech(self, at_ms: int = 0) -> str:
        """Start the user's speech, which cancels a response if the settings say so.

        Returns:
            The id of the user's item.
        """
        detection = self.settings.settings.turn_detection
        if detection is None:
            raise SetupError("the session detects no speech: its RealtimeSettings have turn_detection=None")
        self._speech_item = self._script.new_id("piece")
        self._transport.emit(protocol.UserSpeechStarted(self._speech_item, at_ms))
        if detection.interrupt_response and self.response is not None:
            self._cancel(self.response, "turn_detected")
        return self._speech_item

    def end_speech(self, heard: str | BaseException, at_ms: int = 0, audio: bytes = b"") -> str:
        """End the user's speech, which starts a response if the settings say so.

        Returns:
            The id of the user's item.
        """
        if not self._speech_item:
            raise SetupError("the user has not started to speak; call user_begins first, or user_speaks")
        item_id = self._speech_item
        self._speech_item = ""
        self._transport.emit(protocol.UserSpeechEnded(item_id, at_ms))
        self._add_speech(heard, item_id, audio)
        detection = self.settings.settings.turn_detection
        if detection is not None and detection.create_response:
            self._is_response_due = True
            self._start_due_response()
        return item_id

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop responding; return the tasks that are still ending."""
        self.response = None
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    def _configure(self, command: protocol.ConfigureSession) -> None:
        voice = command.settings.voice
        if voice is not None and command.changes_voice and voice != self.voice:
            if self._has_spoken or (self.response is not None and self.response.has_audio):
                reason = f"the voice cannot change to {voice!r} after audio in the voice {self.voice!r}"
                raise CommandRejectedError("cannot_update_voice", reason)
            self.voice = voice
        self.settings = command.settings
        self._transport.emit(protocol.SessionConfigured())

    def _append(self, audio: bytes) -> None:
        settings = self.settings.settings
        for turn in self._detector.append(audio, settings.input_format, settings.turn_detection):
            if turn.speech is None:
                self.start_speech(turn.at_ms)
            else:
                self.end_speech(self._script.next_heard(), turn.at_ms, turn.speech)

    def _commit(self) -> None:
        milliseconds = milliseconds_of(len(self._detector.buffer), self.settings.settings.input_format)
        if milliseconds < _MIN_COMMIT_MS:
            reason = f"there is no audio to commit: {milliseconds:g} ms of at least {_MIN_COMMIT_MS} ms"
            raise CommandRejectedError("input_audio_buffer_commit_empty", reason)
        item_id = self._speech_item if self._detector.is_speech else self._script.new_id("piece")
        if self._detector.is_speech:
            self._transport.emit(protocol.UserSpeechEnded(item_id, int(self._detector.received_ms)))
        self._speech_item = ""
        self._add_speech(self._script.next_heard(), item_id, self._detector.take())

    def _add_speech(self, heard: str | BaseException, item_id: str, audio: bytes) -> None:
        settings = self.settings.settings
        message = UserMessage(heard if isinstance(heard, str) and heard else "(inaudible)")
        self.conversation.add(message, item_id, format=settings.input_format, audio=audio)
        self._transport.emit(protocol.AudioCommitted(item_id))
        if settings.transcription is None:
            return
        if isinstance(heard, BaseException):
            self._transport.emit(protocol.TranscriptionFailed(item_id, str(heard)))
        elif self._script.late_transcripts:
            self._late_transcripts.append(protocol.TranscriptionCompleted(item_id, heard))
        else:
            self._transport.emit(protocol.TranscriptionCompleted(item_id, heard))

    def _start_due_response(self) -> None:
        if self._is_response_due and self.response is None:
            self._is_response_due = False
            self.create_response()

    async def _play(self, response: ScriptedResponse, request: ModelRequest) -> None:
        try:
            # If the connection is cut here, the step is left for the response to be requested again.
            await self._script.pause(0)
            await response.play(self._script.respond(request))
        except ContentFilterError:
            response.end("incomplete", reason="content_filter")
        except Exception as error:  # noqa: BLE001 - the script decides about errors of its steps
            code = self._script.error_code(error)
            if code is None:
                self._is_response_due = False
                self._transport.cut(error)
            else:
                what = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
                response.end("failed", reason=code, error=what)
        if self.response is response:
            self._finish(response)

    def _cancel_response(self, response_id: str) -> None:
        response = self.response
        if response is None or response_id not in ("", response.id):
            reason = f"`{response_id or 'any response'}` is not in progress"
            # The client may not have read yet that the response has ended.
            crossed = self._transport.has_unread(protocol.ResponseEnded)
            raise CommandRejectedError("response_cancel_not_active", reason, is_avoidable=not crossed)
        self._cancel(response, "client_cancelled")

    def _cancel(self, response: ScriptedResponse, reason: str) -> None:
        for task in self._tasks:
            task.cancel()
        response.end("cancelled", reason=reason)
        self._finish(response)

    def _finish(self, response: ScriptedResponse) -> None:
        self._has_spoken = self._has_spoken or response.has_audio
        self.response = None
        while self._late_transcripts:
            self._transport.emit(self._late_transcripts.pop(0))
        self._start_due_response()
