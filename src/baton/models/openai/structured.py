"""Answers of a given schema: asked for by the schema itself, by JSON mode, or as a call of a tool."""

from collections.abc import Callable
from typing import Any

from ...messages import ToolSpec
from ..base import ModelRequest, OutputSchema
from .endpoint import StructuredOutputMode
from .parts import as_json

_WORDS = ("auto", "required", "none")
_ASKED = "Answer with one JSON object and nothing else. It must fit this JSON schema:"


def output_tool(request: ModelRequest, structured: StructuredOutputMode) -> ToolSpec | None:
    """The tool whose call is the answer, where the answer is asked for in that way."""
    output = request.output_schema
    if output is None or structured != "tool":
        return None
    taken = {tool.name for tool in request.tools}
    name = "final_answer"
    while name in taken:
        name += "_"
    told = "Give the final answer. Call it once everything is known."
    return ToolSpec(name, told, output.schema, output.strict)


def instructions_with_schema(request: ModelRequest, structured: StructuredOutputMode) -> str:
    """The instructions; in JSON mode they must show the schema, since nothing else does."""
    if request.output_schema is None or structured != "json_object":
        return request.instructions
    asked = f"{_ASKED}\n{as_json(request.output_schema.schema)}"
    return f"{request.instructions}\n\n{asked}" if request.instructions else asked


def add_tools(
    body: dict[str, Any],
    request: ModelRequest,
    structured: StructuredOutputMode,
    *,
    form: Callable[[ToolSpec], dict[str, Any]],
    named: Callable[[str], dict[str, Any]],
) -> None:
    """Offer the tools, and the one that is the answer; say which must be called. `form` and `named` are the API's."""
    answer = output_tool(request, structured)
    tools = request.tools if answer is None else (*request.tools, answer)
    if not tools:
        return
    body["tools"] = [form(spec) for spec in tools]
    choice = _chosen_tool(request, answer)
    if choice is not None:
        body["tool_choice"] = choice if choice in _WORDS else named(choice)
    if request.settings.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.settings.parallel_tool_calls


def _chosen_tool(request: ModelRequest, answer: ToolSpec | None) -> str | None:
    """Which tool must be called: with an answer that is a call, at least that one."""
    choice = request.settings.tool_choice
    if answer is None:
        return choice
    if not request.tools or choice == "none":
        return answer.name
    return "required" if choice in (None, "auto") else choice


def schema_format(output: OutputSchema) -> dict[str, Any]:
    """The schema by itself, as both APIs take it."""
    return {"name": output.name, "schema": output.schema, "strict": output.strict}
