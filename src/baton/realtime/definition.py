"""What an agent of live conversations is made of. What it does with the floor is in `floor`."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from typing_extensions import TypeVar

from ..agents.definition import AgentWithTools
from ..errors import SetupError
from ..tools import Tool
from ..tools.verdicts import GuardrailFunction, as_guardrails

C = TypeVar("C", default=Any)


@dataclass(frozen=True, eq=False, repr=False)
class RealtimeDefinition(AgentWithTools[C, str]):
    """Everything one can say about an agent of live conversations."""

    _: KW_ONLY
    voice: str | None = None
    """The voice it speaks with, while none has been heard yet in the conversation; None is the session's."""
    tool_choice: str = "auto"
    """What its responses may do: "auto", "none", "required" or the name of one tool."""
    output_guardrails: Sequence[GuardrailFunction] = ()
    """Judge what it says while it says it: `(ctx, transcript so far)`. A no stops it."""

    @property
    def changes_in_time(self) -> bool:
        """Whether what its model is told may be another thing later on."""
        return self.template or bool(self._toolsets) or not isinstance(self.instructions, str)

    def __post_init__(self) -> None:
        super().__post_init__()
        (checked,) = as_guardrails(f"`{self.name}`", output_guardrails=self.output_guardrails)
        object.__setattr__(self, "guardrails", checked)
        for edge in self._edges():
            for what, is_there in (
                ("input_filter", edge.input_filter is not None),
                ("history", edge.history is not None),
                ("returns", edge.return_to is not None),
            ):
                if is_there:
                    raise SetupError(
                        f"`{self.name}` has a handoff to `{edge.target}` with {what}=…, which a live conversation "
                        "cannot have: the model keeps what it has heard, and nobody ends but by handing over"
                    )

    def as_tool(self, *args: Any, **options: Any) -> Tool:
        """Not for agents that speak: a live conversation has one floor, and whoever calls a tool keeps it."""
        raise SetupError(
            f"`{self.name}` speaks in a live conversation and cannot be a tool; hand over to it, or make it an Agent"
        )
