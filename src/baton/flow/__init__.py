"""Control flow between agents: teams, transfers, and the history that each agent reads.

May import agents and what is below them. `follow` is the only reader of Transfer. Must not know runners or stores.
"""

from .requests import MessageSource, RecordedRequest, read_requests
from .team import Finding, Team, TeamMember

__all__ = ["Finding", "MessageSource", "RecordedRequest", "Team", "TeamMember", "read_requests"]
