"""What an agent may ask for when it is done. An agent decides; `flow` acts."""

from typing import Any, TypeAlias

from msgspec import Struct


class Transfer(Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """Give the floor to another agent of the team."""

    to: str
    call_id: str | None = None
    payload: Any = None
    via: str = ""
    """The tool that asked for it: it tells apart several edges to the same agent."""


class Exit(Struct, frozen=True, tag=True, omit_defaults=True):
    """End the run here, through everything around this agent. Without a result, the last answer is the output."""

    result: str | None = None


class BreakLoop(Struct, frozen=True, tag=True):
    """End the innermost loop around this agent."""


Action: TypeAlias = Transfer | Exit | BreakLoop
