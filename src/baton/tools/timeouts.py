"""A tool that may only take so long."""

import asyncio
from types import TracebackType
from typing import Any

from ..context import RunContext
from ..errors import SetupError, ToolTimeoutError
from .base import Tool, ToolResult
from .failures import ErrorPolicy, outcome_of_error
from .threads import GIVE_UP
from .wrapping import ToolWrapper


class TimeoutTool(ToolWrapper):
    """Gives a tool so many seconds for each call; what happens then is up to `on_error`."""

    def __init__(self, inner: Tool, seconds: float, *, on_error: ErrorPolicy = "return") -> None:
        super().__init__(inner)
        if not seconds > 0:
            raise SetupError(f"{inner!r} cannot finish within {seconds!r} s; give it a timeout above 0, or None")
        self.seconds = seconds
        self.on_error: ErrorPolicy = on_error

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        """Do it in time, or say that there was not enough of it."""
        with _Deadline(self.seconds):
            return await self.inner.call(ctx, arguments)
        name = self.spec.name
        return outcome_of_error(ToolTimeoutError(name, self.seconds), name, policy=self.on_error)


class _Deadline:
    """Ends its block, quietly, when time is up.

    asyncio.timeout() cannot say why it cancels, and a function in a thread must know: it is left behind at once
    when its own time is up, but is waited for when the run is cancelled.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._has_rung = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a tool with a timeout must be called inside an asyncio task")
        self._task = task
        self._cancelled_before = task.cancelling()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._ring)

    def _ring(self) -> None:
        self._has_rung = True
        self._task.cancel(GIVE_UP)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._handle.cancel()
        if not self._has_rung:
            return False
        # Whoever else cancelled the task meanwhile has precedence: then it is not for us to stop the cancellation.
        is_ours_alone = self._task.uncancel() <= self._cancelled_before
        return is_ours_alone and kind is asyncio.CancelledError
