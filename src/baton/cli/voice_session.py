"""A live conversation with a person: what they type, say or have in files goes in, and what happens is shown.

What a person can type during a live conversation besides what is to be said.

A live conversation in a terminal while it is held.

What a person types while something else goes on.

From what the command line says about a live conversation to a runner that can hold it.
"""

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
from .display import Screen, format_interrupt, shortened, understood
from .errors import TargetError
from .targets import RunArguments, find, store_at

_COMMAND = re.compile(r"(/[a-z]+)(?:\s+(.*))?")
_HELP = """\
What you type is said to whoever has the floor.
  /to NAME          give somebody else the floor
  /interrupt        stop whoever speaks (so does Ctrl-C)
  /answer ANSWER    answer the oldest open question: y, n, a (always) or why not; anything else as text or JSON
  /help             this
  /quit, exit       leave (so does Ctrl-D)"""


class VoiceCommands:
    """Does what a line says. What goes wrong is shown; it ends neither the conversation nor the program."""

    def __init__(self, session: RealtimeSession, screen: Screen) -> None:
        self._session = session
        self._screen = screen
        self._known: dict[str, Callable[[str], Awaitable[None]]] = {
            "": session.send_text,
            "/to": self._hand_over,
            "/interrupt": self._interrupt,
            "/answer": self._answer,
            "/help": self._help,
        }

    async def obey(self, line: str) -> None:
        """Do what a line says, or say it."""
        command = _COMMAND.fullmatch(line)
        word, rest = (command[1], command[2] or "") if command else ("", line)
        known = self._known.get(word)
        if known is None:
            self._screen.line(f"there is no {word}; /help lists what there is", "red")
            return
        try:
            await known(rest.strip())
        except BatonError as error:
            self._screen.line(str(error), "red")

    async def _hand_over(self, name: str) -> None:
        if name:
            await self._session.handoff_to(name)
        else:
            self._screen.line("to whom? write the name of an agent after /to", "red")

    async def _interrupt(self, _: str) -> None:
        await self._session.interrupt()

    async def _answer(self, text: str) -> None:
        questions = self._session.interrupts
        if not questions:
            self._screen.line("there is no open question", "red")
            return
        answer = understood(questions[0], text)
        if answer is None:
            self._screen.line("that is not clear; after /answer write y, n, a or why not; or text or JSON", "red")
        else:
            await self._session.answer(questions[0].id, answer[0])

    async def _help(self, _: str) -> None:
        self._screen.line(_HELP)


class VoiceScreen:
    """Shows what a Screen shows of every run, and what only live conversations have."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._is_midsentence = False
        self._held: list[UserMessageAdded] = []

    def show(self, event: Event | Delta) -> None:
        """Show one event or delta, or nothing if it tells a person nothing."""
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
        # What the user said is often written down when the answer to it has begun: it does not break into that.
        while self._held and not self._is_midsentence:
            self.screen.line(f"you › {self._held.pop(0).text}", "bold")

    def _show_rest(self, event: Event | Delta) -> None:
        line = self.screen.line
        match event:
            case ResponseTruncated():
                line(f"  ⊘ interrupted; heard: {shortened(event.heard_text) or 'nothing'}", "dim")
            case InterruptRaised():
                self.screen.show(event)
                line(f"? {event.agent}: {format_interrupt(to_interrupt(event))}", "bold yellow")
                line("  /answer and what you think of it: y, n, a (always), or why not; or any text or JSON", "dim")
            case GuardrailTripped():
                line(f"  ✗ stopped by {event.guardrail}: {shortened(event.reason)}", "red")
            case SessionErrorReported():
                line(f"  ✗ {event.code}: {shortened(event.message)}", "red")
            case SessionReconnecting():
                line(f"  … the connection is gone ({shortened(event.because)}); attempt {event.attempt}", "dim")
            case SessionReconnected():
                line("  … connected again", "dim")
            case SpeechStarted():
                self.screen.end_line()
            case _:
                self.screen.show(event)


_AT_ONCE = 4096


class StdinReader:
    """The lines of stdin. Reading them waits for nobody, and keeps nobody waiting."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # A thread that waits for a line cannot be stopped; as a daemon it does not outlive the program.
        Thread(target=self._read, name="baton stdin", daemon=True).start()

    async def next(self) -> str | None:
        """The next line, without the space around it; None when there are no more."""
        return await self._lines.get()

    def _read(self) -> None:
        # Who has left no longer has a loop, and no use for what is typed.
        with suppress(RuntimeError):
            for line in chain(_lines_of_stdin(), [None]):
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _lines_of_stdin() -> Iterator[str]:
    try:
        descriptor = sys.stdin.fileno()
    except UnsupportedOperation:
        yield from (line.strip() for line in sys.stdin)
        return
    # Past Python's own buffer: a thread that waits in it when the program ends takes the interpreter down with it.
    decoder, begun = getincrementaldecoder("utf-8")("replace"), ""
    while piece := os.read(descriptor, _AT_ONCE):
        *whole, begun = (begun + decoder.decode(piece)).split("\n")
        yield from (line.strip() for line in whole)
    if begun.strip():
        yield begun.strip()


_FORM = "pcm16"


@dataclass(frozen=True, kw_only=True)
class AudioOptions:
    """What the command line says about sound."""

    is_off: bool = False
    said: tuple[Path, ...] = ()
    heard: Path | None = None
    pace: float = 1.0


@dataclass(frozen=True, kw_only=True)
class VoiceOptions:
    """What the command line says about who speaks."""

    model: str | None = None
    base_url: str | None = None
    voice: str | None = None

    def named(self) -> list[str]:
        """The options that say something."""
        given = {"--model": self.model, "--base-url": self.base_url, "--voice": self.voice}
        return [option for option, value in given.items() if value is not None]


@dataclass(frozen=True, kw_only=True)
class VoiceSetup:
    """A runner, and what the conversation is begun with."""

    runner: RealtimeRunner[Any]
    values: Mapping[str, Any]
    limits: Limits | None
    thread: str | None
    sound: AudioOptions
    devices: Any
    """The module for the microphone and the speaker; None if they are not used."""
    notes: tuple[str, ...] = ()
    """What a person at a terminal should know before it begins."""


def voice_start_of(reference: str, wishes: RunArguments, sound: AudioOptions, speaking: VoiceOptions) -> VoiceSetup:
    """What is needed to hold a conversation with what the command line names."""
    store = None if wishes.store is None else store_at(wishes.store, existing=False)
    target = find(reference)
    if wishes.thread is not None and store is None and not isinstance(target, RealtimeRunner):
        raise click.UsageError("--thread goes on with a conversation that a store has; say --store as well")
    # Somebody who has said all in files, or over a pipe, is not there to speak.
    wants_devices = not sound.is_off and not sound.said and sys.stdin.isatty()
    devices = sounddevice() if wants_devices else None
    notes = (devices,) if isinstance(devices, str) else ()
    devices = None if isinstance(devices, str) else devices
    runner = _runner_of(target, reference, speaking, sound, can_speak=devices is not None)
    _check_formats(runner.settings, reference, uses_sound=bool(devices or sound.said or sound.heard))
    if store is not None:
        runner = runner.with_store(store)
    return VoiceSetup(
        runner=runner,
        values=wishes.values,
        limits=replace(runner.text_runner.limits, **wishes.limits) if wishes.limits else None,
        thread=wishes.thread or (new_id() if store is not None else None),
        sound=sound,
        devices=devices,
        notes=notes,
    )


def _runner_of(
    target: Any, reference: str, speaking: VoiceOptions, sound: AudioOptions, *, can_speak: bool
) -> RealtimeRunner[Any]:
    if isinstance(target, RealtimeRunner):
        if speaking.named():
            raise TargetError(
                f"`{reference}` is a RealtimeRunner, which says itself who speaks and how; "
                f"leave out {' and '.join(speaking.named())}, or name the agent instead of the runner"
            )
        return cast("RealtimeRunner[Any]", target)
    if not isinstance(target, RealtimeAgent):
        kind = type(target).__name__
        raise TargetError(
            f"`{reference}` is of type {kind} and answers in writing: `baton chat {reference}` talks with it; "
            "for a live conversation make it a RealtimeAgent, or give it to one as a tool: as_tool()"
        )
    if speaking.model is None:
        raise TargetError(f"`{reference}` needs a model to speak with; say --model openai:gpt-realtime")
    manners = RealtimeSettings(
        # What nobody could hear is written: that is quicker, and costs less.
        modality="audio" if can_speak or sound.heard is not None else "text",
        voice=speaking.voice,
        turn_detection=TurnDetection() if can_speak else None,
    )
    agent = cast("RealtimeAgent[Any]", target)
    return RealtimeRunner(
        agent, model=resolve_realtime_model(speaking.model, base_url=speaking.base_url), settings=manners
    )


def _check_formats(manners: RealtimeSettings, reference: str, *, uses_sound: bool) -> None:
    for what, form in (("listens to", manners.input_format), ("speaks", manners.output_format)):
        if uses_sound and form != _FORM:
            raise TargetError(
                f"`{reference}` {what} {form}, and sound here is {_FORM}; say --text, or change its Manners"
            )


_LEAVE = ("exit", "quit", "/exit", "/quit")
_PIECE_MS = 100
_QUIET_MS = 1000
_PATIENCE = 10.0


class VoiceConversation:
    """A session, and a person who takes part in it."""

    def __init__(self, session: RealtimeSession, start: VoiceSetup, *, screen: Screen, outlet: AudioSink) -> None:
        self._session = session
        self._start = start
        self._screen = screen
        self._shown = VoiceScreen(screen)
        self._outlet = outlet
        self._commands = VoiceCommands(session, screen)
        self._is_interactive = sys.stdin.isatty()
        self._was_heard = asyncio.Event()

    async def go_on(self, said: Sequence[bytes]) -> None:
        """Until the person leaves or the session ends. Raises what ended the session."""
        if self._is_interactive:
            for note in (f"live with {self._session.active_agent}; /help helps, Ctrl-D leaves", *self._start.notes):
                self._screen.line(note, "dim")
            self._hear_ctrl_c()
        listening = asyncio.create_task(self._listen())
        taking_part = asyncio.create_task(self._take_part(said))
        speaking = asyncio.create_task(self._speak())
        try:
            await asyncio.wait([listening, taking_part], return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_left = taking_part.done()
            for task in (taking_part, speaking):
                task.cancel()
            await asyncio.gather(taking_part, speaking, return_exceptions=True)
            await self._session.close()
        await listening
        if is_left:
            taking_part.result()

    async def _listen(self) -> None:
        async for event in self._session:
            self._take_note(event)
            self._outlet.take(event)
            self._shown.show(event)

    def _take_note(self, event: Event | Delta) -> None:
        if isinstance(event, UserMessageAdded | SessionErrorReported):
            self._was_heard.set()

    async def _speak(self) -> None:
        """Pass on what the microphone hears, if there is one."""
        if self._start.devices is not None:
            async with Microphone(self._start.devices) as microphone:
                async for piece in microphone:
                    await self._session.send_audio(piece)

    async def _take_part(self, said: Sequence[bytes]) -> None:
        for sound in said:
            await self._say_aloud(sound)
            await self._session.wait_until_idle()
        if said and self._is_interactive:
            return
        lines = StdinReader()
        while (line := await lines.next()) is not None and line.lower() not in _LEAVE:
            if line:
                await self._commands.obey(line)
            if not self._is_interactive:
                await self._session.wait_until_idle()

    async def _say_aloud(self, sound: bytes) -> None:
        """Send a sound as fast as it is to be, and let it be known that it has ended."""
        manners = self._start.runner.settings
        is_committed = manners.turn_detection is None
        if not is_committed:
            # Whoever listens for the end of speech must hear that there is nothing more.
            sound += bytes(bytes_for(_QUIET_MS, manners.input_format))
        self._was_heard.clear()
        size = bytes_for(_PIECE_MS, manners.input_format)
        for place in range(0, len(sound), size):
            is_last = place + size >= len(sound)
            await self._session.send_audio(sound[place : place + size], commit=is_committed and is_last)
            if self._start.sound.pace:
                await asyncio.sleep(_PIECE_MS / 1000 / self._start.sound.pace)
        if not is_committed:
            await self._wait_until_heard()

    async def _wait_until_heard(self) -> None:
        try:
            await asyncio.wait_for(self._was_heard.wait(), _PATIENCE)
        except TimeoutError:
            self._screen.line(f"within {_PATIENCE:g} s nobody has heard anything in that", "red")

    def _hear_ctrl_c(self) -> None:
        # Some platforms have no signals for a loop; there, Ctrl-C ends the program as it does elsewhere.
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def _interrupt(self) -> None:
        self._screen.cancelled()
        self._interrupting = asyncio.ensure_future(self._commands.obey("/interrupt"))
