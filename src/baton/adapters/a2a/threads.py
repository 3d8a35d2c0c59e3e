"""Which thread of the store a context of A2A is, and whose: callers that have names have threads of their own."""

from urllib.parse import quote

from ...stores import RunRecord

_OWNED = "a2a:"


def thread_of(owner: str, context_id: str) -> str:
    """The thread of a caller's context; the context id itself, if callers have no names."""
    return f"{_OWNED}{quote(owner, safe='')}:{context_id}" if owner else context_id


def beside(thread: str, run_id: str) -> str:
    """A thread for a task that runs beside another in the same context."""
    return f"{thread}#{run_id}"


def is_visible(record: RunRecord, owner: str) -> bool:
    """Whether a run is this caller's. Without names, whatever belongs to nobody is everybody's."""
    if not owner:
        return not record.thread.startswith(_OWNED)
    return record.thread.startswith(thread_of(owner, ""))


def context_of(record: RunRecord) -> str:
    """The context that a run is part of; a run that has no thread is a context of its own."""
    thread = record.thread.removesuffix(f"#{record.run_id}")
    if thread.startswith(_OWNED):
        thread = thread[len(_OWNED) :].partition(":")[2]
    return thread or record.run_id


def can_be_context(context_id: str) -> bool:
    """Whether a caller may choose this id: none that would pass for somebody else's."""
    return not context_id.startswith(_OWNED) and "\0" not in context_id
