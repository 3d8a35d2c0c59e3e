"""Who really did what: the calls of tools of a team, counted where the functions are called."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, cast

from ..agents import Agent, BaseAgent
from ..context import RunContext
from ..context.run_context import SuspendRun
from ..flow import Team
from ..models import Model
from ..runner import Runner
from ..tools import FunctionTool, Tool, ToolEffect, ToolResult
from ..tools.base import ToolWrapper
from ..tools.wrappers import tool_effect
from .scripted import ScriptedModel


class ToolExecution:
    """One time that a tool was really called: for which call of the run, by which process, and what came of it."""

    def __init__(self, key: str, name: str, effect: ToolEffect, *, process: int) -> None:
        self.key = key
        self.name = name
        self.effect: ToolEffect = effect
        self.process = process
        self.outcome: ToolResult | None = None
        """What it gave; None if it did not come to its end."""
        self.has_paused = False
        """Whether it stopped to ask something: then it is to be called again."""


class ToolExecutions(list[ToolExecution]):
    """All of them in one run, whichever process they happened in."""

    def __init__(self) -> None:
        super().__init__()
        self.process = 1

    def of(self, key: str) -> list[ToolExecution]:
        """Those for one call of the run."""
        return [each for each in self if each.key == key]

    @contextmanager
    def watched(self, team: Team) -> Generator[None]:
        """Count what the team's tools do, and leave the team as it was."""
        replaced: list[tuple[dict[str, Tool], dict[str, Tool]]] = []
        for agent in _agents_in(team):
            by_name = agent._tool_table.by_name
            replaced.append((by_name, dict(by_name)))
            for name, tool in by_name.items():
                by_name[name] = self._watched(tool)
        try:
            yield
        finally:
            for by_name, before in replaced:
                by_name.update(before)

    def _watched(self, tool: Tool) -> Tool:
        effect = tool_effect(tool)
        if isinstance(tool, FunctionTool):
            return cast("FunctionTool[..., Any]", tool)._wrap_function(lambda bare: _RecordingTool(bare, effect, self))
        inner: Any = getattr(tool, "inner", None)
        if callable(getattr(inner, "call", None)):
            twin: Any = copy(tool)
            twin.inner = self._watched(inner)
            return twin
        return _RecordingTool(tool, effect, self)


class _RecordingTool(ToolWrapper):
    """Notes each call of a tool before it is made."""

    def __init__(self, inner: Tool, effect: ToolEffect, executions: ToolExecutions) -> None:
        super().__init__(inner)
        self._effect: ToolEffect = effect
        self._executions = executions

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Note it, and do it."""
        noted = ToolExecution(ctx._scope, self.spec.name, self._effect, process=self._executions.process)
        self._executions.append(noted)
        try:
            noted.outcome = await self.inner.call(ctx, arguments)
        except SuspendRun:
            noted.has_paused = True
            raise
        return noted.outcome


def scripts_of(runner: Runner[Any, Any]) -> list[tuple[ScriptedModel, list[str]]]:
    """The scripted models of a runner, each with the agents that do not ask it."""
    agents = [*_agents_in(runner.team)]
    found: list[tuple[ScriptedModel, list[str]]] = []
    with_own = [each.name for each in agents if each._model is not None]
    found += [(script, with_own) for script in _scripts_in(runner.model)]
    for script in {id(script): script for each in agents for script in _scripts_in(each._model)}.values():
        users = [each.name for each in agents if script in _scripts_in(each._model)]
        found.append((script, [name for name in _names_in(runner.team) if name not in users]))
    return found


def _scripts_in(model: Model | None) -> list[ScriptedModel]:
    """The scripted models in or behind a model, such as one that is asked again when it fails."""
    if model is None or isinstance(model, ScriptedModel):
        return [] if model is None else [model]
    inside: list[Any] = [getattr(model, "model", None), *getattr(model, "models", ())]
    return [script for each in inside if hasattr(each, "respond") for script in _scripts_in(each)]


def _teams_in(team: Team) -> list[Team]:
    return [team, *[inner for inner in team.inner.values() if inner is not team]]


def _names_in(team: Team) -> list[str]:
    return [name for each in _teams_in(team) for name in each.seats]


def _agents_in(team: Team) -> Iterator[Agent[Any, Any]]:
    """Every agent of the team that asks a model, in or behind whatever is around it, once."""
    seen: set[int] = set()
    for each in _teams_in(team):
        for seat in each.seats.values():
            agent = seat.agent
            while isinstance(inner := getattr(agent, "inner", None), BaseAgent):
                agent = cast("BaseAgent[Any, Any]", inner)
            if isinstance(agent, Agent) and id(agent) not in seen:
                seen.add(id(agent))
                yield agent
