"""The command `baton voice`: a live conversation by keyboard, .wav files, or microphone and speaker."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any

import click

from ..errors import RunError
from ..realtime import RealtimeSession
from ..stores import FINISHED_STATUSES
from .audio import AudioOutput, AudioSink, Recording, read_wav
from .display import Screen
from .errors import warnings_on_stderr
from .options import is_debugging, run_arguments, run_options, target
from .voice_session import AudioOptions, VoiceConversation, VoiceOptions, VoiceSetup, set_up_voice

_WAV = click.Path(dir_okay=False, path_type=Path)


@click.command("voice")
@target
@click.option("--base-url", metavar="URL", help="The base URL of the model's API, such as ws://127.0.0.1:8080/v1.")
@click.option("--voice", metavar="NAME", help="The voice of agents that have none of their own.")
@click.option("--text-only", is_flag=True, help="Answer in text and use no audio.")
@click.option(
    "--wav-in", multiple=True, type=_WAV, metavar="FILE", help="Send this .wav file as speech; may be repeated."
)
@click.option("--wav-out", type=_WAV, metavar="FILE", help="Record the answers to this .wav file.")
@click.option(
    "--wav-speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="The speed at which --wav-in is sent; 0 sends it at once.",
)
@run_options
@click.pass_context
def voice_command(
    ctx: click.Context,
    /,
    *,
    target: str,
    base_url: str | None,
    voice: str | None,
    text_only: bool,
    wav_in: tuple[Path, ...],
    wav_out: Path | None,
    wav_speed: float,
    **rest: Any,
) -> None:
    """Hold a live conversation with a team of RealtimeAgents.

    Each line you type is sent to the active agent, and the conversation is shown. With baton-adk[voice] the microphone
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
    if text_only and (wav_in or wav_out):
        raise click.UsageError("--text-only cannot be combined with --wav-in or --wav-out")
    arguments = run_arguments(**rest)
    sound = AudioOptions(is_off=text_only, inputs=wav_in, output=wav_out, speed=wav_speed)
    voice_options = VoiceOptions(model=arguments.model, base_url=base_url, voice=voice)
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=False):
        hold_conversation(set_up_voice(target, arguments, sound, voice_options))


def hold_conversation(setup: VoiceSetup) -> None:
    """Hold a conversation until the user leaves or it ends. Raises its error."""
    speech = [read_wav(path) for path in setup.audio.inputs]
    recording = Recording() if setup.audio.output is not None else None
    screen = Screen()
    try:
        asyncio.run(_hold(setup, speech, recording, screen))
    finally:
        if recording is not None and setup.audio.output is not None:
            recording.write(setup.audio.output)
            screen.line(f"recorded {recording.seconds:.1f} s to {setup.audio.output}", "dim")


async def _hold(setup: VoiceSetup, speech: Sequence[bytes], recording: Recording | None, screen: Screen) -> None:
    try:
        session = await _open_session(setup, screen)
        try:
            async with session:
                speaker = None if setup.devices is None else AudioOutput(setup.devices, session.playback.played)
                played = None if speaker is not None or setup.audio.speed else session.playback.played
                sink = AudioSink(speaker, recording, played)
                try:
                    await VoiceConversation(session, setup, screen=screen, sink=sink).run(speech)
                finally:
                    sink.close()
        finally:
            _show_end(session, screen)
    finally:
        await setup.runner.close()


async def _open_session(setup: VoiceSetup, screen: Screen) -> RealtimeSession:
    """Start a session, or resume the thread's unfinished one."""
    runner, thread = setup.runner, setup.thread
    if thread is not None:
        runs = await runner.thread(thread).runs()
        screen.line(f"thread {thread}, {len(runs)} run{'' if len(runs) == 1 else 's'} so far", "dim")
        last = runs[-1] if runs else None
        is_driven = last is not None and last.status == "running" and last.lease_until > time()
        if last is not None and last.status not in FINISHED_STATUSES and not is_driven:
            screen.line(f"resuming run {last.run_id} of this thread", "bold yellow")
            return runner.resume(last.run_id, limits=setup.limits)
    return runner.connect(values=setup.values, limits=setup.limits, thread=thread)


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
