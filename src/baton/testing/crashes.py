"""The crash laboratory: a team is killed after every event of a run, and taken up again by another process.

A process that dies is played by a runner whose store does not answer any more, and the one that takes over by a fresh
runner on the same store. The context stands for the world outside: it goes on while processes come and go.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from msgspec import Struct

from ..messages import RunInput
from .experiment import UNANSWERED, CrashExperiment, CrashSubject, NewRunner
from .likeness import Alike, FinishedRun, differences_of, line_of
from .mortal import Moment

_MOST_SHOWN = 24
_NOT_REPEATABLE = (
    "nobody was killed, and a second run differs from the first (use scripted models, keep clocks, random numbers and "
    "state in new_context, or say with alike=… what may differ)"
)
_NOT_REPLAYABLE = "nobody was killed, and the code does not do over the log of the run what it did in the run"


class Divergence(Struct, frozen=True):
    """A crash after which a run did not become what it would have been."""

    event: int
    """After how many events the process died; 0 if none died, and two runs differ all the same."""
    place: str
    """That event in words, and when the process died."""
    differences: Sequence[str]
    """Lines with `-` are of the run that was left alone, lines with `+` of the other."""

    def __str__(self) -> str:
        shown = [f"    {line}" for line in self.differences[:_MOST_SHOWN]]
        if len(self.differences) > _MOST_SHOWN:
            shown.append(f"    … and {len(self.differences) - _MOST_SHOWN} lines more")
        return "\n".join([f"  {self.place}:", *shown])


class CrashReport(Struct, frozen=True):
    """What a laboratory found out about a team."""

    events: int
    """How many events the run has that was left alone."""
    commits: int
    """In how many pieces they were stored."""
    crashes: int
    """How many processes were killed."""
    resumes: int
    """How many times a run was taken up, after a crash or with answers."""
    seconds: float
    divergences: tuple[Divergence, ...] = ()

    def __str__(self) -> str:
        counts = f"{self.crashes} crashes in a run of {self.events} events, {self.resumes} resumes"
        if not self.divergences:
            return f"{counts}: the same every time"
        first, *others = self.divergences
        lines = [f"{counts}, {len(self.divergences)} with another outcome", str(first)]
        # One cause often shows in many places; the first is the nearest to it.
        lines += [f"  {other.place}: {len(other.differences)} lines" for other in others[:_MOST_SHOWN]]
        if len(others) > _MOST_SHOWN:
            lines.append(f"  … and {len(others) - _MOST_SHOWN} more")
        return "\n".join(lines)


async def assert_survives_crashes(
    new_runner: NewRunner,
    input: RunInput,
    *,
    answers: Any = UNANSWERED,
    values: Mapping[str, Any] | None = None,
    new_context: Callable[[], Any] | None = None,
    outside: Callable[[Any], Any] | None = None,
    alike: Alike | None = None,
) -> CrashReport:
    """Kill the team after every event of a run, and fail unless another process always makes the same of it.

    `new_runner` makes the runner of a process: `lambda store: Runner(desk(), store=store)`. `answers` are for the
    team's questions: one for all, a mapping from id to answer, or a function of the `Interrupt`. `new_context` makes
    `ctx.context`, once for each run: its processes share it, as they share the world. `outside` says, from it, what
    was done there, and that must be the same as well. `alike` takes out of a line what may differ.
    """
    report = await crash_report(
        new_runner,
        input,
        answers=answers,
        values=values,
        new_context=new_context,
        outside=outside,
        alike=alike,
    )
    if report.divergences:
        raise AssertionError(str(report))
    return report


async def crash_report(
    new_runner: NewRunner,
    input: RunInput,
    *,
    answers: Any = UNANSWERED,
    values: Mapping[str, Any] | None = None,
    new_context: Callable[[], Any] | None = None,
    outside: Callable[[Any], Any] | None = None,
    alike: Alike | None = None,
) -> CrashReport:
    """The same, for who wants to read what went wrong rather than fail: the report's `divergences`."""
    began = perf_counter()
    subject = CrashSubject(new_runner, input, values or {}, answers, new_context, outside)
    first, again = CrashExperiment(subject), CrashExperiment(subject)
    wanted = await first.run()
    with _quiet():
        divergences = _before_any_crash(wanted, await again.run(), alike=alike)
        deaths = _deaths(len(wanted.events), set(first.commits)) if not divergences else []
        crashes, resumes = 0, first.resumes + again.resumes
        for event, moment in deaths:
            experiment = CrashExperiment(subject)
            got = await experiment.run(event, moment)
            crashes, resumes = crashes + experiment.has_died, resumes + experiment.resumes
            lines = [*experiment.violations(), *differences_of(wanted, got, alike=alike)]
            if lines:
                divergences.append(Divergence(event, _place(event, moment, wanted, experiment), lines))
    seconds = perf_counter() - began
    return CrashReport(len(wanted.events), len(set(first.commits)), crashes, resumes, seconds, tuple(divergences))


def _before_any_crash(first: FinishedRun, second: FinishedRun, *, alike: Alike | None) -> list[Divergence]:
    """What is wrong though nobody died; then crashes have nothing to be compared with."""
    if first.status == "completed" and first.error:
        return [Divergence(0, _NOT_REPLAYABLE, [f"+ {first.error}"])]
    lines = differences_of(first, second, alike=alike)
    return [Divergence(0, _NOT_REPEATABLE, lines)] if lines else []


def _deaths(events: int, commits: set[int]) -> list[tuple[int, Moment]]:
    """When processes are to die: when each event is stored, and between what is stored in one piece and the next."""
    deaths: list[tuple[int, Moment]] = []
    for event in range(1, events + 1):
        deaths.append((event, "when it was stored"))
        if event in commits and event < events:
            deaths.append((event, "before the next was stored"))
    return deaths


def _place(event: int, moment: Moment, wanted: FinishedRun, experiment: CrashExperiment) -> str:
    last = f" ({line_of(experiment.survived[-1])})" if experiment.survived else ""
    return f"killed after event {event} of {len(wanted.events)}{last}, {moment}"


@contextmanager
def _quiet() -> Generator[None]:
    """The same warnings a hundred times over, and those of the dying, help nobody; the first run has its say."""
    logger = logging.getLogger("baton")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
