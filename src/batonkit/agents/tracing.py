"""The spans that the code of agents opens while it runs; `batonkit.otel` implements them.

Spans become current where they are opened, so that
spans of user code are inside them, and events end them.
"""

from collections.abc import AsyncIterable, Awaitable, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Protocol

from ..context import RunContext
from ..log import Event
from ..models import Chunk, Model, ModelRequest, ModelResponse
from ..tools import Tool, ToolResult


class ActivationSpan(Protocol):
    """The span of an activation, current in the block that it is entered for.

    Its `AgentFinished` event or the end of the run ends the span.
    """

    def __enter__(self) -> Any:
        """Enter the block."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        """Make the span current no more."""
        ...


NO_SPAN: ActivationSpan = nullcontext()
"""The span of activations that are not traced."""


class ModelCallSpan(Protocol):
    """The span of a model call, while it is current."""

    def watch(self, stream: AsyncIterable[Chunk]) -> AsyncIterable[Chunk]:
        """Return the response, which measures when its first chunk arrives."""
        ...

    def end(self, response: ModelResponse) -> None:
        """End the span of a call that succeeded."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the span of a call that failed."""
        ...


class RunTrace(Protocol):
    """The spans of one run, while it is driven."""

    first_events: Sequence[Event]
    """The events to write first, with the trace context of the run."""

    def start_activation(self, ctx: RunContext[Any], agent: Any) -> ActivationSpan | None:
        """Open the span of an activation and make it current.

        Returns:
            The span; None if the log has the whole activation already.
        """
        ...

    def start_model_call(self, ctx: RunContext[Any], model: Model, request: ModelRequest) -> ModelCallSpan:
        """Open the span of a model call and make it current."""
        ...

    async def tool_call(self, ctx: RunContext[Any], tool: Tool, work: Awaitable[ToolResult]) -> ToolResult:
        """Await a tool call inside its span.

        Returns:
            The result of the call.
        """
        ...

    def end(self, output: Any) -> None:
        """End all spans of the run, which has stopped."""
        ...
