"""Options of a runner for the handoffs and the history of its whole team."""

from msgspec import Struct

from .._checks import CheckedStructMeta, check_callback, check_choice
from ..agents import HistoryPolicy, MultipleTransfers
from ..agents.agent_context import compile_history
from ..errors import SetupError
from ..handoffs import HandoffInputFilter


class HistoryOptions(Struct, frozen=True, metaclass=CheckedStructMeta):
    """Options for the history that agents read, for `Runner(history=…)`.

    Args:
        policy: How agents see the messages of other agents: a policy name or a function.
        show_transfers: Whether agents see the tool calls and results of transfers.
        input_filter: Filter for the history that a target reads, for handoffs without their own filter.
    """

    policy: HistoryPolicy = "rewritten"
    show_transfers: bool = True
    input_filter: HandoffInputFilter | None = None

    def __post_init__(self) -> None:
        compile_history(self.policy)
        if self.input_filter is not None:
            check_callback("HistoryOptions(input_filter=…)", self.input_filter, "data")


class HandoffRules(Struct, frozen=True, kw_only=True, metaclass=CheckedStructMeta):
    """Rules for the handoffs of a team, for `Runner(handoff_rules=…)`.

    Args:
        multiple_transfers: Which transfer wins if a response requests several: `"first"`, `"last"` or `"error"`.
        max_corrections: How many corrections of invalid calls, such as of unknown tools, may fail per activation.
        loop_fallback: The agent that takes over when agents transfer control in circles.
    """

    multiple_transfers: MultipleTransfers = "first"
    max_corrections: int = 2
    loop_fallback: str | None = None

    def __post_init__(self) -> None:
        choices = ("first", "last", "error")
        check_choice("HandoffRules(multiple_transfers=…)", self.multiple_transfers, choices)
        if self.max_corrections < 0:
            raise SetupError(f"HandoffRules(max_corrections={self.max_corrections}) is negative; pass 0 or more")
