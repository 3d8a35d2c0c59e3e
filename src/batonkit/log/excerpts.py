"""Lists of messages for the log: those that are known by position, all others in full."""

from collections.abc import Callable, Iterable, Sequence

from ..messages import Message
from .events import EntryForm, MessageRange


def to_excerpt(
    messages: Iterable[Message], find: Callable[[Message], tuple[int, EntryForm] | None]
) -> tuple[MessageRange | Message, ...]:
    """Return messages by position and form, if `find` knows them, else in full."""
    excerpt: list[MessageRange | Message] = []
    for message in messages:
        place = find(message)
        if place is None:
            excerpt.append(message)
            continue
        position, form = place
        last = excerpt[-1] if excerpt else None
        if isinstance(last, tuple) and last[1:] == (position, form):
            excerpt[-1] = (last[0], position + 1, form)
        else:
            excerpt.append((position, position + 1, form))
    return tuple(excerpt)


def from_excerpt(
    excerpt: Sequence[MessageRange | Message], read: Callable[[int, EntryForm], Message | None]
) -> list[Message]:
    """Return the messages of an excerpt; those that `read` does not find any more are left out."""
    messages: list[Message] = []
    for part in excerpt:
        if isinstance(part, tuple):
            start, stop, form = part
            found = [read(position, form) for position in range(start, stop)]
            messages.extend([message for message in found if message is not None])
        else:
            messages.append(part)
    return messages
