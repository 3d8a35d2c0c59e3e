"""One run as everything inside it shares it."""

from typing import Any, Generic

from typing_extensions import TypeVar

from ..log import Log
from .limits import Meter

C = TypeVar("C", default=Any)


class Run(Generic[C]):
    """The id, the log, the user's context object, the values and the meter of one run."""

    __slots__ = ("call_ids", "context", "guests", "id", "is_cancelled", "log", "meter", "values")

    def __init__(self, id: str, log: Log, context: C, values: dict[str, Any], meter: Meter) -> None:
        self.id = id
        self.log = log
        self.context = context
        self.values = values
        self.meter = meter
        self.call_ids: set[str] = set()
        """Every call id used so far: ids are unique in a run."""
        self.is_cancelled = False
        """Whether somebody has asked the run to stop."""
        self.guests: dict[str, Any] = {}
        """Agents that functions returned, by name: reachable in this run though no edge names them."""
