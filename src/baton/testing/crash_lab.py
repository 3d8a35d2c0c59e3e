"""The crash laboratory: a team is killed after every event of a run, and taken up again by another process.

A process that dies is played by a runner whose store does not answer any more, and the one that takes over by a fresh
runner on the same store. The context stands for the world outside: it goes on while processes come and go.

A store whose writer can be made to die, and the clock by which its lease runs out.

One run whose process may be made to die; another one then takes it up.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter, time
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from ..context.values import to_json_value
from ..errors import BatonError, RunConflictError, SetupError
from ..events import Event, RunFailed, ToolReturned, decode_lines
from ..log import Log
from ..messages import RunInput
from ..runner import Interrupt, Runner
from ..runner.result import to_interrupt
from ..stores import Lease, MemoryStore, RunStatus, Store
from .executions import ToolExecutions, scripts_of
from .transcripts import Alike, FinishedRun, differences_of, line_of

Moment: TypeAlias = Literal["when it was stored", "before the next was stored"]
"""When a process dies at an event: as soon as that is stored, or when it wants to store what it did afterwards."""

_LONG = 1_000_000.0


class ProcessDiedError(RunConflictError):
    """The process that wrote to the store is dead. As with any conflict, whoever drives the run stops."""

    def __init__(self) -> None:
        super().__init__("", "the process is dead")


class CrashingStore(MemoryStore):
    """Keeps the log of one run in memory. Its writer dies where it is told to; the next one finds what was stored.

    A batch may be torn: stores differ in what they store in one piece, and a log must be good up to any event.
    """

    def __init__(self) -> None:
        super().__init__(clock=lambda: time() + self._elapsed)
        self._elapsed = 0.0
        self._last: int | None = None
        self._moment: Moment = "when it was stored"
        self.is_dead = False
        """Whether the present process has died."""
        self.commits: list[int] = []
        """How many events there were after each time something was stored."""

    def let_die(self, event: int, moment: Moment) -> None:
        """Have the present process die at this event; the first one of a run is number 1."""
        self._last, self._moment = event, moment

    def next_process(self) -> None:
        """The dead do not write any more, and their lease runs out."""
        self._last, self.is_dead = None, False
        self._elapsed += _LONG

    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        """Begin a run with its first lines, or with those that the process lives to write."""
        self._check_alive()
        # The first line is not an event: it names the format.
        kept = lines if self._last is None else lines[: self._last + 1]
        lease = await super().create(run_id, kept, **about)
        self._stored(len(kept), is_torn=len(kept) < len(lines))
        return lease

    async def append(
        self,
        run_id: str,
        expected_seq: int,
        lines: Sequence[bytes],
        *,
        status: RunStatus | None = None,
        fence: int | None = None,
    ) -> None:
        """Add lines, or those that the process lives to write. The status is stored with the last of them, or not."""
        self._check_alive()
        room = len(lines) if self._last is None else self._last + 1 - expected_seq
        if self._last is not None and room <= 0:
            self._die()
        kept = lines[:room]
        is_torn = len(kept) < len(lines)
        await super().append(run_id, expected_seq, kept, status=None if is_torn else status, fence=fence)
        self._stored(expected_seq + len(kept), is_torn=is_torn)

    async def renew(self, lease: Lease, *, ttl: float) -> Lease:
        """Hold a lease for longer; the dead cannot."""
        self._check_alive()
        return await super().renew(lease, ttl=ttl)

    async def release(self, lease: Lease) -> None:
        """Give a lease back; the dead do not."""
        if not self.is_dead:
            await super().release(lease)

    def _stored(self, lines: int, *, is_torn: bool) -> None:
        self.commits.append(lines - 1)
        if is_torn or (self._last is not None and self._moment == "when it was stored" and lines > self._last):
            self._die()

    def _check_alive(self) -> None:
        if self.is_dead:
            raise ProcessDiedError

    def _die(self) -> None:
        self.is_dead = True
        raise ProcessDiedError


NewRunner: TypeAlias = Callable[[Store], Runner[Any, Any]]
"""Makes the runner of one process: `lambda store: Runner(desk(), store=store)`."""

UNANSWERED: Any = Ellipsis
"""Said in place of answers where there are none; None may be one."""

_RUN = "crash-laboratory"
_MOST_ROUNDS = 1000


class CrashSubject(Struct, frozen=True):
    """What is put to the test: who is to run, on what, and who answers."""

    new_runner: NewRunner
    input: RunInput
    values: Mapping[str, Any]
    answers: Any
    new_context: Callable[[], Any] | None
    outside: Callable[[Any], Any] | None

    def answer_to(self, interrupt: Interrupt) -> Any:
        """The answer to a question of the team. Raises AssertionError if there is none."""
        answers = self.answers
        if callable(answers):
            return answers(interrupt)
        by_id: Mapping[Any, Any] = cast("Any", answers) if isinstance(answers, Mapping) else {}
        if interrupt.id in by_id:
            return by_id[interrupt.id]
        # A dictionary may also be the answer itself, unless its keys show that it was meant otherwise.
        if answers is UNANSWERED or any("/ask" in str(id) for id in by_id):
            asked = f"`{interrupt.agent}` asks `{interrupt.id}`: {interrupt.payload!r}"
            raise AssertionError(f"{asked}, and answers=… has no answer to it")
        return self.answers


class CrashExperiment:
    """One run in a store of its own, in a world of its own."""

    def __init__(self, subject: CrashSubject) -> None:
        self._subject = subject
        self._store = CrashingStore()
        self._context = subject.new_context() if subject.new_context is not None else None
        self._executions = ToolExecutions()
        self._to_run_again: Counter[str] = Counter()
        self.survived: Sequence[Event] = ()
        """What was stored when the first process died."""
        self.has_died = False
        self.resumes = 0

    @property
    def commits(self) -> Sequence[int]:
        """How many events there were after each time something was stored."""
        return self._store.commits

    async def run(self, event: int | None = None, moment: Moment = "when it was stored") -> FinishedRun:
        """The run at its end; if there is an event to die at, in another process than it began in."""
        if event is not None:
            self._store.let_die(event, moment)
        subject, context = self._subject, self._context

        def begin(runner: Runner[Any, Any]) -> Awaitable[Any]:
            return runner.run(subject.input, run_id=_RUN, values=subject.values, context=context)

        course = await self._process(begin)
        if course is None:
            self.has_died, self.survived = True, await self._stored()
            self._store.next_process()
            self._executions.process += 1
            self.resumes += 1
            course = await self._process(lambda runner: runner.drive(_RUN, context=context))
        assert course is not None
        return course

    def violations(self) -> list[str]:
        """A line for each effect that happened again, though it was on record or must not happen twice."""
        recorded = {event.key for event in self.survived if isinstance(event, ToolReturned)}
        again = [each for each in self._executions if each.process > 1 and each.key in recorded]
        lines = [f"+ done again: `{each.name}` ({each.key}), though its result was on record" for each in again]
        for key in dict.fromkeys(each.key for each in self._executions if each.effect == "once"):
            done = [each for each in self._executions.of(key) if not each.has_paused]
            if len(done) > 1 + self._to_run_again[key]:
                lines.append(f"+ done {len(done)} times: `{done[0].name}` ({key}), which must be done once")
        return lines

    async def _process(self, begin: Callable[[Runner[Any, Any]], Awaitable[Any]]) -> FinishedRun | None:
        """The run at its end, driven by a process of its own; None if that process has died."""
        runner = self._subject.new_runner(self._store)
        stored = await self._stored()
        for script, others in scripts_of(runner):
            script.go_on_after([event for event in stored if event.agent not in others])
        with self._executions.watched(runner.team):
            try:
                await self._driven(runner, begin)
            except Exception as error:
                if self._store.is_dead:
                    return None
                if isinstance(error, AssertionError) or not await self._has_begun():
                    raise
                return await self._course(runner, error)
            return await self._course(runner, None)

    async def _driven(self, runner: Runner[Any, Any], begin: Callable[[Runner[Any, Any]], Awaitable[Any]]) -> None:
        """Drive the run, and answer what it asks, until it asks nothing more. Raises what ends it."""
        await begin(runner)
        for _ in range(_MOST_ROUNDS):
            record = await self._store.record(_RUN)
            if record is None:
                raise SetupError("the runner does not use the store it is given; say Runner(…, store=store)")
            if record.status != "suspended":
                return
            questions = Log(await self._stored()).open_interrupts().values()
            answers = {asked.key: self._answer_to(to_interrupt(asked)) for asked in questions}
            self.resumes += 1
            await runner.resume(_RUN, answers, context=self._context)
        raise AssertionError(f"the run has asked {_MOST_ROUNDS} times, and does not come to an end")

    def _answer_to(self, interrupt: Interrupt) -> Any:
        key, is_unknown, _ = interrupt.id.rpartition("/unknown")
        if interrupt.tool_call is None or not is_unknown:
            return self._subject.answer_to(interrupt)
        # Somebody who can find out: whoever has watched the tool knows what became of the call.
        done = [each.outcome for each in self._executions.of(key) if each.outcome is not None]
        if not done:
            self._to_run_again[key] += 1
            return {"run_again": True}
        content = to_json_value("the result of a tool", done[-1].content)
        return {"error": content} if done[-1].is_error else {"result": content}

    async def _course(self, runner: Runner[Any, Any], error: Exception | None) -> FinishedRun:
        record, events = await self._store.record(_RUN), await self._stored()
        assert record is not None
        outside = self._subject.outside
        seen = None if outside is None else outside(self._context)
        if record.status != "completed":
            failed = next((event for event in reversed(events) if isinstance(event, RunFailed)), None)
            said = f"{failed.error_type}: {failed.message}" if failed is not None and record.status == "failed" else ""
            return FinishedRun(record.status, None, {}, events, said or _in_words(error), seen)
        try:
            result = await runner.replay(_RUN, context=self._context)
        except BatonError as mismatch:
            return FinishedRun(record.status, None, {}, events, f"replayed, {_in_words(mismatch)}", seen)
        return FinishedRun(record.status, result.output, result.values, events, outside=seen)

    async def _has_begun(self) -> bool:
        return await self._store.record(_RUN) is not None

    async def _stored(self) -> Sequence[Event]:
        return decode_lines(await self._store.load(_RUN)) if await self._has_begun() else ()


def _in_words(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"


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
