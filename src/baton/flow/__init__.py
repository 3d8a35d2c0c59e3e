"""Control flow between agents: who is in a team, who goes next, and what the next one reads.

May import agents and what is below them. `follow` is the only reader of Transfer. Must not know runners or stores.
"""

from .team import Finding, Team, TeamMember

__all__ = [
    "Finding",
    "Team",
    "TeamMember",
]
