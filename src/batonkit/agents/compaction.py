"""`Compaction`: when a summary replaces the history of a long conversation, and who writes the summary."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct

from .._checks import CheckedStructMeta, check_callback
from .._wording import show
from ..context import RunContext
from ..errors import SetupError
from ..messages import Message
from ..models import Model, resolve_model

Summary: TypeAlias = str | Sequence[Message]
"""A summary: text, or messages."""
SummaryFunction: TypeAlias = Callable[[RunContext[Any], Sequence[Message]], Summary | Awaitable[Summary]]
"""Makes the summary of messages, sync or async: `(ctx, messages)`."""


class Compaction(Struct, frozen=True, kw_only=True, metaclass=CheckedStructMeta):
    """Replacement of the oldest messages of a long history by a summary.

    Before a model call, if the messages that the agent would send are longer than `at_tokens`, everything before the
    last `keep_last` turns is replaced with a summary. The log, the result of the run and `thread.messages()` keep all
    messages; resumed runs, later runs of the thread and forks read the recorded summary.

    A turn is a response with the results of its calls, together with the user messages before it. Tokens are those
    that the provider counted, and an estimate where it has not: a quarter of the bytes of a text.

    If the summarizer fails, the agent continues with the whole history, `on_compaction_failed` of the hooks is called,
    and the next attempt is made when the history has doubled.
    """

    at_tokens: int
    """The number of tokens above which the history is compacted."""
    keep_last: int = 10
    """The number of turns that are kept as they are. They should be much shorter than `at_tokens`."""
    summarizer: Model | str | SummaryFunction | None = None
    """The model that writes the summary, by default that of the agent; or a function `(ctx, messages)` that returns
    text or messages.

    The messages of agents have their `author`. A message that the function returns unchanged keeps its author and its
    role in the history policies.
    """
    instructions: str | None = None
    """Replaces the instructions of the model that writes the summary."""

    def __post_init__(self) -> None:
        if self.at_tokens < 1:
            raise SetupError(f"Compaction(at_tokens={self.at_tokens}): give at least 1")
        if self.keep_last < 1:
            raise SetupError(f"Compaction(keep_last={self.keep_last}): give at least 1, the turn before the model call")
        given: Any = self.summarizer
        if given is None or isinstance(given, str):
            return
        if isinstance(given, Model):
            resolve_model(given, wanted_by="Compaction")
            return
        if not callable(given):
            raise SetupError(
                f"Compaction(summarizer={show(cast(object, given))}): give a model, a string such as "
                '"openai:gpt-5-mini", or a function (ctx, messages)'
            )
        check_callback("Compaction(summarizer=…)", given, "ctx", "messages")
        if self.instructions is not None:
            raise SetupError(
                "Compaction(instructions=…) is for a model, but the summarizer is a function; leave it out"
            )


def check_compaction(owner: str, compaction: Any) -> Compaction | None:
    """Return a compaction unchanged.

    Raises:
        SetupError: It is neither a `Compaction` nor None.
    """
    if compaction is None or isinstance(compaction, Compaction):
        return compaction
    raise SetupError(f"{owner} has compaction={show(compaction)}; give Compaction(at_tokens=…, keep_last=…)")
