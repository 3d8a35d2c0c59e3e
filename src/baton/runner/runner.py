"""The front desk: compiles a team once, then starts, streams and resumes runs of it."""

import asyncio
import itertools
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from time import time
from typing import Any, Generic, Literal

from msgspec import Struct
from typing_extensions import TypeVar

from ..agents import BaseAgent, MultipleTransfers, Projection, RunHooks, RunOptions
from ..context import Entry, History, Limits, Meter, Run, as_json_value
from ..errors import RunError, RunNotFoundError, SetupError, checked_choice, listed
from ..events import NOBODY, Completed, Event, Resumed, RunStarted
from ..flow import Course, Rules, Team, checked_projection
from ..handoffs import InputFilter, Language
from ..log import Log, ReadOnlyLog
from ..messages import AssistantMessage, Input, UserMessage, as_messages, paired
from ..models import Model, ModelSettings, resolve
from .answers import answers_as_events
from .live import LiveRun
from .result import RunResult

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)


class _Stopped(Struct, frozen=True):
    """A run that waits to be resumed."""

    events: Sequence[Event]
    context: Any = None
    guests: Mapping[str, Any] = {}
    limits: Limits | None = None


class Runner(Generic[C, Out]):
    """Runs one team. Holds what concerns runs (model, limits, policies); agents hold what concerns them.

    One runner may run its team many times at once. Runs that stop before their end wait in it to be resumed.
    """

    def __init__(
        self,
        agent: BaseAgent[C, Out],
        *,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        limits: Limits | None = None,
        history: Projection = "rewritten",
        transfers: Literal["shown", "hidden"] = "shown",
        multiple_transfers: MultipleTransfers = "first",
        handoff_input_filter: InputFilter | None = None,
        hooks: RunHooks | None = None,
        corrections: int = 2,
        on_loop: str | None = None,
        language: Language = "en",
        agents: Sequence[BaseAgent[Any, Any]] = (),
    ) -> None:
        extra: Any = agents
        everybody: list[Any] = [agent, *extra] if isinstance(extra, Sequence) else [extra]
        for given in everybody:
            if not isinstance(given, BaseAgent):
                raise SetupError(f"a Runner runs an agent, not {given!r}; extra agents go into agents=[…]")
        checked_choice("Runner(transfers=…)", transfers, ("shown", "hidden"))
        checked_choice("Runner(multiple_transfers=…)", multiple_transfers, ("first", "last", "error"))
        checked_choice("Runner(language=…)", language, ("en", "zh"))
        self.team = Team.compile(agent, extra=agents, language=language)
        self.limits = limits or Limits()
        options = RunOptions(
            model=None if model is None else resolve(model),
            settings=settings,
            multiple_transfers=multiple_transfers,
            corrections=corrections,
            hooks=hooks,
        )
        self._rules = Rules(
            self.team, options, checked_projection(history), transfers == "hidden", on_loop, handoff_input_filter
        )
        self._waiting: dict[str, _Stopped] = {}
        if on_loop is not None and self.team.seat(on_loop) is None:
            raise SetupError(f"on_loop names `{on_loop}`, but the team has: {listed([*self.team.seats])}")
        self.team.warn(entries=[on_loop] if on_loop is not None else ())

    async def run(
        self,
        input: Input,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
    ) -> RunResult[Out]:
        """Run the team to its end, or to its first open question. Raises what ends the run."""
        live = self.stream(input, context=context, values=values, limits=limits, run_id=run_id)
        await live.drive()
        return live.result

    def run_sync(
        self,
        input: Input,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
    ) -> RunResult[Out]:
        """The same, for code without an event loop."""
        _refuse_running_loop()
        return asyncio.run(self.run(input, context=context, values=values, limits=limits, run_id=run_id))

    def stream(
        self,
        input: Input,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
    ) -> LiveRun[Out]:
        """A run to listen to: `async with runner.stream(…) as run: async for event in run: …`."""
        started = RunStarted(
            "run",
            NOBODY,
            time(),
            run_id or new_run_id(),
            self.team.root,
            (UserMessage(input),) if isinstance(input, str) else tuple(paired(as_messages(input))),
            as_json_value("the run's values", dict(values)) if values else {},
        )
        return self._open(started, [], [started], context=context, limits=limits)

    async def resume(
        self, run_id: str, answers: Any = None, *, context: C | None = None, limits: Limits | None = None
    ) -> RunResult[Out]:
        """Go on with a run that is suspended, failed or cancelled; what is in its log is not done again.

        `answers` maps the ids of open questions to answers; if only one is open, it may be the answer itself.
        """
        live = self.stream_resume(run_id, answers, context=context, limits=limits)
        await live.drive()
        return live.result

    def stream_resume(
        self, run_id: str, answers: Any = None, *, context: C | None = None, limits: Limits | None = None
    ) -> LiveRun[Out]:
        """The same, to listen to: only what is new is delivered."""
        stopped = self._waiting.get(run_id)
        if stopped is None:
            raise RunNotFoundError(run_id, [*self._waiting])
        events = stopped.events
        opening: list[Event] = [Resumed(f"resumed{len(events)}", NOBODY, time())]
        opening += answers_as_events(Log(events).open_questions(), answers)
        context = context if context is not None else stopped.context
        live = self._open(_start_of(events), events, opening, context=context, limits=limits or stopped.limits)
        live.guests.update(stopped.guests)
        return live

    def adopt(self, events: Iterable[Event]) -> str:
        """Take over a run from its log, from another process for instance; the id to resume it by.

        The team must be the one that made the log. Give the context again when you resume.
        """
        recorded = list(events)
        started = _start_of(recorded)
        if any(isinstance(event, Completed) for event in recorded):
            raise RunError(f"run `{started.run_id}` is completed; there is nothing left to resume")
        Log(recorded)  # A log with the same key twice is refused before it is taken in.
        self._waiting[started.run_id] = _Stopped(recorded)
        return started.run_id

    async def replay(self, events: Iterable[Event], *, context: C | None = None) -> RunResult[Out]:
        """Run the agents' code over a log with no effects allowed. Raises ReplayMismatch at the first divergence."""
        recorded = list(events)
        live = self._open(_start_of(recorded), recorded, [], context=context, is_read_only=True)
        await live.drive()
        return live.result

    def _open(
        self,
        started: RunStarted,
        events: Sequence[Event],
        opening: Sequence[Event],
        *,
        context: C | None,
        limits: Limits | None = None,
        is_read_only: bool = False,
    ) -> LiveRun[Out]:
        log = ReadOnlyLog(events) if is_read_only else Log(events)
        run = Run(started.run_id, log, context, dict(started.values), Meter(limits or self.limits))
        history = History([Entry(message) for message in started.input])
        for message in started.input:
            if type(message) is AssistantMessage:
                run.call_ids.update(call.id for call in message.calls)
        on_begin = None if is_read_only else self._resume_begins if events else self._run_begins
        return LiveRun(Course(run, history, self._rules), opening, on_begin, self._keep)

    def _run_begins(self, run_id: str) -> None:
        if run_id in self._waiting:
            raise RunError(f"a run `{run_id}` waits here to be resumed; resume it, or give the new run another id")

    def _resume_begins(self, run_id: str) -> None:
        # Only now, and not when the resume was asked for: what is never opened still waits.
        if self._waiting.pop(run_id, None) is None:
            raise RunNotFoundError(run_id, [*self._waiting])

    def _keep(self, stopped: LiveRun[Any]) -> None:
        """A run that has stopped before its end waits here."""
        if not isinstance(stopped.log, ReadOnlyLog):
            self._waiting[stopped.run_id] = _Stopped(
                stopped.log.events, stopped.context, stopped.guests, stopped.limits
            )


_count = itertools.count()
_process = ""


def _name_this_process() -> None:
    global _process
    _process = f"{int(time() * 1000):011x}{secrets.token_hex(4)}"


_name_this_process()
os.register_at_fork(after_in_child=_name_this_process)


def new_run_id() -> str:
    """An id that no other run has: when its process began, a random part, and a number that counts up."""
    return f"{_process}{next(_count):06x}"


def _start_of(events: Sequence[Event]) -> RunStarted:
    if not events or not isinstance(events[0], RunStarted):
        raise RunError("this log does not begin with RunStarted; it is not the log of a run")
    return events[0]


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SetupError("run_sync was called inside a running event loop; use `await runner.run(…)` there")
