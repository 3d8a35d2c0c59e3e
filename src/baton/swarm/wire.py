"""What goes to a client and what comes back, as dicts: SDK objects, their lookalikes in tests, or dicts already."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from ..errors import ModelError
from ..messages import ToolSpec

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
