"""Options of one run: read from the arguments, recorded, restored when it is resumed, and applied to the team."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from .._wording import show, type_of
from ..agents import AgentOptions, BaseAgent
from ..agents.agent_options import ALL_AGENTS, RunOptions, apply_options, decode_options, encode_options, merge_options
from ..agents.definition import AgentDefinition
from ..errors import SetupError, nearest, quote_names
from ..log import Event, RunResumed, RunStarted
from ..log.log import Log, ReadOnlyLog
from ..models import resolve_model
from ..team import Team
from ..team.follow import FlowConfig
from ..team.team import TeamMember
from .run_args import ResumeArgs, RunArgs


def given_options(args: RunArgs[Any] | ResumeArgs[Any], team: Team) -> RunOptions:
    """Return the options among the arguments of a run.

    Raises:
        SetupError: An agent is not part of the team or does not call a model, or an option does not fit it.
    """
    model = args.get("model")
    settings = args.get("model_settings")
    by_agent = args.get("agent_options")
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
    if options.tools is not None:
        # Raises for a tool that the agent does not have, or has twice.
        _ = apply_options(cast("AgentDefinition[Any, Any]", agent), {name: options})._tool_table


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


def recorded_options(events: Sequence[Event]) -> dict[str, Any]:
    """Return the last record of options in a log; empty if there is none."""
    for event in reversed(events):
        if isinstance(event, RunStarted | RunResumed) and event.options:
            return event.options
    return {}


def restore_options(started: RunStarted, log: Log, args: RunArgs[Any] | ResumeArgs[Any], team: Team) -> RunOptions:
    """Return the options of a run: those of the log, and the caller's, which take precedence.

    Raises:
        SetupError: An option is invalid.
    """
    recorded = recorded_options(log.events) or started.options
    options = merge_options(decode_options(recorded), given_options(args, team))
    if not isinstance(log, ReadOnlyLog):
        for name, each in options.items():
            if each.model is not None:
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
    return replace(config, options=replace(config.options, run_options=options, compiled_agents={}))
