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

from ..agents import BaseAgent, HistoryPolicy, MultipleTransfers, RunHooks
from ..agents.base import RunConfig
from ..context import HistoryEntry, Limits
from ..context.run_state import LiveConversation
from ..context.values import to_json_value
from ..errors import RunError, RunNotFoundError, SetupError, check_choice, quote_names
from ..events import Event, RunCompleted, RunStarted
from ..events.base import RUN_ORIGIN
from ..flow import Team
from ..flow.follow import FlowConfig
from ..flow.history import check_history_policy
from ..handoffs import HandoffInputFilter, PromptLanguage
from ..log import Log, ReadOnlyLog
from ..messages import RunInput, UserMessage, pair_calls_with_results, to_messages
from ..models import Model, ModelSettings, resolve_model
from ..stores import RunRecord, RunStatus, Store, resolve_store
from .answers import fork_events, resume_events
from .backends import (
    MemoryBackend,
    NullBackend,
    OpenRun,
    RunBackend,
    StoppedRun,
    create_flow,
    limits_of_run,
    new_id,
    run_started_event,
)
from .observers import Observer, check_observers, with_observers
from .result import RunResult
from .stored_runs import (
    NewStoredRun,
    ReopenedRun,
    ReopenOptions,
    RunRepository,
    answer,
    cancel,
    drive,
    recover,
    store_log,
    submit,
    take_over_run,
    unfinished,
    watch_run,
)
from .stream import RunStream
from .threads import Thread

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)

StartAt = Literal["active", "root"]


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
        model_settings: ModelSettings | None = None,
        limits: Limits | None = None,
        store: "Store | str | PathLike[str] | None" = None,
        lease_seconds: float = 30.0,
        history: HistoryPolicy = "rewritten",
        show_transfers: bool = True,
        multiple_transfers: MultipleTransfers = "first",
        handoff_input_filter: HandoffInputFilter | None = None,
        hooks: RunHooks | None = None,
        max_corrections: int = 2,
        loop_fallback: str | None = None,
        prompt_language: PromptLanguage = "en",
        extra_agents: Sequence[BaseAgent[Any, Any]] = (),
        observers: Sequence[Observer] = (),
    ) -> None:
        """`lease` is for how many seconds a run is this runner's if its process dies while driving it."""
        extra: Any = extra_agents
        everybody: list[Any] = [agent, *extra] if isinstance(extra, Sequence) else [extra]
        for given in everybody:
            if not isinstance(given, BaseAgent):
                raise SetupError(f"a Runner runs an agent, not {given!r}; extra agents go into agents=[…]")
        check_choice("Runner(multiple_transfers=…)", multiple_transfers, ("first", "last", "error"))
        check_choice("Runner(language=…)", prompt_language, ("en", "zh"))
        if lease_seconds <= 0:
            raise SetupError(f"Runner(lease={lease_seconds}) would never hold; give seconds, more than 0")
        self.team = Team.compile(agent, extra=extra_agents, language=prompt_language)
        self.limits = limits or Limits()
        self.model = None if model is None else resolve_model(model)
        """The model of agents that name none; None leaves it to BATON_MODEL."""
        options = RunConfig(
            model=self.model,
            model_settings=model_settings,
            multiple_transfers=multiple_transfers,
            max_corrections=max_corrections,
            hooks=hooks,
        )
        self._rules = FlowConfig(
            self.team,
            options,
            check_history_policy(history),
            not show_transfers,
            loop_fallback,
            handoff_input_filter,
        )
        self._readers = check_observers(observers)
        self._waiting: dict[str, StoppedRun] = {}
        self.lease_seconds = lease_seconds
        """For how many seconds a stored run is this runner's if its process dies while driving it."""
        self._archive = None if store is None else self._archive_of(store)
        self._threads: RunRepository | None = None
        if loop_fallback is not None and loop_fallback not in self.team.members:
            raise SetupError(f"on_loop names `{loop_fallback}`, but the team has: {quote_names([*self.team.members])}")
        self.team.warn(entries=[loop_fallback] if loop_fallback is not None else ())

    async def run(
        self,
        input: RunInput,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        thread: str | None = None,
        start_at: StartAt = "active",
        owner: str = "",
    ) -> RunResult[Out]:
        """Run the team to its end, or to its first open question. Raises what ends the run."""
        live = self.stream(
            input,
            context=context,
            values=values,
            limits=limits,
            run_id=run_id,
            thread=thread,
            start_at=start_at,
            owner=owner,
        )
        await live._drive()
        return live.result

    def run_sync(
        self,
        input: RunInput,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        thread: str | None = None,
        start_at: StartAt = "active",
        owner: str = "",
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
            start_at=start_at,
            owner=owner,
        )
        return asyncio.run(self._and_close(work))

    def stream(
        self,
        input: RunInput,
        *,
        context: C | None = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        thread: str | None = None,
        start_at: StartAt = "active",
        owner: str = "",
    ) -> RunStream[Out]:
        """A run to listen to: `async with runner.stream(…) as run: async for event in run: …`.

        With a `thread` it goes on with that conversation: it reads what was said there, and begins with the agent that
        had the floor last, unless `floor="root"`. `caller` names whose run it is, for those who serve several.
        """
        started = self._started(input, values, run_id, thread, limits, owner)
        if start_at != "active":
            check_choice("start_at", start_at, ("active", "root"))
        archive = self._archive if thread is None else self._kept or self._threads_in_memory()
        if archive is not None:
            owner = new_id()
            new = NewStoredRun(archive, started, context=context, limits=limits, floor=start_at, worker=owner)
            return self._live_run(new)
        course = create_flow(started, Log(), self._rules, context=context, limits=limits or self.limits)
        opened = OpenRun(course, started.root_agent, [started])
        return self._live_run(MemoryBackend(started.run_id, opened, self._waiting, is_new=True))

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
        await live._drive()
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
    ) -> RunStream[Out]:
        """The same, to listen to: only what is new is delivered."""
        stopped = self._waiting.get(run_id)
        if stopped is None:
            how = ReopenOptions(partial(resume_events, answers=answers, values=values), context, limits, accept_changes)
            old = ReopenedRun(self._archive_with(run_id), run_id, how, worker=new_id())
            return self._live_run(old)
        started, log = run_started_event(stopped.events), Log(stopped.events)
        opening = resume_events(log, answers=answers, values=values)
        course = create_flow(
            started,
            log,
            self._rules,
            context=context if context is not None else stopped.context,
            limits=limits or stopped.limits or self.limits,
            guests=stopped.guests,
        )
        waited = MemoryBackend(run_id, OpenRun(course, started.root_agent, opening), self._waiting, is_new=False)
        return self._live_run(waited)

    def load_log(self, events: Iterable[Event]) -> str:
        """Take over a run from its log, from another process for instance; the id to resume it by.

        The team must be the one that made the log. Give the context again when you resume. For a runner without a
        store: one with a store takes its runs from there.
        """
        recorded = list(events)
        started = run_started_event(recorded)
        if any(isinstance(event, RunCompleted) for event in recorded):
            raise RunError(f"run `{started.run_id}` is completed; there is nothing left to resume")
        Log(recorded)  # A log with the same key twice is refused before it is taken in.
        self._waiting[started.run_id] = StoppedRun(recorded)
        return started.run_id

    async def replay(self, run: "str | Iterable[Event]", *, context: C | None = None) -> RunResult[Out]:
        """Run the agents' code over a log with no effects allowed. Raises ReplayMismatchError at the first divergence."""
        recorded = await self.events(run) if isinstance(run, str) else list(run)
        started = run_started_event(recorded)
        said_before: Sequence[HistoryEntry] = ()
        if started.previous_run_id and self._kept is not None:
            said_before = await self._kept.conversations.up_to(started.previous_run_id)
        course = create_flow(
            started,
            ReadOnlyLog(recorded),
            self._rules,
            context=context,
            limits=limits_of_run(started) or self.limits,
            said_before=said_before,
        )
        live: RunStream[Out] = RunStream(
            NullBackend(started.run_id, OpenRun(course, started.root_agent, (), len(said_before)))
        )
        await live._drive()
        return live.result

    async def events(self, run_id: str) -> list[Event]:
        """The log of a run that is kept, or waits, here."""
        stopped = self._waiting.get(run_id)
        return list(stopped.events) if stopped is not None else await self._archive_with(run_id).events(run_id)

    def watch(self, run_id: str, *, after: int = 0) -> AsyncIterator[tuple[int, Event]]:
        """The events of a stored run, with their numbers from 1 on, as whoever drives it writes them.

        `after` leaves out what is known already. Ends when the run stops, for whatever reason.
        """
        return watch_run(self._stored_runs("watch"), run_id, after=after)

    async def submit(
        self,
        input: RunInput,
        *,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        thread: str | None = None,
        start_at: StartAt = "active",
        owner: str = "",
    ) -> str:
        """Begin a run in the store and leave it to whoever calls `drive` with its id."""
        started = self._started(input, values, run_id, thread, limits, owner)
        return await submit(self._stored_runs("submit"), started, floor=start_at)

    async def drive(self, run_id: str, *, context: C | None = None, accept_changes: bool = False) -> RunStatus:
        """Drive a stored run until it is finished, suspended or cancelled; how it stands then.

        Safe to call from anywhere, any number of times: a run that is not running is left alone, one that somebody
        else drives is a RunConflictError, one whose driver died is taken up when its lease has run out.
        """
        archive = self._stored_runs("drive")
        return await drive(archive, run_id, context=context, accepts_changes=accept_changes, readers=self._readers)

    def stream_drive(self, run_id: str, *, context: C | None = None) -> RunStream[Out]:
        """The same for a run whose driver has died, to listen to: only what is new is delivered."""
        return take_over_run(self._stored_runs("stream_drive"), run_id, context=context, readers=self._readers)

    async def answer(self, run_id: str, answers: Any, *, values: Mapping[str, Any] | None = None) -> None:
        """Answer open questions of a stored run without driving it: whoever calls `drive` goes on with them."""
        await answer(self._stored_runs("answer"), run_id, answers, values=values)

    async def cancel(self, run_id: str, when: Literal["now", "after_turn"] = "now") -> RunStatus:
        """Have a stored run stopped, whoever drives it, within seconds. How it stands now: `running` until then."""
        check_choice("cancel(…)", when, ("now", "after_turn"))
        return await cancel(self._stored_runs("cancel"), run_id, when)

    async def list_unfinished(self) -> list[RunRecord]:
        """Stored runs whose driver has died, or that nobody has driven yet."""
        return await unfinished(self._stored_runs("unfinished"))

    async def recover(self, *, context: C | None = None, max_concurrency: int = 8) -> dict[str, RunStatus]:
        """Drive all that is unfinished, several at once; how each run stands then. What others drive is left out.

        A run that cannot be driven stays `running`; the log of the program says why.
        """
        return await recover(self._stored_runs("recover"), context=context, max_concurrency=max_concurrency)

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
        events = fork_events(recorded, run_id or new_id(), at=at, edit=edit)
        if self._archive is None:
            return self.load_log(events)
        return await store_log(self._archive, events)

    def with_store(self, store: "Store | str | PathLike[str]") -> Self:
        """A runner of the same team, with the same options, that keeps its runs in another store."""
        twin = copy(self)
        twin._waiting, twin._threads, twin._archive = {}, None, self._archive_of(store)
        return twin

    def _for_live(self, live: LiveConversation) -> Self:
        """The same runner for the one run that is this live conversation. What it keeps, the other keeps as well."""
        twin = copy(self)
        twin._rules = msgspec.structs.replace(self._rules, live=live)
        twin._archive = None if self._archive is None else self._archive.under(twin._rules)
        twin._threads = self._threads_in_memory().under(twin._rules) if self._archive is None else None
        return twin

    def _require_store(self, what: str) -> Store:
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

    def _live_run(self, keeper: RunBackend) -> RunStream[Out]:
        capacity = 128 if self._rules.live is None else None
        return RunStream(with_observers(self._readers, keeper), capacity=capacity)

    @property
    def _kept(self) -> RunRepository | None:
        return self._archive or self._threads

    def _archive_of(self, store: "Store | str | PathLike[str]") -> RunRepository:
        return RunRepository(resolve_store(store), self._rules, limits=self.limits, ttl=self.lease_seconds)

    def _threads_in_memory(self) -> RunRepository:
        """Where a runner without a store keeps the runs of threads."""
        if self._threads is None:
            self._threads = self._archive_of("memory:")
        return self._threads

    def _archive_with(self, run_id: str) -> RunRepository:
        if self._kept is None:
            raise RunNotFoundError(run_id, [*self._waiting])
        return self._kept

    def _stored_runs(self, method: str) -> RunRepository:
        if self._kept is None:
            raise SetupError(f"runner.{method}() is about stored runs; give the runner a store: Runner(…, store=…)")
        return self._kept

    def _started(
        self,
        input: RunInput,
        values: Mapping[str, Any] | None,
        run_id: str | None,
        thread: str | None,
        limits: Limits | None,
        owner: str,
    ) -> RunStarted:
        started = RunStarted(
            "run",
            RUN_ORIGIN,
            time(),
            run_id or new_id(),
            self.team.root,
            (UserMessage(input),) if isinstance(input, str) else tuple(pair_calls_with_results(to_messages(input))),
            to_json_value("the run's values", dict(values)) if values else {},
            thread or "",
            owner=owner,
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
