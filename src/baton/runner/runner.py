"""The front desk: compiles a team once, then starts, streams and resumes runs of it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from os import PathLike
from time import time
from types import TracebackType
from typing import Any, Generic, Literal, Self

import msgspec
from typing_extensions import TypeVar

from ..agents import BaseAgent, MultipleTransfers, Projection, RunHooks, RunOptions
from ..context import Entry, Limits, Live, as_json_value
from ..errors import RunError, RunNotFoundError, SetupError, checked_choice, listed
from ..events import NOBODY, Completed, Event, RunStarted
from ..flow import Rules, Team, checked_projection
from ..handoffs import InputFilter, Language
from ..log import Log, ReadOnlyLog
from ..messages import Input, UserMessage, as_messages, paired
from ..models import Model, ModelSettings, resolve
from ..stores import RunRecord, RunStatus, Store, store_of
from .answers import opening_of
from .courses import course_of, limits_in, start_of
from .custody import answer, cancel, drive, keep, picked_up, recover, submit, unfinished
from .forking import forked
from .ids import new_id
from .keeping import InMemory, Keeper, NotKept, Opened, Stopped
from .live import LiveRun
from .reading import Reader, checked_readers, read_by
from .result import RunResult
from .stored import Archive, NewRun, OldRun, TakenUp
from .threads import Thread
from .watching import watched

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)

Floor = Literal["sticky", "root"]


class Runner(Generic[C, Out]):
    """Runs one team. Holds what concerns runs (model, limits, policies, store); agents hold what concerns them.

    One runner may run its team many times at once. With a store every run is kept there, and any runner of the same
    team can take it up; without one, runs that stop before their end wait in the runner to be resumed.
    """

    def __init__(
        self,
        agent: BaseAgent[C, Out],
        *,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        limits: Limits | None = None,
        store: "Store | str | PathLike[str] | None" = None,
        lease: float = 30.0,
        history: Projection = "rewritten",
        transfers: Literal["shown", "hidden"] = "shown",
        multiple_transfers: MultipleTransfers = "first",
        handoff_input_filter: InputFilter | None = None,
        hooks: RunHooks | None = None,
        corrections: int = 2,
        on_loop: str | None = None,
        language: Language = "en",
        agents: Sequence[BaseAgent[Any, Any]] = (),
        readers: Sequence[Reader] = (),
    ) -> None:
        """`lease` is for how many seconds a run is this runner's if its process dies while driving it."""
        extra: Any = agents
        everybody: list[Any] = [agent, *extra] if isinstance(extra, Sequence) else [extra]
        for given in everybody:
            if not isinstance(given, BaseAgent):
                raise SetupError(f"a Runner runs an agent, not {given!r}; extra agents go into agents=[…]")
        checked_choice("Runner(transfers=…)", transfers, ("shown", "hidden"))
        checked_choice("Runner(multiple_transfers=…)", multiple_transfers, ("first", "last", "error"))
        checked_choice("Runner(language=…)", language, ("en", "zh"))
        if lease <= 0:
            raise SetupError(f"Runner(lease={lease}) would never hold; give seconds, more than 0")
        self.team = Team.compile(agent, extra=agents, language=language)
        self.limits = limits or Limits()
        self.model = None if model is None else resolve(model)
        """The model of agents that name none; None leaves it to BATON_MODEL."""
        options = RunOptions(
            model=self.model,
            settings=settings,
            multiple_transfers=multiple_transfers,
            corrections=corrections,
            hooks=hooks,
        )
        self._rules = Rules(
            self.team, options, checked_projection(history), transfers == "hidden", on_loop, handoff_input_filter
        )
        self._readers = checked_readers(readers)
        self._waiting: dict[str, Stopped] = {}
        self.lease = lease
        """For how many seconds a stored run is this runner's if its process dies while driving it."""
        self._archive = None if store is None else self._archive_of(store)
        self._threads: Archive | None = None
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
        thread: str | None = None,
        floor: Floor = "sticky",
        caller: str = "",
    ) -> RunResult[Out]:
        """Run the team to its end, or to its first open question. Raises what ends the run."""
        live = self.stream(
            input,
            context=context,
            values=values,
            limits=limits,
            run_id=run_id,
            thread=thread,
            floor=floor,
            caller=caller,
        )
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
        thread: str | None = None,
        floor: Floor = "sticky",
        caller: str = "",
    ) -> RunResult[Out]:
        """The same, for code without an event loop."""
        _refuse_running_loop()
        work = self.run(
            input,
            context=context,
            values=values,
            limits=limits,
            run_id=run_id,
            thread=thread,
            floor=floor,
            caller=caller,
        )
        return asyncio.run(self._and_close(work))

    def stream(
        self,
        input: Input,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        thread: str | None = None,
        floor: Floor = "sticky",
        caller: str = "",
    ) -> LiveRun[Out]:
        """A run to listen to: `async with runner.stream(…) as run: async for event in run: …`.

        With a `thread` it goes on with that conversation: it reads what was said there, and begins with the agent that
        had the floor last, unless `floor="root"`. `caller` names whose run it is, for those who serve several.
        """
        started = self._started(input, values, run_id, thread, limits, caller)
        if floor != "sticky":
            checked_choice("floor", floor, ("sticky", "root"))
        archive = self._archive if thread is None else self._kept or self._threads_in_memory()
        if archive is not None:
            owner = new_id()
            new = NewRun(archive, started, context=context, limits=limits, floor=floor, owner=owner)
            return self._live_run(new)
        course = course_of(started, Log(), self._rules, context=context, limits=limits or self.limits)
        opened = Opened(course, started.root, [started])
        return self._live_run(InMemory(started.run_id, opened, self._waiting, is_new=True))

    async def resume(
        self,
        run_id: str,
        answers: Any = None,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        accept_changes: bool = False,
    ) -> RunResult[Out]:
        """Go on with a run that is suspended, failed or cancelled; what is in its log is not done again.

        `answers` maps the ids of open questions to answers; if only one is open, it may be the answer itself. `values`
        come with them: whoever asked finds them in the run's values together with the answer. A stored run whose team
        has changed since is refused, unless `accept_changes`.
        """
        live = self.stream_resume(
            run_id, answers, context=context, values=values, limits=limits, accept_changes=accept_changes
        )
        await live.drive()
        return live.result

    def stream_resume(
        self,
        run_id: str,
        answers: Any = None,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        accept_changes: bool = False,
    ) -> LiveRun[Out]:
        """The same, to listen to: only what is new is delivered."""
        stopped = self._waiting.get(run_id)
        if stopped is None:
            how = TakenUp(partial(opening_of, answers=answers, values=values), context, limits, accept_changes)
            old = OldRun(self._archive_with(run_id), run_id, how, owner=new_id())
            return self._live_run(old)
        started, log = start_of(stopped.events), Log(stopped.events)
        opening = opening_of(log, answers=answers, values=values)
        course = course_of(
            started,
            log,
            self._rules,
            context=context if context is not None else stopped.context,
            limits=limits or stopped.limits or self.limits,
            guests=stopped.guests,
        )
        waited = InMemory(run_id, Opened(course, started.root, opening), self._waiting, is_new=False)
        return self._live_run(waited)

    def adopt(self, events: Iterable[Event]) -> str:
        """Take over a run from its log, from another process for instance; the id to resume it by.

        The team must be the one that made the log. Give the context again when you resume. For a runner without a
        store: one with a store takes its runs from there.
        """
        recorded = list(events)
        started = start_of(recorded)
        if any(isinstance(event, Completed) for event in recorded):
            raise RunError(f"run `{started.run_id}` is completed; there is nothing left to resume")
        Log(recorded)  # A log with the same key twice is refused before it is taken in.
        self._waiting[started.run_id] = Stopped(recorded)
        return started.run_id

    async def replay(self, run: "str | Iterable[Event]", *, context: C | None = None) -> RunResult[Out]:
        """Run the agents' code over a log with no effects allowed. Raises ReplayMismatch at the first divergence."""
        recorded = await self.events(run) if isinstance(run, str) else list(run)
        started = start_of(recorded)
        said_before: Sequence[Entry] = ()
        if started.follows and self._kept is not None:
            said_before = await self._kept.conversations.up_to(started.follows)
        course = course_of(
            started,
            ReadOnlyLog(recorded),
            self._rules,
            context=context,
            limits=limits_in(started) or self.limits,
            said_before=said_before,
        )
        live: LiveRun[Out] = LiveRun(NotKept(started.run_id, Opened(course, started.root, (), len(said_before))))
        await live.drive()
        return live.result

    async def events(self, run_id: str) -> list[Event]:
        """The log of a run that is kept, or waits, here."""
        stopped = self._waiting.get(run_id)
        return list(stopped.events) if stopped is not None else await self._archive_with(run_id).events(run_id)

    def watch(self, run_id: str, *, after: int = 0) -> AsyncIterator[tuple[int, Event]]:
        """The events of a stored run, with their numbers from 1 on, as whoever drives it writes them.

        `after` leaves out what is known already. Ends when the run stops, for whatever reason.
        """
        return watched(self._store_wanted("watch"), run_id, after=after)

    async def submit(
        self,
        input: Input,
        *,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        thread: str | None = None,
        floor: Floor = "sticky",
        caller: str = "",
    ) -> str:
        """Begin a run in the store and leave it to whoever calls `drive` with its id."""
        started = self._started(input, values, run_id, thread, limits, caller)
        return await submit(self._store_wanted("submit"), started, floor=floor)

    async def drive(self, run_id: str, *, context: C | None = None, accept_changes: bool = False) -> RunStatus:
        """Drive a stored run until it is finished, suspended or cancelled; how it stands then.

        Safe to call from anywhere, any number of times: a run that is not running is left alone, one that somebody
        else drives is a RunConflict, one whose driver died is taken up when its lease has run out.
        """
        archive = self._store_wanted("drive")
        return await drive(archive, run_id, context=context, accepts_changes=accept_changes, readers=self._readers)

    def stream_drive(self, run_id: str, *, context: C | None = None) -> LiveRun[Out]:
        """The same for a run whose driver has died, to listen to: only what is new is delivered."""
        return picked_up(self._store_wanted("stream_drive"), run_id, context=context, readers=self._readers)

    async def answer(self, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None) -> None:
        """Answer open questions of a stored run without driving it: whoever calls `drive` goes on with them."""
        await answer(self._store_wanted("answer"), run_id, answers, values=values)

    async def cancel(self, run_id: str, how: Literal["now", "after_turn"] = "now") -> RunStatus:
        """Have a stored run stopped, whoever drives it, within seconds. How it stands now: `running` until then."""
        checked_choice("cancel(…)", how, ("now", "after_turn"))
        return await cancel(self._store_wanted("cancel"), run_id, how)

    async def unfinished(self) -> list[RunRecord]:
        """Stored runs whose driver has died, or that nobody has driven yet."""
        return await unfinished(self._store_wanted("unfinished"))

    async def recover(self, *, context: C | None = None, at_once: int = 8) -> dict[str, RunStatus]:
        """Drive all that is unfinished, several at once; how each run stands then. What others drive is left out.

        A run that cannot be driven stays `running`; the log of the program says why.
        """
        return await recover(self._store_wanted("recover"), context=context, at_once=at_once)

    async def fork(
        self,
        run: "str | Iterable[Event]",
        *,
        at: int | None = None,
        edit: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> str:
        """A new run that begins with the first `at` events of another, to be resumed by the id that this gives.

        `edit` maps keys of events to what they should have been: the input, an answer, a result, words. What came
        after the first change is left out, but for other changes. The other run stays as it is.
        """
        recorded = await self.events(run) if isinstance(run, str) else list(run)
        events = forked(recorded, run_id or new_id(), at=at, edit=edit)
        if self._archive is None:
            return self.adopt(events)
        return await keep(self._archive, events)

    def kept_in(self, store: "Store | str | PathLike[str]") -> Self:
        """A runner of the same team, with the same options, that keeps its runs in another store."""
        twin = copy(self)
        twin._waiting, twin._threads, twin._archive = {}, None, self._archive_of(store)
        return twin

    def over(self, live: Live) -> Self:
        """The same runner for the one run that is this live conversation. What it keeps, the other keeps as well."""
        twin = copy(self)
        twin._rules = msgspec.structs.replace(self._rules, live=live)
        twin._archive = None if self._archive is None else self._archive.under(twin._rules)
        twin._threads = self._threads_in_memory().under(twin._rules) if self._archive is None else None
        return twin

    def need_store(self, what: str) -> Store:
        """The store. Raises SetupError if there is none, saying what needs one."""
        if self._archive is None:
            raise SetupError(f"{what} is about stored runs; give the runner a store: Runner(…, store=…)")
        return self._archive.store

    def thread(self, id: str) -> Thread:
        """One conversation: its history, its runs, who has the floor; it can be trimmed, deleted and exported."""
        archive = self._kept or self._threads_in_memory()
        return Thread(id, archive.store, archive.conversations)

    async def close(self) -> None:
        """Close the store. The runner can be used again: the store opens anew."""
        for archive in (self._archive, self._threads):
            if archive is not None:
                await archive.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _live_run(self, keeper: Keeper) -> LiveRun[Out]:
        capacity = 128 if self._rules.live is None else None
        return LiveRun(read_by(self._readers, keeper), capacity=capacity)

    @property
    def _kept(self) -> Archive | None:
        return self._archive or self._threads

    def _archive_of(self, store: "Store | str | PathLike[str]") -> Archive:
        return Archive(store_of(store), self._rules, limits=self.limits, ttl=self.lease)

    def _threads_in_memory(self) -> Archive:
        """Where a runner without a store keeps the runs of threads."""
        if self._threads is None:
            self._threads = self._archive_of("memory:")
        return self._threads

    def _archive_with(self, run_id: str) -> Archive:
        if self._kept is None:
            raise RunNotFoundError(run_id, [*self._waiting])
        return self._kept

    def _store_wanted(self, method: str) -> Archive:
        if self._kept is None:
            raise SetupError(f"runner.{method}() is about stored runs; give the runner a store: Runner(…, store=…)")
        return self._kept

    def _started(
        self,
        input: Input,
        values: Mapping[str, Any] | None,
        run_id: str | None,
        thread: str | None,
        limits: Limits | None,
        caller: str,
    ) -> RunStarted:
        started = RunStarted(
            "run",
            NOBODY,
            time(),
            run_id or new_id(),
            self.team.root,
            (UserMessage(input),) if isinstance(input, str) else tuple(paired(as_messages(input))),
            as_json_value("the run's values", dict(values)) if values else {},
            thread or "",
            caller=caller,
        )
        if limits is None:
            return started
        return msgspec.structs.replace(started, limits=msgspec.structs.asdict(limits))

    async def _and_close(self, work: Coroutine[Any, Any, RunResult[Out]]) -> RunResult[Out]:
        # A store's connections belong to the event loop, and that ends here.
        try:
            return await work
        finally:
            await self.close()


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SetupError("run_sync was called inside a running event loop; use `await runner.run(…)` there")
