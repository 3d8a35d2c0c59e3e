"""Workflow agents: sub-agents in sequence, in a loop, or in parallel.

May import agents and what is below them. A workflow runs its steps and reads their outcome; it must not follow
transfers itself, because a step's transfers stay inside the step.
"""

from ..events import BreakLoop
from . import reducers
from .parallel import ParallelAgent
from .reducers import Reducer
from .sequential import LoopAgent, SequentialAgent, break_loop_tool

__all__ = [
    "BreakLoop",
    "LoopAgent",
    "ParallelAgent",
    "Reducer",
    "SequentialAgent",
    "break_loop_tool",
    "reducers",
]
