"""The command `baton voice`: a live conversation by keyboard, .wav files, or microphone and speaker."""

import asyncio
import os
import re
import signal
import sys
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from io import UnsupportedOperation
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any

import click
from msgspec.structs import replace

from .. import log as events
from ..errors import BatonError, RunError
from ..log import Delta, Event
from ..realtime import RealtimeAgent, RealtimeRunner, RealtimeSession, RealtimeSettings, TurnDetection
from ..realtime import deltas as live
from ..realtime.realtime_runner import resolve_realtime_model
from ..realtime.voice_settings import bytes_for
from ..runs.opening import new_id
from ..runs.result import to_interrupt
from .audio import AudioOutput, AudioSink, Microphone, Recording, read_wav, sounddevice
from .chat import LEAVE
from .cli_errors import TargetError
from .cli_options import FILE, RunArguments, collect, number_option, repeated_option, run_options, target
from .display import Screen, format_interrupt, parse_reply, shorten
from .targets import Target, find_store, find_target, is_driven, last_unfinished_run

_COMMAND = re.compile(r"(/[a-z]+)(?:\s+(.*))?")
_HELP = """\
Each line you type is sent to the active agent.
  /handoff NAME     hand control to another agent
  /interrupt        stop the current response (or Ctrl-C)
  /answer ANSWER    answer the oldest open interrupt: y, n, a (always) or a reason; anything else as text or JSON
  /help             show this help
  /quit, exit       leave (or Ctrl-D)"""


class VoiceScreen(Screen):
    """A screen that also displays the events of live sessions."""

    def __init__(self) -> None:
        super().__init__()
        self._is_midsentence = False
        self._transcripts: list[str] = []

    def show(self, event: Event | Delta) -> None:
        """Display one event or delta, if it concerns the user."""
        line = self.line
        match event:
            case live.TranscriptDelta(speaker="agent"):
                self._is_midsentence = True
                super().show(events.TextDelta(event.origin, event.text))
            case events.UserMessageAdded() if event.item_id:
                self._transcripts.append(event.text)
            case events.AgentResponded():
                self._is_midsentence = False
                super().show(event)
            case events.ResponseTruncated():
                line(f"  ⊘ interrupted; heard: {shorten(event.heard_text) or 'nothing'}", "dim")
            case events.InterruptRaised():
                super().show(event)
                line(f"? {event.agent}: {format_interrupt(to_interrupt(event))}", "bold yellow")
                line("  use /answer with y, n, a (always) or a reason to decline; or with text or JSON", "dim")
            case live.GuardrailTripped():
                line(f"  ✗ stopped by {event.guardrail}: {shorten(event.reason)}", "red")
            case live.SessionErrorReported():
                line(f"  ✗ {event.code}: {shorten(event.message)}", "red")
            case live.SessionReconnecting():
                line(f"  … lost the connection ({shorten(event.because)}); attempt {event.attempt}", "dim")
            case live.SessionReconnected():
                line("  … reconnected", "dim")
            case live.SpeechStarted():
                self.end_line()
            case _:
                super().show(event)
        # A user's transcript often arrives during the answer; it must not split it.
        while self._transcripts and not self._is_midsentence:
            line(f"you › {self._transcripts.pop(0)}", "bold")


_CHUNK_SIZE = 4096


async def read_stdin() -> AsyncGenerator[str]:
    """Yield the lines of stdin, stripped, without blocking the event loop."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        # After the user leaves there is no event loop.
        with suppress(RuntimeError):
            for line in chain(_read_lines(), [None]):
                loop.call_soon_threadsafe(lines.put_nowait, line)

    # A thread that reads cannot be stopped; a daemon ends with the program.
    Thread(target=read, name="baton stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


def _read_lines() -> Iterator[str]:
    try:
        descriptor = sys.stdin.fileno()
    except UnsupportedOperation:
        yield from (line.strip() for line in sys.stdin)
        return
    # Bypass Python's buffer: a thread waiting in it at exit would abort the interpreter.
    decoder = getincrementaldecoder("utf-8")("replace")
    rest = ""
    while chunk := os.read(descriptor, _CHUNK_SIZE):
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from (line.strip() for line in lines)
    if rest.strip():
        yield rest.strip()


_FORMAT = "pcm16"


@dataclass(frozen=True, kw_only=True)
class VoiceOptions:
    """The options of `baton voice` about the model's voice and the audio.

    Attributes:
        base_url: --base-url.
        voice: --voice.
        text_only: --text-only.
        wav_in: --wav-in.
        wav_out: --wav-out.
        wav_speed: --wav-speed.
    """

    base_url: str | None
    voice: str | None
    text_only: bool
    wav_in: tuple[Path, ...]
    wav_out: Path | None
    wav_speed: float


@dataclass(frozen=True, kw_only=True)
class VoiceSetup:
    """A runner, and the arguments of the session.

    Attributes:
        runner: The runner.
        arguments: The options that all run commands have.
        options: The options about voice and audio.
        devices: The sounddevice module; None if no microphone and speaker are used.
        notes: Shown before the conversation starts.
    """

    runner: RealtimeRunner[Any]
    arguments: RunArguments
    options: VoiceOptions
    devices: Any
    notes: tuple[str, ...] = ()


def set_up_voice(reference: str, arguments: RunArguments, options: VoiceOptions) -> VoiceSetup:
    """Load the target, its store and the audio devices."""
    # Input from files or a pipe means that no one is at the microphone.
    wants_devices = not options.text_only and not options.wav_in and sys.stdin.isatty()
    devices = sounddevice() if wants_devices else None
    notes = (devices,) if isinstance(devices, str) else ()
    devices = None if isinstance(devices, str) else devices
    target = find_target(reference)
    store = find_store(arguments, is_agent=not isinstance(target, RealtimeRunner))
    runner = _make_runner(target, reference, arguments.model, options, can_speak=devices is not None)
    if devices or options.wav_in or options.wav_out:
        _check_formats(runner.settings, reference)
    if store is not None:
        runner = runner.clone(store=store)
    return VoiceSetup(runner=runner, arguments=arguments, options=options, devices=devices, notes=notes)


def _make_runner(
    target: Target, reference: str, model: str | None, options: VoiceOptions, *, can_speak: bool
) -> RealtimeRunner[Any]:
    if isinstance(target, RealtimeRunner):
        given = {"--model": model, "--base-url": options.base_url, "--voice": options.voice}
        if useless := [option for option, value in given.items() if value is not None]:
            raise TargetError(
                f"`{reference}` is a RealtimeRunner, which has its own model and settings; "
                f"leave out {' and '.join(useless)}, or name the agent instead of the runner"
            )
        return target
    if not isinstance(target, RealtimeAgent):
        kind = type(target).__name__
        raise TargetError(
            f"`{reference}` is for text (type {kind}); use `baton chat {reference}`; "
            "for a live conversation make it a RealtimeAgent, or pass it to one as a tool with as_tool()"
        )
    if model is None:
        raise TargetError(f"`{reference}` needs a realtime model; use --model openai:gpt-realtime")
    settings = RealtimeSettings(
        # Text is faster and cheaper where no one listens.
        modality="audio" if can_speak or options.wav_out is not None else "text",
        voice=options.voice,
        turn_detection=TurnDetection() if can_speak else None,
    )
    return RealtimeRunner(target, model=resolve_realtime_model(model, base_url=options.base_url), settings=settings)


def _check_formats(settings: RealtimeSettings, reference: str) -> None:
    for verb, audio_format in (("expects", settings.input_format), ("produces", settings.output_format)):
        if audio_format != _FORMAT:
            raise TargetError(
                f"`{reference}` {verb} {audio_format}, but this command supports only {_FORMAT}; "
                "use --text-only, or change its RealtimeSettings"
            )


_CHUNK_MS = 100
_SILENCE_MS = 1000
_HEARD_TIMEOUT = 10.0


class VoiceConversation:
    """A session, and the user who takes part in it."""

    def __init__(self, session: RealtimeSession, setup: VoiceSetup, *, screen: VoiceScreen, sink: AudioSink) -> None:
        self._session = session
        self._setup = setup
        self._screen = screen
        self._sink = sink
        self._is_interactive = sys.stdin.isatty()
        self._heard = asyncio.Event()

    async def run(self, speech: Sequence[bytes]) -> None:
        """Run until the user leaves or the session ends. Raises the error of the session."""
        if self._is_interactive:
            self._screen.line(f"live with {self._session.active_agent}; /help for help, Ctrl-D to leave", "dim")
            for note in self._setup.notes:
                self._screen.line(note, "dim")
            # Some platforms have no signal handlers for loops; there, Ctrl-C ends the program.
            with suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        listener = asyncio.create_task(self._listen())
        participant = asyncio.create_task(self._send_input(speech))
        microphone = asyncio.create_task(self._send_microphone())
        try:
            await asyncio.wait([listener, participant], return_when=asyncio.FIRST_COMPLETED)
        finally:
            has_left = participant.done()
            for task in (participant, microphone):
                task.cancel()
            await asyncio.gather(participant, microphone, return_exceptions=True)
            await self._session.close()
        await listener
        if has_left:
            participant.result()

    async def _listen(self) -> None:
        async for event in self._session:
            if isinstance(event, events.UserMessageAdded | live.SessionErrorReported):
                self._heard.set()
            self._sink.handle(event)
            self._screen.show(event)

    async def _send_microphone(self) -> None:
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
        async for line in read_stdin():
            if line.lower() in LEAVE:
                return
            if line:
                await self._execute(line)
            if not self._is_interactive:
                await self._session.wait_until_idle()

    async def _execute(self, line: str) -> None:
        """Execute a command, or send the line as text; errors are displayed and end nothing."""
        command = _COMMAND.fullmatch(line)
        word, rest = (command[1], (command[2] or "").strip()) if command else ("", line)
        try:
            match word:
                case "":
                    await self._session.send_text(rest)
                case "/handoff" if rest:
                    await self._session.handoff_to(rest)
                case "/handoff":
                    self._screen.line("/handoff needs the name of an agent", "red")
                case "/interrupt":
                    await self._session.interrupt()
                case "/answer":
                    await self._answer(rest)
                case "/help":
                    self._screen.line(_HELP)
                case _:
                    self._screen.line(f"unknown command {word}; see /help", "red")
        except BatonError as error:
            self._screen.line(str(error), "red")

    async def _answer(self, text: str) -> None:
        questions = self._session.interrupts
        if not questions:
            self._screen.line("there is no open interrupt", "red")
        elif (answer := parse_reply(questions[0], text)) is None:
            self._screen.line("unclear answer; after /answer write y, n, a or a reason, or text or JSON", "red")
        else:
            await self._session.answer(questions[0].id, answer[0])

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
            if self._setup.options.wav_speed:
                await asyncio.sleep(_CHUNK_MS / 1000 / self._setup.options.wav_speed)
        if not is_committed:
            try:
                await asyncio.wait_for(self._heard.wait(), _HEARD_TIMEOUT)
            except TimeoutError:
                self._screen.line(f"no speech was recognised within {_HEARD_TIMEOUT:g} s", "red")

    def _interrupt(self) -> None:
        self._screen.cancelled()
        self._interrupting = asyncio.ensure_future(self._execute("/interrupt"))


async def _hold_conversation(
    setup: VoiceSetup, speech: Sequence[bytes], recording: Recording | None, screen: VoiceScreen
) -> None:
    """Hold a conversation until the user leaves or it ends. Raises its error."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(setup.runner.close)
        session = await _open_session(setup, screen)
        stack.callback(_show_end, session, screen)
        await stack.enter_async_context(session)
        speaker = None if setup.devices is None else AudioOutput(setup.devices, session.playback.played)
        if speaker is not None:
            stack.callback(speaker.close)
        played = None if speaker is not None or setup.options.wav_speed else session.playback.played
        sink = AudioSink(speaker, recording, played)
        await VoiceConversation(session, setup, screen=screen, sink=sink).run(speech)


async def _open_session(setup: VoiceSetup, screen: Screen) -> RealtimeSession:
    """Start a session, or resume the thread's unfinished one."""
    runner = setup.runner
    arguments = setup.arguments
    limits = replace(runner.text_runner._config.limits, **arguments.limits) if arguments.limits else None
    thread = arguments.thread or (new_id() if arguments.store is not None else None)
    if thread is not None:
        last = await last_unfinished_run(runner, thread, screen=screen)
        if last is not None and not is_driven(last):
            screen.line(f"resuming run {last.run_id} of this thread", "bold yellow")
            return runner.resume(last.run_id, limits=limits)
    return runner.connect(values=arguments.values, limits=limits, thread=thread)


def _show_end(session: RealtimeSession, screen: Screen) -> None:
    screen.end_line()
    try:
        result = session.result
    except RunError:
        # The session never started; the error raised says why.
        return
    if result.interrupts:
        screen.line("not answered; the run stays suspended", "red")
    if result.usage.total.model_calls:
        screen.usage(result.usage.total, label="total")


@click.command("voice")
@target
@click.option("--base-url", metavar="URL", help="The base URL of the model's API, such as ws://127.0.0.1:8080/v1.")
@click.option("--voice", metavar="NAME", help="The voice of agents that have none of their own.")
@click.option("--text-only", is_flag=True, help="Answer in text and use no audio.")
@repeated_option("--wav-in", "wav_in", "FILE", "Send this .wav file as speech; may be repeated.", type=FILE)
@click.option("--wav-out", type=FILE, metavar="FILE", help="Record the answers to this .wav file.")
@number_option("--wav-speed", 1.0, "FACTOR", "The speed at which --wav-in is sent; 0 sends it at once.")
@run_options
@collect("options", VoiceOptions)
def voice_command(*, target: str, arguments: RunArguments, options: VoiceOptions) -> None:
    """Hold a live conversation with a team of RealtimeAgents.

    Each line you type is sent to the active agent, and the conversation is shown. With batonkit[voice] the microphone
    and the speaker of this machine are used as well, and you can interrupt by speaking.

    MODULE:AGENT names a RealtimeAgent or a RealtimeRunner. Without a terminal, each line of stdin is sent when the one
    before it has been answered.

    \b
    During the conversation:
      /handoff NAME   hand control to another agent
      /interrupt      stop the current response (or Ctrl-C)
      /answer ANSWER  answer the oldest open interrupt
      /help, /quit    show help; leave (or Ctrl-D)

    \b
    Examples:
      baton voice desk:triage --model openai:gpt-realtime
      baton voice desk:triage --text-only --store calls.db --thread u42
      baton voice desk:triage --wav-in question.wav --wav-out answer.wav --wav-speed 0
      printf 'Hello\\n/handoff Billing\\n' | baton voice desk:triage
    """
    if options.text_only and (options.wav_in or options.wav_out):
        raise click.UsageError("--text-only cannot be combined with --wav-in or --wav-out")
    setup = set_up_voice(target, arguments, options)
    speech = [read_wav(path) for path in options.wav_in]
    recording = Recording() if options.wav_out is not None else None
    screen = VoiceScreen()
    try:
        asyncio.run(_hold_conversation(setup, speech, recording, screen))
    finally:
        if recording is not None and options.wav_out is not None:
            recording.write(options.wav_out)
            screen.line(f"recorded {recording.seconds:.1f} s to {options.wav_out}", "dim")
