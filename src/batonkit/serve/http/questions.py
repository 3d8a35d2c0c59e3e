"""The questions of suspended runs, in words for a person."""

import json
from typing import Any

from ...log.events import Interrupt, payload_fields


def is_approval(interrupt: Interrupt) -> bool:
    """Return whether an interrupt asks for the approval of a tool call or transfer."""
    return interrupt.tool_call is not None and payload_fields(interrupt.payload).get("kind") == "approval"


def question_text(interrupt: Interrupt) -> str:
    """Return a sentence that says which agent asks what."""
    payload = interrupt.payload
    agent = interrupt.agent
    fields = payload_fields(payload)
    if fields.get("kind") == "approval":
        what = fields.get("tool") or f"the transfer to {fields.get('handoff')}"
        return f"{agent} requests approval for {what} with {to_json(fields.get('arguments', fields.get('input')))}."
    if isinstance(payload, str):
        return f"{agent} asks: {payload}"
    name = next((name for name in ("question", "message", "text") if isinstance(fields.get(name), str)), None)
    if name is None:
        return f"{agent} needs an answer: {to_json(payload)}"
    others = {key: value for key, value in fields.items() if key != name}
    return f"{agent} asks: {fields[name]}" + (f" {to_json(others)}" if others else "")


def to_json(value: Any) -> str:
    """Return a value as JSON text for a person or a model."""
    return json.dumps(value, ensure_ascii=False, default=str)
