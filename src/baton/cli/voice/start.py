"""From what the command line says about a live conversation to a runner that can hold it."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
from msgspec.structs import replace

from ...context import Limits
from ...realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings, TurnDetection
from ...realtime.registry import resolve_realtime_model
from ...runner.ids import new_id
from ..failures import TargetError
from ..load import find
from ..start import RunArguments
from ..store import store_at
from .devices import sounddevice

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
    _check_formats(runner.manners, reference, uses_sound=bool(devices or sound.said or sound.heard))
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
