"""Who is told of what happens in a run, in time to act on it. Each happens once: a resumed run does not repeat it."""

from typing import Any

from ..context import RunContext
from ..events import Asked, ToolReturned
from ..messages import ToolCall
from ..models import ModelRequest, Response
from .together import together


class RunHooks:
    """Callbacks for all agents of a run. Override what you need; sync or async. One that raises ends the run."""

    def on_run_start(self, ctx: RunContext[Any], agent: Any) -> Any:
        """A run begins; `agent` is its root."""

    def on_run_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> Any:
        """A run is completed; `agent` had the floor last."""

    def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> Any:
        """An agent gets the floor."""

    def on_agent_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> Any:
        """An agent gives the floor up; `output` is None if it transfers."""

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: ModelRequest) -> Any:
        """A model is about to be asked."""

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: Response) -> Any:
        """A model has answered."""

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> Any:
        """A tool is about to be called."""

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: ToolCall, result: ToolReturned) -> Any:
        """A tool has returned."""

    def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> Any:
        """Control is about to go from one agent to another."""

    def on_interrupt(self, ctx: RunContext[Any], asked: Asked) -> Any:
        """The run stops to ask a question."""


class AgentHooks:
    """Callbacks for one agent, for `Agent(hooks=…)`. Override what you need; one that raises ends the run."""

    def on_start(self, ctx: RunContext[Any], agent: Any) -> Any:
        """The agent gets the floor."""

    def on_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> Any:
        """The agent gives the floor up; `output` is None if it transfers."""

    def on_model_start(self, ctx: RunContext[Any], agent: Any, request: ModelRequest) -> Any:
        """The agent's model is about to be asked."""

    def on_model_end(self, ctx: RunContext[Any], agent: Any, response: Response) -> Any:
        """The agent's model has answered."""

    def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> Any:
        """One of the agent's tools is about to be called."""

    def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: ToolCall, result: ToolReturned) -> Any:
        """One of the agent's tools has returned."""

    def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> Any:
        """Control is about to go from `source` to `agent`; both are told."""


class Told:
    """The hooks that concern one agent in one run: the run's and its own."""

    __slots__ = ("_agent", "_own", "_run")

    def __init__(self, agent: Any, run: RunHooks | None, own: AgentHooks | None) -> None:
        self._agent = agent
        self._run = run or _NOBODY
        self._own = own or _NOBODY_ELSE

    async def start(self, ctx: RunContext[Any]) -> None:
        await together(self._run.on_agent_start(ctx, self._agent), self._own.on_start(ctx, self._agent))

    async def end(self, ctx: RunContext[Any], output: Any) -> None:
        await together(self._run.on_agent_end(ctx, self._agent, output), self._own.on_end(ctx, self._agent, output))

    async def model_start(self, ctx: RunContext[Any], request: ModelRequest) -> None:
        mine = self._own.on_model_start(ctx, self._agent, request)
        await together(self._run.on_model_start(ctx, self._agent, request), mine)

    async def model_end(self, ctx: RunContext[Any], response: Response) -> None:
        mine = self._own.on_model_end(ctx, self._agent, response)
        await together(self._run.on_model_end(ctx, self._agent, response), mine)

    async def tool_start(self, ctx: RunContext[Any], call: ToolCall) -> None:
        await together(self._run.on_tool_start(ctx, self._agent, call), self._own.on_tool_start(ctx, self._agent, call))

    async def tool_end(self, ctx: RunContext[Any], call: ToolCall, result: ToolReturned) -> None:
        mine = self._own.on_tool_end(ctx, self._agent, call, result)
        await together(self._run.on_tool_end(ctx, self._agent, call, result), mine)

    async def handoff(self, ctx: RunContext[Any], target: Any) -> None:
        source, others = self._agent, target.hooks or _NOBODY_ELSE
        await together(
            self._run.on_handoff(ctx, source, target),
            self._own.on_handoff(ctx, target, source),
            others.on_handoff(ctx, target, source),
        )


_NOBODY = RunHooks()
_NOBODY_ELSE = AgentHooks()


def told_of(agent: Any, run: RunHooks | None) -> Told | None:
    """The hooks that concern this agent; None if nobody wants to be told of anything."""
    return None if run is None and agent.hooks is None else Told(agent, run, agent.hooks)
