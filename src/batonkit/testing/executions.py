"""Recording of the real executions of a team's tools."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ..agents import Agent, BaseAgent
from ..context import RunContext
from ..context.run_context import SuspendRun
from ..log import Event, HistoryCompacted
from ..models import Model
from ..runs import Runner
from ..team import Team
from ..tools import FunctionTool, Tool, ToolEffect, ToolResult
from ..tools.base_tool import ToolWrapper
from ..tools.once import tool_effect
from .scripted import ScriptedModel


@dataclass(eq=False)
class ToolExecution:
    """One execution of a tool: the call's key, the process, and the result."""

    key: str
    name: str
    effect: ToolEffect
    process: int
    outcome: ToolResult | None = None
    """The result; None if the execution did not finish."""
    has_paused: bool = False
    """True if it stopped at an interrupt and is called again."""


class ToolExecutions(list[ToolExecution]):
    """The executions of one run, over all its processes."""

    def __init__(self) -> None:
        super().__init__()
        self.process = 1

    def of(self, key: str) -> list[ToolExecution]:
        """Return the executions of one call."""
        return [each for each in self if each.key == key]

    @contextmanager
    def record(self, team: Team) -> Generator[None]:
        """Record the executions of the team's tools; restore the team afterwards."""
        replaced: list[tuple[dict[str, Tool], dict[str, Tool]]] = []
        for agent in _model_agents(team):
            by_name = agent._tool_table.by_name
            replaced.append((by_name, dict(by_name)))
            for name, tool in by_name.items():
                by_name[name] = self._wrap(tool)
        try:
            yield
        finally:
            for by_name, before in replaced:
                by_name.update(before)

    def _wrap(self, tool: Tool) -> Tool:
        effect = tool_effect(tool)
        if isinstance(tool, FunctionTool):
            return cast("FunctionTool[..., Any]", tool)._wrap_function(lambda bare: _RecordingTool(bare, effect, self))
        inner: Any = getattr(tool, "inner", None)
        if callable(getattr(inner, "call", None)):
            clone: Any = copy(tool)
            clone.inner = self._wrap(inner)
            return clone
        return _RecordingTool(tool, effect, self)


class _RecordingTool(ToolWrapper):
    """Records each call of a tool before it is made."""

    def __init__(self, inner: Tool, effect: ToolEffect, executions: ToolExecutions) -> None:
        super().__init__(inner)
        self._effect: ToolEffect = effect
        self._executions = executions

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Record the call and forward it."""
        execution = ToolExecution(ctx._scope, self.spec.name, self._effect, self._executions.process)
        self._executions.append(execution)
        try:
            execution.outcome = await self.inner.call(ctx, arguments)
        except SuspendRun:
            execution.has_paused = True
            raise
        return execution.outcome


def scripted_models(runner: Runner[Any, Any]) -> list[tuple[ScriptedModel, Callable[[Event], bool]]]:
    """List the scripted models of a runner, each with a function that selects its events."""
    agents = [*_model_agents(runner.team)]
    others = {each.name for each in agents if each._model is not None}
    found: list[tuple[ScriptedModel, Callable[[Event], bool]]] = [
        (script, lambda event: event.agent not in others) for script in _find_scripts(runner._config.options.model)
    ]
    names = {name for team in _all_teams(runner.team) for name in team.members}
    for script in {id(script): script for each in agents for script in _find_scripts(each._model)}.values():
        unused = names - {each.name for each in agents if script in _find_scripts(each._model)}
        found.append((script, partial(_is_of_user, unused)))
    known = {id(script) for script, _ in found}
    compactions = [runner._config.options.compaction, *[each.compaction for each in agents]]
    for script in [each.summarizer for each in compactions if each is not None]:
        if isinstance(script, ScriptedModel) and id(script) not in known:
            known.add(id(script))
            found.append((script, lambda event: isinstance(event, HistoryCompacted)))
    return found


def _is_of_user(unused: set[str], event: Event) -> bool:
    return event.agent not in unused


def _find_scripts(model: Model | None) -> list[ScriptedModel]:
    """Find the scripted models inside a model, such as one wrapped in RetryModel."""
    if model is None or isinstance(model, ScriptedModel):
        return [] if model is None else [model]
    inside: list[Any] = [getattr(model, "model", None), *getattr(model, "models", ())]
    return [script for each in inside if hasattr(each, "respond") for script in _find_scripts(each)]


def _all_teams(team: Team) -> list[Team]:
    return [team, *[inner for inner in team.inner.values() if inner is not team]]


def _model_agents(team: Team) -> Iterator[Agent[Any, Any]]:
    """Yield every agent of the team that calls a model, without its wrappers."""
    seen: set[int] = set()
    for each in _all_teams(team):
        for member in each.members.values():
            agent = member.agent
            while isinstance(inner := getattr(agent, "inner", None), BaseAgent):
                agent = cast("BaseAgent[Any, Any]", inner)
            if isinstance(agent, Agent) and id(agent) not in seen:
                seen.add(id(agent))
                yield agent
