"""Tell a cancelled run from user code that lets out a CancelledError of its own."""

import asyncio
from typing import Any

from .run_state import RunState


def as_failure(run: RunState[Any], cancelled: asyncio.CancelledError) -> RuntimeError:
    """Return the failure of code that let out a cancellation; raise it if the run is cancelled."""
    if run.signals.stop == "now" or _is_cancelling():
        raise cancelled
    return RuntimeError("it awaited something that was cancelled, though the run was not")


def _is_cancelling() -> bool:
    """Return whether the current task, or a driver without an event loop, is cancelling the run."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    return task is None or task.cancelling() > 0
