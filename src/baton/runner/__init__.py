"""Start, stream, resume and cancel runs. The only maker of a run.

May import flow and what is below it. There is one way through, `LiveRun.drive`; everything else opens or reads it.
"""

from .hub import Hub
from .live import LiveRun
from .reading import Heard, Reader
from .result import GuardrailResult, Interrupt, RunResult, RunUsage, Status, guardrails_of, usage_of
from .runner import Runner

__all__ = [
    "GuardrailResult",
    "Heard",
    "Hub",
    "Interrupt",
    "LiveRun",
    "Reader",
    "RunResult",
    "RunUsage",
    "Runner",
    "Status",
    "guardrails_of",
    "usage_of",
]
