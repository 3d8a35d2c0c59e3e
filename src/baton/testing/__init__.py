"""What tests of agents need: models that play a script, a run as lines of text, and a laboratory for crashes.

May import every room but cli, server and web. Must not import pytest: it works with any test runner.
"""

from .crashes import CrashReport, Divergence, assert_survives_crashes, crash_report
from .realtime import ScriptedConnection, ScriptedRealtimeModel
from .scripted import ScriptedModel
from .speech import silence, speech
from .steps import ScriptedStream, ScriptStep, call, say, transfer_to
from .transcript import transcript
from .understudy import scripted_or_real

__all__ = [
    "CrashReport",
    "Divergence",
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
