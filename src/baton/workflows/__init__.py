"""Agents made of agents: one after the other, again and again, all at once.

May import agents and what is below them. A workflow gives the floor to its steps and reads how they end; it must not
follow transfers itself: a step's transfers stay inside the step.
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
