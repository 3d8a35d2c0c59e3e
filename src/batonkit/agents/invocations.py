"""The calls that layers surround: one model call, one tool call."""

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from .._wording import show
from ..context import RunContext
from ..errors import SetupError
from ..messages import Message, ToolCall, Usage
from ..models import ModelRequest, ModelResponse
from ..tools import Tool, ToolResult
from .agent_context import AgentContext
from .compiled import CompiledAgent, PreparedTurn
from .deltas import ResponseDeltas


class SurroundedCall(Struct, kw_only=True):
    """A call on its way through the layers around it."""

    ctx: RunContext[Any]
    """The context whose effect records the value changes of layers."""
    key: str
    """The key of its result."""
    suffix: str = ""
    """The end of keys of middleware, after its name, if middleware has repeated the call."""
    outer: RunContext[Any] | None = None
    """The context of the middleware that makes the call; None for the outermost."""
    model_calls: int = 0
    """The number of model calls that it has made so far."""
    usage: Usage | None = None
    """Their usage."""
    model: str = ""
    """The name of the model that was called last."""

    method: ClassVar[str]
    """The method of middleware that surrounds such calls."""
    given_type: ClassVar[type]
    """The type of what middleware passes on."""
    result_type: ClassVar[type]
    """The type of what middleware returns."""

    def add(self, model_calls: int, usage: Usage | None, model: str) -> None:
        """Count model calls of this call, or of a part of it."""
        self.model_calls += model_calls
        self.model = model or self.model
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage + usage

    def check(self, value: Any, wanted: type, layer: str, what: str) -> None:
        """Raise SetupError if middleware passed on or returned a value of another type."""
        if not isinstance(value, wanted):
            raise SetupError(f"{self.method} of middleware `{layer}` {what} {show(value)}; give a {wanted.__name__}")


class ModelCall(SurroundedCall, kw_only=True):
    """One model call of a turn."""

    ctx: AgentContext[Any]  # pyright: ignore[reportIncompatibleVariableOverride] - narrower on purpose
    turn: int
    """The number of the turn."""
    read: Sequence[Message]
    """The messages that the agent has read."""
    request: ModelRequest
    """The request, as the layers around have left it."""
    compiled: CompiledAgent
    """The agent that calls."""
    prepared: PreparedTurn
    """The parts that were computed for the turn."""
    deltas: ResponseDeltas
    """The deltas that subscribers have received of the response; shared by all attempts."""
    response: ModelResponse | None = None
    """The response, once it is recorded."""

    method = "model_call"
    given_type = ModelRequest
    result_type = ModelResponse

    @property
    def given(self) -> ModelRequest:
        """The request, for middleware."""
        return self.request

    def again(self, given: ModelRequest, suffix: str, outer: RunContext[Any]) -> "ModelCall":
        """Return the call that middleware makes with `next`."""
        return replace(self, request=given, suffix=suffix, outer=outer, model_calls=0, usage=None, model="")


class ToolAttempts(Struct):
    """State that the attempts at one tool call share."""

    executed: int = 0
    """The number of times that the tool was called."""
    error: Exception | None = None
    """The last exception that the tool itself raised."""


class ToolInvocation(SurroundedCall, kw_only=True):
    """One call of a tool; handoffs and the exit tool are none."""

    tool: Tool
    call: ToolCall
    """The call, as the layers around have left it."""
    agent_ctx: AgentContext[Any]
    """The context of the agent that calls."""
    attempts: ToolAttempts

    method = "tool_call"
    given_type = ToolCall
    result_type = ToolResult

    @property
    def given(self) -> ToolCall:
        """The call, for middleware."""
        return self.call

    def again(self, given: ToolCall, suffix: str, outer: RunContext[Any]) -> "ToolInvocation":
        """Return the call that middleware makes with `next`."""
        return replace(self, call=given, suffix=suffix, outer=outer)
