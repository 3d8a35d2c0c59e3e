"""Two conversations compared by what they say: how a provider cuts it into messages is its own affair."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from ...messages import (
    AssistantMessage,
    Audio,
    Content,
    Data,
    File,
    Image,
    Message,
    SystemMessage,
    Text,
    ToolMessage,
    UserMessage,
    text_of,
)

Atom: TypeAlias = tuple[Any, ...]


def essence(messages: Sequence[Message]) -> list[Atom]:
    """Who said what, in order: texts without their spaces, media, calls, results; neighbours of one speaker as one.

    What the application says counts as told by the user, because some providers have nothing else in the middle of a
    conversation. Ids of calls are numbered, because some providers allow only ids of a certain form.
    """
    numbers: dict[str, int] = {}
    atoms: list[Atom] = []
    for atom in _atoms(messages, numbers):
        if atoms and atom[0] == "text" and atoms[-1][:2] == atom[:2]:
            atoms[-1] = (*atom[:2], atoms[-1][2] + atom[2])
        else:
            atoms.append(atom)
    return atoms


def says_the_same(understood: Sequence[Message], told: Sequence[Message]) -> bool:
    """Whether a provider understood what it was told; arguments that are no JSON may have become anything.

    Where the user must have the first and the last word, a model may put one there.
    """
    there, here = essence(understood), essence(told)
    if here[0][:2] == ("text", "said") and there[:1] != here[:1]:
        del there[0]
    if here[-1][:2] == ("text", "said") and there[-1:] != here[-1:]:
        del there[-1]
    for position, atom in enumerate(here):
        if atom[0] == "call" and atom[3] is None and position < len(there):
            here[position] = (*atom[:3], *there[position][3:])
    return there == here


def _atoms(messages: Sequence[Message], numbers: dict[str, int]) -> Iterator[Atom]:
    for message in messages:
        match message:
            case UserMessage() | SystemMessage():
                yield from _spoken("told", message.content)
            case AssistantMessage():
                yield from _spoken("said", message.content)
                for call in message.tool_calls:
                    # An id may come again later, in another turn: the newest call is the one that is meant.
                    numbers[call.id] = len(numbers)
                    yield "call", numbers[call.id], call.name, _arguments(call.arguments)
            case ToolMessage():
                yield "result", numbers.get(message.tool_call_id), _squeezed(text_of(message.content))


def _spoken(speaker: str, content: Content) -> Iterator[Atom]:
    for part in (Text(content),) if isinstance(content, str) else content:
        match part:
            case Text():
                text = _squeezed(part.text)
            case Data():
                text = _squeezed(msgspec.json.encode(part.value).decode())
            case Image() | Audio() | File():
                yield type(part).__name__, speaker, part.url or part.data
                continue
        if text:
            yield "text", speaker, text


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _arguments(text: str) -> Any:
    """The arguments as a value; None if they are no JSON, for which providers have no common way."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
