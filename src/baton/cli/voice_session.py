"""A live conversation in a terminal: set-up, input, commands and display."""

import asyncio
import os
import re
import signal
import sys
from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import UnsupportedOperation
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any, cast

import click
from msgspec.structs import replace

from ..context import Limits
from ..errors import BatonError
from ..events import AgentResponded, Delta, Event, InterruptRaised, ResponseTruncated, TextDelta, UserMessageAdded
from ..realtime import RealtimeAgent, RealtimeRunner, RealtimeSession, RealtimeSettings, TurnDetection
from ..realtime.events import (
    GuardrailTripped,
    SessionErrorReported,
    SessionReconnected,
    SessionReconnecting,
    SpeechStarted,
    TranscriptDelta,
)
from ..realtime.runner import resolve_realtime_model
from ..realtime.settings import bytes_for
from ..runner.backends import new_id
from ..runner.result import to_interrupt
from .audio import AudioSink, Microphone, sounddevice
from .display import Screen, format_interrupt, parse_reply, shorten
from .errors import TargetError
from .targets import RunArguments, find_target, open_store

_COMMAND = re.compile(r"(/[a-z]+)(?:\s+(.*))?")
_HELP = """\
Each line you type is sent to the active agent.
  /handoff NAME     hand control to another agent
  /interrupt        stop the current response (or Ctrl-C)
  /answer ANSWER    answer the oldest open interrupt: y, n, a (always) or a reason; anything else as text or JSON
  /help             show this help
  /quit, exit       leave (or Ctrl-D)"""


class VoiceCommands:
    """Executes the lines that the user types; errors are displayed and end nothing.

    Args:
        session: The session.
        screen: Displays errors and help.
    """

    def __init__(self, session: RealtimeSession, screen: Screen) -> None:
        self._session = session
        self._screen = screen
        self._handlers: dict[str, Callable[[str], Awaitable[None]]] = {
            "": session.send_text,
            "/handoff": self._handoff,
            "/interrupt": self._interrupt,
            "/answer": self._answer,
            "/help": self._help,
        }

    async def execute(self, line: str) -> None:
        """Execute a command, or send the line as text."""
        command = _COMMAND.fullmatch(line)
        word, rest = (command[1], command[2] or "") if command else ("", line)
        command_handler = self._handlers.get(word)
        if command_handler is None:
            self._screen.line(f"unknown command {word}; see /help", "red")
            return
        try:
            await command_handler(rest.strip())
        except BatonError as error:
            self._screen.line(str(error), "red")

    async def _handoff(self, name: str) -> None:
        if name:
            await self._session.handoff_to(name)
        else:
            self._screen.line("/handoff needs the name of an agent", "red")

    async def _interrupt(self, _: str) -> None:
        await self._session.interrupt()

    async def _answer(self, text: str) -> None:
        questions = self._session.interrupts
        if not questions:
            self._screen.line("there is no open interrupt", "red")
            return
        answer = parse_reply(questions[0], text)
        if answer is None:
            self._screen.line("unclear answer; after /answer write y, n, a or a reason, or text or JSON", "red")
        else:
            await self._session.answer(questions[0].id, answer[0])

    async def _help(self, _: str) -> None:
        self._screen.line(_HELP)


class VoiceScreen:
    """Displays what Screen does, and the events of live sessions.

    Args:
        screen: Displays all other events.
    """

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._is_midsentence = False
        self._held: list[UserMessageAdded] = []

    def show(self, event: Event | Delta) -> None:
        """Display one event or delta, if it concerns the user."""
        match event:
            case TranscriptDelta(speaker="agent"):
                self._is_midsentence = True
                self.screen.show(TextDelta(event.origin, event.text))
            case UserMessageAdded() if event.item_id:
                self._held.append(event)
            case AgentResponded():
                self._is_midsentence = False
                self.screen.show(event)
            case _:
                self._show_rest(event)
        # A user's transcript often arrives during the answer; it must not split it.
        while self._held and not self._is_midsentence:
            self.screen.line(f"you › {self._held.pop(0).text}", "bold")

    def _show_rest(self, event: Event | Delta) -> None:
        line = self.screen.line
        match event:
            case ResponseTruncated():
                line(f"  ⊘ interrupted; heard: {shorten(event.heard_text) or 'nothing'}", "dim")
            case InterruptRaised():
                self.screen.show(event)
                line(f"? {event.agent}: {format_interrupt(to_interrupt(event))}", "bold yellow")
                line("  use /answer with y, n, a (always) or a reason to decline; or with text or JSON", "dim")
            case GuardrailTripped():
                line(f"  ✗ stopped by {event.guardrail}: {shorten(event.reason)}", "red")
            case SessionErrorReported():
                line(f"  ✗ {event.code}: {shorten(event.message)}", "red")
            case SessionReconnecting():
                line(f"  … lost the connection ({shorten(event.because)}); attempt {event.attempt}", "dim")
            case SessionReconnected():
                line("  … reconnected", "dim")
            case SpeechStarted():
                self.screen.end_line()
            case _:
                self.screen.show(event)


_CHUNK_SIZE = 4096


class StdinReader:
    """Reads lines of stdin without blocking the event loop."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # A thread that reads cannot be stopped; a daemon ends with the program.
        Thread(target=self._read, name="baton stdin", daemon=True).start()

    async def next(self) -> str | None:
        """Return the next line, stripped; None at the end."""
        return await self._lines.get()

    def _read(self) -> None:
        # After the user leaves there is no event loop.
        with suppress(RuntimeError):
            for line in chain(_read_lines(), [None]):
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _read_lines() -> Iterator[str]:
    try:
        descriptor = sys.stdin.fileno()
    except UnsupportedOperation:
        yield from (line.strip() for line in sys.stdin)
        return
    # Bypass Python's buffer: a thread waiting in it at exit would abort the interpreter.
    decoder, rest = getincrementaldecoder("utf-8")("replace"), ""
    while chunk := os.read(descriptor, _CHUNK_SIZE):
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from (line.strip() for line in lines)
    if rest.strip():
        yield rest.strip()


_FORMAT = "pcm16"


@dataclass(frozen=True, kw_only=True)
class AudioOptions:
    """The audio options.

    Attributes:
        is_off: --text-only.
        inputs: --wav-in.
        output: --wav-out.
        speed: --wav-speed.
    """

    is_off: bool = False
    inputs: tuple[Path, ...] = ()
    output: Path | None = None
    speed: float = 1.0


@dataclass(frozen=True, kw_only=True)
class VoiceOptions:
    """The options about the model and its voice.

    Attributes:
        model: --model.
        base_url: --base-url.
        voice: --voice.
    """

    model: str | None = None
    base_url: str | None = None
    voice: str | None = None

    def given(self) -> list[str]:
        """Return the options that were given."""
        given = {"--model": self.model, "--base-url": self.base_url, "--voice": self.voice}
        return [option for option, value in given.items() if value is not None]


@dataclass(frozen=True, kw_only=True)
class VoiceSetup:
    """A runner, and the arguments of the session.

    Attributes:
        runner: The runner.
        values: The values that the session starts with.
        limits: The limits of the session.
        thread: The thread of the session.
        audio: The audio options.
        devices: The sounddevice module; None if no microphone and speaker are used.
        notes: Shown before the conversation starts.
    """

    runner: RealtimeRunner[Any]
    values: Mapping[str, Any]
    limits: Limits | None
    thread: str | None
    audio: AudioOptions
    devices: Any
    notes: tuple[str, ...] = ()


def set_up_voice(
    reference: str, arguments: RunArguments, audio: AudioOptions, voice_options: VoiceOptions
) -> VoiceSetup:
    """Load the target, its store and the audio devices."""
    store = None if arguments.store is None else open_store(arguments.store, existing=False)
    target = find_target(reference)
    if arguments.thread is not None and store is None and not isinstance(target, RealtimeRunner):
        raise click.UsageError("--thread continues a stored conversation; pass --store as well")
    # Input from files or a pipe means that no one is at the microphone.
    wants_devices = not audio.is_off and not audio.inputs and sys.stdin.isatty()
    devices = sounddevice() if wants_devices else None
    notes = (devices,) if isinstance(devices, str) else ()
    devices = None if isinstance(devices, str) else devices
    runner = _make_runner(target, reference, voice_options, audio, can_speak=devices is not None)
    _check_formats(runner.settings, reference, uses_sound=bool(devices or audio.inputs or audio.output))
    if store is not None:
        runner = runner.with_store(store)
    return VoiceSetup(
        runner=runner,
        values=arguments.values,
        limits=replace(runner.text_runner.limits, **arguments.limits) if arguments.limits else None,
        thread=arguments.thread or (new_id() if store is not None else None),
        audio=audio,
        devices=devices,
        notes=notes,
    )


def _make_runner(
    target: Any, reference: str, voice_options: VoiceOptions, audio: AudioOptions, *, can_speak: bool
) -> RealtimeRunner[Any]:
    if isinstance(target, RealtimeRunner):
        if voice_options.given():
            raise TargetError(
                f"`{reference}` is a RealtimeRunner, which has its own model and settings; "
                f"leave out {' and '.join(voice_options.given())}, or name the agent instead of the runner"
            )
        return cast("RealtimeRunner[Any]", target)
    if not isinstance(target, RealtimeAgent):
        kind = type(target).__name__
        raise TargetError(
            f"`{reference}` is for text (type {kind}); use `baton chat {reference}`; "
            "for a live conversation make it a RealtimeAgent, or pass it to one as a tool with as_tool()"
        )
    if voice_options.model is None:
        raise TargetError(f"`{reference}` needs a realtime model; use --model openai:gpt-realtime")
    settings = RealtimeSettings(
        # Text is faster and cheaper where no one listens.
        modality="audio" if can_speak or audio.output is not None else "text",
        voice=voice_options.voice,
        turn_detection=TurnDetection() if can_speak else None,
    )
    agent = cast("RealtimeAgent[Any]", target)
    return RealtimeRunner(
        agent, model=resolve_realtime_model(voice_options.model, base_url=voice_options.base_url), settings=settings
    )


def _check_formats(settings: RealtimeSettings, reference: str, *, uses_sound: bool) -> None:
    for verb, audio_format in (("expects", settings.input_format), ("produces", settings.output_format)):
        if uses_sound and audio_format != _FORMAT:
            raise TargetError(
                f"`{reference}` {verb} {audio_format}, but this command supports only {_FORMAT}; "
                "use --text-only, or change its RealtimeSettings"
            )


_LEAVE = ("exit", "quit", "/exit", "/quit")
_CHUNK_MS = 100
_SILENCE_MS = 1000
_HEARD_TIMEOUT = 10.0


class VoiceConversation:
    """A session, and the user who takes part in it.

    Args:
        session: The session.
        setup: The arguments of the session.
        screen: Displays the conversation.
        sink: Takes the audio.
    """

    def __init__(self, session: RealtimeSession, setup: VoiceSetup, *, screen: Screen, sink: AudioSink) -> None:
        self._session = session
        self._setup = setup
        self._screen = screen
        self._voice_screen = VoiceScreen(screen)
        self._sink = sink
        self._commands = VoiceCommands(session, screen)
        self._is_interactive = sys.stdin.isatty()
        self._heard = asyncio.Event()

    async def run(self, speech: Sequence[bytes]) -> None:
        """Run until the user leaves or the session ends. Raises the error of the session."""
        if self._is_interactive:
            for note in (
                f"live with {self._session.active_agent}; /help for help, Ctrl-D to leave",
                *self._setup.notes,
            ):
                self._screen.line(note, "dim")
            self._handle_ctrl_c()
        listener = asyncio.create_task(self._listen())
        participant = asyncio.create_task(self._send_input(speech))
        voice_options = asyncio.create_task(self._speak())
        try:
            await asyncio.wait([listener, participant], return_when=asyncio.FIRST_COMPLETED)
        finally:
            has_left = participant.done()
            for task in (participant, voice_options):
                task.cancel()
            await asyncio.gather(participant, voice_options, return_exceptions=True)
            await self._session.close()
        await listener
        if has_left:
            participant.result()

    async def _listen(self) -> None:
        async for event in self._session:
            self._note_heard(event)
            self._sink.handle(event)
            self._voice_screen.show(event)

    def _note_heard(self, event: Event | Delta) -> None:
        if isinstance(event, UserMessageAdded | SessionErrorReported):
            self._heard.set()

    async def _speak(self) -> None:
        """Send the microphone's audio, if there is one."""
        if self._setup.devices is not None:
            async with Microphone(self._setup.devices) as microphone:
                async for chunk in microphone:
                    await self._session.send_audio(chunk)

    async def _send_input(self, speech: Sequence[bytes]) -> None:
        for audio in speech:
            await self._send_audio(audio)
            await self._session.wait_until_idle()
        if speech and self._is_interactive:
            return
        lines = StdinReader()
        while (line := await lines.next()) is not None and line.lower() not in _LEAVE:
            if line:
                await self._commands.execute(line)
            if not self._is_interactive:
                await self._session.wait_until_idle()

    async def _send_audio(self, audio: bytes) -> None:
        """Send audio at the configured speed and mark its end."""
        settings = self._setup.runner.settings
        is_committed = settings.turn_detection is None
        if not is_committed:
            # Turn detection needs silence to notice the end of speech.
            audio += bytes(bytes_for(_SILENCE_MS, settings.input_format))
        self._heard.clear()
        size = bytes_for(_CHUNK_MS, settings.input_format)
        for index in range(0, len(audio), size):
            is_last = index + size >= len(audio)
            await self._session.send_audio(audio[index : index + size], commit=is_committed and is_last)
            if self._setup.audio.speed:
                await asyncio.sleep(_CHUNK_MS / 1000 / self._setup.audio.speed)
        if not is_committed:
            await self._wait_until_heard()

    async def _wait_until_heard(self) -> None:
        try:
            await asyncio.wait_for(self._heard.wait(), _HEARD_TIMEOUT)
        except TimeoutError:
            self._screen.line(f"no speech was recognised within {_HEARD_TIMEOUT:g} s", "red")

    def _handle_ctrl_c(self) -> None:
        # Some platforms have no signal handlers for loops; there, Ctrl-C ends the program.
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def _interrupt(self) -> None:
        self._screen.cancelled()
        self._interrupting = asyncio.ensure_future(self._commands.execute("/interrupt"))
