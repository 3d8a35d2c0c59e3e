"""A live conversation with a person: what they type, say or have in files goes in, and what happens is shown."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from ...events import Delta, Event, UserMessageAdded
from ...realtime import RealtimeSession, SessionErrorReported
from ...realtime.settings import bytes_for
from ..show import Screen
from .commands import VoiceCommands
from .devices import Microphone
from .lines import StdinReader
from .outlet import AudioSink
from .show import VoiceScreen
from .start import VoiceSetup

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
        manners = self._start.runner.manners
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
