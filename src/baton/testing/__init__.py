"""What tests of agents need: models that play a script, a run as lines of text, and a laboratory for crashes.

May import every room but cli, server and web. Must not import pytest: it works with any test runner.
"""

from .crashes import CrashReport, Divergence, crash_report, survives_crashes
from .realtime import ScriptedConnection, ScriptedRealtimeModel
from .scripted import ScriptedModel
from .speech import silence, speech
from .steps import Step, Stream, call, say, transfer_to
from .transcript import transcript
from .understudy import Understudy

__all__ = [
    "CrashReport",
    "Divergence",
    "ScriptedConnection",
    "ScriptedModel",
    "ScriptedRealtimeModel",
    "Step",
    "Stream",
    "Understudy",
    "call",
    "crash_report",
    "say",
    "silence",
    "speech",
    "survives_crashes",
    "transcript",
    "transfer_to",
]
