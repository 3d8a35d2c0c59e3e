"""Tools that the user's side carries out: they come with a request, and a call of one is a question to the outside.

They are kept in the run's values, so that whoever takes the run up later has them too.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from typing_extensions import TypeVar

from ...agents import AgentContext, BaseAgent
from ...agents.definition import AgentDefinition
from ...agents.wrappers import AgentWrapper
from ...context import RunContext
from ...errors import SetupError
from ...events import Action
from ...messages import ToolSpec
from ...tools import ToolResult

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)

TOOLS = "agui.tools"
"""The key in a run's values under which its front-end tools are kept."""

KIND = "frontend_tool"
_MOST_KEPT = 64


class FrontendTool:
    """A tool that the user's side carries out. What it answers is the result."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Ask the user's side to do it."""
        try:
            given = json.loads(arguments.strip() or "{}")
        except ValueError as error:
            return ToolResult(f"The arguments of `{self.spec.name}` are not JSON ({error}).", is_error=True)
        answer = await ctx.interrupt({"kind": KIND, "tool": self.spec.name, "arguments": given})
        if isinstance(answer, dict) and "content" in answer:
            told = cast("dict[str, Any]", answer)
            return ToolResult(_as_text(told["content"]), is_error=bool(told.get("is_error")))
        return ToolResult(_as_text(answer))


class FrontendTools(AgentWrapper[C, Out]):
    """Runs an agent with the tools that came with the request, besides its own."""

    inner: AgentDefinition[C, Out]

    def __init__(self, inner: AgentDefinition[C, Out]) -> None:
        super().__init__(inner)
        self._equipped: OrderedDict[bytes, AgentDefinition[C, Out]] = OrderedDict()

    async def run(self, ctx: AgentContext[C]) -> Action | None:
        """Run the agent. Where two tools have the same name, the agent's own counts."""
        own = {*self.inner._tool_table.names, *[spec.name for spec in ctx._routes.specs]}
        kept = ctx._run.values.get(TOOLS)
        specs = [spec for spec in msgspec.convert(kept or (), tuple[ToolSpec, ...]) if spec.name not in own]
        return await (self._with(specs) if specs else self.inner).run(ctx)

    def _with(self, specs: Sequence[ToolSpec]) -> AgentDefinition[C, Out]:
        """The agent with these tools; the same one for the same tools, so that what it works out once is kept."""
        key = msgspec.json.encode(specs)
        agent = self._equipped.get(key)
        if agent is None:
            tools = [FrontendTool(spec) for spec in {spec.name: spec for spec in specs}.values()]
            agent = self._equipped[key] = self.inner.clone(tools=[*self.inner.tools, *tools])
            if len(self._equipped) > _MOST_KEPT:
                self._equipped.popitem(last=False)
        return agent


def with_frontend_tools(agent: BaseAgent[C, Out]) -> FrontendTools[C, Out]:
    """The agent, with the tools that a user interface offers when it asks for a run."""
    if not isinstance(agent, AgentDefinition):
        raise SetupError(f"frontend_tools({agent!r}) asks no model that could call tools; give an Agent")
    return FrontendTools(agent)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
