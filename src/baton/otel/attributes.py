"""Attributes of spans: OpenTelemetry's GenAI conventions, and `baton.…` for the rest."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..events import AgentResponded, ControlTransferred, InterruptRaised, ToolReturned
from ..messages import AssistantMessage, Content, Message, ToolCall, ToolMessage, text_of

Attributes = dict[str, str | bool | int | float | Sequence[str]]


def run_attributes(run_id: str, conversation: str, root: str, messages: Sequence[Message] = ()) -> Attributes:
    """Return the attributes of a run; `messages` is its input, if content is included."""
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": root,
        "gen_ai.conversation.id": conversation,
        "baton.run.id": run_id,
    }
    if messages:
        attributes["gen_ai.input.messages"] = _json([_message(message) for message in messages])
    return attributes


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
    }
    if response.stop_reason:
        attributes["gen_ai.response.finish_reasons"] = [response.stop_reason]
    usage = response.usage
    if usage is not None:
        attributes["gen_ai.usage.input_tokens"] = usage.input_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.output_tokens
        if usage.cached_tokens:
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        if usage.reasoning_tokens:
            attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
        if usage.cost:
            attributes["baton.usage.cost"] = usage.cost
    if include_content:
        attributes["gen_ai.output.messages"] = _json(
            [_message(response.message) | {"finish_reason": response.stop_reason}]
        )
    return attributes


def tool_call_attributes(call: ToolCall, agent: str, *, include_content: bool) -> Attributes:
    """Return the attributes of a tool call that has started."""
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": agent,
    }
    if include_content:
        attributes["gen_ai.tool.call.arguments"] = call.arguments
    return attributes


def tool_result_attributes(returned: ToolReturned, *, include_content: bool) -> Attributes:
    """Return the attributes that a tool's result adds."""
    attributes: Attributes = {"error.type": "tool_error"} if returned.is_error else {}
    if include_content:
        attributes["gen_ai.tool.call.result"] = text_of(returned.content)
    return attributes


def handoff_attributes(source: str, requested: Sequence[str]) -> Attributes:
    """Return the attributes of a handoff, with all targets that one response requested."""
    return {"baton.handoff.source": source, "baton.handoff.requested": [*requested]}


def transfer_attributes(transferred: ControlTransferred, *, include_content: bool) -> Attributes:
    """Return the attributes that a followed handoff adds."""
    attributes: Attributes = {"baton.handoff.target": transferred.target}
    if transferred.call_id is not None:
        attributes["gen_ai.tool.call.id"] = transferred.call_id
    if transferred.reason:
        attributes["baton.handoff.reason"] = transferred.reason
    if include_content and transferred.payload is not None:
        attributes["baton.handoff.payload"] = _json(transferred.payload)
    return attributes


def interrupt_attributes(interrupt: InterruptRaised, *, include_content: bool) -> Attributes:
    """Return the attributes of an interrupt."""
    attributes: Attributes = {"baton.interrupt.id": interrupt.key}
    if interrupt.tool_call is not None:
        attributes["gen_ai.tool.name"] = interrupt.tool_call.name
        attributes["gen_ai.tool.call.id"] = interrupt.tool_call.id
    if include_content:
        attributes["baton.interrupt.payload"] = _json(interrupt.payload)
    return attributes


def answer_attributes(interrupt_id: str, answer: Any, *, include_content: bool) -> Attributes:
    """Return the attributes of an answer to an interrupt."""
    attributes: Attributes = {"baton.interrupt.id": interrupt_id}
    if include_content:
        attributes["baton.interrupt.answer"] = _json(answer)
    return attributes


def _message(message: Message) -> dict[str, Any]:
    """Encode a message as the conventions do: a role and parts."""
    if isinstance(message, ToolMessage):
        result = {"type": "tool_call_response", "id": message.tool_call_id, "response": text_of(message.content)}
        return {"role": "tool", "parts": [result]}
    parts = _parts(message.content)
    if isinstance(message, AssistantMessage):
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    return {"role": type(message).__struct_config__.tag, "parts": parts}


def _parts(content: Content) -> list[dict[str, Any]]:
    text = text_of(content)
    return [{"type": "text", "content": text}] if text else []


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
