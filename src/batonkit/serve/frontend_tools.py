"""Tools that the client of a server executes: it sends them with a request, and a call raises an interrupt.

They are stored in the run's values, so that every worker that resumes the run has them.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from typing_extensions import TypeVar

from ..agents import AgentContext, BaseAgent
from ..agents.agent_options import with_changes
from ..agents.definition import AgentDefinition
from ..agents.wrappers import AgentWrapper
from ..context import RunContext
from ..errors import SetupError
from ..log import Action, InterruptRaised
from ..log.events import Interrupt, payload_fields
from ..messages import ToolSpec
from ..tools import ToolResult

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)

TOOLS = "agui.tools"
"""The key of a run's values that holds its frontend tools."""

KIND = "frontend_tool"
_CACHE_SIZE = 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_frontend_call(interrupt: InterruptRaised | Interrupt) -> bool:
    """Return whether an interrupt is a call of a frontend tool."""
    return interrupt.tool_call is not None and payload_fields(interrupt.payload).get("kind") == KIND


def frontend_tool(name: str, description: str | None, parameters: Any) -> dict[str, Any]:
    """Return a frontend tool as it is stored in the run's values.

    Raises:
        SetupError: No model accepts the name.
    """
    if not _NAME.fullmatch(name):
        raise SetupError("a tool's name must consist of 1 to 64 letters, digits, _ or -")
    schema = cast("dict[str, Any]", parameters) if isinstance(parameters, dict) else {}
    return {"name": name, "description": description or "", "parameters": schema or ToolSpec("").parameters}


class FrontendTool:
    """A tool that the user interface executes; its answer is the result."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Raise an interrupt for the call and return the answer."""
        try:
            given = json.loads(arguments.strip() or "{}")
        except ValueError as error:
            return ToolResult(f"The arguments of `{self.spec.name}` are not JSON ({error}).", is_error=True)
        answer = await ctx.interrupt({"kind": KIND, "tool": self.spec.name, "arguments": given})
        if isinstance(answer, dict) and "content" in answer:
            result = cast("dict[str, Any]", answer)
            return ToolResult(_to_text(result["content"]), is_error=bool(result.get("is_error")))
        return ToolResult(_to_text(answer))


class FrontendTools(AgentWrapper[C, Out]):
    """An agent with the frontend tools of the request in addition to its own tools.

    Args:
        inner: The agent.
    """

    inner: AgentDefinition[C, Out]

    def __init__(self, inner: AgentDefinition[C, Out]) -> None:
        super().__init__(inner)
        self._agents: OrderedDict[bytes, AgentDefinition[C, Out]] = OrderedDict()

    async def run(self, ctx: AgentContext[C]) -> Action | None:
        """Run the agent. Its own tools take precedence over frontend tools of the same name.

        Args:
            ctx: The context of the activation.
        """
        own = {*self.inner._tool_table.names, *[spec.name for spec in ctx._routes.specs]}
        stored = ctx._run.values.get(TOOLS)
        specs = [spec for spec in msgspec.convert(stored or (), tuple[ToolSpec, ...]) if spec.name not in own]
        return await (self._with_tools(specs) if specs else self.inner).run(ctx)

    def _with_tools(self, specs: Sequence[ToolSpec]) -> AgentDefinition[C, Out]:
        # Cached, because an agent compiles its tools once.
        key = msgspec.json.encode(specs)
        agent = self._agents.get(key)
        if agent is None:
            tools = [FrontendTool(spec) for spec in {spec.name: spec for spec in specs}.values()]
            agent = self._agents[key] = with_changes(self.inner, tools=(*self.inner.tools, *tools))
            if len(self._agents) > _CACHE_SIZE:
                self._agents.popitem(last=False)
        return agent


def with_frontend_tools(agent: BaseAgent[C, Out]) -> FrontendTools[C, Out]:
    """Give an agent the tools that the user interface sends with each request.

    Args:
        agent: A model agent.

    Raises:
        SetupError: The agent does not use a model.
    """
    if not isinstance(agent, AgentDefinition):
        raise SetupError(f"with_frontend_tools({agent!r}): the agent uses no model; pass an Agent")
    return FrontendTools(agent)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
