"""The projections once more, as naively as can be: from all entries, anew for each reader (DESIGN §5, T24, T25)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.laws.plans import PolicyName

from baton.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolMessage,
    UserMessage,
    is_empty,
    media_of,
    pair_calls_with_results,
    text_of,
)


@dataclass(frozen=True)
class Line:
    """One message of a run: who said it in which activation, and how much of it is left for later readers.

    `later` is without transfers that did not happen, `bare` without any; None if nothing is left.
    """

    message: Message
    author: str | None
    activation: int
    later: Message | None
    bare: Message | None
    is_answer: bool = False


def as_read(
    lines: Sequence[Line], me: str, activation: int, policy: PolicyName, *, hides_transfers: bool
) -> list[Message]:
    """What this activation's model reads of what has been said so far."""
    before = [line for line in lines if line.activation < activation]
    own = [line.message for line in lines if line.activation == activation]
    match policy:
        case "none":
            return [*(line.message for line in before if line.author is None), *own]
        case "answers":
            kept = [_as_spoken(line, me) for line in before if line.author is None or line.is_answer]
            return [*pair_calls_with_results(_told(kept, me, rewrites=True, hides=True)), *own]
        case "rewritten" | "lineage":
            # Transfers only ever lengthen the path, so that everybody before me is an ancestor of mine.
            return [*_told(before, me, rewrites=True, hides=hides_transfers), *own]
        case "verbatim":
            return [*_told(before, me, rewrites=False, hides=hides_transfers), *own]


def _as_spoken(line: Line, me: str) -> Line:
    """My own result that was the answer, as if I had said it: without its call it could not stand there."""
    if line.author != me or not isinstance(line.message, ToolMessage):
        return line
    said = AssistantMessage(line.message.content)
    return replace(line, message=said, later=said, bare=said)


def _told(lines: Sequence[Line], me: str, *, rewrites: bool, hides: bool) -> list[Message]:
    told: list[Message] = []
    for line in lines:
        message = line.bare if hides else line.later
        if message is not None and rewrites and line.author not in (None, me):
            message = _in_other_words(message, str(line.author))
        if message is not None:
            told.append(message)
    return told


def _in_other_words(message: Message, author: str) -> Message | None:
    if not isinstance(message, AssistantMessage | ToolMessage):
        return None if is_empty(message) else message
    text, media = text_of(message.content), media_of(message.content)
    pieces: list[str] = []
    if isinstance(message, ToolMessage):
        pieces += [f"[{author}] `{message.name}` tool returned result: {text}."] if text else []
    else:
        pieces += [f"[{author}] said: {text}."] if text else []
        pieces += [
            f"[{author}] called tool: `{call.name}` with arguments: {call.arguments}." for call in message.tool_calls
        ]
    if not pieces:
        return UserMessage(media) if media else None
    told = " ".join(["For context:", *pieces])
    return UserMessage((Text(told), *media)) if media else UserMessage(told)
