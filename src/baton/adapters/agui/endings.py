"""How a run ends, as the protocol tells it: what it waits for, and what it used."""

from collections.abc import Sequence
from typing import Any, cast

import ag_ui.core as agui

from ...events import AgentResponded, InterruptRaised
from ...messages import Usage
from ...runner import usage_from_events as used_in
from .frontend import KIND


def is_frontend_call(asked: InterruptRaised) -> bool:
    """Whether a question is a call of a tool that the other side carries out."""
    return asked.tool_call is not None and _payload(asked).get("kind") == KIND


def outcome_of(waiting: Sequence[InterruptRaised], interrupts: Sequence[Any]) -> Any:
    """Why a run stopped that waits for answers.

    If all it waits for are calls of the other side's tools, it has ended well as far as the protocol is concerned: the
    results come as messages of the next request.
    """
    if all(is_frontend_call(asked) for asked in waiting):
        calls = [asked.tool_call.id for asked in waiting if asked.tool_call is not None]
        return agui.RunFinishedSuccessOutcome(type="success", pending_tool_call_ids=calls or None)
    return agui.RunFinishedInterruptOutcome(type="interrupt", interrupts=[*interrupts])


def as_interrupt(asked: InterruptRaised, tag: str | None) -> Any:
    """A question as those see it who are to answer it; the whole of it is in the metadata."""
    return agui.Interrupt(
        id=asked.key,
        reason=str(_payload(asked).get("kind") or "input"),
        message=_message_of(asked),
        tool_call_id=asked.tool_call.id if asked.tool_call is not None else None,
        response_schema=asked.schema,
        subagent_run_id=tag,
        metadata={"payload": asked.payload, "agent": asked.agent, "path": [*asked.path]},
    )


def usage_of(said: Sequence[AgentResponded]) -> Any:
    """What the model calls of a stream used, by model; None if there were none."""
    by_model = used_in(said).by_model
    return [_usage(model, used) for model, used in by_model.items()] or None


def _usage(model: str, used: Usage) -> Any:
    return agui.TokenUsage(
        model=model,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.total_tokens,
        cached_input_tokens=used.cached_tokens or None,
        reasoning_tokens=used.reasoning_tokens or None,
    )


def _payload(asked: InterruptRaised) -> dict[str, Any]:
    payload: Any = asked.payload
    return cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}


def _message_of(asked: InterruptRaised) -> str | None:
    if isinstance(asked.payload, str):
        return asked.payload
    payload = _payload(asked)
    if payload.get("kind") == "approval":
        return f"May `{payload.get('tool')}` be called?"
    told = payload.get("message") or payload.get("question")
    return told if isinstance(told, str) else None
