"""Translation of a run's events to AG-UI events.

Activations at the top level are steps; activations inside another one (agents as tools, parts of workflows) are
subagents. A stream opens what it refers to and closes what it opened, also if it begins in the middle of a run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import ag_ui.core as agui
from msgspec import UNSET

from ... import log as events
from ...log import keys
from ...log.events import payload_fields
from ...messages import answer_of
from ...runs import usage_from_events
from ...team.tasks import open_tasks
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
from .agui_messages import StateMirror, to_agui_content


def _suspended_outcome(raised: Sequence[events.InterruptRaised], interrupts: Sequence[Any]) -> Any:
    # If only frontend calls are open, the protocol has a success: their results are messages of the next request.
    if all(is_frontend_call(interrupt) for interrupt in raised):
        calls = [interrupt.tool_call.id for interrupt in raised if interrupt.tool_call is not None]
        return agui.RunFinishedSuccessOutcome(type="success", pending_tool_call_ids=calls or None)
    return agui.RunFinishedInterruptOutcome(type="interrupt", interrupts=[*interrupts])


def _to_agui_interrupt(interrupt: events.InterruptRaised, tag: str | None) -> Any:
    return agui.Interrupt(
        id=interrupt.key,
        reason=str(payload_fields(interrupt.payload).get("kind") or "input"),
        message=_interrupt_message(interrupt),
        tool_call_id=interrupt.tool_call.id if interrupt.tool_call is not None else None,
        response_schema=interrupt.schema,
        subagent_run_id=tag,
        metadata={"payload": interrupt.payload, "agent": interrupt.agent, "path": [*interrupt.path]},
    )


def _task_facts(task: events.OpenTask) -> dict[str, Any]:
    return {"agent": task.agent, "caller": task.caller, "toolCallId": task.call_id}


def _usage(responses: Sequence[events.AgentResponded]) -> Any:
    by_model = usage_from_events(responses).by_model
    return [
        agui.TokenUsage(
            model=model,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            total_tokens=used.total_tokens,
            cached_input_tokens=used.cached_tokens or None,
            reasoning_tokens=used.reasoning_tokens or None,
        )
        for model, used in by_model.items()
    ] or None


def _interrupt_message(interrupt: events.InterruptRaised) -> str | None:
    if isinstance(interrupt.payload, str):
        return interrupt.payload
    payload = payload_fields(interrupt.payload)
    if payload.get("kind") == "approval":
        return f"Allow the call of `{payload.get('tool')}`?"
    message = payload.get("message") or payload.get("question") or payload.get("text")
    return message if isinstance(message, str) else None


class StepTranslator:
    """Steps and subagents of one stream."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._agents: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        self._active: dict[str, str] = {}
        self._finished: set[str] = set()

    def note(self, event: events.Event) -> None:
        """Record the agents and calls that later activations refer to."""
        if isinstance(event, events.AgentStarted):
            self._agents[event.origin.id] = event.agent
        elif isinstance(event, events.AgentResponded):
            for position, call in enumerate(event.message.tool_calls):
                self._calls[keys.call(event.key, position)] = call.id

    def tag(self, id: str) -> str | None:
        """Return the subagent id of an activation; None at the top level."""
        return f"{self._run_id}:{id}" if keys.is_nested(id) else None

    def start(self, id: str, agent: str) -> Iterator[Any]:
        """Open an activation and those around it, unless they are open."""
        if not id or id in self._active or id in self._finished:
            return
        if not keys.is_nested(id):
            self._active[id] = agent
            yield agui.StepStartedEvent(step_name=agent)
            return
        around = keys.owner(id)
        yield from self.start(around, self._agents.get(around, ""))
        self._active[id] = agent
        yield agui.SubagentStartedEvent(
            subagent_run_id=self.tag(id) or "",
            name=agent,
            parent_subagent_run_id=self.tag(around),
            parent_tool_call_id=self._calls.get(keys.parent(id)),
        )

    def finish(self, id: str, raised: Sequence[events.InterruptRaised] = (), failure: str = "") -> Iterator[Any]:
        """Close an activation, if it is open."""
        agent = self._active.pop(id, None)
        tag = self.tag(id)
        if agent is None:
            return
        self._finished.add(id)
        if tag is None:
            yield agui.StepFinishedEvent(step_name=agent)
        elif failure:
            yield agui.SubagentErrorEvent(subagent_run_id=tag, message=failure)
        else:
            ids = [interrupt.key for interrupt in raised if interrupt.origin.id == id]
            suspended = agui.SubagentFinishedSuspendedOutcome(type="suspended", interrupt_ids=ids)
            yield agui.SubagentFinishedEvent(subagent_run_id=tag, outcome=suspended if raised else None)

    def finish_all(self, raised: Sequence[events.InterruptRaised], failure: str) -> Iterator[Any]:
        """Close all activations, the innermost first."""
        for id in [*self._active][::-1]:
            yield from self.finish(id, raised, failure)


def _to_agui_events(update: PartUpdate) -> Iterator[Any]:
    match update:
        case PartOpened(kind="text"):
            yield agui.TextMessageStartEvent(message_id=update.id, role="assistant", name=update.agent)
        case PartExtended(kind="text"):
            yield agui.TextMessageContentEvent(message_id=update.id, delta=update.text)
        case PartClosed(kind="text"):
            yield agui.TextMessageEndEvent(message_id=update.id)
        case PartOpened():
            yield agui.ReasoningStartEvent(message_id=update.id)
            yield agui.ReasoningMessageStartEvent(message_id=update.id, role="reasoning")
        case PartExtended():
            yield agui.ReasoningMessageContentEvent(message_id=update.id, delta=update.text)
        case PartClosed():
            yield agui.ReasoningMessageEndEvent(message_id=update.id)
            yield agui.ReasoningEndEvent(message_id=update.id)
        case PartsDiscarded():
            yield agui.CustomEvent(name="baton.response_restarted", value={"discardedMessageIds": [*update.ids]})
        case CallWritten():
            call = update.call
            parent = update.message_id
            yield agui.ToolCallStartEvent(tool_call_id=call.id, tool_call_name=call.name, parent_message_id=parent)
            yield agui.ToolCallArgsEvent(tool_call_id=call.id, delta=call.arguments)
            yield agui.ToolCallEndEvent(tool_call_id=call.id)


_AGUIEvents = Iterator[Any]
_SILENT_EVENTS = (
    events.ToolCallDelta,
    events.RunResumed,
    events.ResponseTruncated,
    events.HistoryCompacted,
    events.StepCompleted,
    events.ControlTransferred,
    events.InterruptRaised,
    events.InterruptAnswered,
    events.UnknownEvent,
)


def _ignore(event: events.Event | events.Delta) -> _AGUIEvents:
    return iter(())


class EventTranslator:
    """The translator of one stream of one run."""

    def __init__(
        self,
        *,
        run_id: str,
        thread_id: str,
        request_run_id: str,
        past: Sequence[events.Event],
        answered: Sequence[str],
        show_errors: bool,
    ) -> None:
        self._run_id = run_id
        self._ids: dict[str, Any] = {"thread_id": thread_id, "run_id": request_run_id}
        self._state = StateMirror()
        self._steps = StepTranslator(run_id)
        self._parts = MessageParts(run_id)
        self._answered = frozenset(answered)
        self._show_errors = show_errors
        self._is_resumed = bool(past)
        self._tasks = open_tasks(past)
        """The tasks that were open before the stream."""
        self._open: dict[str, events.InterruptRaised] = {}
        self._responses: list[events.AgentResponded] = []
        self._answers: dict[str, str] = {}
        """The texts of responses without calls, by the keys of their events."""
        self.is_finished = False
        """True once the final event has been sent."""
        for event in past:
            self._record(event)
            self._note_answer(event)
            self._parts.skip(event)
        self._contents: dict[type, Callable[[Any], _AGUIEvents]] = {
            events.TextDelta: self._message,
            events.ReasoningDelta: self._message,
            events.CustomDelta: self._custom,
            events.ProgressDelta: self._progress,
            events.ResponseRestarted: self._message,
            events.AgentStarted: _ignore,
            events.AgentResponded: self._response,
            events.ToolReturned: self._returned,
            events.TaskOpened: self._task,
            events.TaskEnded: self._task,
            events.UserMessageAdded: self._user_message,
        }
        """Handlers of the events that belong to an open activation."""
        self._handlers: dict[type, Callable[[Any], _AGUIEvents]] = {
            events.RunStarted: self._started,
            events.AgentFinished: self._finished,
            events.RunCompleted: self._completed,
            events.RunSuspended: self._suspended,
            events.RunFailed: self._failed,
            events.RunCancelled: self._cancelled,
            # The state of these is recorded in `_record`, or the protocol has no event for them.
            **dict.fromkeys(_SILENT_EVENTS, _ignore),
        }

    def start(self) -> _AGUIEvents:
        """Return the first events of the stream."""
        yield agui.RunStartedEvent(**self._ids, protocol_version=agui.PROTOCOL_VERSION)
        if self._is_resumed:
            yield from self._snapshot()

    def translate(self, event: events.Event | events.Delta) -> _AGUIEvents:
        """Translate one event or delta."""
        read = self._contents.get(type(event))
        if read is None:
            handle = self._handlers.get(type(event))
            if handle is None:
                raise TypeError(f"AG-UI has no case for {type(event).__name__}")
            yield from handle(event)
        else:
            content = [*read(event)]
            if content or isinstance(event, events.AgentStarted | events.AgentResponded):
                yield from self._steps.start(event.origin.id, event.origin.agent)
            yield from self._tagged(event.origin.id, content)
        if isinstance(event, events.Event):
            patch = self._record(event)
            # Nothing may follow the final event.
            if patch and not self.is_finished:
                yield agui.StateDeltaEvent(delta=patch)

    def abort(self) -> _AGUIEvents:
        """Return the last events of a stream that ends although the run has not stopped."""
        message = "the run's events are no longer available"
        yield from self._close(failure=message)
        yield agui.RunErrorEvent(message=message, code="unavailable")

    def finish_without_run(self) -> _AGUIEvents:
        """Return the last events of the stream of a message that another run has taken."""
        self.is_finished = True
        yield agui.CustomEvent(name="baton.message_taken", value={})
        yield self._run_finished(agui.RunFinishedSuccessOutcome(type="success"))

    def _record(self, event: events.Event) -> list[Any]:
        """Record facts for later events; return the change of the state as a JSON patch."""
        self._steps.note(event)
        if isinstance(event, events.RunStarted):
            self._state.load(event.values)
            return []
        if isinstance(event, events.InterruptRaised):
            self._open[event.key] = event
        elif isinstance(event, events.InterruptAnswered):
            self._open.pop(event.interrupt_id, None)
        return self._state.apply(getattr(event, "value_changes", None))

    def _tagged(self, id: str, content: Iterable[Any]) -> _AGUIEvents:
        """Add the subagent id of an activation to its events."""
        for event in content:
            event.subagent_run_id = self._steps.tag(id)
            yield event

    def _message(self, item: events.Event | events.Delta) -> _AGUIEvents:
        for update in self._parts.update(item):
            yield from _to_agui_events(update)

    def _response(self, response: events.AgentResponded) -> _AGUIEvents:
        yield from self._message(response)
        self._responses.append(response)
        self._note_answer(response)

    def _note_answer(self, event: events.Event) -> None:
        if isinstance(event, events.AgentResponded) and not event.message.tool_calls:
            self._answers[event.key] = answer_of(event.message.content)

    def _returned(self, result: events.ToolReturned) -> _AGUIEvents:
        if result.call_id in self._answered:
            return
        yield agui.ToolCallResultEvent(
            message_id=f"{self._run_id}:{result.key}",
            tool_call_id=result.call_id,
            content=to_agui_content(result.content),
            role="tool",
        )

    def _started(self, started: events.RunStarted) -> _AGUIEvents:
        self._state.load(started.values)
        self._tasks = started.tasks
        yield from self._snapshot()

    def _snapshot(self) -> _AGUIEvents:
        """Return the state and the open tasks at the beginning of the run or of its resumption."""
        yield agui.StateSnapshotEvent(snapshot=self._state.snapshot())
        if self._tasks:
            yield agui.CustomEvent(name="baton.open_tasks", value=[_task_facts(task) for task in self._tasks])

    def _user_message(self, added: events.UserMessageAdded) -> _AGUIEvents:
        if added.withheld:
            return
        id = f"{self._run_id}:{added.key}"
        yield agui.TextMessageStartEvent(message_id=id, role="user")
        if added.text:
            yield agui.TextMessageContentEvent(message_id=id, delta=added.text)
        yield agui.TextMessageEndEvent(message_id=id)

    def _custom(self, custom: events.CustomDelta) -> _AGUIEvents:
        yield agui.CustomEvent(name=custom.name, value=custom.data)

    def _task(self, event: events.TaskOpened | events.TaskEnded) -> _AGUIEvents:
        value = _task_facts(event.task)
        if isinstance(event, events.TaskOpened):
            yield agui.CustomEvent(name="baton.task_opened", value=value)
        else:
            value |= {"outcome": event.outcome, "result": event.result, "reason": event.reason}
            yield agui.CustomEvent(name="baton.task_ended", value=value)

    def _progress(self, progress: events.ProgressDelta) -> _AGUIEvents:
        value = {"text": progress.text, "done": progress.done, "total": progress.total, "toolCallId": progress.call_id}
        yield agui.CustomEvent(name="baton.progress", value=value)

    def _finished(self, event: events.AgentFinished) -> _AGUIEvents:
        yield from self._tagged(event.origin.id, self._message(event))
        yield from self._steps.finish(event.origin.id)

    def _completed(self, event: events.RunCompleted) -> _AGUIEvents:
        yield from self._close()
        output = self._answers.get(next(iter(event.said), "")) if event.output is UNSET else event.output
        yield self._run_finished(agui.RunFinishedSuccessOutcome(type="success"), result=output)

    def _suspended(self, event: events.RunSuspended) -> _AGUIEvents:
        raised = [self._open[id] for id in event.interrupt_ids if id in self._open]
        yield from self._close(raised=raised)
        interrupts = [_to_agui_interrupt(interrupt, self._steps.tag(interrupt.origin.id)) for interrupt in raised]
        yield self._run_finished(_suspended_outcome(raised, interrupts))

    def _cancelled(self, event: events.RunCancelled) -> _AGUIEvents:
        yield from self._close(failure="the run was cancelled")
        yield self._run_finished(agui.RunFinishedCancelledOutcome(type="cancelled"))

    def _failed(self, event: events.RunFailed) -> _AGUIEvents:
        yield from self._close(failure="the run failed")
        message = event.public_message or "the run failed"
        if self._show_errors:
            message = f"{event.error_type}: {event.message}"
        yield agui.RunErrorEvent(message=message, code=event.error_type, usage=_usage(self._responses))

    def _run_finished(self, outcome: Any, *, result: str | None = None) -> Any:
        return agui.RunFinishedEvent(**self._ids, outcome=outcome, result=result, usage=_usage(self._responses))

    def _close(self, *, raised: Sequence[events.InterruptRaised] = (), failure: str = "") -> _AGUIEvents:
        self.is_finished = True
        for id in self._parts.open_activations():
            for update in self._parts.close(id):
                yield from self._tagged(id, _to_agui_events(update))
        yield from self._steps.finish_all(raised, failure)
