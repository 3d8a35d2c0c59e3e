"""What adapters that are spoken to over HTTP share: who calls, how much is read, trouble told, server-sent events.

May import runner and what is below it; all files but `callers` import Starlette when they are loaded. Knows no
protocol: each of them puts its own words on it.
"""

from .callers import Caller, Token, Verifier

__all__ = ["Caller", "Token", "Verifier"]
