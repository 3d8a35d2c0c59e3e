"""The events a log is made of, in the past tense.

What is delivered while it happens and never logged.
"""

from typing import Any

import msgspec

from ..messages import AssistantMessage, Content, Message, ToolCall, ToolMessage, Usage, UserMessage, text_of
from .base import Delta, Event, ValueChanges


class RunStarted(Event, frozen=True):
    """A run began: with which input, for which agent, with which values."""

    run_id: str
    root_agent: str
    input: tuple[Message, ...] = ()
    values: dict[str, Any] = {}
    thread: str = ""
    """The conversation it is part of."""
    previous_run_id: str = ""
    """The run before it in its thread."""
    forked_from: str = ""
    """The run, and after `@` the number of events, that it was forked from."""
    team_fingerprint: dict[str, str] = {}
    """The team's fingerprint, by agent."""
    limits: dict[str, Any] = {}
    """Limits of its own."""
    owner: str = ""
    """The name of whoever asked for it from outside, and whose it is."""


class RunResumed(Event, frozen=True):
    """Somebody took the run up again after it had stopped."""


class AgentStarted(Event, frozen=True):
    """An agent got the floor."""


class AgentResponded(Event, frozen=True):
    """An agent spoke, by its model (then `model` and `usage` are there) or by itself."""

    message: AssistantMessage
    model: str = ""
    usage: Usage | None = None
    stop_reason: str = ""
    value_changes: ValueChanges | None = None
    disabled_handoffs: tuple[str, ...] = ()
    """The handoff tools that were switched off in this turn."""

    @property
    def text(self) -> str:
        """The text of what was said."""
        return text_of(self.message.content)


class UserMessageAdded(Event, frozen=True):
    """The user spoke while the run was under way, as happens in live conversations."""

    message: UserMessage
    item_id: str = ""
    """The provider's name for it, if it was speech."""

    @property
    def text(self) -> str:
        """The text of what the user said."""
        return text_of(self.message.content)


class ResponseTruncated(Event, frozen=True):
    """Somebody interrupted an agent while it spoke: of what it `said`, by key, the user heard only this."""

    response_key: str
    heard_text: str = ""
    played_ms: int = 0

    def truncate(self, message: AssistantMessage) -> AssistantMessage:
        """The message with those words only that were heard."""
        return msgspec.structs.replace(message, content=self.heard_text or "…")


class ToolReturned(Event, frozen=True):
    """A call got its result. `is_final` marks one that is the agent's answer, `breaks_loop` one that ends a loop."""

    call_id: str
    tool_name: str
    content: Content = ""
    is_error: bool = False
    is_final: bool = False
    value_changes: ValueChanges | None = None
    breaks_loop: bool = False
    is_transfer_refused: bool = False
    """Whether it tells of a transfer that did not happen: nobody reads of it later."""
    requested_agent: str = ""
    """The agent that the call asked to transfer to, whether or not that came about; "" if it asked for no transfer."""
    is_unknown_tool: bool = False
    """Whether it tells that the agent had no tool of that name."""

    @property
    def message(self) -> ToolMessage:
        """The result as a message for a model."""
        return ToolMessage(self.call_id, self.tool_name, self.content, self.is_error)


class StepCompleted(Event, frozen=True):
    """Code of the application ran once, and this is what it gave."""

    name: str
    result: Any = None
    value_changes: ValueChanges | None = None
    interrupt_count: int = 0
    """How many questions were asked in it: they count, though they are not asked again."""


class ControlTransferred(Event, frozen=True):
    """Control went from one agent to another. `reason` is "" unless no call asked for it."""

    source: str
    target: str
    call_id: str | None = None
    payload: Any = None
    reason: str = ""
    value_changes: ValueChanges | None = None


class InterruptRaised(Event, frozen=True):
    """A question to the outside; its id is the event's key. `call` is the call it is about, if it is about one."""

    payload: Any = None
    tool_call: ToolCall | None = None
    schema: dict[str, Any] | None = None
    """The JSON schema that an answer must fit."""


class InterruptAnswered(Event, frozen=True):
    """The outside answered the question with this id. `values` came with the answer, for the run's values."""

    interrupt_id: str
    answer: Any = None
    values: dict[str, Any] = {}


class AgentFinished(Event, frozen=True):
    """An agent gave the floor up in good order."""

    value_changes: ValueChanges | None = None


class RunCompleted(Event, frozen=True):
    """The run came to its end."""


class RunSuspended(Event, frozen=True):
    """The run waits for answers to these questions."""

    interrupt_ids: tuple[str, ...] = ()


class RunFailed(Event, frozen=True):
    """The run ended with an error; it may be resumed, and then tries again what failed."""

    error_type: str
    message: str = ""


class RunCancelled(Event, frozen=True):
    """Somebody stopped the run; it may be resumed."""


class UnknownEvent(Event, frozen=True):
    """An event of a kind this version does not know, kept as it was read."""

    event_type: str
    raw: msgspec.Raw


class TextDelta(Delta, frozen=True, gc=False):
    """A piece of the text an agent's model is writing."""

    text: str


class ReasoningDelta(Delta, frozen=True, gc=False):
    """A piece of what a model thinks before it speaks."""

    text: str


class ToolCallDelta(Delta, frozen=True, gc=False):
    """A piece of a call a model is writing; `index` tells calls of one response apart."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class ProgressDelta(Delta, frozen=True, gc=False):
    """How far a tool or an agent has come; `total` may be unknown."""

    text: str = ""
    done: float | None = None
    total: float | None = None
    call_id: str = ""


class CustomDelta(Delta, frozen=True):
    """Whatever the application wants its listeners to see."""

    name: str
    data: Any = None


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
