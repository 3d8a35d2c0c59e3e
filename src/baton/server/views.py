"""Runs and threads as a caller sees them, and their events: with the caller's own ids, without what is not for them."""

from collections.abc import Sequence

from msgspec.structs import asdict, replace

from ..adapters.http import Caller
from ..events import Delta, Event, Failed, RunStarted, encode_event
from ..flow import floor_of, recalled
from ..log import Log
from ..messages import text_of
from ..runner import Interrupt, usage_of
from ..stores import RunRecord
from .bodies import RunDetail, RunView


def listed_run(record: RunRecord, caller: Caller) -> RunView:
    """What a caller sees of a run without its log being read."""
    return RunView(
        id=caller.outside(record.run_id),
        status=record.status,
        thread=caller.outside(record.thread),
        created_at=record.created_at,
        updated_at=record.updated_at,
        events=max(0, record.seq - 1),
    )


def whole_run(record: RunRecord, events: Sequence[Event], caller: Caller) -> RunDetail:
    """What a caller sees of a run and its log."""
    failed = events[-1] if record.status == "failed" and events and isinstance(events[-1], Failed) else None
    return RunDetail(
        **asdict(listed_run(record, caller)),
        agent=floor_of(events),
        output=_output_of(events) if record.status == "completed" else None,
        questions=tuple(
            Interrupt(asked.key, asked.agent, asked.path, asked.payload, asked.call, asked.schema)
            for asked in Log(events).open_questions().values()
        ),
        error=failed.error if failed is not None else None,
        usage=usage_of(events).total,
    )


def as_sent(event: Event | Delta, caller: Caller, *, show_errors: bool) -> bytes:
    """An event as JSON for a caller. Why a run failed may hold what is not for them."""
    if isinstance(event, RunStarted):
        ids = {"run_id": event.run_id, "thread": event.thread, "follows": event.follows}
        known = {name: caller.outside(id) for name, id in ids.items()}
        event = replace(event, **known, team={}, forked_from="", caller="")
    elif isinstance(event, Failed) and not show_errors:
        event = replace(event, message="")
    return encode_event(event)


def _output_of(events: Sequence[Event]) -> str | None:
    answers = [entry.message for entry in recalled(events) if entry.is_answer]
    return text_of(answers[-1].content) if answers else None
