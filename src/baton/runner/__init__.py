"""Start, stream, resume and cancel runs. The only maker of a run.

May import flow and what is below it. There is one way through, `RunStream.drive`; everything else opens or reads it.
"""

from .background import BackgroundRunner
from .observers import EventHandler, Observer
from .result import GuardrailResult, Interrupt, RunResult, RunUsage, StoppedStatus, guardrail_results, usage_from_events
from .runner import Runner
from .stream import RunStream

__all__ = [
    "BackgroundRunner",
    "EventHandler",
    "GuardrailResult",
    "Interrupt",
    "Observer",
    "RunResult",
    "RunStream",
    "RunUsage",
    "Runner",
    "StoppedStatus",
    "guardrail_results",
    "usage_from_events",
]
