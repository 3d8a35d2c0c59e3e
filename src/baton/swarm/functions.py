"""A Swarm function as a tool of the core: any callable, typed or not, that returns anything."""

import asyncio
import json
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from inspect import Parameter, isawaitable, isclass, isroutine, signature
from typing import Annotated, Any

from pydantic import WithJsonSchema

from ..errors import SetupError
from ..tools import FunctionTool, ToolResult
from .types import Agent, AgentFunction, Result

CONTEXT_VARIABLES = "context_variables"

# Swarm tells models that such a parameter is a string, and passes on whatever they give.
_UNTYPED = Annotated[Any, WithJsonSchema({"type": "string"})]
_TAKES_ANYTHING = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def as_tool(function: AgentFunction) -> FunctionTool[..., ToolResult]:
    """The function as a tool. A transfer in its outcome is still to a Swarm agent."""
    if isinstance(function, FunctionTool):
        raise SetupError(
            f"{function!r} is a tool of Baton, whose approval and time limit Swarm knows nothing of; "
            "give Swarm agents plain functions"
        )
    tool = _tool(function)
    try:
        _ = tool.spec
    except SetupError:
        return _tool(function, unreadable=_without_schema(function))
    return tool


def name_of(function: Any) -> str:
    """What a model calls the function."""
    bare = _bare(function)
    return str(getattr(bare, "__name__", type(bare).__name__))


def awaited(value: Any) -> Any:
    """The value, waited for if it is something to wait for."""
    if not isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    # In a notebook this thread has a loop that runs already, and no second one can run in it.
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(copy_context().run, asyncio.run, wait()).result()


def _tool(function: AgentFunction, *, unreadable: Collection[str] = ()) -> FunctionTool[..., ToolResult]:
    return FunctionTool(
        _telling(function, unreadable),
        name=name_of(function),
        description=_docstring_of(_bare(function)) or "",
        # Swarm calls functions where it was called itself: some hold on to things that only their thread may use.
        in_thread=False,
        _untyped=_UNTYPED,
        _inject={CONTEXT_VARIABLES: lambda ctx: ctx.context.variables},
    )


def _telling(function: AgentFunction, unreadable: Collection[str]) -> Callable[..., ToolResult]:
    """The function, with what it returns made into an outcome."""
    if isinstance(function, partial):
        # What a partial has filled in is hidden from models; it can only be seen if the partial is outside.
        return partial(_telling(function.func, unreadable), *function.args, **function.keywords)

    @wraps(function)
    def telling(*args: Any, **kwargs: Any) -> ToolResult:
        return _outcome_of(awaited(function(*args, **kwargs)))

    try:
        written = signature(function)
    except (TypeError, ValueError):
        return telling
    parameters = [
        each.replace(annotation=_UNTYPED) if each.name in unreadable else each
        for each in written.parameters.values()
        # Decorators often leave nothing but these to be seen, and a model can make no use of them.
        if each.kind not in _TAKES_ANYTHING
    ]
    vars(telling)["__signature__"] = written.replace(parameters=parameters)
    return telling


def _outcome_of(value: Any) -> ToolResult:
    match value:
        case Result():
            return ToolResult(str(value.value), transfer_to=value.agent, values=value.context_variables)
        case Agent():
            return ToolResult(json.dumps({"assistant": value.name}), transfer_to=value)
        case _:
            return ToolResult(str(value))


def _without_schema(function: AgentFunction) -> set[str]:
    """The parameters whose types no JSON can be read into: to Swarm they are strings."""
    names = set(signature(function).parameters)
    return {name for name in names if not _has_schema(function, but_for=names - {name})}


def _has_schema(function: AgentFunction, *, but_for: Collection[str]) -> bool:
    try:
        _ = _tool(function, unreadable=but_for).spec
    except SetupError:
        return False
    return True


def _bare(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


def _docstring_of(bare: Any) -> str | None:
    kind: Any = bare.__class__
    if isroutine(bare) or isclass(bare) or bare.__doc__ != kind.__doc__:
        return bare.__doc__
    return kind.__call__.__doc__ or kind.__doc__
