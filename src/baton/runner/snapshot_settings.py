"""The settings that a snapshot depends on: a run continues from it only if it would do so from its beginning."""

from collections.abc import Mapping
from typing import Any

from ..agents import Agent, BaseAgent
from ..agents.activation import HistoryFunction, RunConfig
from ..agents.middleware import overrides
from ..context import Limits
from ..flow.follow import FlowConfig
from ..flow.team import fingerprint_hash, history_policies
from .snapshot_notes import Snapshot


def settings_hash(config: FlowConfig, fingerprint: Mapping[str, str]) -> str:
    """Return the hash of a team and of how its agents read the history.

    Args:
        config: The team and its options.
        fingerprint: The fingerprint of the team.
    """
    policies = [config.history, *history_policies(config.team)]
    for member in config.team.members.values():
        policies += [member.history or "", *[route.history or "" for route in member.edges]]
    names = [each.name if isinstance(each, HistoryFunction) else each for each in policies]
    return fingerprint_hash({**fingerprint, "": f"{names} {config.hide_transfers}"})


def fits(snapshot: Snapshot, config: FlowConfig, limits: Limits) -> bool:
    """Return whether a run that continues from a snapshot does the same as from its beginning.

    Args:
        snapshot: The snapshot.
        config: The team and its options.
        limits: The limits of the run.
    """
    for name in Limits.__struct_fields__:
        now, before = getattr(limits, name), getattr(snapshot.limits, name)
        if name != "seconds" and now is not None and (before is None or now < before):
            # The run may have exceeded it before the snapshot.
            return False
    at = snapshot.position
    if at.inside is None:
        return True
    _, agent, _ = snapshot.origins[at.origin]
    # Guardrails, for instance, may be new: they check what the activation began with.
    return not has_code_around(config.team.members[agent].agent, config.options)


def has_code_around(agent: BaseAgent[Any, Any], options: RunConfig) -> bool:
    """Return whether code around the turns of an agent has local variables.

    A snapshot cannot hold these.

    Args:
        agent: The agent.
        options: The options of the runner.
    """
    if not isinstance(agent, Agent) or type(agent).run is not Agent.run or agent._guards is not None:
        return True
    return any(overrides(each, "activation") for each in (*options.middleware, *agent.middleware))
