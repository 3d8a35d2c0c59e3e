"""The law of the fold: a log alone gives the history that the run had, and what each agent read before each call.

`watch` checks every run of a test when it stops. Live conversations have a law of their own in `tests/laws`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from batonkit.agents.loop import ModelLoop
from batonkit.errors import BatonError
from batonkit.log import Event, HistoryEntry, RunStarted, decode_log, encode_log, keys
from batonkit.log import history as histories
from batonkit.log.fold import RunFold
from batonkit.log.history import History
from batonkit.log.reads import LogReads
from batonkit.messages import Message
from batonkit.runs.result import RunResult

_LONGEST = 3000
"""Longer logs are not checked, for time."""


class _Watched:
    """The histories of the runs of one test, and the messages that their agents read."""

    def __init__(self) -> None:
        self.before: dict[str, History] = {}
        """The history of the thread before each run."""
        self.read: dict[str, dict[str, list[Message]]] = {}
        """The messages that were read before each model call, by run and key of the response."""
        self.violations: list[str] = []
        self.is_checking = False

    def start(self, history: History, event: RunStarted) -> None:
        if not self.is_checking:
            self.before[event.run_id] = History(history.entries, is_whole=history.is_whole)

    def check(self, result: RunResult[Any]) -> None:
        events = result.events
        run_id = result.run_id
        before = self.before.get(run_id)
        read = self.read.pop(run_id, {})
        if before is None or len(events) > _LONGEST or any(map(_is_item, events)):
            return
        try:
            decoded = decode_log(encode_log(events))
        except BatonError:
            return  # It holds what only tests without a store may have.
        self.is_checking = True
        try:
            self._compare(result, decoded, before, read)
        finally:
            self.is_checking = False

    def _compare(
        self, result: RunResult[Any], events: Sequence[Event], before: History, read: dict[str, list[Message]]
    ) -> None:
        reads = LogReads(RunFold(History(before.entries, is_whole=before.is_whole)))
        found: dict[str, list[Message]] = {}
        for event in events:
            if event.key in read:
                found[event.key] = list(reads.view_of(event).messages())
            reads.apply(event)
        reads.fold.join_branches()
        for key, messages in found.items():
            if messages != read[key]:
                self._report(result, f"read before {key}", messages, read[key])
        of_log = list(map(_plain, reads.fold.main.passed_entries()))
        of_run = list(map(_plain, result._history.passed_entries()))
        if result.status != "completed":
            # Some agents may have stopped between the record of an event and the end of the turn.
            of_log = [entry for entry in of_log if entry in of_run]
        if of_log != of_run:
            self._report(result, "history", of_log, of_run)

    def _report(self, result: RunResult[Any], what: str, of_log: Sequence[Any], of_run: Sequence[Any]) -> None:
        position = next((at for at, pair in enumerate(zip(of_log, of_run, strict=False)) if pair[0] != pair[1]), None)
        place = min(len(of_log), len(of_run)) if position is None else position
        self.violations.append(
            f"{what} of {result!r} at {place} of {len(of_log)} and {len(of_run)}:\n"
            f"  log: {of_log[place : place + 1]}\n  run: {of_run[place : place + 1]}"
        )


def _is_item(event: Event) -> bool:
    return keys.item_number(event.key) is not None


def _plain(entry: HistoryEntry) -> tuple[Any, ...]:
    origin = entry.origin
    return (
        entry.message,
        None if origin is None else (origin.id, origin.agent),
        entry.is_answer,
        entry.hidden,
        entry.followed,
        entry.key,
        entry.event,
    )


@contextmanager
def watch() -> Generator[list[str]]:
    """Check all runs of a block; yield the list of violations, which grows."""
    watched = _Watched()
    start_run: Any = histories._FOLDS[RunStarted]
    create_result: Any = RunResult.__init__
    build_request: Any = ModelLoop._build_request

    def start(history: History, event: RunStarted, origin: Any) -> None:
        watched.start(history, event)
        start_run(history, event, origin)

    def create(self: RunResult[Any], *args: Any, **kwargs: Any) -> None:
        create_result(self, *args, **kwargs)
        watched.check(self)

    def build(self: ModelLoop, prepared: Any, turn: int, read: Sequence[Message]) -> Any:
        ctx = self._ctx
        watched.read.setdefault(ctx.run_id, {})[keys.response(ctx._scope, turn)] = list(read)
        return build_request(self, prepared, turn, read)

    with (
        patch.dict(histories._FOLDS, {RunStarted: start}),
        patch.object(RunResult, "__init__", create),
        patch.object(ModelLoop, "_build_request", build),
    ):
        yield watched.violations
