"""Use A2A services as agents of a team.

May import runs and the layers below, and the official A2A SDK, which this package loads.
"""

from ..errors import MissingExtraError

try:
    from .remote import RemoteAgent
except ModuleNotFoundError as missing:
    raise MissingExtraError("batonkit.a2a", "a2a", missing) from missing

__all__ = ["RemoteAgent"]
