"""Which thread of the store a context of A2A is: callers that have names have threads of their own."""

from ...stores import RunRecord
from ..http import Principal


def thread_of(caller: Principal, context_id: str) -> str:
    """The thread of a caller's context; the context id itself, if the caller has no name."""
    if caller.name or ":" not in context_id:
        return caller.inside(context_id)
    # What is before a colon would pass for a caller's name.
    return f":{context_id}"


def parallel_thread(thread: str, run_id: str) -> str:
    """A thread for a task that runs beside another in the same context."""
    return f"{thread}#{run_id}"


def context_of(record: RunRecord) -> str:
    """The context that a run is part of; a run that has no thread is a context of its own."""
    thread = record.thread.removesuffix(f"#{record.run_id}")
    return (Principal(record.owner).outside(thread) if record.owner else thread.removeprefix(":")) or record.run_id


def can_be_context(context_id: str) -> bool:
    """Whether a caller may choose this id: only what any store can keep."""
    return "\0" not in context_id
