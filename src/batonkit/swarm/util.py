"""Helpers with Swarm's names: function schemas, merging of deltas and debug output."""

from copy import deepcopy
from datetime import datetime
from typing import Any

from .._wording import printable
from .functions import as_tool, function_in, tool_dict
from .types import AgentFunction


def debug_print(debug: bool, *args: Any) -> None:
    """Print with the time in front, in grey, if `debug` is on."""
    if debug:
        now = datetime.now().isoformat(" ", "seconds")
        print(f"\033[90m[{now}]", *[printable(str(arg)) for arg in args], end="\033[0m\n")


def function_to_json(func: AgentFunction) -> dict[str, Any]:
    """Describe a function for models, without its context variables."""
    return tool_dict(as_tool(func).spec)


def merge_fields(target: dict[str, Any], source: dict[str, Any]) -> None:
    """Append the texts in `source` to those in `target`, at any depth."""
    for key, value in source.items():
        current = target.get(key)
        if isinstance(value, str):
            target[key] = (current or "") + value
        elif isinstance(value, dict):
            if current is None:
                target[key] = deepcopy(value)  # pyright: ignore[reportUnknownArgumentType]
            else:
                merge_fields(current, value)  # pyright: ignore[reportUnknownArgumentType]


def merge_chunk(final_response: dict[str, Any], delta: dict[str, Any]) -> None:
    """Merge a delta of a streamed response; the target's `tool_calls` are a dict by index."""
    merge_fields(final_response, {key: value for key, value in delta.items() if key != "role"})
    calls: dict[int, dict[str, Any]] = final_response["tool_calls"]
    for piece in delta.get("tool_calls") or ():
        index = piece.get("index")
        if index is None:
            # Some servers omit it: an id then starts a new call, any other piece belongs to the last one.
            index = len(calls) if piece.get("id") or not calls else max(calls)
        if index not in calls:
            calls[index] = {"function": {"arguments": "", "name": ""}, "id": "", "type": ""}
        call = calls[index]
        function = function_in(piece)
        _fill_in(call, "id", piece.get("id"))
        _fill_in(call, "type", piece.get("type"))
        _fill_in(call["function"], "name", function.get("name"))
        merge_fields(call["function"], {"arguments": function.get("arguments")})


def _fill_in(target: dict[str, Any], key: str, text: str | None) -> None:
    # Some providers repeat these fields with every piece.
    if text and text != target[key]:
        target[key] += text
