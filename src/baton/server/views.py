"""Runs and threads as a caller sees them, and their events: with the caller's own ids, without what is not for them."""

from collections.abc import Sequence

from msgspec.structs import asdict, replace

from ..adapters.http import Principal
from ..events import Delta, Event, RunFailed, RunStarted, encode_event
from ..flow import history_from_log, last_active_agent
from ..log import Log
from ..messages import text_of
from ..runner import Interrupt, usage_from_events
from ..stores import RunRecord
from .bodies import RunDetail, RunView


def listed_run(record: RunRecord, caller: Principal) -> RunView:
    """What a caller sees of a run without its log being read."""
    return RunView(
        id=caller.outside(record.run_id),
        status=record.status,
        thread=caller.outside(record.thread),
        created_at=record.created_at,
        updated_at=record.updated_at,
        events=max(0, record.seq - 1),
    )


def whole_run(record: RunRecord, events: Sequence[Event], caller: Principal) -> RunDetail:
    """What a caller sees of a run and its log."""
    failed = events[-1] if record.status == "failed" and events and isinstance(events[-1], RunFailed) else None
    return RunDetail(
        **asdict(listed_run(record, caller)),
        agent=last_active_agent(events),
        output=_output_of(events) if record.status == "completed" else None,
        questions=tuple(
            Interrupt(asked.key, asked.agent, asked.path, asked.payload, asked.tool_call, asked.schema)
            for asked in Log(events).open_questions().values()
        ),
        error=failed.error_type if failed is not None else None,
        usage=usage_from_events(events).total,
    )


def as_sent(event: Event | Delta, caller: Principal, *, show_errors: bool) -> bytes:
    """An event as JSON for a caller. Why a run failed may hold what is not for them."""
    if isinstance(event, RunStarted):
        ids = {"run_id": event.run_id, "thread": event.thread, "previous_run_id": event.previous_run_id}
        known = {name: caller.outside(id) for name, id in ids.items()}
        event = replace(event, **known, team_fingerprint={}, forked_from="", owner="")
    elif isinstance(event, RunFailed) and not show_errors:
        event = replace(event, message="")
    return encode_event(event)


def _output_of(events: Sequence[Event]) -> str | None:
    answers = [entry.message for entry in history_from_log(events) if entry.is_answer]
    return text_of(answers[-1].content) if answers else None
