"""`tool_use_behavior`: what an agent does after its tools have returned, and the record of the decision."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from time import time
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct
from typing_extensions import TypeVar

from .._checks import CheckedStructMeta, check_callback
from .._wording import show
from ..context import RunContext
from ..errors import SetupError, nearest, quote_names
from ..log import AgentResponded, ToolReturned, keys
from ..messages import AssistantMessage, Content, text_of
from ..tools.results import to_tool_result
from .agent_context import AgentContext
from .hooks import maybe_await

Ctx = TypeVar("Ctx", default=Any)


class Stop(Struct, frozen=True):
    """The decision of a `tool_use_behavior` function that the agent has finished."""

    output: Any
    """The agent's answer: text, or any value that a tool may return."""


class StopAt(Struct, frozen=True, metaclass=CheckedStructMeta):
    """A `tool_use_behavior`: the agent has finished once one of these tools has returned."""

    tools: Sequence[str]
    """The names of the tools. If several were called, the first call without an error gives the answer."""


ToolUseBehavior: TypeAlias = (
    Literal["run_again", "stop_on_first"]
    | StopAt
    | Callable[[RunContext[Ctx], Sequence[ToolReturned]], Stop | None | Awaitable[Stop | None]]
)
"""The step after tools: ask the model again, stop with a result, or as a function `(ctx, results)` decides."""

_FORMS = '"run_again", "stop_on_first", StopAt([…]) or a function (ctx, results) -> Stop(output) | None'


def check_behavior(owner: str, behavior: Any, known: Callable[[], Sequence[str] | None]) -> None:
    """Raise SetupError if a `tool_use_behavior` is invalid."""
    if isinstance(behavior, StopAt):
        names = known()
        for name in behavior.tools:
            if names is not None and name not in names:
                has = f"its tools are: {quote_names(names)}{nearest(name, names)}"
                raise SetupError(f"tool_use_behavior of `{owner}` stops at `{name}`, which it does not have; {has}")
    elif isinstance(behavior, str):
        if behavior not in ("run_again", "stop_on_first"):
            near = nearest(behavior, ("run_again", "stop_on_first"))
            raise SetupError(f"tool_use_behavior of `{owner}` is {show(behavior)}; use {_FORMS}{near}")
    elif callable(behavior) and not isinstance(behavior, type):
        check_callback(f"tool_use_behavior of `{owner}`", behavior, "ctx", "results")
    else:
        raise SetupError(f"tool_use_behavior of `{owner}` is {show(behavior)}; use {_FORMS}")


async def stop_after_tools(
    behavior: Any, ctx: AgentContext[Any], response: AgentResponded, tool_names: Collection[str]
) -> AgentResponded | None:
    """Return the answer if the agent has finished after the tools of a response, else None.

    The decision of a function, and the answer, are recorded.
    """
    log = ctx._run.log
    key = keys.inside(response.key, keys.STOP)
    results = _results(ctx, response, tool_names)
    content = await _decide(behavior, ctx, results, key) if results else None
    if content is None:
        return None
    recorded = log.find(key, AgentResponded) if log.has_past else None
    if recorded is None:
        log.announce(key, AgentResponded)
        recorded = AgentResponded(key, ctx._origin, time(), AssistantMessage(content))
        log.write(recorded)
        await log.settle()
    ctx._history.apply(recorded, ctx._origin)
    return recorded


def _results(ctx: AgentContext[Any], response: AgentResponded, tool_names: Collection[str]) -> list[ToolReturned]:
    """Return the results of tools in the order of the calls, without those of refused calls."""
    log = ctx._run.log
    found = list[ToolReturned]()
    for position, call in enumerate(response.message.tool_calls):
        if call.name not in tool_names or call.name in response.disabled_tools:
            continue
        returned = log.find(keys.call(response.key, position), ToolReturned)
        if returned is not None and not returned.requested_agent:
            found.append(returned)
    return found


async def _decide(behavior: Any, ctx: AgentContext[Any], results: Sequence[ToolReturned], key: str) -> Content | None:
    if isinstance(behavior, str | StopAt):
        names = behavior.tools if isinstance(behavior, StopAt) else None
        chosen = [each for each in results if not each.is_error and (names is None or each.tool_name in names)]
        return chosen[0].content if chosen else None
    own: RunContext[Any] = RunContext(ctx._run, ctx._origin, key)

    async def call() -> Any:
        decision = await maybe_await(behavior(own, tuple(results)))
        if decision is None:
            return None
        if type(decision) is not Stop:
            name = f"tool_use_behavior of `{ctx.agent}`"
            raise SetupError(f"{name} returned {show(decision)}; return Stop(output), or None to ask the model again")
        return text_of(to_tool_result(decision.output, "tool_use_behavior").content)

    # Recorded: a resumed run must not decide again.
    return cast("str | None", await own.step("tool_use_behavior", call))
