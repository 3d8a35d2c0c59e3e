"""A naive second implementation of the history policies, for comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.laws.plans import PolicyName

from batonkit.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolMessage,
    UserMessage,
    is_empty,
    media_of,
    text_of,
)


@dataclass(frozen=True)
class HistoryLine:
    """One message of a run with its author and activation, and its forms for later readers.

    `later` omits transfers that did not happen, `bare` omits all transfers; None if nothing remains.
    """

    message: Message
    author: str | None
    activation: int
    later: Message | None
    bare: Message | None
    is_answer: bool = False


def project_history(
    lines: Sequence[HistoryLine], reader: str, activation: int, policy: PolicyName, *, hides_transfers: bool
) -> list[Message]:
    """Return the messages that the model of this activation must receive."""
    before = [line for line in lines if line.activation < activation]
    own = [line.message for line in lines if line.activation == activation]
    match policy:
        case "none":
            return [*(line.message for line in before if line.author is None), *own]
        case "answers":
            kept = [line for line in before if line.author is None or line.is_answer]
            return [*_project_earlier(kept, reader, rewrites=True, hides=True), *own]
        case "rewritten" | "lineage":
            # Transfers only lengthen the path, so every agent before the reader is one of its ancestors.
            return [*_project_earlier(before, reader, rewrites=True, hides=hides_transfers), *own]
        case "verbatim":
            return [*_project_earlier(before, reader, rewrites=False, hides=hides_transfers), *own]


def _project_earlier(lines: Sequence[HistoryLine], reader: str, *, rewrites: bool, hides: bool) -> list[Message]:
    projected: list[Message] = []
    for line in lines:
        message = line.bare if hides else line.later
        if message is not None and rewrites and line.author not in (None, reader):
            message = _rewritten(message, str(line.author))
        if message is not None:
            projected.append(message)
    return projected


def end_sentence(text: str) -> str:
    """Add a full stop, unless the text ends with a mark of its own."""
    return text if text[-1] in ".!?…。！？" else f"{text}."


def _rewritten(message: Message, author: str) -> Message | None:
    if not isinstance(message, AssistantMessage | ToolMessage):
        return None if is_empty(message) else message
    text, media = text_of(message.content), media_of(message.content)
    sentences: list[str] = []
    if isinstance(message, ToolMessage):
        sentences += [f"[{author}] `{message.name}` tool returned result: {end_sentence(text)}"] if text else []
    else:
        sentences += [f"[{author}] said: {end_sentence(text)}"] if text else []
        sentences += [
            f"[{author}] called tool: `{call.name}` with arguments: {call.arguments}." for call in message.tool_calls
        ]
    if not sentences:
        return UserMessage(media) if media else None
    projected = " ".join(["For context:", *sentences])
    return UserMessage((Text(projected), *media)) if media else UserMessage(projected)
