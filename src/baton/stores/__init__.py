"""Where logs live: lines of a log kept in order, with a compare-and-set on appending and leases on driving.

May import events, messages and errors. Knows neither agents nor runs: only the runner reads and writes through it.
"""

from .base import FINISHED, STATUSES, Lease, Page, RunRecord, RunStatus, Store

__all__ = ["FINISHED", "STATUSES", "Lease", "Page", "RunRecord", "RunStatus", "Store"]
