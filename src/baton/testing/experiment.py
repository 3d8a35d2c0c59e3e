"""One run whose process may be made to die; another one then takes it up."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct

from ..context import to_json_value
from ..errors import BatonError, SetupError
from ..events import Event, RunFailed, ToolReturned, decode_lines
from ..log import Log
from ..messages import RunInput
from ..runner import Interrupt, Runner
from ..runner.result import to_interrupt
from ..stores import Store
from .executions import ToolExecutions, scripts_of
from .likeness import FinishedRun
from .mortal import CrashingStore, Moment

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
            questions = Log(await self._stored()).open_questions().values()
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
