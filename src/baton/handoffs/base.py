"""Handoffs: edges from one agent to another, and the names of the tools that ask for them."""

import inspect
import re
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, cast, overload, runtime_checkable

from msgspec import Struct, structs
from typing_extensions import TypeVar

from ..arguments import check_arguments
from ..context import RunContext
from ..errors import SetupError
from ..messages import Message
from .input import HandoffInputParser

if TYPE_CHECKING:
    from typing_extensions import TypeForm

C = TypeVar("C", default=Any, contravariant=True)
T = TypeVar("T", default=Any)

ReturnTo: TypeAlias = Literal["caller"] | str | None
"""Where control goes when the target has finished: None (it stays), `"caller"`, or the name of an agent."""


@runtime_checkable
class HandoffTarget(Protocol):
    """The agent at the other end of a handoff."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def description(self) -> str:
        """The agent's description."""
        ...


class HandoffInputData(Struct, frozen=True, kw_only=True):
    """The input of a handoff filter, which returns a changed copy.

    Items are messages, or dicts of role and content.
    """

    input_history: tuple[Message, ...]
    """The input of the run."""
    pre_handoff_items: tuple[Message, ...]
    """The messages before the turn that hands off."""
    new_items: tuple[Message, ...]
    """The messages of that turn, including the call that asks for the handoff and its result."""
    run_context: RunContext[Any]
    """The context of the transfer."""

    def clone(self, **changes: Any) -> "HandoffInputData":
        """Return a copy with some fields changed."""
        return structs.replace(self, **changes)


HandoffInputFilter: TypeAlias = Callable[[HandoffInputData], HandoffInputData | Awaitable[HandoffInputData]]
IsEnabled: TypeAlias = bool | Callable[[RunContext[T], Any], bool | Awaitable[bool]]
NeedsApproval: TypeAlias = bool | Callable[[RunContext[Any], Any], bool | Awaitable[bool]]
OnHandoff: TypeAlias = Callable[[Any], Any] | Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Handoff(Generic[C]):
    """An edge to an agent, or to the name of one; use `handoff()` to make it."""

    agent: HandoffTarget | str
    """The target, or its name."""
    tool_name_override: str | None = None
    """The name of the tool that the model calls; by default `transfer_to_<agent>`."""
    tool_description_override: str | None = None
    """The description that the model reads; by default made of the target's description."""
    on_handoff: OnHandoff | None = None
    """Called once per transfer with the context, and with the input if there is an `input_type`."""
    input_type: Any = None
    """The type of the input that the model gives with the handoff."""
    input_filter: HandoffInputFilter | None = None
    """Changes the messages that the target reads."""
    is_enabled: IsEnabled[C] = True
    """True if the model is offered the handoff, or a function `(ctx, agent) -> bool` that decides each turn."""
    needs_approval: NeedsApproval = False
    """Requires a person to approve the transfer, or a function `(ctx, input) -> bool`."""
    return_to: ReturnTo = None
    """Where control goes when the target has finished."""
    history: Any = None
    """The way the target reads earlier messages; None leaves it to the target and the runner."""
    offered_to_model: bool = True
    """True if the model is offered this edge; code may follow it either way."""

    def __post_init__(self) -> None:
        target: Any = self.agent
        if not isinstance(target, str | HandoffTarget):
            raise SetupError(f"the target of a handoff must be an agent or the name of one, not {target!r}")
        if self.on_handoff is not None:
            _check_callback(self.target, self.on_handoff, has_input=self.input_type is not None)

    @property
    def target(self) -> str:
        """The name of the target."""
        return self.agent if isinstance(self.agent, str) else self.agent.name

    @cached_property
    def _input_parser(self) -> HandoffInputParser | None:
        return None if self.input_type is None else HandoffInputParser(self.target, self.input_type)

    def clone(self, **changes: Any) -> "Handoff[C]":
        """Return a copy with some fields changed."""
        return replace(self, **changes)


Handoff.__init__ = check_arguments(Handoff.__init__)


@overload
def handoff(
    agent: HandoffTarget | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[[RunContext[C]], Any] | None = None,
    input_type: None = None,
    input_filter: HandoffInputFilter | None = None,
    is_enabled: IsEnabled[C] = True,
    needs_approval: bool | Callable[[RunContext[C], None], bool | Awaitable[bool]] = False,
    return_to: ReturnTo = None,
    history: Any = None,
) -> Handoff[C]: ...
@overload
def handoff(
    agent: HandoffTarget | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[[RunContext[C], T], Any] | None = None,
    input_type: "TypeForm[T]",
    input_filter: HandoffInputFilter | None = None,
    is_enabled: IsEnabled[C] = True,
    needs_approval: bool | Callable[[RunContext[C], T], bool | Awaitable[bool]] = False,
    return_to: ReturnTo = None,
    history: Any = None,
) -> Handoff[C]: ...
@check_arguments
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
) -> Handoff[Any]:
    """Make a handoff with options, for `Agent(handoffs=[…])`.

    Args:
        agent: The target, or its name if it is defined elsewhere in the team.
        tool_name_override: The name of the tool that the model calls; by default `transfer_to_<agent>`.
        tool_description_override: The description that the model reads.
        on_handoff: Called once per transfer: `(ctx)`, or `(ctx, input)` if there is an `input_type`.
        input_type: The type of the input that the model gives with the handoff.
        input_filter: Changes the messages that the target reads.
        is_enabled: Whether the model is offered the handoff, or a function `(ctx, agent) -> bool`.
        needs_approval: Whether a person must approve the transfer, or a function `(ctx, input) -> bool`.
        return_to: Where control goes when the target has finished: None, `"caller"` or the name of an agent.
        history: How the target reads earlier messages; None leaves it to the target and the runner.

    Raises:
        SetupError: The target is not an agent, or `on_handoff` does not take these arguments.
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
        raise SetupError(f"on_handoff of the handoff to `{target}` must be callable, not {callback!r}")
    wanted = "(ctx, input), because it has an input_type" if has_input else "(ctx), because it has no input_type"
    try:
        inspect.signature(callback).bind(*([None] * (2 if has_input else 1)))
    except TypeError:
        signature = inspect.signature(cast(Any, callback))
        raise SetupError(
            f"on_handoff of the handoff to `{target}` is called with {wanted}, but it takes {signature}"
        ) from None
    except ValueError:
        return  # Some callables in C have no signature.


_MAX_LENGTH = 64
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")


def default_tool_name(agent_name: str) -> str:
    """Return the name of the tool for a handoff: `transfer_to_` and the agent's name.

    Args:
        agent_name: The target's name.
    """
    return tool_name_for(agent_name, prefix="transfer_to_")


def tool_name_for(agent_name: str, *, prefix: str = "") -> str:
    """Convert an agent's name to a tool name that every provider accepts.

    If characters had to be dropped or the name is too long, a short hash keeps different names different.

    Args:
        agent_name: The agent's name.
        prefix: Text to put before it.
    """
    underscored = re.sub(r"\s+", "_", agent_name.strip())
    decomposed = unicodedata.normalize("NFKD", underscored)
    base_letters = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    allowed = _FORBIDDEN.sub("", base_letters)
    name = prefix + allowed.lower()
    if len(allowed) == len(base_letters) and len(name) <= _MAX_LENGTH:
        return name
    suffix = blake2s(agent_name.encode(), digest_size=4).hexdigest()
    return f"{name[: _MAX_LENGTH - 9].rstrip('_-')}_{suffix}".lstrip("_")
