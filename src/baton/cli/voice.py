"""`baton voice`: a live conversation with a team in the terminal, with files, or with a microphone and a speaker.

`baton voice`: its options.

One live conversation from its beginning to its end, with all that is opened for it and closed after it.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any

import click

from ..errors import RunError
from ..realtime import RealtimeSession
from ..stores import FINISHED_STATUSES
from .audio import AudioOutput, AudioSink, Recording, sound_in
from .display import Screen
from .options import is_debugging, run_arguments, run_options, target
from .voice_session import VoiceConversation, VoiceSetup

_WAV = click.Path(dir_okay=False, path_type=Path)


@click.command()
@target
@click.option("--base-url", metavar="URL", help="Where the model is, such as ws://127.0.0.1:8080/v1.")
@click.option("--voice", metavar="NAME", help="The voice of agents that name none themselves.")
@click.option("--text", "is_written", is_flag=True, help="Have answers written, not spoken; use no sound at all.")
@click.option(
    "--wav-in", multiple=True, type=_WAV, metavar="FILE", help="Something to say: a .wav file; several, one by one."
)
@click.option("--wav-out", type=_WAV, metavar="FILE", help="Write what is heard to this .wav file.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Send --wav-in so many times as fast as it sounds; 0 sends it at once.",
)
@run_options
@click.pass_context
def voice(
    ctx: click.Context,
    /,
    *,
    target: str,
    base_url: str | None,
    voice: str | None,
    is_written: bool,
    wav_in: tuple[Path, ...],
    wav_out: Path | None,
    pace: float,
    **rest: Any,
) -> None:
    """Hold a live conversation with a team of RealtimeAgents.

    What you type is said to whoever has the floor, and what they say is shown. With baton-adk[voice] the microphone
    and the speaker of this machine are used as well: speak, and interrupt, as you would with a person.

    MODULE:AGENT names a RealtimeAgent or a RealtimeRunner. Without a terminal, each line of stdin is said when the one
    before it has been answered.

    \b
    While it lasts:
      /to NAME        give somebody else the floor
      /interrupt      stop whoever speaks (so does Ctrl-C)
      /answer ANSWER  answer the oldest open question
      /help, /quit    (so does Ctrl-D)

    \b
    Examples:
      baton voice desk:triage --model openai:gpt-realtime
      baton voice desk:triage --text --store calls.db --thread u42
      baton voice desk:triage --wav-in question.wav --wav-out answer.wav --pace 0
      printf 'Hello\\n/to Billing\\n' | baton voice desk:triage
    """
    from .errors import warnings_on_stderr
    from .voice import hold
    from .voice_session import AudioOptions, VoiceOptions, voice_start_of

    if is_written and (wav_in or wav_out):
        raise click.UsageError("--text uses no sound; leave out --wav-in and --wav-out, or --text")
    wishes = run_arguments(**rest)
    sound = AudioOptions(is_off=is_written, said=wav_in, heard=wav_out, pace=pace)
    speaking = VoiceOptions(model=wishes.model, base_url=base_url, voice=voice)
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=False):
        hold(voice_start_of(target, wishes, sound, speaking))


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
