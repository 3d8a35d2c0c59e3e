"""The events a log is made of, in the past tense."""

from typing import Any

import msgspec

from ..messages import AssistantMessage, Content, Message, ToolCall, ToolMessage, Usage, UserMessage, text_of
from .base import Changes, Event


class RunStarted(Event, frozen=True):
    """A run began: with which input, for which agent, with which values."""

    run_id: str
    root: str
    input: tuple[Message, ...] = ()
    values: dict[str, Any] = {}
    thread: str = ""
    """The conversation it is part of."""
    follows: str = ""
    """The run before it in its thread."""
    forked_from: str = ""
    """The run, and after `@` the number of events, that it was forked from."""
    team: dict[str, str] = {}
    """The team's fingerprint, by agent."""
    limits: dict[str, Any] = {}
    """Limits of its own."""
    caller: str = ""
    """The name of whoever asked for it from outside, and whose it is."""


class Resumed(Event, frozen=True):
    """Somebody took the run up again after it had stopped."""


class Started(Event, frozen=True):
    """An agent got the floor."""


class Said(Event, frozen=True):
    """An agent spoke, by its model (then `model` and `usage` are there) or by itself."""

    message: AssistantMessage
    model: str = ""
    usage: Usage | None = None
    stop_reason: str = ""
    changes: Changes | None = None
    disabled: tuple[str, ...] = ()
    """The handoff tools that were switched off in this turn."""

    @property
    def text(self) -> str:
        """The text of what was said."""
        return text_of(self.message.content)


class Heard(Event, frozen=True):
    """The user spoke while the run was under way, as happens in live conversations."""

    message: UserMessage
    item_id: str = ""
    """The provider's name for it, if it was speech."""

    @property
    def text(self) -> str:
        """The text of what the user said."""
        return text_of(self.message.content)


class CutShort(Event, frozen=True):
    """Somebody interrupted an agent while it spoke: of what it `said`, by key, the user heard only this."""

    said: str
    heard: str = ""
    played_ms: int = 0

    def left_of(self, message: AssistantMessage) -> AssistantMessage:
        """The message with those words only that were heard."""
        return msgspec.structs.replace(message, content=self.heard or "…")


class ToolReturned(Event, frozen=True):
    """A call got its result. `is_final` marks one that is the agent's answer, `breaks_loop` one that ends a loop."""

    call_id: str
    name: str
    content: Content = ""
    is_error: bool = False
    is_final: bool = False
    changes: Changes | None = None
    breaks_loop: bool = False
    is_undone: bool = False
    """Whether it tells of a transfer that did not happen: nobody reads of it later."""
    wanted: str = ""
    """The agent that the call asked to transfer to, whether or not that came about; "" if it asked for no transfer."""
    is_unknown: bool = False
    """Whether it tells that the agent had no tool of that name."""

    @property
    def message(self) -> ToolMessage:
        """The result as a message for a model."""
        return ToolMessage(self.call_id, self.name, self.content, self.is_error)


class Stepped(Event, frozen=True):
    """Code of the application ran once, and this is what it gave."""

    name: str
    value: Any = None
    changes: Changes | None = None
    asked: int = 0
    """How many questions were asked in it: they count, though they are not asked again."""


class Transferred(Event, frozen=True):
    """Control went from one agent to another. `reason` is "" unless no call asked for it."""

    source: str
    target: str
    call_id: str | None = None
    payload: Any = None
    reason: str = ""
    changes: Changes | None = None


class Asked(Event, frozen=True):
    """A question to the outside; its id is the event's key. `call` is the call it is about, if it is about one."""

    payload: Any = None
    call: ToolCall | None = None
    schema: dict[str, Any] | None = None
    """The JSON schema that an answer must fit."""


class Answered(Event, frozen=True):
    """The outside answered the question with this id. `values` came with the answer, for the run's values."""

    id: str
    answer: Any = None
    values: dict[str, Any] = {}


class Finished(Event, frozen=True):
    """An agent gave the floor up in good order."""

    changes: Changes | None = None


class Completed(Event, frozen=True):
    """The run came to its end."""


class Suspended(Event, frozen=True):
    """The run waits for answers to these questions."""

    open: tuple[str, ...] = ()


class Failed(Event, frozen=True):
    """The run ended with an error; it may be resumed, and then tries again what failed."""

    error: str
    message: str = ""


class Cancelled(Event, frozen=True):
    """Somebody stopped the run; it may be resumed."""


class Unknown(Event, frozen=True):
    """An event of a kind this version does not know, kept as it was read."""

    kind: str
    raw: msgspec.Raw
