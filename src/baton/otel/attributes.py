"""What stands on spans: the names of OpenTelemetry's conventions for generative AI, and `baton.…` for the rest."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..events import AgentResponded, ControlTransferred, InterruptRaised, ToolReturned
from ..messages import AssistantMessage, Content, Message, ToolCall, ToolMessage, text_of

Attributes = dict[str, str | bool | int | float | Sequence[str]]


def of_run(run_id: str, conversation: str, root: str, messages: Sequence[Message] = ()) -> Attributes:
    """For a run. `messages` is its input, if that may be shown."""
    found: Attributes = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": root,
        "gen_ai.conversation.id": conversation,
        "baton.run.id": run_id,
    }
    if messages:
        found["gen_ai.input.messages"] = _json([_message(message) for message in messages])
    return found


def of_activation(conversation: str, agent: str, id: str) -> Attributes:
    """For an agent that has the floor."""
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": conversation,
        "baton.activation.id": id,
    }


def of_model_call(conversation: str, said: AgentResponded, *, content: bool) -> Attributes:
    """For a model call."""
    found: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": said.model,
        "gen_ai.response.model": said.model,
        "gen_ai.agent.name": said.agent,
        "gen_ai.conversation.id": conversation,
    }
    if said.stop_reason:
        found["gen_ai.response.finish_reasons"] = [said.stop_reason]
    usage = said.usage
    if usage is not None:
        found["gen_ai.usage.input_tokens"] = usage.input_tokens
        found["gen_ai.usage.output_tokens"] = usage.output_tokens
        if usage.cached_tokens:
            found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        if usage.reasoning_tokens:
            found["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
        if usage.cost:
            found["baton.usage.cost"] = usage.cost
    if content:
        found["gen_ai.output.messages"] = _json([_message(said.message) | {"finish_reason": said.stop_reason}])
    return found


def of_tool_call(call: ToolCall, agent: str, *, content: bool) -> Attributes:
    """For a tool call that has begun."""
    found: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": agent,
    }
    if content:
        found["gen_ai.tool.call.arguments"] = call.arguments
    return found


def of_tool_result(returned: ToolReturned, *, content: bool) -> Attributes:
    """What its result adds to that."""
    found: Attributes = {"error.type": "tool_error"} if returned.is_error else {}
    if content:
        found["gen_ai.tool.call.result"] = text_of(returned.content)
    return found


def of_handoff(source: str, requested: Sequence[str]) -> Attributes:
    """For a handoff: all targets that one response asked for, in the order of its calls."""
    return {"baton.handoff.source": source, "baton.handoff.requested": [*requested]}


def of_transfer(transferred: ControlTransferred, *, content: bool) -> Attributes:
    """What is added to that when a handoff is followed."""
    found: Attributes = {"baton.handoff.target": transferred.target}
    if transferred.call_id is not None:
        found["gen_ai.tool.call.id"] = transferred.call_id
    if transferred.reason:
        found["baton.handoff.reason"] = transferred.reason
    if content and transferred.payload is not None:
        found["baton.handoff.payload"] = _json(transferred.payload)
    return found


def of_interrupt(asked: InterruptRaised, *, content: bool) -> Attributes:
    """For a question to the outside."""
    found: Attributes = {"baton.interrupt.id": asked.key}
    if asked.tool_call is not None:
        found["gen_ai.tool.name"] = asked.tool_call.name
        found["gen_ai.tool.call.id"] = asked.tool_call.id
    if content:
        found["baton.interrupt.payload"] = _json(asked.payload)
    return found


def of_answer(id: str, answer: Any, *, content: bool) -> Attributes:
    """For the answer to one."""
    found: Attributes = {"baton.interrupt.id": id}
    if content:
        found["baton.interrupt.answer"] = _json(answer)
    return found


def _message(message: Message) -> dict[str, Any]:
    """A message as the conventions write it: a role, and parts."""
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
