"""Teams made of the parts: supervisor, plan and execute, deep agent.

May import workflows and what is below them. Patterns put agents, edges, workflows and agents as tools together; they
must have no control flow of their own that those can express. What they keep is in the run's values.
"""

from .deep_agent import GENERAL_PURPOSE, TODOS_KEY, Todo, deep_agent
from .plan_execute import PlanExecute, plan_execute
from .plans import PLAN_EXECUTE_KEY, ParallelPlan, Plan, PlanProgress, StepDone
from .roles import make_executor, make_planner, make_replanner
from .scratch import FILE_KEY, scratch_tools
from .supervisor import Supervisor, supervisor

__all__ = [
    "FILE_KEY",
    "GENERAL_PURPOSE",
    "PLAN_EXECUTE_KEY",
    "TODOS_KEY",
    "ParallelPlan",
    "Plan",
    "PlanExecute",
    "PlanProgress",
    "StepDone",
    "Supervisor",
    "Todo",
    "deep_agent",
    "make_executor",
    "make_planner",
    "make_replanner",
    "plan_execute",
    "scratch_tools",
    "supervisor",
]
