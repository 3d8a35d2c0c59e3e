"""Options of one run: read from the arguments, recorded, restored when it is resumed, and applied to the team."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from ..agents import AgentOptions, BaseAgent
from ..agents.agent_tool import AgentTool
from ..agents.definition import AgentDefinition
from ..agents.options import (
    ALL_AGENTS,
    RunOptions,
    apply_options,
    decode_options,
    encode_options,
    fill_missing,
    merge_options,
    missing_fields,
    unrecorded_fields,
)
from ..errors import MissingOptionsError, SetupError, nearest, quote_names
from ..events import Event, RunResumed, RunStarted
from ..flow import Team
from ..flow.follow import FlowConfig
from ..flow.team import TeamMember
from ..log import Log, ReadOnlyLog
from ..models import resolve_model
from ..tools.base import unwrap_tool
from ..wording import show, type_of
from .arguments import ResumeArgs, RunArgs


def given_options(args: RunArgs[Any] | ResumeArgs[Any], team: Team) -> RunOptions:
    """Return the options among the arguments of a run.

    Raises:
        SetupError: An agent is not part of the team or does not call a model, or an option does not fit it.
    """
    model, settings, by_agent = args.get("model"), args.get("model_settings"), args.get("agent_options")
    options: dict[str, AgentOptions] = {}
    if model is not None or settings is not None:
        options[ALL_AGENTS] = AgentOptions(model=model, model_settings=settings)
    if by_agent:
        members = {member.agent.name: member for member in _members(team)}
        for name, each in cast("Mapping[Any, Any]", by_agent).items():
            _check_entry(name, each, members)
            options[name] = each
    return options


def _members(team: Team) -> Iterator[TeamMember]:
    yield from team.members.values()
    for inner in team.inner.values():
        yield from inner.members.values()


def _check_entry(name: Any, options: Any, members: Mapping[str, TeamMember]) -> None:
    member = members.get(name) if isinstance(name, str) else None
    if member is None:
        has = f"the team has: {quote_names([*members])}{nearest(name, [*members])}"
        raise SetupError(f"agent_options has options for {show(name)}, but the team has no such agent; {has}")
    if not isinstance(options, AgentOptions):
        raise SetupError(f"agent_options has {show(options)} for `{name}`; give AgentOptions(…)")
    agent = _innermost(member.agent)
    if not isinstance(agent, AgentDefinition):
        raise SetupError(f"agent_options has options for `{name}`, but it is {type_of(agent)}; only an Agent has them")
    if options.tools is None:
        return
    changed = apply_options(cast("AgentDefinition[Any, Any]", agent), {name: options})
    taken = {spec.name for spec in member.routes.specs}
    for spec in changed._tool_table.specs:
        if spec.name in taken:
            raise SetupError(f"agent_options gives `{name}` a tool `{spec.name}`, but a handoff of it has that name")


def find_model_agents(team: Team) -> dict[str, AgentDefinition[Any, Any]]:
    """Return the agents of a team that call a model, also those inside others, by name."""
    agents = {member.agent.name: _innermost(member.agent) for member in _members(team)}
    return {name: agent for name, agent in agents.items() if isinstance(agent, AgentDefinition)}


def _innermost(agent: Any) -> Any:
    """Return the agent inside wrappers such as guardrails."""
    while isinstance(inner := getattr(agent, "inner", None), BaseAgent):
        agent = cast("Any", inner)
    return agent


def encode_given(args: RunArgs[Any], team: Team) -> dict[str, Any]:
    """Return the record of the options of a new run; empty if there are none."""
    if not ("model" in args or "model_settings" in args or "agent_options" in args):
        return {}
    return encode_options(given_options(args, team))


def refuse_unrecorded(method: str, recorded: Mapping[str, Any]) -> None:
    """Raise SetupError if a run for another process has options that a store cannot hold."""
    if found := unrecorded_fields(recorded):
        names = [f"agent_options[{name!r}].{field}" if name else field for name, field in found]
        hint = "give strings, numbers and names of the agent's own tools, or set them where the runner is made"
        raise SetupError(f"{method} cannot store {quote_names(names)}; {hint}")


def recorded_options(events: Sequence[Event]) -> dict[str, Any]:
    """Return the last record of options in a log; empty if there is none."""
    for event in reversed(events):
        if isinstance(event, RunStarted | RunResumed) and event.options:
            return event.options
    return {}


def restore_options(
    started: RunStarted, log: Log, args: RunArgs[Any] | ResumeArgs[Any], kept: RunOptions | None, team: Team
) -> RunOptions:
    """Return the options of a run.

    Those of this process take precedence over those of the log, and those of the caller over both.

    Raises:
        MissingOptionsError: An option that the log does not hold is missing.
        SetupError: An option is invalid.
    """
    recorded = recorded_options(log.events) or started.options
    options = merge_options(decode_options(recorded), kept or {})
    options = merge_options(options, given_options(args, team))
    if missing := missing_fields(options, recorded):
        if not isinstance(log, ReadOnlyLog):
            raise MissingOptionsError(started.run_id, missing)
        return fill_missing(options, started.run_id, missing)
    if not isinstance(log, ReadOnlyLog):
        for name, each in options.items():
            if isinstance(each.model, str):
                resolve_model(each.model, wanted_by=name)
    return options


def record_options(
    first_events: Sequence[Event], options: RunOptions, args: RunArgs[Any] | ResumeArgs[Any]
) -> Sequence[Event]:
    """Add the options of a resumed run to its first event, if the caller gave any."""
    if not first_events or not isinstance(first_events[0], RunResumed):
        return first_events
    if not (args.get("model") or args.get("model_settings") or args.get("agent_options")):
        return first_events
    return [replace(first_events[0], options=encode_options(options)), *first_events[1:]]


def with_options(config: FlowConfig, options: RunOptions) -> FlowConfig:
    """Return the configuration of one run; its agents are compiled for it alone."""
    own = replace(config.options, run_options=options, compiled_agents={})
    return replace(config, options=own, team=_with_agent_tools(config.team, options))


def _with_agent_tools(team: Team, options: RunOptions) -> Team:
    """Add the teams of agents that are tools in this run only."""
    found: dict[str, BaseAgent[Any, Any]] = {}
    for each in options.values():
        for entry in each.tools or ():
            tool = None if isinstance(entry, str) else unwrap_tool(cast("Any", entry))
            if isinstance(tool, AgentTool):
                found[tool.agent.name] = tool.agent
    if not found:
        return team
    inner: dict[str, Team] = {}
    for known in team.inner.values():
        inner[known.root] = Team(known.root, known.members, team.language, inner)
    agents = {member.agent.name: member.agent for member in _members(team)}
    for name, agent in found.items():
        if agents.get(name, agent) is not agent:
            raise SetupError(f"agent_options has an agent `{name}` as a tool, but another agent has that name")
        added = Team.compile(agent, language=team.language)
        for nested in (added, *added.inner.values()):
            inner.setdefault(nested.root, Team(nested.root, nested.members, team.language, inner))
    return Team(team.root, team.members, team.language, inner)
