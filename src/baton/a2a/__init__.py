"""Use A2A services as agents of a team.

May import runner and the layers below, and the official A2A SDK, which this package loads.
"""

from .remote import RemoteAgent

__all__ = ["RemoteAgent"]
