"""Teams made of the parts: supervisor, plan and execute, deep agent.

May import workflows and what is below them. Patterns put agents, edges, workflows and agents as tools together; they
must have no control flow of their own that those can express. What they keep is in the run's values.
"""

from .deep_agent import GENERAL_PURPOSE, TODOS_KEY, Todo, deep_agent
from .plan_execute import PlanExecuteAgent, plan_execute
from .plans import PLAN_EXECUTE_KEY, CompletedStep, ParallelPlan, Plan, PlanProgress
from .roles import make_executor, make_planner, make_replanner
from .scratch import FILE_KEY, scratch_file_tools
from .supervisor import SupervisorAgent, supervisor

__all__ = [
    "FILE_KEY",
    "GENERAL_PURPOSE",
    "PLAN_EXECUTE_KEY",
    "TODOS_KEY",
    "CompletedStep",
    "ParallelPlan",
    "Plan",
    "PlanExecuteAgent",
    "PlanProgress",
    "SupervisorAgent",
    "Todo",
    "deep_agent",
    "make_executor",
    "make_planner",
    "make_replanner",
    "plan_execute",
    "scratch_file_tools",
    "supervisor",
]
