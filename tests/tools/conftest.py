"""A place in a run to call tools from."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import pytest

from batonkit.context import Limits, RunContext
from batonkit.context.run_state import RunState, UsageMeter
from batonkit.log import Event, Origin
from batonkit.log.log import Log
from batonkit.messages import ToolCall

MakeContext: TypeAlias = Callable[..., RunContext[Any]]


@pytest.fixture
def make_context() -> MakeContext:
    """Makes the context of one tool call over a log; calls with the same scope are the same call."""

    def make(
        events: Iterable[Event] = (),
        *,
        scope: str = "1/m1.0",
        values: dict[str, Any] | None = None,
        context: Any = None,
        run: RunState[Any] | None = None,
    ) -> RunContext[Any]:
        if run is None:
            shared = values if values is not None else {}
            run = RunState("r", Log(events), context=context, values=shared, meter=UsageMeter(Limits()))
        return RunContext(run, Origin("1", "A"), scope, ToolCall("c", "t", "{}"))

    return make


@pytest.fixture
def ctx(make_context: MakeContext) -> RunContext[Any]:
    """The context of a first call."""
    return make_context()
