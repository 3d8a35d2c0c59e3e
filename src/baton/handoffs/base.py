"""A handoff: an edge from one agent to another, as its author writes it down.

What the tool for an agent is called: valid for every provider, and different for different agents.
"""

import inspect
import re
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2s
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct, structs

from ..context import RunContext
from ..errors import SetupError
from ..messages import Message
from .input import HandoffInputParser

ReturnTo: TypeAlias = Literal["caller"] | str | None
"""Where control goes when the target is done: it stays, goes back to the caller, or on to a named agent."""


@runtime_checkable
class HandoffTarget(Protocol):
    """What an edge needs to know of the agent at its other end."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


class HandoffInputData(Struct, frozen=True, kw_only=True):
    """What a filter is given, and gives back changed. Items are messages, or dicts of role and content."""

    input_history: tuple[Message, ...]
    """What the run started with."""
    pre_handoff_items: tuple[Message, ...]
    """What was said before the turn that hands off."""
    new_items: tuple[Message, ...]
    """What was said in that turn, with the call that asks for the handoff and its result."""
    run_context: RunContext[Any]

    def clone(self, **changes: Any) -> "HandoffInputData":
        """The same with some things changed."""
        return structs.replace(self, **changes)


HandoffInputFilter: TypeAlias = Callable[[HandoffInputData], HandoffInputData | Awaitable[HandoffInputData]]
IsEnabled: TypeAlias = bool | Callable[[RunContext[Any], Any], bool | Awaitable[bool]]
NeedsApproval: TypeAlias = bool | Callable[[RunContext[Any], Any], bool | Awaitable[bool]]
OnHandoff: TypeAlias = Callable[[Any], Any] | Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Handoff:
    """An edge to an agent, or to the name of one elsewhere in the team."""

    agent: HandoffTarget | str
    tool_name_override: str | None = None
    tool_description_override: str | None = None
    on_handoff: OnHandoff | None = None
    input_type: Any = None
    input_filter: HandoffInputFilter | None = None
    is_enabled: IsEnabled = True
    needs_approval: NeedsApproval = False
    return_to: ReturnTo = None
    history: Any = None
    """How the target reads what happened before; None leaves it to the target and the runner."""
    offered_to_model: bool = True
    """Whether the model is offered this edge; code may follow it either way."""

    def __post_init__(self) -> None:
        given: Any = self.agent
        if not isinstance(given, str | HandoffTarget):
            raise SetupError(f"a handoff goes to an agent or the name of one, not to {given!r}")
        if self.on_handoff is not None:
            _check_callback(self.target, self.on_handoff, has_input=self.input_type is not None)

    @property
    def target(self) -> str:
        """The name of the agent at the other end."""
        return self.agent if isinstance(self.agent, str) else self.agent.name

    @cached_property
    def _input_parser(self) -> HandoffInputParser | None:
        """What checks the input a model gives with the handoff; None if it takes none."""
        return None if self.input_type is None else HandoffInputParser(self.target, self.input_type)

    def clone(self, **changes: Any) -> "Handoff":
        """The same edge with some things changed."""
        return replace(self, **changes)


def handoff(
    agent: HandoffTarget | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: OnHandoff | None = None,
    input_type: Any = None,
    input_filter: HandoffInputFilter | None = None,
    is_enabled: IsEnabled = True,
    needs_approval: NeedsApproval = False,
    return_to: ReturnTo = None,
    history: Any = None,
) -> Handoff:
    """An edge to put into `Agent(handoffs=[…])` when the plain agent does not say enough.

    `on_handoff` is called once per transfer with the context, and with the input if there is an `input_type`.
    """
    return Handoff(
        agent=agent,
        tool_name_override=tool_name_override,
        tool_description_override=tool_description_override,
        on_handoff=on_handoff,
        input_type=input_type,
        input_filter=input_filter,
        is_enabled=is_enabled,
        needs_approval=needs_approval,
        return_to=return_to,
        history=history,
    )


def _check_callback(target: str, callback: Any, *, has_input: bool) -> None:
    if not callable(callback):
        raise SetupError(f"on_handoff of the handoff to `{target}` must be something to call, not {callback!r}")
    wanted = "(ctx, input), because it has an input_type" if has_input else "(ctx), because it has no input_type"
    try:
        inspect.signature(callback).bind(*([None] * (2 if has_input else 1)))
    except TypeError:
        signature = inspect.signature(cast(Any, callback))
        raise SetupError(
            f"on_handoff of the handoff to `{target}` is called with {wanted}, but it takes {signature}"
        ) from None
    except ValueError:
        return  # Some callables in C have no signature to look at.


_LONGEST = 64
_PREFIX = "transfer_to_"
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def default_tool_name(agent_name: str) -> str:
    """The name of the tool for a handoff: `transfer_to_` and the agent's name."""
    return tool_name_for(agent_name, prefix=_PREFIX)


def tool_name_for(agent_name: str, *, prefix: str = "") -> str:
    """The agent's name in letters a provider accepts.

    Where letters had to be dropped or the name is too long, a short hash keeps different names different.
    """
    spaced = re.sub(r"\s+", "_", agent_name.strip())
    plain = unicodedata.normalize("NFKD", spaced)
    base_letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    kept = _FORBIDDEN.sub("", base_letters)
    name = prefix + kept.lower()
    lost_something = len(kept) != len(base_letters)
    if not lost_something and len(name) <= _LONGEST:
        return name
    mark = blake2s(agent_name.encode(), digest_size=4).hexdigest()
    return f"{name[: _LONGEST - 9].rstrip('_-')}_{mark}".lstrip("_")
