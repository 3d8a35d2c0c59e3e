"""How much a run and everything nested in it may use, and the counting of it."""

from collections.abc import Iterable

from msgspec import Struct

from ..errors import LimitError
from ..events import AgentResponded, ControlTransferred, Event, Origin
from ..messages import Usage


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a whole run tree; None means no limit.

    `round_trips` is how often two agents may pass control back and forth without anything new happening.
    """

    model_calls: int | None = 100
    transfers: int | None = 32
    idle_cycles: int | None = 3
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None


class UsageMeter:
    """Counts what a run uses, on the first run and on every replay alike, and stops it at its limits.

    A part of a run may have a smaller share: what it uses is counted in the whole as well.
    """

    __slots__ = ("cost", "limits", "model_calls", "tokens", "transfers", "whole")

    def __init__(self, limits: Limits, whole: "UsageMeter | None" = None) -> None:
        self.limits = limits
        self.whole = whole
        self.model_calls = 0
        self.transfers = 0
        self.tokens = 0
        self.cost = 0.0

    def start_model_call(self, origin: Origin) -> None:
        """Count a model call before it is made."""
        if self.whole is not None:
            self.whole.start_model_call(origin)
        self.model_calls += 1
        allowed = self.limits.model_calls
        if allowed is not None and self.model_calls > allowed:
            raise self._exceeded("model_calls", allowed, origin)

    def start_transfer(self, origin: Origin) -> None:
        """Count a transfer before it is made."""
        if self.whole is not None:
            self.whole.start_transfer(origin)
        self.transfers += 1
        allowed = self.limits.transfers
        if allowed is not None and self.transfers > allowed:
            raise self._exceeded("transfers", allowed, origin)

    def add_usage(self, usage: Usage, origin: Origin) -> None:
        """Count what a model call consumed. What is over the limit has been recorded; the run stops after it."""
        if self.whole is not None:
            self.whole.add_usage(usage, origin)
        self.tokens += usage.input_tokens + usage.output_tokens
        self.cost += usage.cost
        limits = self.limits
        if limits.tokens is not None and self.tokens > limits.tokens:
            raise self._exceeded("tokens", limits.tokens, origin)
        if limits.cost is not None and self.cost > limits.cost:
            raise self._exceeded("cost", limits.cost, origin)

    def count_again(self, events: Iterable[Event]) -> None:
        """Count what these events used: they are of a part that is over, and on a replay nobody goes inside."""
        for event in events:
            if type(event) is ControlTransferred:
                self.start_transfer(event.origin)
            elif type(event) is AgentResponded and event.model:
                self.start_model_call(event.origin)
                if event.usage is not None:
                    self.add_usage(event.usage, event.origin)

    def _exceeded(self, limit: str, allowed: float, origin: Origin) -> LimitError:
        return LimitError(limit, allowed, origin.path, share=None if self.whole is None else self)
