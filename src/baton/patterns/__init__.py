"""Teams made of the parts: supervisor, plan and execute, deep agent.

May import workflows and what is below them. Patterns put agents, edges, workflows and agents as tools together; they
must have no control flow of their own that those can express. What they keep is in the run's values.
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
