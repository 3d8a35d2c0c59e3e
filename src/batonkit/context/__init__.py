"""The context of an activation or a tool call: the run's values, limits and recorded steps.

May import log, messages and errors. Must not know models, tools, agents or stores.
"""

from ..log import Default
from .run_context import RunContext
from .run_state import Limits
from .values import Values

__all__ = ["Default", "Limits", "RunContext", "Values"]
