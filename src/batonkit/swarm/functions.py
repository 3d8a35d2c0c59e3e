"""Conversion of Swarm functions to tools, and of completions to dicts."""

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

# Swarm describes such a parameter as a string and passes on any value.
_UNTYPED = Annotated[Any, WithJsonSchema({"type": "string"})]
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class SwarmTool(FunctionTool[..., ToolResult]):
    """A tool made of a Swarm function: types are optional, context variables hidden."""

    _untyped = _UNTYPED
    _injected = {CONTEXT_VARIABLES: lambda ctx: ctx.context.variables}


def as_tool(function: AgentFunction) -> FunctionTool[..., ToolResult]:
    """Convert a function to a tool; a transfer in its result still names a Swarm agent."""
    if isinstance(function, FunctionTool):
        raise SetupError(
            f"{function!r} is a tool of Baton, whose approval and timeout Swarm does not support; "
            "pass Swarm agents plain functions"
        )
    tool = _tool(function)
    return tool if _has_schema(tool) else _tool(function, untyped=_without_schema(function))


def function_name(function: Any) -> str:
    """Return the tool's name of a function."""
    bare = _unwrap(function)
    return str(getattr(bare, "__name__", type(bare).__name__))


def run_awaitable(value: Any) -> Any:
    """Return the value, or the result of an awaitable."""
    if not isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    # In a notebook this thread already runs a loop, and cannot run a second one.
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(copy_context().run, asyncio.run, wait()).result()


def _tool(function: AgentFunction, *, untyped: Collection[str] = ()) -> FunctionTool[..., ToolResult]:
    return SwarmTool(
        _with_result(function, untyped),
        name=function_name(function),
        description=_docstring_of(_unwrap(function)) or "",
        # Swarm calls functions in the caller's thread; some use objects that belong to it.
        in_thread=False,
    )


def _with_result(function: AgentFunction, untyped: Collection[str]) -> Callable[..., ToolResult]:
    """Wrap a function to return a ToolResult."""
    if isinstance(function, partial):
        # Arguments of a partial are hidden from models, which requires the partial outside.
        return partial(_with_result(function.func, untyped), *function.args, **function.keywords)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> ToolResult:
        return _to_result(run_awaitable(function(*args, **kwargs)))

    try:
        original = signature(function)
    except (TypeError, ValueError):
        return wrapper
    parameters = [
        each.replace(annotation=_UNTYPED) if each.name in untyped else each
        for each in original.parameters.values()
        # Decorators often expose only these, which a model cannot use.
        if each.kind not in _VARIADIC
    ]
    vars(wrapper)["__signature__"] = original.replace(parameters=parameters)
    return wrapper


def _to_result(value: Any) -> ToolResult:
    match value:
        case Result():
            return ToolResult(str(value.value), transfer_to=value.agent, values=value.context_variables)
        case Agent():
            return ToolResult(json.dumps({"assistant": value.name}), transfer_to=value)
        case _:
            return ToolResult(str(value))


def _without_schema(function: AgentFunction) -> set[str]:
    """Return the parameters whose types have no JSON schema: in Swarm they are strings."""
    names = set(signature(function).parameters)
    return {name for name in names if not _has_schema(_tool(function, untyped=names - {name}))}


def _has_schema(tool: FunctionTool[..., ToolResult]) -> bool:
    try:
        _ = tool.spec
    except SetupError:
        return False
    return True


def _unwrap(function: Any) -> Any:
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
    """Describe a tool as Swarm does: always with `required`, and without defaults."""
    schema = spec.parameters
    properties: dict[str, dict[str, Any]] = schema["properties"]
    described = {
        name: {key: value for key, value in about.items() if key != "default"} for name, about in properties.items()
    }
    parameters: dict[str, Any] = {"type": "object", "properties": described, "required": schema.get("required", [])}
    if "$defs" in schema:
        parameters["$defs"] = schema["$defs"]
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": function}


def message_of(completion: Any) -> dict[str, Any]:
    """Return the assistant's message in a completion."""
    choices = _read(completion, "choices")
    if not choices:
        raise ModelError(f"the client returned no choices: {completion!r}")
    return {"content": None, "role": "assistant", "tool_calls": None, **as_dict(_read(choices[0], "message"))}


def delta_of(chunk: Any) -> dict[str, Any] | None:
    """Return the delta in a chunk of a streamed completion, None if it has none."""
    choices = _read(chunk, "choices")
    delta = _read(choices[0], "delta") if choices else None
    return None if delta is None else as_dict(delta)


def function_in(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `function` of a call or of a piece of one, empty for calls of another type."""
    return call.get("function") or {}


def as_dict(thing: Any) -> dict[str, Any]:
    """Convert an SDK object, a lookalike or a mapping to a new dict."""
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
