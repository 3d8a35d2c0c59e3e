"""Options of one run: `AgentOptions`, their record in the log, and the agents that they make of a team's agents.

A run has one `AgentOptions` for each agent that it changes, by name; the one with the name "" is for all agents.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from .._checks import CheckedStructMeta
from .._wording import show
from ..errors import SetupError, nearest, quote_names
from ..models import ModelSettings
from ..models.registry import check_model_name
from ..tools import Tool, Toolset
from .definition import AgentDefinition, tool_name
from .tool_use import StopAt

A = TypeVar("A", bound=AgentDefinition[Any, Any])

ALL_AGENTS = ""
"""The name that stands for all agents of a run."""
SECRET_SETTINGS = ("extra_headers", "extra_query", "extra_body")
"""Model settings that may hold keys, and are never recorded."""
_CACHED = ("_tool_table", "_toolsets", "_own_tools", "_model")
_RECORDED = "the options of a run are recorded as data"


class AgentOptions(Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=CheckedStructMeta):
    """Options of one agent for one run; None keeps what the agent has.

    They are data and are recorded with the run, so every process that drives it uses them. Use `Runner.clone` for
    objects such as models.

    Args:
        model: The name of a model, such as `"openai:gpt-5"`.
        model_settings: Settings that override the agent's; without headers, query and body fields, which may hold keys.
        instructions: The system prompt in place of the agent's.
        tools: The names of those of the agent's own tools that it has in this run.
        max_turns: Maximum number of model calls per activation.
    """

    model: str | None = None
    model_settings: ModelSettings | None = None
    instructions: str | None = None
    tools: Sequence[str] | None = None
    max_turns: int | None = None

    def __post_init__(self) -> None:
        check_recordable("AgentOptions()", self.model, self.model_settings)
        if callable(self.instructions):
            raise SetupError(
                f"AgentOptions() has a function as instructions, but {_RECORDED}; give a text, or a runner of another "
                "agent: Runner(agent.clone(instructions=…))"
            )
        if self.tools is not None:
            _check_tool_names(self.tools)
        # The metaclass refuses other types afterwards.
        if isinstance(self.max_turns, int) and self.max_turns < 1:
            raise SetupError(f"AgentOptions(max_turns={self.max_turns}) is too low; an agent needs at least one turn")


def check_recordable(owner: str, model: Any, settings: Any) -> None:
    """Raise SetupError for a model or model settings that a log cannot hold."""
    if isinstance(model, str):
        check_model_name(model)
    elif model is not None:
        raise SetupError(
            f"{owner} has model={show(model)}, but {_RECORDED}; give the name of a model (register_model names your "
            "own), or use runner.clone(model=…), for agents without a model of their own"
        )
    if isinstance(settings, ModelSettings):
        secrets = [name for name in SECRET_SETTINGS if getattr(settings, name) is not None]
        if secrets:
            raise SetupError(
                f"{owner} has model_settings with {quote_names(secrets)}, but {_RECORDED}, and these may hold keys; "
                "use runner.clone(model_settings=…)"
            )


def _check_tool_names(tools: Any) -> None:
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise SetupError(f"AgentOptions(tools={show(tools)}) is not a list; give a list")
    for entry in cast("Sequence[object]", tools):
        if not isinstance(entry, str):
            raise SetupError(
                f"AgentOptions() has {show(entry)} in tools, but {_RECORDED}; give names of the agent's own tools, or "
                "a runner of another agent: Runner(agent.clone(tools=[…]))"
            )


RunOptions: TypeAlias = Mapping[str, AgentOptions]
"""The options of a run by the name of the agent; `ALL_AGENTS` for all of them."""

_KEEP = AgentOptions()


def merge_options(first: RunOptions, second: RunOptions) -> RunOptions:
    """Return options in which each field that the second one sets takes precedence."""
    merged = dict(first)
    for name, added in second.items():
        known = merged.get(name, _KEEP)
        changes = {field: value for field, value in asdict(added).items() if value is not None}
        if known.model_settings is not None and added.model_settings is not None:
            changes["model_settings"] = known.model_settings.merge(added.model_settings)
        merged[name] = replace(known, **changes)
    return merged


def encode_options(options: RunOptions) -> dict[str, Any]:
    """Return the record of options as JSON data."""
    return msgspec.to_builtins(dict(options))


def decode_options(recorded: Mapping[str, Any]) -> RunOptions:
    """Return the options that a log holds."""
    return msgspec.convert(recorded, dict[str, AgentOptions])


def apply_options(agent: AgentDefinition[Any, Any], options: RunOptions) -> AgentDefinition[Any, Any]:
    """Return the agent as it is in one run.

    The options for all agents take precedence over the agent, and those for the agent over both.

    Raises:
        SetupError: A name in `tools` is not a tool of the agent.
    """
    common = options.get(ALL_AGENTS, _KEEP)
    own = options.get(agent.name, _KEEP)
    changes = {field: value for field, value in asdict(own).items() if value is not None}
    if own.model is None and common.model is not None:
        changes["model"] = common.model
    settings = (agent.model_settings or ModelSettings()).merge(common.model_settings).merge(own.model_settings)
    changes["model_settings"] = settings
    if own.tools is not None:
        changes["tools"] = tuple([_find_tool(agent, entry) for entry in own.tools])
        changes["tool_use_behavior"] = _without_missing(agent, changes["tools"])
    return with_changes(agent, **changes)


def with_changes(agent: A, **changes: Any) -> A:
    """Return an agent with other options for one run. It keeps the agents that run inside it."""
    # Not `clone`: classes of users may have constructors of their own.
    changed = copy(agent)
    for name in _CACHED:
        vars(changed).pop(name, None)
    for name, value in changes.items():
        object.__setattr__(changed, name, value)
    return changed


def _find_tool(agent: AgentDefinition[Any, Any], entry: str) -> Tool | Toolset:
    by_name = {tool_name(tool): tool for tool in agent._own_tools}
    if entry not in by_name:
        known = f"its own tools are: {quote_names([*by_name])}{nearest(entry, [*by_name])}"
        raise SetupError(f"agent_options has the tool `{entry}`, which `{agent.name}` does not have; {known}")
    return by_name[entry]


def _without_missing(agent: AgentDefinition[Any, Any], tools: Sequence[Tool | Toolset]) -> Any:
    """Return the agent's `tool_use_behavior` without tools that this run does not have."""
    behavior = agent.tool_use_behavior
    if not isinstance(behavior, StopAt) or any(isinstance(each, Toolset) for each in tools):
        return behavior
    names = {tool_name(cast("Tool", each)) for each in tools}
    return StopAt([name for name in behavior.tools if name in names])
