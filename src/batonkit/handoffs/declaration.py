"""Handoffs: edges from one agent to another, and the names of the tools that ask for them."""

import inspect
import re
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Protocol, TypeAlias, cast, overload, runtime_checkable

from msgspec import Struct, structs
from typing_extensions import TypeForm, TypeVar

from .._checks import check_arguments, check_callback, check_choice, check_names, suggest_clone
from .._wording import show
from ..context import RunContext
from ..context.run_context import needs_await
from ..errors import SetupError
from ..messages import Message, UserMessage
from .input_type import HandoffInputParser, IncompleteTypeError
from .tasks import TaskResultParser

C = TypeVar("C", default=Any, contravariant=True)
Out = TypeVar("Out", default=Any, covariant=True)
T = TypeVar("T", default=Any)
# A target given by name adds no type: it is an agent that the team has anyway.
TargetOut = TypeVar("TargetOut", default=Never)

ReturnTo: TypeAlias = Literal["caller"] | str | None
"""Where control goes when the target has finished: None (it stays), `"caller"`, or the name of an agent."""

Until: TypeAlias = Literal["answered", "finished"]
"""When a handoff with `return_to` gives control back: at the target's first answer, or when its task has ended."""


PromptLanguage: TypeAlias = Literal["en", "zh"]
"""The language of the texts that Baton adds to instructions and tools."""

NO_INPUT: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a handoff without input."""

_EXAMPLES = {"en": "For example: {examples}", "zh": "例如：{examples}"}


@runtime_checkable
class HandoffTarget(Protocol[Out]):
    """The agent at the other end of a handoff, which answers with `Out`."""

    if TYPE_CHECKING:

        def _answers_with(self) -> Out: ...

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
    """The messages of earlier runs of the thread and the input of the run. Text becomes a user message."""
    pre_handoff_items: tuple[Message, ...]
    """The messages before the turn that hands off."""
    new_items: tuple[Message, ...]
    """The messages of that turn, including the call that asks for the handoff and its result."""
    run_context: RunContext[Any] | None = None
    """The context of the transfer; None only if the data was not created by a run."""

    def __post_init__(self) -> None:
        given: Any = self.input_history
        if type(given) is str:
            structs.force_setattr(self, "input_history", (UserMessage(given),))

    def clone(self, **changes: Any) -> "HandoffInputData":
        """Return a copy with some fields changed."""
        return structs.replace(self, **changes)


HandoffInputFilter: TypeAlias = Callable[[HandoffInputData], HandoffInputData | Awaitable[HandoffInputData]]
IsEnabled: TypeAlias = bool | Callable[[RunContext[T], Any], bool | Awaitable[bool]]
NeedsApproval: TypeAlias = bool | Callable[[RunContext[Any], Any], bool | Awaitable[bool]]
OnHandoff: TypeAlias = Callable[[Any], Any] | Callable[[Any, Any], Any]


async def check_filter_result(
    input_filter: HandoffInputFilter, result: HandoffInputData | Awaitable[HandoffInputData], where: str
) -> HandoffInputData:
    """Await the result of a filter if necessary, and check its type.

    Raises:
        SetupError: The result is not HandoffInputData.
    """
    data: Any = result
    if needs_await(data):
        data = await data
    if isinstance(data, HandoffInputData):
        return data
    name = getattr(input_filter, "__name__", type(input_filter).__name__)
    kind = type(data).__name__
    expected = "it must return HandoffInputData, for instance data.clone(…)"
    raise SetupError(f"the filter `{name}` {where} returned {kind}; {expected}")


@check_arguments
@suggest_clone
@dataclass(frozen=True, kw_only=True, eq=False)
class Handoff(Generic[C, Out]):
    """An edge to an agent, or to the name of one; use `handoff()` to make it."""

    agent: HandoffTarget[Out] | str
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
    until: Until = "answered"
    """When control goes there: `"answered"`, or `"finished"` for a task over several user turns."""
    result_type: Any = None
    """The type of a task's result; None for text."""
    history: Any = None
    """The way the target reads earlier messages; None leaves it to the target and the runner."""
    offered_to_model: bool = True
    """True if the model is offered this edge; code may follow it either way."""

    def __post_init__(self) -> None:
        target: Any = self.agent
        if not isinstance(target, str | HandoffTarget):
            raise SetupError(f"the target of a handoff must be an agent or the name of one, not {show(target)}")
        if self.on_handoff is not None:
            _check_callback(self.target, self.on_handoff, has_input=self.input_type is not None)
        where = f"of the handoff to `{self.target}`"
        if self.input_filter is not None:
            check_callback(f"input_filter {where}", self.input_filter, "data")
            if getattr(self.input_filter, "__annotations__", {}).get("return") == HandoffInputFilter:
                name = getattr(self.input_filter, "__name__", "filter")
                raise SetupError(f"input_filter {where} is a function that makes a filter; call it: `{name}(…)`")
        if not isinstance(self.is_enabled, int):
            check_callback(f"is_enabled {where}", self.is_enabled, "ctx", "agent")
        if not isinstance(self.needs_approval, int):
            check_callback(f"needs_approval {where}", self.needs_approval, "ctx", "input")
        check_choice(f"until {where}", self.until, ("answered", "finished"))
        if self.until == "finished" and self.return_to is None:
            raise SetupError(f'until="finished" {where} needs to know where control returns; add return_to="caller"')
        if self.result_type is not None and self.until != "finished":
            raise SetupError(f'result_type {where} is the type of a task\'s result; add until="finished"')
        with suppress(IncompleteTypeError):
            _ = self._input_parser, self._result_parser

    @property
    def target(self) -> str:
        """The name of the target."""
        return self.agent if isinstance(self.agent, str) else self.agent.name

    @property
    def agent_name(self) -> str:
        """The name of the target, as the OpenAI Agents SDK calls it."""
        return self.target

    @property
    def tool_name(self) -> str:
        """The name of the tool that the model calls."""
        return self.tool_name_override or default_tool_name(self.target)

    @property
    def tool_description(self) -> str:
        """The description that the model reads; the target's own only if its object is given."""
        if self.tool_description_override:
            return self.tool_description_override
        target = self.agent
        about = "" if isinstance(target, str) else describe_target(target.description, getattr(target, "examples", ()))
        return default_tool_description(self.target, about)

    @property
    def input_json_schema(self) -> dict[str, Any]:
        """A copy of the JSON schema of the arguments that the model gives."""
        return deepcopy(NO_INPUT if self._input_parser is None else self._input_parser.schema)

    @property
    def strict_json_schema(self) -> bool:
        """True: providers are asked to enforce the schema of every handoff."""
        return True

    @cached_property
    def _input_parser(self) -> HandoffInputParser | None:
        return None if self.input_type is None else HandoffInputParser(self.target, self.input_type)

    @cached_property
    def _result_parser(self) -> TaskResultParser | None:
        return None if self.result_type is None else TaskResultParser(self.target, self.result_type)

    def clone(self, **changes: Any) -> "Handoff[C, Out]":
        """Return a copy with some fields changed."""
        return replace(self, **changes)


@overload
def handoff(
    agent: HandoffTarget[TargetOut] | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[[RunContext[C]], Any] | None = None,
    input_type: None = None,
    input_filter: HandoffInputFilter | None = None,
    is_enabled: IsEnabled[C] = True,
    needs_approval: bool | Callable[[RunContext[C], None], bool | Awaitable[bool]] = False,
    return_to: ReturnTo = None,
    until: Literal["answered"] = "answered",
    history: Any = None,
) -> Handoff[C, TargetOut]: ...
@overload
def handoff(
    agent: HandoffTarget[TargetOut] | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[[RunContext[C], T], Any] | None = None,
    input_type: TypeForm[T],
    input_filter: HandoffInputFilter | None = None,
    is_enabled: IsEnabled[C] = True,
    needs_approval: bool | Callable[[RunContext[C], T], bool | Awaitable[bool]] = False,
    return_to: ReturnTo = None,
    until: Literal["answered"] = "answered",
    history: Any = None,
) -> Handoff[C, TargetOut]: ...
@overload
def handoff(
    agent: HandoffTarget[TargetOut] | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[[RunContext[C]], Any] | None = None,
    input_type: None = None,
    input_filter: HandoffInputFilter | None = None,
    is_enabled: IsEnabled[C] = True,
    needs_approval: bool | Callable[[RunContext[C], None], bool | Awaitable[bool]] = False,
    return_to: str,
    until: Literal["finished"],
    result_type: TypeForm[Any] | None = None,
    history: Any = None,
) -> Handoff[C, TargetOut]: ...
@overload
def handoff(
    agent: HandoffTarget[TargetOut] | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: Callable[[RunContext[C], T], Any] | None = None,
    input_type: TypeForm[T],
    input_filter: HandoffInputFilter | None = None,
    is_enabled: IsEnabled[C] = True,
    needs_approval: bool | Callable[[RunContext[C], T], bool | Awaitable[bool]] = False,
    return_to: str,
    until: Literal["finished"],
    result_type: TypeForm[Any] | None = None,
    history: Any = None,
) -> Handoff[C, TargetOut]: ...
@check_names
def handoff(
    agent: HandoffTarget | str,
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: OnHandoff | None = None,
    input_type: Any = None,
    input_filter: HandoffInputFilter | None = None,
    is_enabled: IsEnabled[Any] = True,
    needs_approval: NeedsApproval = False,
    return_to: ReturnTo = None,
    until: Until = "answered",
    result_type: Any = None,
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
        needs_approval: Whether a person must approve each transfer, also one that code decides, or a function
            `(ctx, input) -> bool`.
        return_to: Where control goes when the target has finished: None, `"caller"` or the name of an agent.
        until: When control goes there: `"answered"`, at the target's first answer; or `"finished"`, when it has
            finished its task, over as many user turns as it needs.
        result_type: The type of a task's result: any type that pydantic can validate; None for text.
        history: How the target reads earlier messages; None leaves it to the target and the runner.

    Raises:
        SetupError: The target is not an agent, `on_handoff` does not take these arguments, or a task handoff has no
            `return_to`.
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
        until=until,
        result_type=result_type,
        history=history,
    )


def _check_callback(target: str, callback: Any, *, has_input: bool) -> None:
    if not callable(callback):
        raise SetupError(f"on_handoff of the handoff to `{target}` must be callable, not {show(callback)}")
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
_FORBIDDEN = r"[^A-Za-z0-9_]"


def default_tool_name(agent_name: str) -> str:
    """Return the name of the tool for a handoff: `transfer_to_` and the agent's name.

    Args:
        agent_name: The target's name.
    """
    return tool_name_for(agent_name, prefix="transfer_to_")


def default_tool_description(agent_name: str, about: str) -> str:
    """Return the description of the tool for a handoff."""
    return f"Handoff to the {agent_name} agent to handle the request. {about}".rstrip()


def describe_target(description: str, examples: Sequence[str], language: PromptLanguage = "en") -> str:
    """Return the description of an agent, followed by its example questions."""
    if not examples:
        return description
    quoted = " ".join(f"“{example}”" for example in examples)
    return f"{description} {_EXAMPLES[language].format(examples=quoted)}".lstrip()


# In a mesh every agent asks for the name of every other one: half of the time to compile 200 agents.
@lru_cache(maxsize=4096)
def tool_name_for(agent_name: str, *, prefix: str = "") -> str:
    """Convert an agent's name to a tool name that every provider accepts.

    Spaces and hyphens become underscores. If characters had to be dropped or the name is too long, a short hash keeps
    different names different.

    Args:
        agent_name: The agent's name.
        prefix: Text to put before it.
    """
    underscored = re.sub(r"\s+", "_", agent_name.strip())
    decomposed = unicodedata.normalize("NFKD", underscored)
    base_letters = "".join(letter for letter in decomposed if not unicodedata.combining(letter)).replace("-", "_")
    allowed = re.sub(_FORBIDDEN, "", base_letters)
    name = prefix + allowed.lower()
    if len(allowed) == len(base_letters) and len(name) <= _MAX_LENGTH:
        return name
    from hashlib import blake2s

    suffix = blake2s(agent_name.encode(), digest_size=4).hexdigest()
    return f"{name[: _MAX_LENGTH - 9].rstrip('_')}_{suffix}".lstrip("_")
