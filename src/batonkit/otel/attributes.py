"""Attributes of spans: OpenTelemetry's GenAI conventions, and `baton.…` for the rest.

`ATTRIBUTES` describes every attribute; the table in the documentation is made of it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from logging import getLogger
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from ..log import (
    AgentResponded,
    ControlTransferred,
    HistoryCompacted,
    InterruptAnswered,
    InterruptRaised,
    RunStarted,
    TaskEnded,
    TaskOpened,
    ToolReturned,
)
from ..messages import (
    AssistantMessage,
    Audio,
    Image,
    Media,
    Message,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    media_of,
    text_of,
)
from ..models import ModelRequest, ModelResponse, ModelSettings

_logger = getLogger("baton.otel")

Attributes: TypeAlias = dict[str, str | bool | int | float | Sequence[str] | None]
"""Attributes by name; those that do not apply are None."""
Redact: TypeAlias = Callable[[str, Any], Any]
"""Returns what to record of the content of an attribute, given its name and value, as JSON data; None for nothing."""

CONTENT_ENV_VAR = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that turns content on for all instrumentations."""
_CONTENT_VALUES = ("true", "1", "span_only", "span_and_event")

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions."""


class AttributeInfo(NamedTuple):
    """The spans that have an attribute, and its meaning."""

    spans: str
    description: str
    is_content: bool = False


_ALL = "all"
_CHAIN = "CHAIN"
"""The kind of runs and handoffs in OpenInference: steps that are no agent, model or tool."""
ATTRIBUTES: Mapping[str, AttributeInfo] = {
    "gen_ai.operation.name": AttributeInfo("all but handoffs", "the kind of the span"),
    "gen_ai.conversation.id": AttributeInfo(_ALL, "the thread, or the run if it has none"),
    "gen_ai.workflow.name": AttributeInfo("run", "the root agent"),
    "gen_ai.agent.name": AttributeInfo("agent, chat, tool, handoff", "the agent"),
    "gen_ai.agent.id": AttributeInfo("agent", "the root agent and the agent"),
    "gen_ai.agent.description": AttributeInfo("agent", "the description of the agent"),
    "gen_ai.agent.version": AttributeInfo("agent", "a hash of the agent's part of the team's fingerprint"),
    "gen_ai.provider.name": AttributeInfo("agent, chat", "the provider of the model"),
    "gen_ai.request.model": AttributeInfo("agent, chat", "the model that was called"),
    "gen_ai.request.stream": AttributeInfo("chat", "true if the response was streamed"),
    "gen_ai.request.temperature": AttributeInfo("chat", "the setting, if it was given"),
    "gen_ai.request.top_p": AttributeInfo("chat", "the setting, if it was given"),
    "gen_ai.request.top_k": AttributeInfo("chat", "the setting, if it was given"),
    "gen_ai.request.max_tokens": AttributeInfo("chat", "the setting, if it was given"),
    "gen_ai.request.presence_penalty": AttributeInfo("chat", "the setting, if it was given"),
    "gen_ai.request.frequency_penalty": AttributeInfo("chat", "the setting, if it was given"),
    "gen_ai.request.stop_sequences": AttributeInfo("chat", "the setting, if it was given"),
    "gen_ai.request.seed": AttributeInfo("chat", "the setting, if it was given"),
    "gen_ai.output.type": AttributeInfo("chat", "`json` if the answer must match a schema"),
    "gen_ai.response.model": AttributeInfo("chat", "the model that answered"),
    "gen_ai.response.id": AttributeInfo("chat", "the provider's id of the response"),
    "gen_ai.response.finish_reasons": AttributeInfo("chat", "the reason for the end of the response"),
    "gen_ai.response.time_to_first_chunk": AttributeInfo("chat", "seconds, if the response was streamed"),
    "gen_ai.usage.input_tokens": AttributeInfo("run, agent, chat", "tokens; sums on agents and runs"),
    "gen_ai.usage.output_tokens": AttributeInfo("run, agent, chat", "tokens; sums on agents and runs"),
    "gen_ai.usage.cache_read.input_tokens": AttributeInfo("run, agent, chat", "input tokens read from the cache"),
    "gen_ai.usage.cache_creation.input_tokens": AttributeInfo("run, agent, chat", "input tokens written to the cache"),
    "gen_ai.usage.reasoning.output_tokens": AttributeInfo("run, agent, chat", "output tokens spent on reasoning"),
    "gen_ai.tool.name": AttributeInfo("tool", "the tool"),
    "gen_ai.tool.type": AttributeInfo("tool", "`function`"),
    "gen_ai.tool.description": AttributeInfo("tool", "the description of the tool"),
    "gen_ai.tool.call.id": AttributeInfo("tool", "the id of the call"),
    "gen_ai.input.messages": AttributeInfo("run, chat", "the input of the run; the messages of the request", True),
    "gen_ai.output.messages": AttributeInfo("run, chat", "the output of the run; the response", True),
    "gen_ai.system_instructions": AttributeInfo("chat", "the instructions", True),
    "gen_ai.tool.definitions": AttributeInfo("chat", "the tools that the model may call", True),
    "gen_ai.tool.call.arguments": AttributeInfo("tool", "the arguments of the call", True),
    "gen_ai.tool.call.result": AttributeInfo("tool", "the result of the call", True),
    "input.value": AttributeInfo("run", "the text of the input, by its name in OpenInference", True),
    "output.value": AttributeInfo("run", "the text of the output, by its name in OpenInference", True),
    "openinference.span.kind": AttributeInfo("run, handoff", "`CHAIN`, for which the conventions have no word"),
    "user.id": AttributeInfo("run", "the owner of the run"),
    "error.type": AttributeInfo(_ALL, "the class of the error, `tool_error` or `not_followed`"),
    "baton.run.id": AttributeInfo("run", "the run"),
    "baton.run.status": AttributeInfo("run", "`completed`, `suspended`, `failed` or `cancelled`"),
    "baton.activation.id": AttributeInfo("agent", "the activation"),
    "baton.unfinished": AttributeInfo("agent, tool", "true if it was stopped from outside"),
    "baton.usage.cost": AttributeInfo("run, agent, chat", "the cost in US dollars; sums on agents and runs"),
    "baton.usage.unpriced_calls": AttributeInfo("run, agent, chat", "model calls whose price is unknown"),
    "baton.handoff.source": AttributeInfo("handoff", "the agent that hands over"),
    "baton.handoff.target": AttributeInfo("handoff", "the agent that takes over, if the transfer is followed"),
    "baton.handoff.requested": AttributeInfo("handoff", "the targets that the response asked for, in order"),
    "baton.handoff.call.id": AttributeInfo("handoff", "the id of the call that asked for the transfer"),
    "baton.handoff.reason": AttributeInfo("handoff", "`returned` or `loop`, if no call asked for the transfer"),
    "baton.handoff.payload": AttributeInfo("handoff", "the input of the handoff", True),
}
"""Every attribute of a span, in the order of the documentation."""

_PROVIDERS = {
    "openai-responses": "openai",
    "azure": "azure.ai.openai",
    "google": "gcp.gemini",
    "gemini": "gcp.gemini",
    "vertex_ai": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Prefixes of model names that the conventions call by another name."""


_NO_SETTINGS = ModelSettings()
_SETTINGS = tuple(
    (name, f"gen_ai.request.{name}")
    for name in ModelSettings.__struct_fields__
    if f"gen_ai.request.{name}" in ATTRIBUTES
)


class ContentPolicy:
    """Decides which content is recorded, and encodes it."""

    def __init__(self, is_on: bool | None, redact: Redact | None) -> None:
        if is_on is None:
            is_on = os.environ.get(CONTENT_ENV_VAR, "").strip().lower() in _CONTENT_VALUES
        self.is_on = is_on
        self._redact = redact

    def get(self, name: str, make: Callable[[], Any]) -> str | None:
        """Return the content of an attribute as text; None if it is not recorded."""
        if not self.is_on:
            return None
        value = make()
        if self._redact is not None:
            try:
                value = self._redact(name, value)
            except Exception:
                # The content must not be recorded, and a run does not depend on its observers.
                _logger.exception("redact failed for `%s`; it is not recorded", name)
                return None
        return None if value is None else _to_text(value)


class RunIdentity(Struct, frozen=True):
    """The attributes that the spans of one run share."""

    run_id: str = ""
    root: str = ""
    conversation: str = ""
    fingerprint: Mapping[str, str] = {}
    owner: str = ""

    @staticmethod
    def of(started: RunStarted) -> "RunIdentity":
        """Return the identity of the run that an event starts."""
        # A run of a thread starts with its active agent; the fingerprint begins with the root of the team.
        root = next(iter(started.team_fingerprint), started.root_agent)
        conversation = started.thread or started.run_id
        return RunIdentity(started.run_id, root, conversation, started.team_fingerprint, started.owner)

    def agent(self, name: str) -> Attributes:
        """Return the attributes of a span that belongs to an agent."""
        return {
            "gen_ai.conversation.id": self.conversation,
            "gen_ai.agent.name": name,
        }


@lru_cache(1024)
def split_model(name: str) -> tuple[str | None, str]:
    """Return the provider, as the conventions call it, and the name of a model."""
    prefix, colon, rest = name.partition(":")
    if not colon:
        return None, name
    if prefix == "litellm" and "/" in rest:
        prefix, _, rest = rest.partition("/")
    return _PROVIDERS.get(prefix, prefix), rest


def run_attributes(run: RunIdentity, messages: Sequence[Message], content: ContentPolicy) -> Attributes:
    """Return the attributes of a run; `messages` is its input."""
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": run.root,
        "gen_ai.conversation.id": run.conversation,
        "openinference.span.kind": _CHAIN,
        "user.id": run.owner or None,
        "baton.run.id": run.run_id,
    }
    if messages and content.is_on:
        attributes["gen_ai.input.messages"] = content.get("gen_ai.input.messages", lambda: to_plain(messages))
        text = "\n".join(filter(None, [text_of(message.content) for message in messages]))
        attributes["input.value"] = content.get("input.value", lambda: text)
    return attributes


def output_attributes(output: Any, content: ContentPolicy) -> Attributes:
    """Return the attributes that the output of a run adds."""
    if output is None or not content.is_on:
        return {}
    text = _to_text(output if isinstance(output, str) else _to_builtins(output))
    return {
        "gen_ai.output.messages": content.get(
            "gen_ai.output.messages",
            lambda: [{"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": "stop"}],
        ),
        "output.value": content.get("output.value", lambda: text),
    }


def activation_attributes(run: RunIdentity, agent: str, activation_id: str, description: str = "") -> Attributes:
    """Return the attributes of an activation."""
    return {
        "gen_ai.operation.name": "invoke_agent",
        **run.agent(agent),
        "gen_ai.agent.id": agent if agent == run.root else f"{run.root}/{agent}",
        "gen_ai.agent.description": description or None,
        "gen_ai.agent.version": _version(run.fingerprint[agent]) if agent in run.fingerprint else None,
        "baton.activation.id": activation_id,
    }


@lru_cache(1024)
def _version(fingerprint: str) -> str:
    return sha256(fingerprint.encode()).hexdigest()[:12]


def request_attributes(
    run: RunIdentity, agent: str, model: str, request: ModelRequest, content: ContentPolicy
) -> Attributes:
    """Return the attributes of a model call that starts."""
    provider, name = split_model(model)
    settings = request.settings
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": run.conversation,
        "gen_ai.agent.name": agent,
        "gen_ai.provider.name": provider or name,
        "gen_ai.request.model": name,
    }
    if request.stream:
        attributes["gen_ai.request.stream"] = True
    if settings != _NO_SETTINGS:
        attributes |= {attribute: getattr(settings, setting) for setting, attribute in _SETTINGS}
    if request.output_schema is not None:
        attributes["gen_ai.output.type"] = "json"
    if content.is_on:
        attributes |= _request_content(request, content)
    return attributes


def _request_content(request: ModelRequest, content: ContentPolicy) -> Attributes:
    messages = content.get("gen_ai.input.messages", lambda: to_plain(request.messages))
    attributes: Attributes = {"gen_ai.input.messages": messages}
    if request.instructions:
        attributes["gen_ai.system_instructions"] = content.get(
            "gen_ai.system_instructions", lambda: [{"type": "text", "content": request.instructions}]
        )
    if request.tools:
        attributes["gen_ai.tool.definitions"] = content.get(
            "gen_ai.tool.definitions", lambda: [_tool_definition(tool) for tool in request.tools]
        )
    return attributes


def _tool_definition(tool: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}


def response_attributes(response: ModelResponse, called: str, content: ContentPolicy) -> Attributes:
    """Return the attributes that a response adds; `called` is the model that was called."""
    attributes: Attributes = {"gen_ai.response.model": split_model(response.model or called)[1]}
    if response.id:
        attributes["gen_ai.response.id"] = response.id
    if response.stop_reason:
        attributes["gen_ai.response.finish_reasons"] = [response.stop_reason]
    if response.usage is not None:
        attributes |= usage_attributes(response.usage)
    if response.message is not None and content.is_on:
        attributes |= _output(response.message, response.stop_reason, content)
    return attributes


def recorded_response_attributes(run: RunIdentity, response: AgentResponded, content: ContentPolicy) -> Attributes:
    """Return the attributes of a model call of which only the recorded response is known."""
    provider, name = split_model(response.model)
    return {
        "gen_ai.operation.name": "chat",
        **run.agent(response.agent),
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": name,
        "gen_ai.response.model": name,
        "gen_ai.response.id": response.response_id or None,
        "gen_ai.response.finish_reasons": [response.stop_reason] if response.stop_reason else None,
        **usage_attributes(response.usage),
        **_output(response.message, response.stop_reason, content),
    }


def _output(message: AssistantMessage, reason: str, content: ContentPolicy) -> Attributes:
    if not content.is_on:
        return {}
    messages = [{**_message(message), "finish_reason": reason or "stop"}]
    return {"gen_ai.output.messages": content.get("gen_ai.output.messages", lambda: messages)}


def usage_attributes(usage: Usage | None) -> Attributes:
    """Return the attributes of the usage of a model call, or of several."""
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
        "baton.usage.cost": usage.cost or None,
        "baton.usage.unpriced_calls": usage.unpriced_calls or None,
    }


def tool_call_attributes(
    run: RunIdentity, call: ToolCall, agent: str, content: ContentPolicy, description: str = ""
) -> Attributes:
    """Return the attributes of a tool call that has started."""
    return {
        "gen_ai.operation.name": "execute_tool",
        **run.agent(agent),
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": description or None,
        "gen_ai.tool.call.arguments": content.get("gen_ai.tool.call.arguments", lambda: _parsed(call.arguments)),
    }


def tool_result_attributes(returned: ToolReturned, content: ContentPolicy) -> Attributes:
    """Return the attributes that a tool's result adds."""
    return {
        "gen_ai.tool.call.result": content.get("gen_ai.tool.call.result", lambda: text_of(returned.content)),
    }


def handoff_attributes(
    run: RunIdentity,
    source: str,
    requested: Sequence[str],
    content: ContentPolicy,
    transferred: ControlTransferred | None = None,
) -> Attributes:
    """Return the attributes of a handoff.

    The conventions have none yet: all of them are made here.
    """
    attributes: Attributes = {
        **run.agent(source),
        "openinference.span.kind": _CHAIN,
        "baton.handoff.source": source,
        "baton.handoff.requested": [*requested],
    }
    if transferred is None:
        return {**attributes, "error.type": "not_followed"}
    payload = transferred.payload
    return {
        **attributes,
        "baton.handoff.target": transferred.target,
        "baton.handoff.call.id": transferred.call_id,
        "baton.handoff.reason": transferred.reason or None,
        "baton.handoff.payload": None if payload is None else content.get("baton.handoff.payload", lambda: payload),
    }


def task_attributes(event: TaskOpened | TaskEnded, content: ContentPolicy) -> Attributes:
    """Return the attributes of a task that was opened or has ended."""
    task = event.task
    attributes: Attributes = {
        "baton.task.agent": task.agent,
        "baton.task.caller": task.caller,
        "gen_ai.tool.call.id": task.call_id,
    }
    if isinstance(event, TaskEnded):
        attributes["baton.task.outcome"] = event.outcome
        if event.outcome == "finished":
            attributes["baton.task.result"] = content.get("baton.task.result", lambda: event.result)
        if event.reason:
            attributes["baton.task.reason"] = content.get("baton.task.reason", lambda: event.reason)
    return attributes


def interrupt_attributes(interrupt: InterruptRaised, content: ContentPolicy) -> Attributes:
    """Return the attributes of an interrupt."""
    call = interrupt.tool_call
    return {
        "baton.interrupt.id": interrupt.key,
        "gen_ai.tool.name": None if call is None else call.name,
        "gen_ai.tool.call.id": None if call is None else call.id,
        "baton.interrupt.payload": content.get("baton.interrupt.payload", lambda: interrupt.payload),
    }


def compaction_attributes(compacted: HistoryCompacted, content: ContentPolicy) -> Attributes:
    """Return the attributes of a history that a summary replaced."""
    return {
        "baton.compaction.upto": f"{compacted.upto.run_id}:{compacted.upto.key}",
        "gen_ai.request.model": split_model(compacted.model)[1] or None,
        **usage_attributes(compacted.usage),
        "baton.compaction.summary": content.get("baton.compaction.summary", lambda: compacted.text),
    }


def answer_attributes(answered: InterruptAnswered, content: ContentPolicy) -> Attributes:
    """Return the attributes of an answer to an interrupt."""
    answer = content.get("baton.interrupt.answer", lambda: answered.answer)
    return {"baton.interrupt.id": answered.interrupt_id, "baton.interrupt.answer": answer}


def present(attributes: Attributes) -> Mapping[str, Any]:
    """Return the attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def to_plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages in the format of the conventions, without binary content."""
    return [_message(message) for message in messages]


def _message(message: Message) -> dict[str, Any]:
    """Encode a message as the conventions do: a role and parts."""
    if isinstance(message, ToolMessage):
        result = {"type": "tool_call_response", "id": message.tool_call_id, "response": text_of(message.content)}
        return {"role": "tool", "parts": [result]}
    text = text_of(message.content)
    parts = list[dict[str, Any]]()
    if isinstance(message, AssistantMessage):
        parts += [{"type": "reasoning", "content": each.text} for each in message.reasoning if each.text]
    if text:
        parts.append({"type": "text", "content": text})
    parts += [_media(part) for part in media_of(message.content) if isinstance(part, Media)]
    if isinstance(message, AssistantMessage):
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _parsed(call.arguments)}
            for call in message.tool_calls
        ]
    return {"role": type(message).__struct_config__.tag, "parts": parts}


def _media(part: Media) -> dict[str, Any]:
    modality = "image" if isinstance(part, Image) else "audio" if isinstance(part, Audio) else "file"
    fields = {"modality": modality, "mime_type": getattr(part, "media_type", None)}
    if part.url is not None and not part.url.startswith("data:"):
        return {"type": "uri", "uri": part.url, **fields}
    return {"type": "blob", "content": "", **fields}


def _parsed(arguments: str) -> Any:
    """Return the arguments of a call as data; those that cannot be decoded as text."""
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


def _to_text(content: Any) -> str:
    """Encode content as JSON unless it is text, and escape lone surrogates."""
    # Neither msgspec nor the exporters encode them.
    if isinstance(content, str):
        return content.encode(errors="backslashreplace").decode()
    try:
        return msgspec.json.encode(content, enc_hook=repr).decode()
    except UnicodeEncodeError:
        return json.dumps(content, default=repr)


def _to_builtins(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else msgspec.to_builtins(value, enc_hook=repr)
