"""The questions of a run, as callers of A2A are asked them: in words, and as data."""

from typing import Any, cast

import msgspec

from ...events import InterruptRaised

AUTH_REQUIRED = "auth_required"
"""The `kind` in the payload of a question that asks for credentials."""


def question_text(asked: InterruptRaised) -> str:
    """A question in words, for whoever cannot read its data."""
    payload: Any = asked.payload
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict):
        facts = cast("dict[str, Any]", payload)
        for name in ("question", "message", "text", "prompt"):
            if isinstance(facts.get(name), str):
                return facts[name]
    if asked.tool_call is not None:
        return f"May `{asked.tool_call.name}` be called with {asked.tool_call.arguments}?"
    return msgspec.json.encode(payload).decode() if payload is not None else f"{asked.agent} waits for an answer."


def question_data(asked: InterruptRaised) -> dict[str, Any]:
    """A question as data: its id, by which it is answered, what is asked, and what answers must look like."""
    call = None if asked.tool_call is None else {"name": asked.tool_call.name, "arguments": asked.tool_call.arguments}
    facts = {"interruptId": asked.key, "agent": asked.agent, "payload": asked.payload, "schema": asked.schema}
    return {**facts, "call": call} if call else facts


def kind_of(asked: InterruptRaised) -> Any:
    payload: Any = asked.payload
    return cast("dict[str, Any]", payload).get("kind") if isinstance(payload, dict) else None
