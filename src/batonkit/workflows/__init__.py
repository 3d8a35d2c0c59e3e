"""Workflows: sub-agents in sequence, in a loop or in parallel, and ready-made teams built from them.

May import team and what is below it. A workflow runs its steps and reads their outcome; it must not follow transfers
itself, because a step's transfers stay inside the step. Supervisor, plan and execute and deep agent combine agents,
handoffs, workflows and agents as tools; they must not add control flow that those can express. Their state is in the
run's values.
"""

from ..log import BreakLoop
from . import reducers
from .deep_agents import FILE_KEY, GENERAL_PURPOSE, TODOS_KEY, Todo, deep_agent, scratch_file_tools
from .parallel import ParallelAgent
from .plan_execution import make_executor, make_planner, make_replanner, plan_execute
from .plans import PLAN_EXECUTE_KEY, CompletedStep, ParallelPlan, Plan, PlanProgress
from .reducers import Reducer
from .sequential import LoopAgent, SequentialAgent, break_loop_tool
from .supervision import supervisor

__all__ = [
    "FILE_KEY",
    "GENERAL_PURPOSE",
    "PLAN_EXECUTE_KEY",
    "TODOS_KEY",
    "BreakLoop",
    "CompletedStep",
    "LoopAgent",
    "ParallelAgent",
    "ParallelPlan",
    "Plan",
    "PlanProgress",
    "Reducer",
    "SequentialAgent",
    "Todo",
    "break_loop_tool",
    "deep_agent",
    "make_executor",
    "make_planner",
    "make_replanner",
    "plan_execute",
    "reducers",
    "scratch_file_tools",
    "supervisor",
]
