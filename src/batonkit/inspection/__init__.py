"""Descriptions of teams and of recorded runs, for the command line, the HTTP API and Studio.

Nothing here runs an agent: teams are described as compiled, and runs as their logs recorded them. May import runs and
the layers below.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from .comparison import ComparedRun, Comparison, compare_runs
    from .policies import PolicyEstimate, estimate_policies
    from .recorded_tests import write_test
    from .shown_requests import HandoffDiff, RequestView, related_keys, view_compared, view_request
    from .teams import AgentDescription, TeamDescription, TeamFinding, describe_team
    from .usage import UsageRow, merge_usage, usage_by

_MODULES = {
    "comparison": ("ComparedRun", "Comparison", "compare_runs"),
    "policies": ("PolicyEstimate", "estimate_policies"),
    "recorded_tests": ("write_test",),
    "shown_requests": ("HandoffDiff", "RequestView", "related_keys", "view_compared", "view_request"),
    "teams": ("AgentDescription", "TeamDescription", "TeamFinding", "describe_team"),
    "usage": ("UsageRow", "merge_usage", "usage_by"),
}

__all__ = [
    "AgentDescription",
    "ComparedRun",
    "Comparison",
    "HandoffDiff",
    "PolicyEstimate",
    "RequestView",
    "TeamDescription",
    "TeamFinding",
    "UsageRow",
    "compare_runs",
    "describe_team",
    "estimate_policies",
    "merge_usage",
    "related_keys",
    "usage_by",
    "view_compared",
    "view_request",
    "write_test",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
