"""Agents made of agents: one after the other, again and again, all at once.

May import agents and what is below them. A workflow gives the floor to its steps and reads how they end; it must not
follow transfers itself: a step's transfers stay inside the step.
"""

from .break_loop import break_loop_tool
from .loop import LoopAgent
from .parallel import ParallelAgent
from .reducers import Reducer, add, append, extend
from .sequential import SequentialAgent

__all__ = [
    "LoopAgent",
    "ParallelAgent",
    "Reducer",
    "SequentialAgent",
    "add",
    "append",
    "break_loop_tool",
    "extend",
]
