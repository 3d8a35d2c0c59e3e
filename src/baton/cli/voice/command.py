"""`baton voice`: its options."""

from pathlib import Path
from typing import Any

import click

from ..options import is_debugging, run_arguments, run_options, target

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
    from ..failures import warnings_on_stderr
    from .hold import hold
    from .start import AudioOptions, VoiceOptions, voice_start_of

    if is_written and (wav_in or wav_out):
        raise click.UsageError("--text uses no sound; leave out --wav-in and --wav-out, or --text")
    wishes = run_arguments(**rest)
    sound = AudioOptions(is_off=is_written, said=wav_in, heard=wav_out, pace=pace)
    speaking = VoiceOptions(model=wishes.model, base_url=base_url, voice=voice)
    with warnings_on_stderr(debug=is_debugging(ctx), quiet=False):
        hold(voice_start_of(target, wishes, sound, speaking))
