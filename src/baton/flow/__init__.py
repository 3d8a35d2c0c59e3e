"""Control flow between agents: who is in a team, who goes next, and what the next one reads.

May import agents and what is below them. `follow` is the only reader of Transfer. Must not know runners or stores.
"""

from .fingerprint import differences, fingerprint_of
from .follow import Course, Rules, follow
from .history import as_read_by_others, checked_projection, view_for
from .recall import floor_of, recalled
from .team import Finding, Seat, Team

__all__ = [
    "Course",
    "Finding",
    "Rules",
    "Seat",
    "Team",
    "as_read_by_others",
    "checked_projection",
    "differences",
    "fingerprint_of",
    "floor_of",
    "follow",
    "recalled",
    "view_for",
]
