"""Ready-made teams: supervisor, plan and execute, deep agent.

May import workflows and what is below them. Patterns combine agents, handoffs, workflows and agents as tools; they must
not add control flow that those can express. Their state is in the run's values.
"""

from .deep_agents import FILE_KEY, GENERAL_PURPOSE, TODOS_KEY, Todo, deep_agent, scratch_file_tools
from .planning import make_executor, make_planner, make_replanner, plan_execute
from .plans import PLAN_EXECUTE_KEY, CompletedStep, ParallelPlan, Plan, PlanProgress
from .supervision import supervisor

__all__ = [
    "FILE_KEY",
    "GENERAL_PURPOSE",
    "PLAN_EXECUTE_KEY",
    "TODOS_KEY",
    "CompletedStep",
    "ParallelPlan",
    "Plan",
    "PlanProgress",
    "Todo",
    "deep_agent",
    "make_executor",
    "make_planner",
    "make_replanner",
    "plan_execute",
    "scratch_file_tools",
    "supervisor",
]
