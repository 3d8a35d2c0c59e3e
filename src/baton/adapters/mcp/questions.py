"""Open questions of a run, as an MCP client puts them to a person."""

import json
from typing import Any, cast

import mcp_types as types

from ...runner import Interrupt

_PRIMITIVE = ("string", "number", "integer", "boolean")
_APPROVAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "Whether it may be done."},
        "reason": {"type": "string", "description": "Why not, if it may not."},
    },
    "required": ["approved"],
}
_ANYTHING: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "description": "The answer; JSON if it is not just text."}},
    "required": ["answer"],
}


def question_of(interrupt: Interrupt) -> str:
    """The question in words."""
    payload, agent = interrupt.payload, interrupt.agent
    if isinstance(payload, dict):
        asked = cast("dict[str, Any]", payload)
        if asked.get("kind") == "approval":
            what = asked.get("tool") or f"the transfer to {asked.get('handoff')}"
            return f"{agent} wants to use {what} with {_shown(asked.get('arguments', asked.get('input')))}. May it?"
        if isinstance(asked.get("message"), str):
            return f"{agent} asks: {asked['message']}"
    return f"{agent} asks: {payload}" if isinstance(payload, str) else f"{agent} waits for an answer: {_shown(payload)}"


def elicitation_of(interrupt: Interrupt) -> types.ElicitRequest:
    """The question as a form."""
    params = types.ElicitRequestFormParams(message=question_of(interrupt), requested_schema=_form_of(interrupt))
    return types.ElicitRequest(params=params)


def answer_in(result: types.ElicitResult, interrupt: Interrupt) -> tuple[Any] | None:
    """The answer that a filled-in form gives; None if the person gave none."""
    form = _form_of(interrupt)
    if result.action != "accept" or result.content is None:
        return ({"approved": False},) if form is _APPROVAL and result.action == "decline" else None
    content: dict[str, Any] = {key: value for key, value in result.content.items() if value is not None}
    if form is not _ANYTHING:
        return (content,)
    answer = content.get("answer", "")
    schema = interrupt.schema
    if schema is None or schema.get("type") == "string":
        return (answer,)
    try:
        return (json.loads(str(answer)),)
    except ValueError:
        return (answer,)


def open_questions(run_id: str, interrupts: tuple[Interrupt, ...], *, answer_tool: str) -> str:
    """What is open in a run and how to answer it, for a client that cannot ask its user."""
    lines = [f"The run `{run_id}` is not finished: it waits for answers."]
    for interrupt in interrupts:
        fits = f" The answer must fit this JSON schema: {_shown(interrupt.schema)}" if interrupt.schema else ""
        if _form_of(interrupt) is _APPROVAL:
            fits = ' Answer true, false, or {"approved": false, "reason": "…"}.'
        lines.append(f"- `{interrupt.id}`: {question_of(interrupt)}{fits}")
    example = {"run_id": run_id, "answers": {interrupt.id: "…" for interrupt in interrupts}}
    lines.append(f"To go on, call the tool `{answer_tool}` with {_shown(example)}")
    return "\n".join(lines)


def _form_of(interrupt: Interrupt) -> dict[str, Any]:
    """A form can ask for nothing but plain fields; whatever does not fit into one is asked for as text."""
    if _is_approval(interrupt):
        return _APPROVAL
    schema = interrupt.schema or {}
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        fields = cast("dict[str, Any]", properties).values()
        if all(isinstance(field, dict) and cast("Any", field).get("type") in _PRIMITIVE for field in fields):
            return {key: schema[key] for key in ("type", "properties", "required") if key in schema}
    return _ANYTHING


def _is_approval(interrupt: Interrupt) -> bool:
    payload = interrupt.payload
    asked = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    return interrupt.tool_call is not None and asked.get("kind") == "approval"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
