"""The crash laboratory: kill a team after every event of a run and resume it in another process.

A dying process is simulated by a runner whose store stops responding; a fresh runner on the same store takes over. The
context object stands for the outside world and outlives the processes.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter, time
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast

from msgspec import Raw, Struct
from msgspec.json import encode

from .._checks import check_keywords
from ..agents import AgentOptions
from ..context.values import to_json_value
from ..errors import BatonError, RunConflictError, SetupError
from ..log import Event, RunFailed, ToolReturned, decode_lines, encode_event, keys
from ..log.log import Log
from ..messages import RunInput
from ..runs import Interrupt, Runner
from ..runs.result import to_interrupt
from ..runs.run_args import RunArgs
from ..stores import AppendOptions, Lease, MemoryStore, RunFlags, Store
from .executions import ToolExecutions, scripted_models
from .transcripts import FinishedRun, Normalize, diff_runs, format_event

Moment: TypeAlias = Literal["when it was stored", "before the next was stored"]
"""When a process dies: after storing an event, or before storing the next batch."""

_LONG = 1_000_000.0


class ProcessDiedError(RunConflictError):
    """The process that wrote to the store is dead; like any conflict, it stops the driver."""

    def __init__(self) -> None:
        super().__init__("", "the process is dead")


class CrashingStore(MemoryStore):
    """A memory store for one run whose writer dies at a chosen event.

    A batch may be cut in its middle: stores differ in their batches, and a log must be valid up to any event.
    """

    def __init__(self) -> None:
        super().__init__(clock=lambda: time() + self._elapsed)
        self._elapsed = 0.0
        self._last: int | None = None
        self._moment: Moment = "when it was stored"
        self.is_dead = False
        """True once the current process has died."""
        self.commits: list[int] = []
        """The number of events after each commit."""

    def die_at(self, event: int, moment: Moment) -> None:
        """Make the current process die at this event, counted from 1."""
        self._last = event
        self._moment = moment

    def next_process(self) -> None:
        """Start the next process, after the lease of the dead one has expired."""
        self._last = None
        self.is_dead = False
        self._elapsed += _LONG

    async def create(self, run_id: str, lines: Sequence[bytes], **about: Any) -> Lease:
        """Create the run with the lines that the process lives to write."""
        self._check_alive()
        # The first line is not an event: it names the format.
        kept = lines if self._last is None else lines[: self._last + 1]
        lease = await super().create(run_id, kept, **about)
        self._stored(len(kept), is_torn=len(kept) < len(lines))
        return lease

    async def append(
        self, run_id: str, expected_seq: int, lines: Sequence[bytes], **about: Unpack[AppendOptions]
    ) -> RunFlags:
        """Append the lines that the process lives to write; the status goes with the last one."""
        self._check_alive()
        allowed = len(lines) if self._last is None else self._last + 1 - expected_seq
        if self._last is not None and allowed <= 0:
            self._die()
        kept = lines[:allowed]
        is_torn = len(kept) < len(lines)
        if is_torn:
            # A message is taken together with the line that records it.
            taken = tuple(about.get("take", ()))[: len(kept)]
            about |= {"status": None, "release": False, "take": taken}
        flags = await super().append(run_id, expected_seq, kept, **about)
        self._stored(expected_seq + len(kept), is_torn=is_torn)
        return flags

    async def renew(self, leases: Sequence[Lease], *, ttl: float) -> Mapping[str, Lease]:
        """Renew leases, unless the process is dead."""
        self._check_alive()
        return await super().renew(leases, ttl=ttl)

    async def release(self, lease: Lease) -> None:
        """Release a lease, unless the process is dead."""
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
"""Creates the runner of one process: `lambda store: Runner(desk(), store=store)`."""

UNANSWERED: Any = Ellipsis
"""The default of `answers`; None may be an answer."""

_RUN = "crash-laboratory"
_MAX_ROUNDS = 1000


class CrashOptions(TypedDict, total=False):
    """The optional arguments of a crash test."""

    answers: Any
    """Answers to interrupts: one for all, a mapping by interrupt id, or a function of the `Interrupt`."""
    values: Mapping[str, Any] | None
    """The initial values of the run."""
    new_context: Callable[[], Any] | None
    """Creates `ctx.context`, once per run; the processes of a run share it."""
    outside: Callable[[Any], Any] | None
    """Returns, from the context, the effects outside the run; they must be the same as well."""
    normalize: Normalize | None
    """Removes from a line what may differ between runs."""
    agent_options: Mapping[str, AgentOptions] | None
    """Options of agents for this run, by name; only those that a log can hold."""
    thread: str | None
    """The thread of the run."""


class CrashSubject(Struct, frozen=True):
    """The tested team with its input and the options of the test."""

    new_runner: NewRunner
    input: RunInput
    answers: Any = UNANSWERED
    values: Mapping[str, Any] | None = None
    new_context: Callable[[], Any] | None = None
    outside: Callable[[Any], Any] | None = None
    normalize: Normalize | None = None
    agent_options: Mapping[str, AgentOptions] | None = None
    thread: str | None = None

    def answer_to(self, interrupt: Interrupt) -> Any:
        """Return the answer to an interrupt. Raises AssertionError if there is none."""
        answers = self.answers
        if callable(answers):
            return answers(interrupt)
        by_id: Mapping[Any, Any] = cast("Any", answers) if isinstance(answers, Mapping) else {}
        if interrupt.id in by_id:
            return by_id[interrupt.id]
        # A dictionary may also be the answer itself, unless its keys are interrupt ids.
        if answers is UNANSWERED or any(keys.looks_like_interrupt(str(id)) for id in by_id):
            raise AssertionError(
                f"`{interrupt.agent}` raised interrupt `{interrupt.id}` ({interrupt.payload!r}), "
                "and answers=… does not answer it"
            )
        return self.answers


class CrashExperiment:
    """One run with its own store and context."""

    def __init__(self, subject: CrashSubject) -> None:
        self._subject = subject
        self.store = CrashingStore()
        self._context = subject.new_context() if subject.new_context is not None else None
        self._executions = ToolExecutions()
        self._repeats: Counter[str] = Counter()
        self.survived: Sequence[Event] = ()
        """The events stored when the first process died."""
        self.has_died = False
        self.resumes = 0

    async def run(self, event: int | None = None, moment: Moment = "when it was stored") -> FinishedRun:
        """Run to the end; if the process dies at an event, finish in another process."""
        if event is not None:
            self.store.die_at(event, moment)
        subject = self._subject
        context = self._context

        def begin(runner: Runner[Any, Any]) -> Awaitable[Any]:
            args = RunArgs[Any](
                run_id=_RUN,
                values=subject.values,
                context=context,
                thread=subject.thread,
                agent_options=subject.agent_options,
            )
            return runner.run(subject.input, **args)

        finished = await self._process(begin)
        if finished is None:
            self.has_died = True
            self.survived = await self._stored()
            self.store.next_process()
            self._executions.process += 1
            self.resumes += 1
            finished = await self._process(lambda runner: runner.runs.drive(_RUN, context=context))
        assert finished is not None
        return finished

    def violations(self) -> list[str]:
        """List effects that were repeated although they were recorded or must happen once."""
        recorded = {event.key for event in self.survived if isinstance(event, ToolReturned)}
        again = [each for each in self._executions if each.process > 1 and each.key in recorded]
        lines = [f"+ repeated: `{each.name}` ({each.key}), although its result was recorded" for each in again]
        for key in dict.fromkeys(each.key for each in self._executions if each.effect == "once"):
            done = [each for each in self._executions.of(key) if not each.has_paused]
            if len(done) > 1 + self._repeats[key]:
                lines.append(f"+ executed {len(done)} times: `{done[0].name}` ({key}), which must run once")
        return lines

    async def _process(self, begin: Callable[[Runner[Any, Any]], Awaitable[Any]]) -> FinishedRun | None:
        """Drive the run in a new process; None if that process died."""
        runner = self._subject.new_runner(self.store)
        stored = await self._stored()
        for script, has_part_in in scripted_models(runner):
            script.fast_forward([event for event in stored if has_part_in(event)])
        with self._executions.record(runner.team):
            try:
                await self._drive(runner, begin)
            except Exception as error:
                if self.store.is_dead:
                    return None
                if isinstance(error, AssertionError) or not await self._has_begun():
                    raise
                return await self._finished(runner, error)
            return await self._finished(runner, None)

    async def _drive(self, runner: Runner[Any, Any], begin: Callable[[Runner[Any, Any]], Awaitable[Any]]) -> None:
        """Drive the run and answer its interrupts until it stops. Raises the error that ends it."""
        await begin(runner)
        for _ in range(_MAX_ROUNDS):
            record = await self.store.record(_RUN)
            if record is None:
                raise SetupError(
                    "the runner does not use the store that it is given; create it with Runner(…, store=store)"
                )
            if record.status != "suspended":
                return
            interrupts = Log(await self._stored()).open_interrupts().values()
            answers = {asked.key: self._answer_to(to_interrupt(asked)) for asked in interrupts}
            self.resumes += 1
            await runner.resume(_RUN, answers, context=self._context)
        raise AssertionError(f"the run was interrupted {_MAX_ROUNDS} times without ending")

    def _answer_to(self, interrupt: Interrupt) -> Any:
        key = keys.call_with_unknown_outcome(interrupt.id)
        if interrupt.tool_call is None or key is None:
            return self._subject.answer_to(interrupt)
        # The recorded executions tell the real outcome of the call.
        done = [each.outcome for each in self._executions.of(key) if each.outcome is not None]
        if not done:
            self._repeats[key] += 1
            return {"run_again": True}
        content = to_json_value("the result of a tool", done[-1].content)
        return {"error": content} if done[-1].is_error else {"result": content}

    async def _finished(self, runner: Runner[Any, Any], error: Exception | None) -> FinishedRun:
        record = await self.store.record(_RUN)
        events = await self._stored()
        assert record is not None
        outside = self._subject.outside
        seen = None if outside is None else outside(self._context)
        if record.status != "completed":
            failed = next((event for event in reversed(events) if isinstance(event, RunFailed)), None)
            said = f"{failed.error_type}: {failed.message}" if failed is not None and record.status == "failed" else ""
            return FinishedRun(record.status, None, {}, events, said or _format_error(error), seen)
        try:
            result = await runner.runs.replay(_RUN, context=self._context)
        except BatonError as mismatch:
            return FinishedRun(record.status, None, {}, events, f"replayed, {_format_error(mismatch)}", seen)
        return FinishedRun(record.status, result.output, result.values, events, outside=seen)

    async def _has_begun(self) -> bool:
        return await self.store.record(_RUN) is not None

    async def _stored(self) -> Sequence[Event]:
        return decode_lines(await self.store.load(_RUN)) if await self._has_begun() else ()


def _format_error(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"


_MAX_SHOWN = 24
_NOT_REPEATABLE = (
    "without a crash, a second run differs from the first (use scripted models, keep clocks, random numbers and state "
    "in new_context, or remove what may differ with normalize=…)"
)
_NOT_REPLAYABLE = "without a crash, replaying the log of the run behaves differently from the run"


class Divergence(Struct, frozen=True):
    """A crash that changed the outcome of a run."""

    event: int
    """The number of events after which the process died; 0 if runs differ without a crash."""
    place: str
    """The event, and when the process died."""
    differences: Sequence[str]
    """Diff lines: `-` from the undisturbed run, `+` from the other."""

    def __str__(self) -> str:
        shown = [f"    {line}" for line in self.differences[:_MAX_SHOWN]]
        if len(self.differences) > _MAX_SHOWN:
            shown.append(f"    … and {len(self.differences) - _MAX_SHOWN} lines more")
        return "\n".join([f"  {self.place}:", *shown])


class CrashReport(Struct, frozen=True):
    """The result of a crash test."""

    events: int
    """The number of events of the undisturbed run."""
    commits: int
    """The number of commits in which they were stored."""
    crashes: int
    """The number of killed processes."""
    resumes: int
    """The number of resumes, after a crash or with answers."""
    seconds: float
    """The duration of the test."""
    divergences: tuple[Divergence, ...] = ()
    """The crashes that changed the outcome."""
    log: tuple[Event, ...] = ()
    """The log of the undisturbed run."""

    def to_json(self) -> bytes:
        """Return the report in the JSON format that Studio opens; see the page on crash tests."""
        counts = {name: getattr(self, name) for name in ("events", "commits", "crashes", "resumes", "seconds")}
        findings = [{"event": each.event, "place": each.place, "lines": each.differences} for each in self.divergences]
        log = [Raw(encode_event(event)) for event in self.log]
        report = {"format": "baton-report", "version": 1, "kind": "crashes"}
        return encode({**report, "counts": counts, "findings": findings, "log": log})

    def __str__(self) -> str:
        counts = f"{self.crashes} crashes in a run of {self.events} events, {self.resumes} resumes"
        if not self.divergences:
            return f"{counts}: the same outcome every time"
        first, *others = self.divergences
        lines = [f"{counts}, {len(self.divergences)} with another outcome", str(first)]
        # One cause often shows in many places; the first is nearest to it.
        lines += [f"  {other.place}: {len(other.differences)} lines" for other in others[:_MAX_SHOWN]]
        if len(others) > _MAX_SHOWN:
            lines.append(f"  … and {len(others) - _MAX_SHOWN} more")
        return "\n".join(lines)


async def assert_survives_crashes(
    new_runner: NewRunner, input: RunInput, **options: Unpack[CrashOptions]
) -> CrashReport:
    """Kill a team after every event of a run and check that the outcome stays the same.

    Args:
        new_runner: Creates the runner of a process: `lambda store: Runner(desk(), store=store)`.
        input: The input of the run.
        **options: See `CrashOptions`.

    Returns:
        The report.

    Raises:
        AssertionError: A crash changed the outcome.
    """
    check_keywords("assert_survives_crashes()", options, CrashOptions.__annotations__)
    report = await crash_report(new_runner, input, **options)
    if report.divergences:
        raise AssertionError(str(report))
    return report


async def crash_report(new_runner: NewRunner, input: RunInput, **options: Unpack[CrashOptions]) -> CrashReport:
    """Kill the team after every event of a run and report crashes that changed the outcome.

    Args:
        new_runner: Creates the runner of a process: `lambda store: Runner(desk(), store=store)`.
        input: The input of the run.
        **options: See `CrashOptions`.

    Returns:
        The report; its `divergences` are empty if every crash was survived.
    """
    check_keywords("crash_report()", options, CrashOptions.__annotations__)
    began = perf_counter()
    subject = CrashSubject(new_runner, input, **options)
    first = CrashExperiment(subject)
    again = CrashExperiment(subject)
    wanted = await first.run()
    with _quiet():
        divergences = _before_any_crash(wanted, await again.run(), subject.normalize)
        deaths = () if divergences else _deaths(len(wanted.events), set(first.store.commits))
        crashes = 0
        resumes = first.resumes + again.resumes
        for event, moment in deaths:
            experiment = CrashExperiment(subject)
            got = await experiment.run(event, moment)
            crashes += experiment.has_died
            resumes += experiment.resumes
            lines = [*experiment.violations(), *diff_runs(wanted, got, normalize=subject.normalize)]
            if lines:
                divergences.append(Divergence(event, _place(event, moment, wanted, experiment), lines))
    seconds = perf_counter() - began
    commits = len(set(first.store.commits))
    log = tuple(wanted.events)
    return CrashReport(len(wanted.events), commits, crashes, resumes, seconds, tuple(divergences), log)


def _before_any_crash(first: FinishedRun, second: FinishedRun, normalize: Normalize | None) -> list[Divergence]:
    """Compare two undisturbed runs; if they differ, crashes have nothing to be compared with."""
    if first.status == "completed" and first.error:
        return [Divergence(0, _NOT_REPLAYABLE, [f"+ {first.error}"])]
    lines = diff_runs(first, second, normalize=normalize)
    return [Divergence(0, _NOT_REPEATABLE, lines)] if lines else []


def _deaths(events: int, commits: set[int]) -> Iterator[tuple[int, Moment]]:
    """Yield when processes die: after each event, and between commits."""
    for event in range(1, events + 1):
        yield event, "when it was stored"
        if event in commits and event < events:
            yield event, "before the next was stored"


def _place(event: int, moment: Moment, wanted: FinishedRun, experiment: CrashExperiment) -> str:
    last = f" ({format_event(experiment.survived[-1])})" if experiment.survived else ""
    return f"killed after event {event} of {len(wanted.events)}{last}, {moment}"


@contextmanager
def _quiet() -> Generator[None]:
    """Silence the repeated warnings of all runs but the first."""
    logger = logging.getLogger("baton")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
