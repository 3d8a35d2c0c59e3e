"""Test teams without a language model: scripted models, transcripts and the crash laboratory.

May import every package except cli. Does not import pytest: it works with any test runner.
"""

from .crash_lab import CrashOptions, CrashReport, Divergence, assert_survives_crashes, crash_report
from .faulty_store import FaultyStore
from .realtime import ScriptedConnection, ScriptedRealtimeModel
from .realtime.audio import silence, speech
from .scripted import ScriptedModel, ScriptedStream, ScriptStep, call, say, scripted_or_real, transfer_to
from .transcripts import transcript

__all__ = [
    "CrashOptions",
    "CrashReport",
    "Divergence",
    "FaultyStore",
    "ScriptStep",
    "ScriptedConnection",
    "ScriptedModel",
    "ScriptedRealtimeModel",
    "ScriptedStream",
    "assert_survives_crashes",
    "call",
    "crash_report",
    "say",
    "scripted_or_real",
    "silence",
    "speech",
    "transcript",
    "transfer_to",
]
