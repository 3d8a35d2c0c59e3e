"""A Swarm function as a tool of the core: any callable, typed or not, that returns anything.

What goes to a client and what comes back, as dicts: SDK objects, their lookalikes in tests, or dicts already.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from copy import deepcopy
from functools import partial, wraps
from inspect import Parameter, isawaitable, isclass, isroutine, signature
from typing import Annotated, Any, cast

from pydantic import WithJsonSchema

from ..errors import ModelError, SetupError
from ..messages import ToolSpec
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


_PLAIN = (str, int, float, bool, type(None))


def tool_dict(spec: ToolSpec) -> dict[str, Any]:
    """A tool as Swarm shows it to models: with `required` always there, and without what Swarm does not tell."""
    schema = spec.parameters
    properties: dict[str, dict[str, Any]] = schema["properties"]
    told = {
        name: {key: value for key, value in about.items() if key != "default"} for name, about in properties.items()
    }
    parameters: dict[str, Any] = {"type": "object", "properties": told, "required": schema.get("required", [])}
    if "$defs" in schema:
        parameters["$defs"] = schema["$defs"]
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": function}


def message_of(completion: Any) -> dict[str, Any]:
    """The assistant's message in a completion."""
    choices = _read(completion, "choices")
    if not choices:
        raise ModelError(f"the client answered without any choices: {completion!r}")
    return {"content": None, "role": "assistant", "tool_calls": None, **as_dict(_read(choices[0], "message"))}


def delta_of(chunk: Any) -> dict[str, Any] | None:
    """What a chunk of a streamed completion brings; None if nothing, as with the last one that only counts tokens."""
    choices = _read(chunk, "choices")
    delta = _read(choices[0], "delta") if choices else None
    return None if delta is None else as_dict(delta)


def function_in(call: Mapping[str, Any]) -> dict[str, Any]:
    """What a call, or a piece of one, says about the function; nothing if it is a call of another kind."""
    return call.get("function") or {}


def as_dict(thing: Any) -> dict[str, Any]:
    """The thing as a dict of its own: what it dumps itself as, or else its attributes."""
    if isinstance(thing, Mapping):
        return deepcopy(dict(cast("Mapping[str, Any]", thing)))
    for dump in ("model_dump_json", "model_dump", "json"):
        method = getattr(thing, dump, None)
        dumped: Any = method() if callable(method) else None
        if isinstance(dumped, str | bytes):
            dumped = json.loads(dumped)
        if isinstance(dumped, dict):
            return cast("dict[str, Any]", dumped)
    attributes = cast("dict[str, Any]", vars(thing))
    return {name: _plain(value) for name, value in attributes.items() if not name.startswith("_")}


def _plain(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    return as_dict(value)


def _read(thing: Any, name: str) -> Any:
    return cast("Any", thing).get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
