"""One live conversation from its beginning to its end, with all that is opened for it and closed after it."""

import asyncio
from collections.abc import Sequence
from time import time

from ...errors import RunError
from ...realtime import RealtimeSession
from ...stores import FINISHED_STATUSES
from ..show import Screen
from .conversation import VoiceConversation
from .devices import AudioOutput
from .outlet import AudioSink
from .sound import Recording, sound_in
from .start import VoiceSetup


def hold(start: VoiceSetup) -> None:
    """Hold a conversation until the person leaves or it ends by itself. Raises what ended it."""
    said = [sound_in(path) for path in start.sound.said]
    recording = Recording() if start.sound.heard is not None else None
    screen = Screen()
    try:
        asyncio.run(_hold(start, said, recording, screen))
    finally:
        if recording is not None and start.sound.heard is not None:
            recording.write(start.sound.heard)
            screen.line(f"{recording.seconds:.1f} s of sound in {start.sound.heard}", "dim")


async def _hold(start: VoiceSetup, said: Sequence[bytes], recording: Recording | None, screen: Screen) -> None:
    try:
        session = await _session_of(start, screen)
        try:
            async with session:
                speaker = None if start.devices is None else AudioOutput(start.devices, session.playback.played)
                played = None if speaker is not None or start.sound.pace else session.playback.played
                outlet = AudioSink(speaker, recording, played)
                try:
                    await VoiceConversation(session, start, screen=screen, outlet=outlet).go_on(said)
                finally:
                    outlet.close()
        finally:
            _show_end(session, screen)
    finally:
        await start.runner.close()


async def _session_of(start: VoiceSetup, screen: Screen) -> RealtimeSession:
    """A conversation, or the one of the thread that has not ended."""
    runner, thread = start.runner, start.thread
    if thread is not None:
        runs = await runner.thread(thread).runs()
        screen.line(f"thread {thread}, {len(runs)} run{'' if len(runs) == 1 else 's'} so far", "dim")
        last = runs[-1] if runs else None
        is_elsewhere = last is not None and last.status == "running" and last.lease_until > time()
        if last is not None and last.status not in FINISHED_STATUSES and not is_elsewhere:
            screen.line(f"run {last.run_id} of it has not ended, and goes on", "bold yellow")
            return runner.resume(last.run_id, limits=start.limits)
    return runner.connect(values=start.values, limits=start.limits, thread=thread)


def _show_end(session: RealtimeSession, screen: Screen) -> None:
    screen.end_line()
    try:
        result = session.result
    except RunError:
        # It has never begun, and what is raised says why.
        return
    if result.interrupts:
        screen.line("not answered; the run is left where it was", "red")
    if result.usage.total.model_calls:
        screen.usage(result.usage.total, label="in all")
