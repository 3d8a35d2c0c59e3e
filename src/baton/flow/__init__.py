"""Control flow between agents: who is in a team, who goes next, and what the next one reads.

May import agents and what is below them. `follow` is the only reader of Transfer. Must not know runners or stores.
"""

from .fingerprint import diff_fingerprints, team_fingerprint
from .follow import FlowConfig, TeamFlow, follow
from .history import check_history_policy, rewrite_entry, view_history
from .recall import history_from_log, last_active_agent
from .team import Finding, Team, TeamMember

__all__ = [
    "Finding",
    "FlowConfig",
    "Team",
    "TeamFlow",
    "TeamMember",
    "check_history_policy",
    "diff_fingerprints",
    "follow",
    "history_from_log",
    "last_active_agent",
    "rewrite_entry",
    "team_fingerprint",
    "view_history",
]
