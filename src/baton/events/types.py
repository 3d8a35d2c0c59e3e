"""All event and delta classes. Event classes are logged; delta classes are only delivered to subscribers."""

from typing import Any, TypeAlias, cast

import msgspec

from ..messages import AssistantMessage, Content, Message, ToolCall, ToolMessage, Usage, UserMessage, text_of
from .base import Delta, Event, ValueChanges


class RunStarted(Event, frozen=True):
    """A run began. Always the first event of a log."""

    run_id: str
    """The id of the run."""
    root_agent: str
    """The agent that the run starts with."""
    input: tuple[Message, ...] = ()
    """The input messages."""
    values: dict[str, Any] = {}
    """The initial values."""
    thread: str = ""
    """The thread that the run belongs to; "" if none."""
    previous_run_id: str = ""
    """The run before it in its thread; "" if none."""
    forked_from: str = ""
    """The run and, after `@`, the number of events that it was forked from; "" if it is not a fork."""
    team_fingerprint: dict[str, str] = {}
    """The fingerprint of the team, by agent."""
    limits: dict[str, Any] = {}
    """The limits given for this run alone."""
    owner: str = ""
    """The tenant that the run belongs to; "" if none."""


class RunResumed(Event, frozen=True):
    """A stopped run was resumed."""


class AgentStarted(Event, frozen=True):
    """An agent became active."""


class AgentResponded(Event, frozen=True):
    """An agent's model responded, or the agent itself added a message with `ctx.say`.

    There is one for each model response, also when it only calls tools: it is not necessarily the final answer.
    """

    message: AssistantMessage
    """The response."""
    model: str = ""
    """The name of the model; "" if the agent wrote the message itself."""
    usage: Usage | None = None
    """The tokens and cost of the model call, if known."""
    stop_reason: str = ""
    """The provider's reason for the end of the response."""
    value_changes: ValueChanges | None = None
    """The changes to the run's values since the previous event of the activation."""
    disabled_handoffs: tuple[str, ...] = ()
    """The handoff tools that were disabled in this turn; `name#2` is the second handoff with that name."""

    @property
    def text(self) -> str:
        """The text of the message."""
        return text_of(self.message.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the message."""
        return self.message.tool_calls


class UserMessageAdded(Event, frozen=True):
    """The user said something while the run was in progress, as in realtime sessions."""

    message: UserMessage
    """The message."""
    item_id: str = ""
    """The provider's id of the item, if it was speech."""

    @property
    def text(self) -> str:
        """The text of the message."""
        return text_of(self.message.content)


class ResponseTruncated(Event, frozen=True):
    """The user interrupted a spoken response before its end."""

    response_key: str
    """The key of the `AgentResponded` event that was cut off."""
    heard_text: str = ""
    """The part of the text that the user heard."""
    played_ms: int = 0
    """The milliseconds of audio that were played."""

    def truncate(self, message: AssistantMessage) -> AssistantMessage:
        """Return the message with only the text that was heard.

        Args:
            message: The whole response.
        """
        return msgspec.structs.replace(message, content=self.heard_text or "…")


class ToolReturned(Event, frozen=True):
    """A tool call returned its result."""

    call_id: str
    """The id of the tool call."""
    tool_name: str
    """The name of the tool."""
    content: Content = ""
    """The result, as the model reads it."""
    is_error: bool = False
    """True if the result is an error message."""
    is_final: bool = False
    """True if the result is the agent's answer."""
    value_changes: ValueChanges | None = None
    """The changes that the call made to the run's values."""
    breaks_loop: bool = False
    """True if the call ends the innermost loop around the agent."""
    is_transfer_refused: bool = False
    """True if the call asked for a transfer that was refused; later agents do not read it."""
    requested_agent: str = ""
    """The agent that the call asked to transfer to, refused or not; "" if it asked for no transfer."""
    is_unknown_tool: bool = False
    """True if the agent has no tool of that name."""

    @property
    def message(self) -> ToolMessage:
        """The result as a message for a model."""
        return ToolMessage(self.call_id, self.tool_name, self.content, self.is_error)


class StepCompleted(Event, frozen=True):
    """A step of application code (`ctx.step`, a hook, a guardrail) ran and gave a result."""

    name: str
    """The name of the step."""
    result: Any = None
    """Its result, as JSON data."""
    value_changes: ValueChanges | None = None
    """The changes that the step made to the run's values."""
    interrupt_count: int = 0
    """The number of interrupts raised inside the step."""


class ControlTransferred(Event, frozen=True):
    """Control went from one agent to another."""

    source: str
    """The agent that handed control over."""
    target: str
    """The agent that is active now."""
    call_id: str | None = None
    """The tool call that asked for the transfer, if one did."""
    payload: Any = None
    """The input of the handoff, as JSON data."""
    reason: str = ""
    """Empty for a requested transfer, "returned" for a return to the caller, "loop" for the loop fallback."""
    value_changes: ValueChanges | None = None
    """The changes to the run's values since the previous event of the activation."""


class InterruptRaised(Event, frozen=True):
    """A question to the outside, such as a request for approval; its id is the key of the event."""

    payload: Any = None
    """The question, as JSON data."""
    tool_call: ToolCall | None = None
    """The tool call in which it was raised, if any."""
    schema: dict[str, Any] | None = None
    """The JSON schema that an answer must fit."""

    @property
    def interrupt_id(self) -> str:
        """The id to answer it by."""
        return self.key


class InterruptAnswered(Event, frozen=True):
    """An interrupt was answered."""

    interrupt_id: str
    """The id of the interrupt."""
    answer: Any = None
    """The answer, as JSON data."""
    values: dict[str, Any] = {}
    """The values that were given with the answer."""


class AgentFinished(Event, frozen=True):
    """An agent finished normally."""

    value_changes: ValueChanges | None = None
    """The changes to the run's values since the previous event of the activation."""


class RunCompleted(Event, frozen=True):
    """The run completed."""


class RunSuspended(Event, frozen=True):
    """The run waits for answers to its open interrupts."""

    interrupt_ids: tuple[str, ...] = ()
    """The ids of the open interrupts."""


class RunFailed(Event, frozen=True):
    """The run failed; resuming it tries the failed step again."""

    error_type: str
    """The class name of the exception."""
    message: str = ""
    """The message of the exception."""
    public_message: str = ""
    """The message for the caller, if the exception was a `TaskFailedError`; servers show no other to their clients."""


class RunCancelled(Event, frozen=True):
    """The run was cancelled; it can be resumed."""


class UnknownEvent(Event, frozen=True):
    """An event of a class that this version does not know, kept as it was read.

    A log that holds one can be shown and copied, but neither resumed nor replayed.
    """

    event_type: str
    """The name of its class."""
    raw: msgspec.Raw
    """The line of the log."""


class TextDelta(Delta, frozen=True, gc=False):
    """A piece of the text that a model is writing."""

    text: str
    """The text since the previous delta."""


class ReasoningDelta(Delta, frozen=True, gc=False):
    """A piece of a model's reasoning."""

    text: str
    """The text since the previous delta."""


class ResponseRestarted(Delta, frozen=True, gc=False):
    """A model starts its response again: discard the text, reasoning and calls streamed so far."""


class ToolCallDelta(Delta, frozen=True, gc=False):
    """A piece of a tool call that a model is writing."""

    index: int
    """The position of the call in the response."""
    id: str = ""
    """The id of the call, if this piece has it."""
    name: str = ""
    """The name of the tool, if this piece has it."""
    arguments: str = ""
    """The JSON text of the arguments since the previous delta."""


class ProgressDelta(Delta, frozen=True, gc=False):
    """Progress of a tool or an agent, sent with `ctx.progress`."""

    text: str = ""
    """A message for the user."""
    done: float | None = None
    """The amount of work done."""
    total: float | None = None
    """The amount of work in all, if known."""
    call_id: str = ""
    """The tool call it comes from; "" if it comes from an agent."""


class CustomDelta(Delta, frozen=True):
    """An application-defined notification, sent with `ctx.emit`."""

    name: str
    """The name of the notification."""
    data: Any = None
    """Its data."""
    call_id: str = ""
    """The tool call it comes from; "" if it comes from an agent."""


KnownEvent: TypeAlias = (
    RunStarted
    | RunResumed
    | AgentStarted
    | AgentResponded
    | UserMessageAdded
    | ResponseTruncated
    | ToolReturned
    | StepCompleted
    | ControlTransferred
    | InterruptRaised
    | InterruptAnswered
    | AgentFinished
    | RunCompleted
    | RunSuspended
    | RunFailed
    | RunCancelled
)
"""Every event that this version writes."""

AnyEvent: TypeAlias = KnownEvent | UnknownEvent
"""Every event that a log can hold. Match on it and end with `assert_never`, so that no class is forgotten."""


class Interrupt(msgspec.Struct, frozen=True):
    """An open question of a run, which `runner.resume` answers."""

    id: str
    """The interrupt's id, the key of its answer."""
    agent: str
    """The agent that raised it."""
    path: tuple[str, ...]
    """The run path of that agent."""
    payload: Any = None
    """The question."""
    tool_call: ToolCall | None = None
    """The tool call that the question is about, if any."""
    schema: dict[str, Any] | None = None
    """The JSON schema that the answer must match, if any."""


def to_interrupt(event: InterruptRaised) -> Interrupt:
    """Convert the event of a question to the `Interrupt` that applications see."""
    return Interrupt(event.key, event.agent, event.path, event.payload, event.tool_call, event.schema)


def payload_fields(payload: Any) -> dict[str, Any]:
    """Return the payload of an interrupt if it is an object, else no fields.

    Args:
        payload: The payload.
    """
    return cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
