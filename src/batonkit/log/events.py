"""All event and delta classes. Event classes are logged; delta classes are only delivered to subscribers."""

from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..messages import (
    AssistantMessage,
    Content,
    Message,
    Text,
    TokenLogprob,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    text_of,
)
from .event import Delta, Event, ValueChanges


class EventRef(msgspec.Struct, frozen=True, gc=False):
    """A reference to an event, possibly of another run of the thread."""

    run_id: str
    """The run that has the event."""
    key: str
    """The key of the event."""


class SummaryMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of a summary.

    One that the summarizer did not change keeps the properties that decide how agents read it.
    """

    message: Message
    """The message."""
    agent: str = ""
    """The agent that wrote it; "" if agents read it like input of the user."""
    activation: str = ""
    """The id of the activation that wrote it; it begins with the run's id and a colon if that was an earlier run."""
    is_answer: bool = False
    """True if it is the answer of its activation."""
    hidden: tuple[int, ...] = ()
    """The positions of refused transfers among its calls, which other activations do not read."""
    followed: tuple[int, ...] = ()
    """The position of the followed transfer among its calls."""


SummaryReaders: TypeAlias = Literal["all", "answers", "none", "activation"]
"""The agents that read a summary: those that read the whole history, those with this policy, or one activation."""


class HistorySummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A summary that runs of a thread read instead of its first messages."""

    upto: EventRef
    """The last response that it covers."""
    messages: tuple[SummaryMessage, ...]
    """The summary."""
    readers: SummaryReaders = "all"
    """The agents that read it."""


class OpenTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that one agent handed to another, which stays active until the task has ended."""

    key: str
    """The key of the `TaskOpened` event."""
    agent: str
    """The agent that works on the task."""
    caller: str
    """The agent that handed it over."""
    return_to: str
    """The agent that becomes active when the task has ended."""
    handoff: str = ""
    """The handoff of the caller: the name of its tool, numbered if several share the name; "" if code followed it."""
    call_id: str | None = None
    """The tool call that asked for the handoff, if one did."""
    returns: tuple[str, ...] = ()
    """The agents that control returns to after the answer of `return_to`, the next one last."""
    run_id: str = ""
    """The run of the thread that opened it; "" if it is the run of the event."""


class CallInDoubt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a tool with `effect="once"` that may have taken effect, but has no result."""

    event: EventRef
    """The call: its run, and the key of its result."""
    tool: str
    """The name of the tool."""
    arguments: str
    """The arguments that it was called with, as JSON text."""
    idempotency_key: str
    """The key that the call had for external systems."""


class SettledCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a call in doubt, as a person reported it."""

    event: EventRef
    """The call."""
    content: Content = ""
    """The outcome, as agents read it."""
    is_error: bool = False
    """True if the call had no effect, or failed."""


class RecordedOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a call in the run that a fork was copied from."""

    content: Content = ""
    """The result."""
    is_error: bool = False
    """True if the result is an error message."""


class OriginalCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of the run that a fork was copied from, whose result the fork does not have."""

    key: str
    """The key of its result."""
    digest: str
    """The digest of the tool and the arguments."""
    run_id: str
    """The run that made it first: the one that the fork was copied from, or one that this was copied from."""
    outcome: RecordedOutcome | None = None
    """Its result, if it has one and the effect of its tool must happen once."""


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
    options: dict[str, Any] = {}
    """The options given for this run alone, by agent, "" for all; those that a log cannot hold by name only."""
    summaries: tuple[HistorySummary, ...] = ()
    """The summaries of the thread's earlier messages; they remain if the runs that made them are deleted."""
    tasks: tuple[OpenTask, ...] = ()
    """The tasks that are open in its thread, the innermost last."""
    traceparent: str = ""
    """The W3C trace context of the span that the run belongs to; "" if it is not traced."""
    calls_in_doubt: tuple[CallInDoubt, ...] = ()
    """The calls of earlier runs of the thread whose outcome is unknown."""
    original_calls: tuple[OriginalCall, ...] = ()
    """The calls of the run that it was forked from, without those whose results were copied."""
    input_guardrails: tuple[str, ...] = ()
    """The input guardrails of the agent that the run starts with; see `AgentStarted`."""


class RunResumed(Event, frozen=True):
    """A stopped run was resumed."""

    options: dict[str, Any] = {}
    """The options of the run from here on, as in `RunStarted`, if some were given when it was resumed."""
    message: UserMessage | None = None
    """The user's message that came with it; `UserMessageAdded` records where the agents read it."""
    traceparent: str = ""
    """The W3C trace context of the span that the run continues in; "" if it is not traced."""


class OpenedHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The beginning of the history of a nested flow, if it is not that of the agent around it."""

    kind: Literal["branch", "new"]
    """`branch` if it continues a copy of the history around it, `new` if it begins with nothing."""
    input: tuple[Message, ...] = ()
    """The messages that code has put there for the nested agents."""


EntryForm: TypeAlias = Literal["same", "rewritten", "bare"]
"""The form of a message: as its author wrote it, rewritten for other agents, or so without the transfer."""
MessageRange: TypeAlias = tuple[int, int, EntryForm]
"""Consecutive messages in one form: the position of the first, and that after the last."""


class AgentStarted(Event, frozen=True):
    """An agent became active."""

    opens: OpenedHistory | None = None
    """The history that begins here; None if the agent continues the history of the agent before or around it."""
    policy: str = "rewritten"
    """The history policy, `function`, or `filter` for the input filter of a handoff."""
    hides_transfers: bool = False
    """True if it does not read the transfers that were followed."""
    reads: tuple[MessageRange | Message, ...] = ()
    """The messages that a function or filter has chosen.

    Those of the history by position, counted from the first message of the run, all others in full.
    """
    value_changes: ValueChanges | None = None
    """The changes that a history function made to the run's values."""
    input_guardrails: tuple[str, ...] = ()
    """The guardrails that check what it reads. Until all have passed, threads do not hold the input of the run."""
    output_guardrails: tuple[str, ...] = ()
    """The guardrails that check its answer. Until it has finished, no one else reads what it has answered."""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts of the request that a response answers which the log does not have elsewhere.

    The messages are what the agent read of the log. `batonkit.team.requests` restores the request.
    """

    parts: str = ""
    """The hash of instructions, tools, settings and so on.

    The content is an object with the hash of each part. Headers, query parameters and extra fields have no values.
    """
    messages: tuple[MessageRange | str, ...] | None = None
    """The messages, if they are not just what the agent read; what it read by position, all others by hash."""
    contents: dict[str, Any] = {}
    """The contents of parts and messages by hash, as JSON data, in the first record that names them."""


class SpeechInterval(msgspec.Struct, frozen=True, gc=False):
    """The time in which something is heard in a live conversation, in seconds since the epoch."""

    start: float
    """The time at which the first sound is heard."""
    end: float
    """The time at which the last sound is heard; for an agent, if it is played to its end."""


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
    model_calls: int = 1
    """The number of model calls it took: more than one if the model was asked again, 0 if middleware answered."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The tokens of the response with their log probabilities, if `ModelSettings(logprobs=…)` requested them."""
    request: RequestRecord | None = None
    """The request, if the run is stored; None if the agent wrote the message itself or middleware answered."""
    disabled_tools: tuple[str, ...] = ()
    """The tools that were disabled in this turn."""
    failed_calls: int = 0
    """The number of model calls for a summary of the history that failed before it."""
    speech: SpeechInterval | None = None
    """The time in which it is heard, if it is spoken; `ResponseTruncated` says how much of it was played."""
    response_id: str = ""
    """The provider's id of the response, if it has one."""
    correction: str = ""
    """The text that tells the agent why its answer does not fit the output type; "" if it does."""

    @property
    def text(self) -> str:
        """The text of the message."""
        return text_of(self.message.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the message."""
        return self.message.tool_calls


class UserMessageAdded(Event, frozen=True):
    """The user said something while the run was in progress.

    In a realtime session, to steer the run, or when it was resumed.
    """

    message: UserMessage
    """The message."""
    item_id: str = ""
    """The provider's id of the item, if it was speech."""
    message_id: str = ""
    """The id of the waiting message, or the key of the `RunResumed` event, that it comes from; "" if none."""
    speech: SpeechInterval | None = None
    """The time in which the user spoke, if the provider detected it."""
    withheld: bool = False
    """True if an input guardrail rejected it: no agent reads it."""

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


class HistoryCompacted(Event, frozen=True):
    """A summary replaced the oldest messages of a history.

    It holds for the model calls that follow; the log keeps the messages.
    """

    upto: EventRef
    """The last response that the summary covers, with the results of its calls."""
    summary: tuple[SummaryMessage, ...] = ()
    """The messages that are read instead."""
    usage: Usage | None = None
    """The tokens and cost of the summarizer's model calls and their number, if a model wrote the summary."""
    model: str = ""
    """The name of that model; "" if a function made the summary."""
    readers: SummaryReaders = "all"
    """The agents that read the summary."""
    is_local: bool = False
    """True for the history of a parallel branch or of a nested run, which later runs of the thread do not read."""
    inputs: int = 0
    """The number of first messages of the summary that are input of the run; handoff filters get them as such."""
    value_changes: ValueChanges | None = None
    """The changes that the summarizer made to the run's values."""

    @property
    def text(self) -> str:
        """The text of the summary."""
        return "\n".join(filter(None, [text_of(each.message.content) for each in self.summary]))


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
    is_disabled: bool = False
    """True if the tool or handoff was not available in this turn."""
    is_task_call: bool = False
    """True if the call finished or cancelled the agent's task, or tried to; later activations do not read it."""
    edited_arguments: str = ""
    """The arguments that it was executed with, if a person changed those of the model while approving it."""
    settles: tuple[SettledCall, ...] = ()
    """The outcomes of earlier calls of the tool, which were asked for before this one."""

    @property
    def message(self) -> ToolMessage:
        """The result as a message for a model; it says whether a person changed the arguments."""
        content = self.content
        if self.edited_arguments:
            note = f"The person who approved this call changed its arguments to {self.edited_arguments}.\n"
            content = note + content if isinstance(content, str) else (Text(note), *content)
        return ToolMessage(self.call_id, self.tool_name, content, self.is_error)


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
    shows_payload: bool = False
    """True if the payload becomes a message, which the target reads."""


class TaskOpened(Event, frozen=True):
    """A task was handed to an agent, which stays active until the task has ended."""

    task: OpenTask
    """The task."""


TaskOutcome: TypeAlias = Literal["finished", "cancelled", "declined", "dropped"]
"""The end of a task: with a result; given up; handed back by a plain transfer; or dropped with the others."""


class TaskEnded(Event, frozen=True):
    """A task ended."""

    task: OpenTask
    """The task."""
    outcome: TaskOutcome
    """The way in which it ended."""
    result: Any = None
    """The result of a finished task, as JSON data."""
    reason: str = ""
    """The reason of a cancelled task."""


class Default(msgspec.Struct, frozen=True):
    """The answer of an interrupt that no one answered before its deadline."""

    answer: Any = None
    """The answer, as JSON data."""


class InterruptRaised(Event, frozen=True):
    """A question to the outside, such as a request for approval; its id is the key of the event."""

    payload: Any = None
    """The question, as JSON data."""
    tool_call: ToolCall | None = None
    """The tool call in which it was raised, if any."""
    schema: dict[str, Any] | None = None
    """The JSON schema that an answer must fit."""
    deadline: float = 0.0
    """The time after which it is not answered any more, by the store's clock; 0 for none."""
    default: Default | None = None
    """The answer after the deadline; None if the interrupt then raises InterruptExpiredError."""

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
    expired: bool = False
    """True if no one answered before the deadline; the answer is then that of `Default`, if there is one."""


class AgentFinished(Event, frozen=True):
    """An agent finished normally."""

    value_changes: ValueChanges | None = None
    """The changes to the run's values since the previous event of the activation."""


class RunCompleted(Event, frozen=True):
    """The run completed."""

    said: tuple[str, ...] = ()
    """The keys of the responses that are the answer."""
    output: Any = msgspec.UNSET
    """The output as JSON data; unset if it is the text of the only one of these responses."""


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

    after_response: bool = False
    """True if it was to stop between a response and its tool calls; resuming it cancels these calls by default."""


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


KnownDelta: TypeAlias = TextDelta | ReasoningDelta | ResponseRestarted | ToolCallDelta | ProgressDelta | CustomDelta
"""All deltas of text runs."""
KnownEvent: TypeAlias = (
    RunStarted
    | RunResumed
    | AgentStarted
    | AgentResponded
    | UserMessageAdded
    | ResponseTruncated
    | HistoryCompacted
    | ToolReturned
    | StepCompleted
    | ControlTransferred
    | TaskOpened
    | TaskEnded
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
    deadline: float = 0.0
    """The time after which it cannot be answered any more, by the store's clock; 0 for none."""


def to_interrupt(event: InterruptRaised) -> Interrupt:
    """Convert the event of a question to the `Interrupt` that applications see."""
    return Interrupt(event.key, event.agent, event.path, event.payload, event.tool_call, event.schema, event.deadline)


def payload_fields(payload: Any) -> dict[str, Any]:
    """Return the payload of an interrupt if it is an object, else no fields."""
    return cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
