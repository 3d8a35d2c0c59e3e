"""The settings of a session: those it begins with, and how an update changes them."""

import time
from collections.abc import Mapping
from typing import Any

from ....realtime.settings import AudioFormat

FORMATS: dict[str, AudioFormat] = {"audio/pcm": "pcm16", "audio/pcmu": "g711_ulaw", "audio/pcma": "g711_alaw"}
"""The formats by their names on the wire."""

_LIFETIME = 3600
_PCM = {"type": "audio/pcm", "rate": 24000}
_VAD = {
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
_SEMANTIC_VAD = {"eagerness": "auto", "create_response": True, "interrupt_response": True}
_INSTRUCTIONS = "You are a helpful, witty, and friendly AI."


def at_first(session_id: str, model: str) -> dict[str, Any]:
    """What a session is before anybody has changed it."""
    return {
        "type": "realtime",
        "object": "realtime.session",
        "id": session_id,
        "model": model,
        "expires_at": int(time.time()) + _LIFETIME,
        "output_modalities": ["audio"],
        "instructions": _INSTRUCTIONS,
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "tracing": None,
        "truncation": "auto",
        "include": None,
        "audio": {
            "input": {
                "format": _PCM,
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": {"type": "server_vad", **_VAD},
            },
            "output": {"format": _PCM, "voice": "alloy", "speed": 1.0},
        },
    }


def updated(settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with what an update gives; what it does not name stays."""
    changed = {**settings, **given}
    audio = given.get("audio", {})
    changed["audio"] = {side: {**settings["audio"][side], **audio.get(side, {})} for side in ("input", "output")}
    listening = changed["audio"]["input"]
    detection = audio.get("input", {}).get("turn_detection")
    if detection is not None:
        # A new way to listen begins with its own defaults, not with what the last one was told.
        defaults = _VAD if detection["type"] == "server_vad" else _SEMANTIC_VAD
        listening["turn_detection"] = {**defaults, **detection}
    for side in ("input", "output"):
        if changed["audio"][side]["format"]["type"] == "audio/pcm":
            changed["audio"][side]["format"] = _PCM
    return changed
