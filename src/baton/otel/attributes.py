"""Attributes of spans: OpenTelemetry's GenAI conventions, and `baton.…` for the rest."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ..events import (
    AgentResponded,
    ControlTransferred,
    HistoryCompacted,
    InterruptAnswered,
    InterruptRaised,
    TaskEnded,
    TaskOpened,
    ToolReturned,
)
from ..messages import AssistantMessage, Message, ToolCall, ToolMessage, text_of

Attributes: TypeAlias = dict[str, str | bool | int | float | Sequence[str] | None]
"""Attributes by name; those that do not apply are None."""


def run_attributes(run_id: str, conversation: str, root: str, messages: Sequence[Message] = ()) -> Attributes:
    """Return the attributes of a run; `messages` is its input, if content is included."""
    return {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": root,
        "gen_ai.conversation.id": conversation,
        "baton.run.id": run_id,
        "gen_ai.input.messages": _json([_message(message) for message in messages]) if messages else None,
    }


def activation_attributes(conversation: str, agent: str, activation_id: str) -> Attributes:
    """Return the attributes of an activation."""
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": conversation,
        "baton.activation.id": activation_id,
    }


def model_call_attributes(conversation: str, response: AgentResponded, *, include_content: bool) -> Attributes:
    """Return the attributes of a model call."""
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": response.model,
        "gen_ai.response.model": response.model,
        "gen_ai.agent.name": response.agent,
        "gen_ai.conversation.id": conversation,
        "gen_ai.response.finish_reasons": [response.stop_reason] if response.stop_reason else None,
    }
    usage = response.usage
    if usage is not None:
        attributes |= {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
            "baton.usage.cost": usage.cost or None,
        }
    if include_content:
        output = [_message(response.message) | {"finish_reason": response.stop_reason}]
        attributes["gen_ai.output.messages"] = _json(output)
    return attributes


def tool_call_attributes(call: ToolCall, agent: str, *, include_content: bool) -> Attributes:
    """Return the attributes of a tool call that has started."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": agent,
        "gen_ai.tool.call.arguments": call.arguments if include_content else None,
    }


def tool_result_attributes(returned: ToolReturned, *, include_content: bool) -> Attributes:
    """Return the attributes that a tool's result adds."""
    return {
        "error.type": "tool_error" if returned.is_error else None,
        "gen_ai.tool.call.result": text_of(returned.content) if include_content else None,
    }


def handoff_attributes(source: str, requested: Sequence[str]) -> Attributes:
    """Return the attributes of a handoff, with all targets that one response requested."""
    return {"baton.handoff.source": source, "baton.handoff.requested": [*requested]}


def transfer_attributes(transferred: ControlTransferred, *, include_content: bool) -> Attributes:
    """Return the attributes that a followed handoff adds."""
    payload = transferred.payload if include_content else None
    return {
        "baton.handoff.target": transferred.target,
        "gen_ai.tool.call.id": transferred.call_id,
        "baton.handoff.reason": transferred.reason or None,
        "baton.handoff.payload": None if payload is None else _json(payload),
    }


def task_attributes(event: TaskOpened | TaskEnded, *, include_content: bool) -> Attributes:
    """Return the attributes of a task that was opened or has ended."""
    task = event.task
    found: Attributes = {
        "baton.task.agent": task.agent,
        "baton.task.caller": task.caller,
        "gen_ai.tool.call.id": task.call_id,
    }
    if isinstance(event, TaskEnded):
        has_result = include_content and event.outcome == "finished"
        found["baton.task.outcome"] = event.outcome
        found["baton.task.result"] = _json(event.result) if has_result else None
        found["baton.task.reason"] = (event.reason or None) if include_content else None
    return found


def interrupt_attributes(interrupt: InterruptRaised, *, include_content: bool) -> Attributes:
    """Return the attributes of an interrupt."""
    call = interrupt.tool_call
    return {
        "baton.interrupt.id": interrupt.key,
        "gen_ai.tool.name": None if call is None else call.name,
        "gen_ai.tool.call.id": None if call is None else call.id,
        "baton.interrupt.payload": _json(interrupt.payload) if include_content else None,
    }


def compaction_attributes(compacted: HistoryCompacted, *, include_content: bool) -> Attributes:
    """Return the attributes of a history that was replaced by a summary."""
    usage = compacted.usage
    return {
        "baton.compaction.upto": f"{compacted.upto.run_id}:{compacted.upto.key}",
        "gen_ai.request.model": compacted.model or None,
        "gen_ai.usage.input_tokens": None if usage is None else usage.input_tokens,
        "gen_ai.usage.output_tokens": None if usage is None else usage.output_tokens,
        "baton.usage.cost": None if usage is None else usage.cost or None,
        "baton.compaction.summary": compacted.text if include_content else None,
    }


def answer_attributes(answered: InterruptAnswered, *, include_content: bool) -> Attributes:
    """Return the attributes of an answer to an interrupt."""
    answer = _json(answered.answer) if include_content else None
    return {"baton.interrupt.id": answered.interrupt_id, "baton.interrupt.answer": answer}


def present(attributes: Attributes) -> Mapping[str, Any]:
    """Return the attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def _message(message: Message) -> dict[str, Any]:
    """Encode a message as the conventions do: a role and parts."""
    if isinstance(message, ToolMessage):
        result = {"type": "tool_call_response", "id": message.tool_call_id, "response": text_of(message.content)}
        return {"role": "tool", "parts": [result]}
    text = text_of(message.content)
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    if isinstance(message, AssistantMessage):
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    return {"role": type(message).__struct_config__.tag, "parts": parts}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
