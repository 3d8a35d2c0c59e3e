"""Start, stream, resume, cancel, fork and replay runs of a team.

May import `team` and the layers below it. Every run is driven by `RunStream._drive`; all other code opens or reads it.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_exports
from .observers import EventHandler, Observer
from .result import (
    GuardrailResult,
    Interrupt,
    RunResult,
    RunUsage,
    StoppedStatus,
    guardrail_results,
    output_from_events,
    usage_from_events,
)
from .rules import HandoffRules, HistoryOptions
from .run_args import ContextFactory, ResumeArgs, RunArgs, WhenBusy
from .runner import Runner
from .stored.runs import Runs
from .stream import RunStream

if TYPE_CHECKING:
    from .answers import Dismiss
    from .background.background_runner import BackgroundRunner
    from .stored.driving import DriveResult
    from .stored.summaries import RunSummary, read_summaries, summarize

_MODULES = {
    "answers": ("Dismiss",),
    "background.background_runner": ("BackgroundRunner",),
    "stored.driving": ("DriveResult",),
    "stored.summaries": ("RunSummary", "read_summaries", "summarize"),
}

__all__ = [
    "BackgroundRunner",
    "ContextFactory",
    "Dismiss",
    "DriveResult",
    "EventHandler",
    "GuardrailResult",
    "HandoffRules",
    "HistoryOptions",
    "Interrupt",
    "Observer",
    "ResumeArgs",
    "RunArgs",
    "RunResult",
    "RunStream",
    "RunSummary",
    "RunUsage",
    "Runner",
    "Runs",
    "StoppedStatus",
    "WhenBusy",
    "guardrail_results",
    "output_from_events",
    "read_summaries",
    "summarize",
    "usage_from_events",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
