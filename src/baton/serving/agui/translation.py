"""Translation of a run's events to AG-UI events.

Activations at the top level are steps; activations inside another one (agents as tools, parts of workflows) are
subagents. A stream opens what it refers to and closes what it opened, also if it begins in the middle of a run.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import ag_ui.core as agui
from msgspec import Struct

from ...events import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    CustomDelta,
    Delta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    ProgressDelta,
    ReasoningDelta,
    ResponseTruncated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCompleted,
    TextDelta,
    ToolCallDelta,
    ToolReturned,
    UnknownEvent,
    UserMessageAdded,
)
from ...messages import Usage
from ...runner import usage_from_events
from .frontend import KIND
from .messages import StateMirror, to_agui_content


def is_frontend_call(interrupt: InterruptRaised) -> bool:
    """Return whether an interrupt is a call of a frontend tool.

    Args:
        interrupt: The interrupt.
    """
    return interrupt.tool_call is not None and _payload(interrupt).get("kind") == KIND


def _suspended_outcome(raised: Sequence[InterruptRaised], interrupts: Sequence[Any]) -> Any:
    # If only frontend calls are open, the protocol has a success: their results are messages of the next request.
    if all(is_frontend_call(interrupt) for interrupt in raised):
        calls = [interrupt.tool_call.id for interrupt in raised if interrupt.tool_call is not None]
        return agui.RunFinishedSuccessOutcome(type="success", pending_tool_call_ids=calls or None)
    return agui.RunFinishedInterruptOutcome(type="interrupt", interrupts=[*interrupts])


def _to_agui_interrupt(interrupt: InterruptRaised, tag: str | None) -> Any:
    return agui.Interrupt(
        id=interrupt.key,
        reason=str(_payload(interrupt).get("kind") or "input"),
        message=_interrupt_message(interrupt),
        tool_call_id=interrupt.tool_call.id if interrupt.tool_call is not None else None,
        response_schema=interrupt.schema,
        subagent_run_id=tag,
        metadata={"payload": interrupt.payload, "agent": interrupt.agent, "path": [*interrupt.path]},
    )


def _usage(responses: Sequence[AgentResponded]) -> Any:
    by_model = usage_from_events(responses).by_model
    return [_model_usage(model, used) for model, used in by_model.items()] or None


def _model_usage(model: str, used: Usage) -> Any:
    return agui.TokenUsage(
        model=model,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.total_tokens,
        cached_input_tokens=used.cached_tokens or None,
        reasoning_tokens=used.reasoning_tokens or None,
    )


def _payload(interrupt: InterruptRaised) -> dict[str, Any]:
    payload: Any = interrupt.payload
    return cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}


def _interrupt_message(interrupt: InterruptRaised) -> str | None:
    if isinstance(interrupt.payload, str):
        return interrupt.payload
    payload = _payload(interrupt)
    if payload.get("kind") == "approval":
        return f"Allow the call of `{payload.get('tool')}`?"
    message = payload.get("message") or payload.get("question")
    return message if isinstance(message, str) else None


_CALL = re.compile(r"^(.*/m\d+\.\d+)/[^/]+$")
"""Matches the id of an activation that a tool call started; the group is the key of the call."""


class StepTranslator:
    """Steps and subagents of one stream.

    Args:
        run_id: The prefix of subagent ids.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._agents: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        self._active: dict[str, str] = {}
        self._finished: set[str] = set()

    def note(self, event: Event) -> None:
        """Record the agents and calls that later activations refer to.

        Args:
            event: The next event of the log.
        """
        if isinstance(event, AgentStarted):
            self._agents[event.origin.id] = event.agent
        elif isinstance(event, AgentResponded):
            for position, call in enumerate(event.message.tool_calls):
                self._calls[f"{event.key}.{position}"] = call.id

    def tag(self, origin: Origin) -> str | None:
        """Return the subagent id of an activation; None at the top level.

        Args:
            origin: The activation.
        """
        return f"{self._run_id}:{origin.id}" if "/" in origin.id else None

    def start(self, origin: Origin) -> Iterator[Any]:
        """Open an activation and those around it, unless they are open.

        Args:
            origin: The activation.
        """
        yield from self._start(origin.id, origin.agent)

    def finish(self, origin: Origin) -> Iterator[Any]:
        """Close an activation, if it is open.

        Args:
            origin: The activation.
        """
        agent = self._active.pop(origin.id, None)
        if agent is None:
            return
        self._finished.add(origin.id)
        if "/" in origin.id:
            yield agui.SubagentFinishedEvent(subagent_run_id=f"{self._run_id}:{origin.id}")
        else:
            yield agui.StepFinishedEvent(step_name=agent)

    def finish_all(self, *, raised: Sequence[InterruptRaised], failure: str) -> Iterator[Any]:
        """Close all activations, the innermost first.

        Args:
            raised: The open interrupts of a suspended run.
            failure: The error message of a run that did not complete.
        """
        for id, agent in [*self._active.items()][::-1]:
            del self._active[id]
            self._finished.add(id)
            run_id = f"{self._run_id}:{id}"
            if "/" not in id:
                yield agui.StepFinishedEvent(step_name=agent)
            elif failure:
                yield agui.SubagentErrorEvent(subagent_run_id=run_id, message=failure)
            elif raised:
                ids = [interrupt.key for interrupt in raised if interrupt.origin.id == id]
                outcome = agui.SubagentFinishedSuspendedOutcome(type="suspended", interrupt_ids=ids)
                yield agui.SubagentFinishedEvent(subagent_run_id=run_id, outcome=outcome)
            else:
                yield agui.SubagentFinishedEvent(subagent_run_id=run_id)

    def _start(self, id: str, agent: str) -> Iterator[Any]:
        if not id or id in self._active or id in self._finished:
            return
        if "/" not in id:
            self._active[id] = agent
            yield agui.StepStartedEvent(step_name=agent)
            return
        # An activation's id consists of the outer id, the place in it, and a counter.
        around = id.rsplit("/", 2)[0]
        yield from self._start(around, self._agents.get(around, ""))
        self._active[id] = agent
        found = _CALL.match(id)
        yield agui.SubagentStartedEvent(
            subagent_run_id=f"{self._run_id}:{id}",
            name=agent,
            parent_subagent_run_id=f"{self._run_id}:{around}" if "/" in around else None,
            parent_tool_call_id=self._calls.get(found[1]) if found else None,
        )


class _OpenMessage(Struct):
    id: str
    tag: str | None
    text: str = ""


class MessageTranslator:
    """Text, reasoning and tool calls of one stream.

    Args:
        run_id: The prefix of message ids.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._response_counts: dict[str, int] = {}
        """The number of model responses of each activation, which determines the key of the next one."""
        self._texts: dict[str, _OpenMessage] = {}
        self._reasonings: dict[str, _OpenMessage] = {}

    def note(self, event: Event) -> None:
        """Count the model responses.

        Args:
            event: The next event of the log.
        """
        if isinstance(event, AgentResponded) and event.key.startswith(f"{event.origin.id}/m"):
            self._response_counts[event.origin.id] = self._response_counts.get(event.origin.id, 0) + 1

    def text(self, delta: TextDelta, tag: str | None) -> Iterator[Any]:
        """Translate a text delta.

        Args:
            delta: The delta.
            tag: The subagent id of its activation.
        """
        origin = delta.origin
        yield from self._close_reasoning(origin.id)
        open = self._texts.get(origin.id)
        if open is None:
            open = self._texts[origin.id] = _OpenMessage(self._next_id(origin), tag)
            yield _message_start(open, delta.agent)
        open.text += delta.text
        yield agui.TextMessageContentEvent(message_id=open.id, delta=delta.text, subagent_run_id=tag)

    def reasoning(self, delta: ReasoningDelta, tag: str | None) -> Iterator[Any]:
        """Translate a reasoning delta.

        Args:
            delta: The delta.
            tag: The subagent id of its activation.
        """
        open = self._reasonings.get(delta.origin.id)
        if open is None:
            open = self._reasonings[delta.origin.id] = _OpenMessage(f"{self._next_id(delta.origin)}/thought", tag)
            yield agui.ReasoningStartEvent(message_id=open.id, subagent_run_id=tag)
            yield agui.ReasoningMessageStartEvent(message_id=open.id, role="reasoning", subagent_run_id=tag)
        yield agui.ReasoningMessageContentEvent(message_id=open.id, delta=delta.text, subagent_run_id=tag)

    def response(self, response: AgentResponded, tag: str | None) -> Iterator[Any]:
        """Translate a complete response: the text that no delta has delivered, and the tool calls.

        Args:
            response: The response.
            tag: The subagent id of its activation.
        """
        id = f"{self._run_id}:{response.key}"
        yield from self._close_reasoning(response.origin.id)
        open = self._texts.get(response.origin.id)
        if open is not None and not response.text.startswith(open.text):
            # A retry produced another text than the deltas.
            yield from self._close_text(response.origin.id)
            open, id = None, f"{id}/again"
        if open is None and response.text:
            open = self._texts[response.origin.id] = _OpenMessage(id, tag)
            yield _message_start(open, response.agent)
        if open is not None:
            rest = response.text[len(open.text) :]
            if rest:
                yield agui.TextMessageContentEvent(message_id=open.id, delta=rest, subagent_run_id=tag)
            yield from self._close_text(response.origin.id)
        for call in response.message.tool_calls:
            # The ids of calls are final only now.
            yield agui.ToolCallStartEvent(
                tool_call_id=call.id, tool_call_name=call.name, parent_message_id=id, subagent_run_id=tag
            )
            yield agui.ToolCallArgsEvent(tool_call_id=call.id, delta=call.arguments, subagent_run_id=tag)
            yield agui.ToolCallEndEvent(tool_call_id=call.id, subagent_run_id=tag)

    def close(self, origin: Origin) -> Iterator[Any]:
        """Close the open message of an activation.

        Args:
            origin: The activation.
        """
        yield from self._close_reasoning(origin.id)
        yield from self._close_text(origin.id)

    def close_all(self) -> Iterator[Any]:
        """Close all open messages."""
        for id in [*self._reasonings]:
            yield from self._close_reasoning(id)
        for id in [*self._texts]:
            yield from self._close_text(id)

    def _next_id(self, origin: Origin) -> str:
        return f"{self._run_id}:{origin.id}/m{self._response_counts.get(origin.id, 0) + 1}"

    def _close_text(self, origin: str) -> Iterator[Any]:
        open = self._texts.pop(origin, None)
        if open is not None:
            yield agui.TextMessageEndEvent(message_id=open.id, subagent_run_id=open.tag)

    def _close_reasoning(self, origin: str) -> Iterator[Any]:
        open = self._reasonings.pop(origin, None)
        if open is not None:
            yield agui.ReasoningMessageEndEvent(message_id=open.id, subagent_run_id=open.tag)
            yield agui.ReasoningEndEvent(message_id=open.id, subagent_run_id=open.tag)


def _message_start(open: _OpenMessage, agent: str) -> Any:
    return agui.TextMessageStartEvent(message_id=open.id, role="assistant", name=agent, subagent_run_id=open.tag)


_AGUIEvents = Iterator[Any]
_SILENT_EVENTS: tuple[type[Event], ...] = (
    RunStarted,
    RunResumed,
    UserMessageAdded,
    ResponseTruncated,
    StepCompleted,
    ControlTransferred,
    InterruptRaised,
    InterruptAnswered,
    UnknownEvent,
)


def _ignore(event: Event | Delta) -> _AGUIEvents:
    return iter(())


class EventTranslator:
    """The translator of one stream of one run.

    Args:
        run_id: The prefix of message and subagent ids.
        thread_id: The thread id of the request.
        request_run_id: The run id of the request, which differs from `run_id` if the request resumes a run.
        past: The events that precede the stream.
        answered: Ids of the calls whose results the request contained.
        show_errors: Send the message of the exception that failed the run.
    """

    def __init__(
        self,
        *,
        run_id: str,
        thread_id: str,
        request_run_id: str,
        past: Sequence[Event],
        answered: Sequence[str],
        show_errors: bool,
    ) -> None:
        self._run_id = run_id
        self._ids: dict[str, Any] = {"thread_id": thread_id, "run_id": request_run_id}
        self._state = StateMirror()
        self._steps = StepTranslator(run_id)
        self._messages = MessageTranslator(run_id)
        self._answered = frozenset(answered)
        self._show_errors = show_errors
        self._open: dict[str, InterruptRaised] = {}
        self._responses: list[AgentResponded] = []
        self._output: str | None = None
        self.is_finished = False
        """True once the final event has been sent."""
        for event in past:
            self._record(event)
        self._handlers: dict[type, Callable[[Any], _AGUIEvents]] = {
            TextDelta: self._text,
            ReasoningDelta: self._reasoning,
            CustomDelta: self._custom,
            ProgressDelta: self._progress,
            ToolCallDelta: _ignore,
            AgentStarted: self._start,
            AgentResponded: self._response,
            ToolReturned: self._returned,
            AgentFinished: self._finished,
            RunCompleted: self._completed,
            RunSuspended: self._suspended,
            RunFailed: self._failed,
            RunCancelled: self._cancelled,
            # The state of these is recorded in `_record`, or the protocol has no event for them.
            **dict.fromkeys(_SILENT_EVENTS, _ignore),
        }

    def start(self) -> _AGUIEvents:
        """Return the first events of the stream."""
        yield agui.RunStartedEvent(**self._ids, protocol_version=agui.PROTOCOL_VERSION)
        yield agui.StateSnapshotEvent(snapshot=self._state.snapshot())

    def translate(self, event: Event | Delta) -> _AGUIEvents:
        """Translate one event or delta.

        Args:
            event: The next event or delta of the run.
        """
        yield from self._handlers[type(event)](event)
        if isinstance(event, Event):
            patch = self._record(event)
            # Nothing may follow the final event.
            if patch and not self.is_finished:
                yield agui.StateDeltaEvent(delta=patch)

    def abort(self) -> _AGUIEvents:
        """Return the last events of a stream that ends although the run has not stopped."""
        message = "the run's events are no longer available"
        yield from self._close(failure=message)
        yield agui.RunErrorEvent(message=message, code="unavailable")

    def _record(self, event: Event) -> list[Any]:
        """Record what later events refer to; return the change of the state as a JSON patch."""
        self._steps.note(event)
        self._messages.note(event)
        if isinstance(event, RunStarted):
            self._state.load(event.values)
            return []
        if isinstance(event, InterruptRaised):
            self._open[event.key] = event
        elif isinstance(event, InterruptAnswered):
            self._open.pop(event.interrupt_id, None)
        return self._state.apply(getattr(event, "value_changes", None))

    def _start(self, event: Event | Delta) -> _AGUIEvents:
        yield from self._steps.start(event.origin)

    def _text(self, delta: TextDelta) -> _AGUIEvents:
        if delta.text:
            yield from self._start(delta)
            yield from self._messages.text(delta, self._tag(delta.origin))

    def _reasoning(self, delta: ReasoningDelta) -> _AGUIEvents:
        if delta.text:
            yield from self._start(delta)
            yield from self._messages.reasoning(delta, self._tag(delta.origin))

    def _response(self, response: AgentResponded) -> _AGUIEvents:
        yield from self._start(response)
        yield from self._messages.response(response, self._tag(response.origin))
        self._responses.append(response)
        if "/" not in response.origin.id and not response.message.tool_calls:
            self._output = response.text

    def _returned(self, result: ToolReturned) -> _AGUIEvents:
        if result.call_id in self._answered:
            return
        yield from self._start(result)
        if result.is_final and "/" not in result.origin.id:
            self._output = result.message.content if isinstance(result.message.content, str) else self._output
        yield agui.ToolCallResultEvent(
            message_id=f"{self._run_id}:{result.key}",
            tool_call_id=result.call_id,
            content=to_agui_content(result.content),
            role="tool",
            subagent_run_id=self._tag(result.origin),
        )

    def _custom(self, custom: CustomDelta) -> _AGUIEvents:
        yield from self._start(custom)
        yield agui.CustomEvent(name=custom.name, value=custom.data, subagent_run_id=self._tag(custom.origin))

    def _progress(self, progress: ProgressDelta) -> _AGUIEvents:
        yield from self._start(progress)
        value = {"text": progress.text, "done": progress.done, "total": progress.total, "toolCallId": progress.call_id}
        yield agui.CustomEvent(name="baton.progress", value=value, subagent_run_id=self._tag(progress.origin))

    def _finished(self, event: AgentFinished) -> _AGUIEvents:
        yield from self._messages.close(event.origin)
        yield from self._steps.finish(event.origin)

    def _completed(self, event: RunCompleted) -> _AGUIEvents:
        yield from self._close()
        yield self._run_finished(agui.RunFinishedSuccessOutcome(type="success"), result=self._output)

    def _suspended(self, event: RunSuspended) -> _AGUIEvents:
        raised = [self._open[id] for id in event.interrupt_ids if id in self._open]
        yield from self._close(raised=raised)
        interrupts = [_to_agui_interrupt(interrupt, self._tag(interrupt.origin)) for interrupt in raised]
        yield self._run_finished(_suspended_outcome(raised, interrupts))

    def _cancelled(self, event: RunCancelled) -> _AGUIEvents:
        yield from self._close(failure="the run was cancelled")
        yield self._run_finished(agui.RunFinishedCancelledOutcome(type="cancelled"))

    def _failed(self, event: RunFailed) -> _AGUIEvents:
        yield from self._close(failure="the run failed")
        message = f"{event.error_type}: {event.message}" if self._show_errors else "the run failed"
        yield agui.RunErrorEvent(message=message, code=event.error_type, usage=_usage(self._responses))

    def _run_finished(self, outcome: Any, *, result: str | None = None) -> Any:
        return agui.RunFinishedEvent(**self._ids, outcome=outcome, result=result, usage=_usage(self._responses))

    def _close(self, *, raised: Sequence[InterruptRaised] = (), failure: str = "") -> _AGUIEvents:
        self.is_finished = True
        yield from self._messages.close_all()
        yield from self._steps.finish_all(raised=raised, failure=failure)

    def _tag(self, origin: Origin) -> str | None:
        return self._steps.tag(origin)
