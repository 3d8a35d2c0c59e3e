"""Options of one run: `AgentOptions`, their record in the log, and the agents that they make of a team's agents.

A run has one `AgentOptions` for each agent that it changes, by name; the one with the name "" is for all agents.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NoReturn, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ..arguments import CheckedStructMeta, check_callback
from ..context import RunContext
from ..errors import MissingOptionsError, SetupError, nearest, quote_names
from ..models import Model, ModelRequest, ModelSettings, resolve_model
from ..models.registry import check_model_name
from ..tools import Tool, ToolFunction, Toolset
from ..wording import show
from .behavior import StopAt
from .definition import AgentDefinition, Instructions, to_tool, tool_name

ALL_AGENTS = ""
"""The name that stands for all agents of a run."""
SECRET_SETTINGS = ("extra_headers", "extra_query", "extra_body")
"""Model settings that may hold keys, and are never recorded."""
_NOT_RECORDED = "not_recorded"
_CACHED = ("_tool_table", "_toolsets", "_own_tools", "_model")


class AgentOptions(Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=CheckedStructMeta):
    """Options of one agent for one run; None keeps what the agent has.

    Strings and numbers are recorded with the run. Model objects, functions, tools, and the headers, query and body
    fields of model settings are not: a process that resumes the run passes them again.

    Args:
        model: A model, or a string such as `"openai:gpt-5"`.
        model_settings: Settings that override the agent's.
        instructions: The system prompt, or a function of the context that returns it, in place of the agent's.
        tools: Tools in place of the agent's. A string names one of the agent's own tools.
        max_turns: Maximum number of model calls per activation.
    """

    model: Model | str | None = None
    model_settings: ModelSettings | None = None
    instructions: Instructions[Any] | None = None
    tools: Sequence[Tool[Any] | ToolFunction | Toolset | str] | None = None
    max_turns: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, str):
            check_model_name(self.model)
        elif self.model is not None:
            resolve_model(self.model, wanted_by="AgentOptions")
        if self.instructions is not None and not isinstance(self.instructions, str):
            check_callback("AgentOptions(instructions=…)", self.instructions, "ctx")
        if self.tools is not None:
            if isinstance(self.tools, str) or not isinstance(self.tools, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SetupError(f"AgentOptions(tools={show(self.tools)}) is not a list; give a list")
            for entry in self.tools:
                if not isinstance(entry, str):
                    to_tool("AgentOptions", entry)
        # The metaclass refuses other types afterwards.
        if isinstance(self.max_turns, int) and self.max_turns < 1:
            raise SetupError(f"AgentOptions(max_turns={self.max_turns}) is too low; an agent needs at least one turn")


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
    """Return what a log can hold of options, and the names of the other fields, as JSON data."""
    return {name: _encode(each) for name, each in options.items()}


def _encode(options: AgentOptions) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    left_out: list[str] = []
    for field, value in asdict(options).items():
        if value is None:
            continue
        if field == "model_settings":
            secrets = [name for name in SECRET_SETTINGS if getattr(value, name) is not None]
            left_out += [f"{field}.{name}" for name in secrets]
            plain[field] = msgspec.to_builtins(replace(value, **dict.fromkeys(secrets)))
        elif isinstance(value, str | int):
            plain[field] = value
        elif field == "tools" and all(isinstance(entry, str) for entry in value):
            plain[field] = list(value)
        else:
            left_out.append(field)
    return {**plain, _NOT_RECORDED: left_out} if left_out else plain


def decode_options(recorded: Mapping[str, Any]) -> RunOptions:
    """Return the options that a log holds."""
    return {name: _decode(fields) for name, fields in recorded.items()}


def _decode(fields: Mapping[str, Any]) -> AgentOptions:
    plain = {name: value for name, value in fields.items() if name != _NOT_RECORDED}
    if "model_settings" in plain:
        plain["model_settings"] = msgspec.convert(plain["model_settings"], ModelSettings)
    return AgentOptions(**plain)


def unrecorded_fields(recorded: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the agent and the field of each option that a log does not hold."""
    return [(name, field) for name, fields in recorded.items() for field in fields.get(_NOT_RECORDED, ())]


def missing_fields(options: RunOptions, recorded: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the agent and field of each option that neither log nor caller has given."""
    return [(name, field) for name, field in unrecorded_fields(recorded) if not _has(options, name, field)]


def _has(options: RunOptions, name: str, field: str) -> bool:
    value: Any = options.get(name)
    for part in field.split("."):
        value = None if value is None else getattr(value, part)
    return value is not None


def fill_missing(options: RunOptions, run_id: str, missing: Sequence[tuple[str, str]]) -> RunOptions:
    """Replace missing options by objects that raise MissingOptionsError when they are used.

    A replay does not use them.
    """
    error = MissingOptionsError(run_id, missing)
    stand_ins: dict[str, Any] = {
        "model": _MissingModel(error),
        "tools": [_MissingTools(error)],
        "instructions": "",
    }
    filled = dict(options)
    for name, field in missing:
        if field in stand_ins:
            filled[name] = replace(filled.get(name, _KEEP), **{field: stand_ins[field]})
    return filled


class _MissingModel:
    """Stands for a model that a replay does not call."""

    name = "missing"

    def __init__(self, error: MissingOptionsError) -> None:
        self._error = error

    def respond(self, request: ModelRequest) -> NoReturn:
        """Raise the error."""
        raise self._error


class _MissingTools:
    """Stands for tools whose results a replay reads from the log."""

    def __init__(self, error: MissingOptionsError) -> None:
        self._error = error

    async def get_tools(self, ctx: RunContext[Any]) -> NoReturn:
        """Raise the error."""
        raise self._error


def apply_options(agent: AgentDefinition[Any, Any], options: RunOptions) -> AgentDefinition[Any, Any]:
    """Return the agent as it is in one run.

    The options for all agents take precedence over the agent, and those for the agent over both.

    Raises:
        SetupError: A name in `tools` is not a tool of the agent.
    """
    common, own = options.get(ALL_AGENTS, _KEEP), options.get(agent.name, _KEEP)
    changes = {field: value for field, value in asdict(own).items() if value is not None}
    if own.model is None and common.model is not None:
        changes["model"] = common.model
    settings = (agent.model_settings or ModelSettings()).merge(common.model_settings).merge(own.model_settings)
    changes["model_settings"] = settings
    if own.tools is not None:
        changes["tools"] = tuple([_find_tool(agent, entry) for entry in own.tools])
        changes["tool_use_behavior"] = _without_missing(agent, changes["tools"])
    # Not `clone`: classes of users may have constructors of their own.
    changed = copy(agent)
    for name in _CACHED:
        vars(changed).pop(name, None)
    for name, value in changes.items():
        object.__setattr__(changed, name, value)
    return changed


def _find_tool(agent: AgentDefinition[Any, Any], entry: Any) -> Tool | Toolset:
    if not isinstance(entry, str):
        return to_tool(agent.name, entry)
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
