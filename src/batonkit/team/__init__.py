"""Control flow between agents: teams, transfers, and the history that each agent reads.

May import agents and what is below them. `follow` is the only reader of Transfer. Must not know runners or stores.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_exports
from .team import Finding, Team, TeamMember

if TYPE_CHECKING:
    from .requests import MessageSource, RecordedRequest, read_requests

_MODULES = {"requests": ("MessageSource", "RecordedRequest", "read_requests")}

__all__ = ["Finding", "MessageSource", "RecordedRequest", "Team", "TeamMember", "read_requests"]

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
