"""Translation of a run's events to chunks of a UI message stream.

A run is one message of the assistant, also if it is suspended and resumed: every stream of the run continues the
message or repeats it from its beginning. Agents that run as tools are not shown, except for their questions.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

from ... import log as events
from ...log import keys
from ...log.events import payload_fields, to_interrupt
from ...messages import Audio, Content, File, Image, Part, ToolCall, media_of, text_of
from ...models.encoding import as_data_url
from ...runs import usage_from_events
from ..frontend_tools import is_frontend_call
from ..http.message_parts import (
    CallWritten,
    MessageParts,
    PartClosed,
    PartExtended,
    PartOpened,
    PartsDiscarded,
    PartUpdate,
)
from ..http.questions import is_approval, question_text
from .chat_requests import question_id

Chunk: TypeAlias = dict[str, Any]
Chunks: TypeAlias = Iterator[Chunk]


class ChunkTranslator:
    """The translator of one stream of one run.

    Args:
        run_id: The run, as the client knows it.
        past: The events that the client's message has.
        transfer_tools: The names of the tools that hand control over or end a task. Their calls are shown if they
            are refused or need approval: a call that waits for others would keep clients from sending approvals.
        show_errors: Whether the client may read the message of the exception that failed the run.
    """

    def __init__(
        self, *, run_id: str, past: Sequence[events.Event], transfer_tools: Collection[str], show_errors: bool
    ) -> None:
        self._run_id = run_id
        self._transfer_tools = transfer_tools
        self._show_errors = show_errors
        self._parts = MessageParts(run_id)
        self._has_step = False
        self._next_starts_step = True
        """True if the next response begins a step; the results of calls are in the step of their response."""
        self._shown_calls: set[str] = set()
        self._hidden_calls: dict[str, ToolCall] = {}
        self._approved_calls: set[str] = set()
        self._denied_calls: set[str] = set()
        self._open: dict[str, events.InterruptRaised] = {}
        self._model_events: list[events.Event] = []
        self._finish_reason = "stop"
        self._stop: events.Event | None = None
        """The event with which the run stopped, if it has not been resumed since."""
        for event in past:
            for _ in self.translate(event):
                pass
        self._stop = None
        self._has_step = False

    @property
    def has_stopped(self) -> bool:
        """True once the run has stopped."""
        return self._stop is not None

    def start(self) -> Chunk:
        """Return the first chunk of the stream."""
        return {"type": "start", "messageId": self._run_id}

    def finish(self) -> Chunks:
        """Return the last chunks of the stream."""
        for activation in self._parts.open_activations():
            for update in self._parts.close(activation):
                yield from self._update(update, "", ())
        if self._has_step:
            yield {"type": "finish-step"}
        yield self._last_chunk()

    def translate(self, item: events.Event | events.Delta) -> Chunks:
        """Translate one event or delta."""
        if isinstance(item, events.Delta):
            return self._translate_delta(item)
        if type(item) in _SILENT_EVENTS:
            return iter(())
        return self._translate_event(item)

    def _translate_delta(self, delta: events.Delta) -> Chunks:
        match delta:
            case events.TextDelta() | events.ReasoningDelta() | events.ResponseRestarted():
                yield from self._message(delta)
            case events.ProgressDelta():
                data = {"text": delta.text, "done": delta.done, "total": delta.total, "toolCallId": delta.call_id}
                yield {"type": "data-progress", "data": data, "transient": True}
            case events.CustomDelta():
                yield {"type": f"data-{delta.name}", "data": delta.data, "transient": True}
            case events.ToolCallDelta():
                pass  # The id of a call is known when the response is complete.
            case _:
                raise TypeError(f"the AI SDK translation has no case for {type(delta).__name__}")

    def _translate_event(self, event: events.Event) -> Chunks:
        match event:
            case events.AgentResponded():
                yield from self._response(event)
            case events.HistoryCompacted():
                self._model_events.append(event)
            case events.AgentFinished():
                yield from self._message(event)
            case events.ToolReturned():
                yield from self._returned(event)
            case events.ControlTransferred():
                if not keys.is_in_call(event.origin.id):
                    data = {"from": event.source, "to": event.target}
                    yield {"type": "data-handoff", "id": f"{self._run_id}:{event.key}", "data": data}
            case events.InterruptRaised():
                yield from self._raised(event)
            case events.InterruptAnswered():
                yield from self._answered(event)
            case events.RunCompleted() | events.RunSuspended() | events.RunCancelled() | events.RunFailed():
                self._stop = event
                self._next_starts_step = True
            case events.RunResumed():
                self._stop = None
            case _:
                raise TypeError(f"the AI SDK translation has no case for {type(event).__name__}")

    def _message(self, item: events.Event | events.Delta) -> Chunks:
        """Translate the text, reasoning and calls of a response."""
        if keys.is_in_call(item.origin.id):
            return
        # The end of a step would close the texts of other branches.
        starts_step = self._next_starts_step and not self._parts.open_activations()
        updates = [*self._parts.update(item)]
        if starts_step and (updates or isinstance(item, events.AgentResponded)):
            yield from self._start_step()
        discarded = [id for update in updates if isinstance(update, PartsDiscarded) for id in update.ids]
        for update in updates:
            yield from self._update(update, item.agent, discarded)

    def _update(self, update: PartUpdate, agent: str, discarded: Collection[str]) -> Chunks:
        match update:
            case PartOpened():
                yield {"type": f"{update.kind}-start", "id": update.id, "providerMetadata": _metadata(agent=agent)}
            case PartExtended():
                yield {"type": f"{update.kind}-delta", "id": update.id, "delta": update.text}
            case PartClosed():
                # Parts of a message cannot be removed.
                is_discarded = update.id in discarded
                metadata = {"providerMetadata": _metadata(agent=agent, discarded=True)} if is_discarded else {}
                yield {"type": f"{update.kind}-end", "id": update.id, **metadata}
            case PartsDiscarded():
                pass
            case CallWritten():
                if update.call.name in self._transfer_tools:
                    self._hidden_calls[update.call.id] = update.call
                else:
                    yield from self._show(update.call, agent)

    def _response(self, response: events.AgentResponded) -> Chunks:
        self._model_events.append(response)
        yield from self._message(response)
        if not keys.is_in_call(response.origin.id):
            self._next_starts_step = True
            self._finish_reason = "length" if response.stop_reason == "length" else "stop"

    def _show(self, call: ToolCall, agent: str) -> Chunks:
        if call.id not in self._shown_calls:
            self._shown_calls.add(call.id)
            self._hidden_calls.pop(call.id, None)
            call_chunk = {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name}
            yield {**call_chunk, "input": _parse_arguments(call.arguments), "toolMetadata": {"agent": agent}}

    def _returned(self, result: events.ToolReturned) -> Chunks:
        hidden = self._hidden_calls.pop(result.call_id, None)
        if hidden is not None:
            if result.is_task_call or (result.requested_agent and not result.is_transfer_refused):
                return
            yield from self._show(hidden, result.agent)
        if result.call_id in self._shown_calls:
            yield self._output(result)

    def _output(self, result: events.ToolReturned) -> Chunk:
        if result.call_id in self._denied_calls:
            return {"type": "tool-output-denied", "toolCallId": result.call_id}
        if result.is_error:
            return _output_error(result.call_id, text_of(result.content))
        return {"type": "tool-output-available", "toolCallId": result.call_id, "output": _to_output(result.content)}

    def _raised(self, raised: events.InterruptRaised) -> Chunks:
        self._open[raised.key] = raised
        call = raised.tool_call
        if call is None or not (is_approval(to_interrupt(raised)) or is_frontend_call(raised)):
            if call is not None and call.id in self._approved_calls:
                # A call that stays approved would make clients send the approval again.
                output = {"output": None, "preliminary": True}
                yield {"type": "tool-output-available", "toolCallId": call.id, **output}
            yield self._question(raised, is_answered=False)
            return
        is_hidden = keys.is_in_call(raised.origin.id) and call.id not in self._shown_calls
        if is_hidden and self._next_starts_step and not self._parts.open_activations():
            # Clients wait until all calls of a step are decided, and the call around this one is not.
            yield from self._start_step()
        yield from self._show(call, raised.agent)
        if not is_frontend_call(raised):
            approval = question_id(self._run_id, raised.key)
            yield {"type": "tool-approval-request", "approvalId": approval, "toolCallId": call.id}

    def _answered(self, answered: events.InterruptAnswered) -> Chunks:
        raised = self._open.pop(answered.interrupt_id, None)
        if raised is None:
            return
        call = raised.tool_call
        fields = payload_fields(answered.answer)
        if call is not None and is_frontend_call(raised):
            # The result has text for the model; the client gets the value that it has sent.
            self._shown_calls.discard(call.id)
            if fields.get("is_error"):
                yield _output_error(call.id, str(fields.get("content", "")))
            else:
                output = fields.get("content", answered.answer)
                yield {"type": "tool-output-available", "toolCallId": call.id, "output": output}
        elif call is None or not is_approval(to_interrupt(raised)):
            yield self._question(raised, is_answered=True)
        else:
            is_denied = answered.answer is False or fields.get("approved") is False
            (self._denied_calls if is_denied else self._approved_calls).add(call.id)

    def _question(self, raised: events.InterruptRaised, *, is_answered: bool) -> Chunk:
        data = {
            "agent": raised.agent,
            "text": question_text(to_interrupt(raised)),
            "payload": raised.payload,
            "schema": raised.schema,
            "answered": is_answered,
        }
        return {"type": "data-question", "id": question_id(self._run_id, raised.key), "data": data}

    def _start_step(self) -> Chunks:
        if self._has_step:
            yield {"type": "finish-step"}
        self._has_step = True
        self._next_starts_step = False
        yield {"type": "start-step"}

    def _last_chunk(self) -> Chunk:
        match self._stop:
            case None:
                return {"type": "error", "errorText": "the stream has ended before the run; resume it"}
            case events.RunFailed() as failed:
                message = failed.public_message or "the run failed"
                shown = f"{failed.error_type}: {failed.message}" if self._show_errors else message
                return {"type": "error", "errorText": shown}
            case events.RunCancelled():
                return {"type": "abort", "reason": "the run was cancelled"}
            case stopped:
                reason = "tool-calls" if isinstance(stopped, events.RunSuspended) else self._finish_reason
                return {"type": "finish", "finishReason": reason, "messageMetadata": {"usage": self._usage()}}

    def _usage(self) -> dict[str, int]:
        used = usage_from_events(self._model_events).total
        return {
            "inputTokens": used.input_tokens,
            "outputTokens": used.output_tokens,
            "totalTokens": used.total_tokens,
            "cachedInputTokens": used.cached_tokens,
            "reasoningTokens": used.reasoning_tokens,
        }


def _metadata(**fields: Any) -> dict[str, Any]:
    return {"baton": fields}


def _output_error(call_id: str, text: str) -> Chunk:
    return {"type": "tool-output-error", "toolCallId": call_id, "errorText": text}


def _parse_arguments(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _to_output(content: Content) -> Any:
    """Return the result of a call: text, or parts like those of a message if there is media."""
    if isinstance(content, str) or not media_of(content):
        return text_of(content)
    return [_to_output_part(part) for part in content]


def _to_output_part(part: Part) -> dict[str, Any]:
    if not isinstance(part, Image | Audio | File):
        return {"type": "text", "text": text_of((part,))}
    url = part.url or as_data_url(part.data, part.media_type)
    return {"type": "file", "mediaType": part.media_type, "url": url}


_SILENT_EVENTS = (
    events.RunStarted,
    events.AgentStarted,
    events.UserMessageAdded,
    events.ResponseTruncated,
    events.StepCompleted,
    events.TaskOpened,
    events.TaskEnded,
    events.UnknownEvent,
)
