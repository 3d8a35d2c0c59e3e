"""The runner: compiles a team once, then starts, streams, resumes and inspects its runs."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from os import PathLike
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

import msgspec
from typing_extensions import TypeVar

from ..agents import BaseAgent, Compaction, HistoryPolicy, MultipleTransfers, RunHooks
from ..agents.activation import RunConfig, compile_history
from ..agents.compaction import check_compaction
from ..agents.middleware import Middleware, check_middleware
from ..arguments import check_arguments, check_types
from ..context import Limits
from ..context.run_state import LiveConversation
from ..errors import RunError, RunNotFoundError, SetupError, quote_names
from ..events import Event, RunCompleted, RunStarted
from ..events.codec import require_known_events
from ..flow import Team
from ..flow.follow import FlowConfig
from ..flow.team import fingerprint_hash, team_fingerprint
from ..handoffs import HandoffInputFilter, PromptLanguage
from ..log import Log
from ..messages import RunInput
from ..models import Model, ModelSettings, Prices, resolve_model
from ..models.prices import check_prices
from ..stores import FullStore, Store
from ..wording import show
from .arguments import (
    ContextFactory,
    ResumeArgs,
    RunArgs,
    called_on_class,
    check_options,
    check_resume_args,
    check_run_args,
    check_runner_callbacks,
)
from .backends import (
    MemoryBackend,
    RunBackend,
    StoppedRun,
    check_team,
    new_id,
    new_run_started,
    open_run,
    run_started_event,
)
from .ids import check_name, check_run_id
from .observers import Observer, check_observers, current_traceparent, measure_store
from .result import RunResult
from .stored_methods import StoredRunMethods
from .stream import RunStream

# What resumed, forked and stored runs need is loaded at the first of them: a process starts faster without it.
if TYPE_CHECKING:
    from .stored_runs import RunRepository
    from .threads import Thread

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)


class Runner(StoredRunMethods[C, Out]):
    """Runs one team of agents; any number of its runs may be in progress at once.

    With a store, every run is stored and any runner of the same team can resume it. Without one, runs that stopped
    before their end stay in the runner's memory until they are resumed.

    Args:
        agent: The root agent of the team.
        model: The model of agents that have none of their own; by default the one named by `BATON_MODEL`.
        model_settings: Default model settings; an agent's own settings take precedence.
        store: A store, or its address such as `runs.db` or `postgresql://user@host/database`.
        limits: Limits that apply to each run.
        hooks: Lifecycle hooks for runs and agents.
        observers: Objects that receive every event of every run, such as `OTelObserver()`.
        middleware: Code around the model calls, tool calls and activations of all agents, outermost first; it is
            outside the agents' own.
        history: How agents see the messages of other agents: a policy name or a function.
        compaction: When and how long histories are compacted; an agent's own takes precedence.
        show_transfers: Whether agents see the tool calls and results of transfers in the history.
        multiple_transfers: Which transfer wins if a response requests several: `"first"`, `"last"` or `"error"`.
        handoff_input_filter: Filter for the history that a target reads, for handoffs without their own filter.
        max_corrections: How many corrections of invalid calls, such as of unknown tools, may fail per activation.
        loop_fallback: The agent that takes over when agents transfer control in circles.
        extra_agents: Agents that belong to the team although no handoff refers to them.
        prompt_language: The language of generated prompts and tool descriptions, `"en"` or `"zh"`.
        lease_seconds: How long a stored run stays reserved for this worker if its process dies.
        context_factory: Creates the context of a run for which none is given from its record, in every process that
            starts, resumes or recovers runs: a context is never stored.
        prices: A `PriceTable`, True for the prices of `genai-prices` if it is installed, or False for no costs.

    Raises:
        SetupError: An argument is invalid or unknown, or the team cannot work as defined.
    """

    @check_arguments
    def __init__(
        self,
        agent: BaseAgent[C, Out],
        *,
        model: Model | str | None = None,
        model_settings: ModelSettings | None = None,
        store: "Store | str | PathLike[str] | None" = None,
        limits: Limits | None = None,
        hooks: RunHooks | None = None,
        observers: Sequence[Observer] = (),
        middleware: Sequence[Middleware[C]] = (),
        history: HistoryPolicy = "rewritten",
        compaction: Compaction | None = None,
        show_transfers: bool = True,
        multiple_transfers: MultipleTransfers = "first",
        handoff_input_filter: HandoffInputFilter | None = None,
        max_corrections: int = 2,
        loop_fallback: str | None = None,
        extra_agents: Sequence[BaseAgent[Any, Any]] = (),
        prompt_language: PromptLanguage = "en",
        lease_seconds: float = 30.0,
        context_factory: ContextFactory | None = None,
        prices: Prices | bool = True,
    ) -> None:
        check_options(agent, extra_agents, multiple_transfers, prompt_language, lease_seconds, max_corrections)
        check_runner_callbacks(handoff_input_filter, context_factory)
        self.team = Team.compile(agent, extra=extra_agents, language=prompt_language)
        """The compiled team."""
        self._fingerprint = team_fingerprint(self.team)
        self.limits = limits or Limits()
        """Limits that apply to each run."""
        self.model = None if model is None else resolve_model(model)
        """The model of agents that have none of their own; None means `BATON_MODEL`."""
        self.lease_seconds = lease_seconds
        """Seconds for which a stored run stays reserved for this worker if its process dies."""
        options = RunConfig(
            model=self.model,
            model_settings=model_settings,
            multiple_transfers=multiple_transfers,
            max_corrections=max_corrections,
            hooks=hooks,
            middleware=check_middleware("Runner()", middleware),
            compaction=check_compaction("Runner()", compaction),
            prices=check_prices(prices),
        )
        self._config = FlowConfig(
            self.team,
            options,
            self.limits,
            history=compile_history(history),
            hide_transfers=not show_transfers,
            loop_fallback=loop_fallback,
            input_filter=handoff_input_filter,
            context_factory=context_factory,
        )
        self._observers = check_observers(observers)
        self._stopped: dict[str, StoppedRun] = {}
        """Stopped runs by id, if there is no store."""
        self._stored_runs = None if store is None else self._create_repository(store)
        self._thread_runs: RunRepository | None = None
        """Runs of threads, in memory, if there is no store."""
        if loop_fallback is not None and self.team.members.get(loop_fallback) is None:
            names, given = quote_names([*self.team.members]), f"Runner(loop_fallback={show(loop_fallback)})"
            raise SetupError(f"{given} is not an agent of the team, which has: {names}")
        self.team.warn(entries=[loop_fallback] if loop_fallback is not None else ())

    def __repr__(self) -> str:
        agents = len(self.team.members)
        store = "" if self._stored_runs is None else f", store={self._stored_runs.store!r}"
        return f"Runner({self.team.root!r}, {agents} agent{'s' if agents != 1 else ''}{store})"

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the team, the same in every process.

        It is `RunRecord.team` of the runs that the runner creates.
        """
        return fingerprint_hash(self._fingerprint)

    async def run(self, input: RunInput, **args: Unpack[RunArgs[C]]) -> RunResult[Out]:
        """Run the team until it completes or is suspended by an interrupt.

        Args:
            input: The user's message, or a list of messages.
            **args: See `RunArgs`.

        Returns:
            The result at the run's end or at its first interrupt.

        Raises:
            BatonError: The error that ended the run; the run can be resumed.
        """
        _require_runner(self, "run")
        if args:
            check_run_args("Runner.run()", args)
        stream = self._stream(input, args)
        await stream._drive()
        return stream.result

    def run_sync(self, input: RunInput, **args: Unpack[RunArgs[C]]) -> RunResult[Out]:
        """Run the team synchronously, and close the store afterwards.

        Args:
            input: The user's message, or a list of messages.
            **args: See `RunArgs`.

        Returns:
            The result at the run's end or at its first interrupt.

        Raises:
            SetupError: It was called inside a running event loop.
            BatonError: The error that ended the run.
        """
        _require_runner(self, "run_sync")
        check_run_args("Runner.run_sync()", args)
        # Not in a handler of RuntimeError: the run's own error would be shown as if that error had led to it.
        if _is_loop_running():
            raise SetupError("run_sync() was called inside a running event loop; use `await runner.run(…)` there")
        return asyncio.run(self._run_and_close(input, args))

    def stream(self, input: RunInput, **args: Unpack[RunArgs[C]]) -> RunStream[Out]:
        """Create a run whose events can be read while it is in progress.

        It starts when the stream is opened: `async with runner.stream(…) as run: async for event in run: …`.

        Args:
            input: The user's message, or a list of messages.
            **args: See `RunArgs`.

        Returns:
            The stream, not opened yet.
        """
        _require_runner(self, "stream")
        if args:
            check_run_args("Runner.stream()", args)
        return self._stream(input, args)

    @check_types
    async def resume(self, run_id: str, answers: Any = None, **args: Unpack[ResumeArgs[C]]) -> RunResult[Out]:
        """Resume a suspended, failed or cancelled run. Recorded steps are not executed again.

        Args:
            run_id: The run to resume.
            answers: Answers by interrupt id, the answer itself if exactly one interrupt is open, or `Dismiss(reason)`.
            **args: See `ResumeArgs`.

        Returns:
            The result at the run's end or at its next interrupt.

        Raises:
            RunNotFoundError: There is no such run.
            RunConflictError: Another worker is driving it.
            AnswerError: An answer is for an interrupt that is not open, or does not match its schema.
            TeamChangedError: The team has changed and `accept_changes` is false.
        """
        check_resume_args("Runner.resume()", args)
        stream = self.stream_resume(run_id, answers, **args)
        await stream._drive()
        return stream.result

    @check_types
    def stream_resume(self, run_id: str, answers: Any = None, **args: Unpack[ResumeArgs[C]]) -> RunStream[Out]:
        """Resume a run as a stream that delivers only new events.

        Args:
            run_id: The run to resume.
            answers: Answers by interrupt id, the answer itself if exactly one interrupt is open, or `Dismiss(reason)`.
            **args: See `ResumeArgs`.

        Returns:
            The stream, not opened yet. Opening it raises the errors of `resume`.
        """
        check_resume_args("Runner.stream_resume()", args)
        from .answers import resume_events

        first_events = partial(resume_events, answers=answers, args=args)
        stopped = self._stopped.get(run_id)
        if stopped is None:
            from .stored_backends import ReopenedRun

            return self._create_stream(ReopenedRun(self._repository_with(run_id), run_id, first_events, args))
        started, log = run_started_event(stopped.events), Log(stopped.events)
        check_team(started, self._fingerprint, args)
        opened = open_run(started, log, self._config, args, first_events=first_events(log, time()), stopped=stopped)
        return self._create_stream(MemoryBackend(run_id, opened, self._stopped, is_new=False))

    @check_types
    async def fork(
        self,
        run: "str | Iterable[Event]",
        *,
        at: int | None = None,
        edit: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        thread: str | None = None,
    ) -> str:
        """Create a new run from the first events of another one, which stays unchanged.

        Args:
            run: The id of a run, or its events.
            at: How many events to copy; all by default.
            edit: New contents by event key: input, answers, tool and step results, messages. Unedited events after
                the first edited one are dropped.
            run_id: The id of the new run, as in `RunArgs`; generated by default.
            thread: A new thread, which continues the conversation of the other run: its runs read the same messages
                before it, for as long as those are stored. Needs a store.

        Returns:
            The id of the new run; resume it with `resume`.

        Raises:
            InvalidIdError: The id of the new run or thread has characters that are not allowed.
            ThreadBusyError: The thread has runs.
        """
        from .answers import fork_events

        if run_id:
            check_run_id(run_id)
        check_name("thread", thread or "")
        recorded = await self.events(run) if isinstance(run, str) else list(run)
        source = run_started_event(recorded)
        # The fork is kept beside the other run or, in a new thread, beside the runs of that thread.
        events = fork_events(recorded, run_id or new_id(), at=at, edit=edit)
        repository = self._require_repository("fork(thread=…)") if thread else self._stored_runs
        if repository is None:
            return self.load_log(events)
        return await repository.create_fork(events, source, thread=thread or "")

    @check_types
    async def replay(self, run: "str | Iterable[Event]", *, context: C | None = None) -> RunResult[Out]:
        """Run the agents' code over a log without model calls, tool calls or other effects.

        Args:
            run: The id of a run, or its events.
            context: Your own context object.

        Returns:
            The result that the log leads to.

        Raises:
            ReplayMismatchError: The code does not produce what the log recorded.
        """
        from .driving import replay_run

        recorded = await self.events(run) if isinstance(run, str) else list(run)
        return await replay_run(self._repository, self._config, recorded, ResumeArgs(context=context))

    @check_types
    async def events(self, run_id: str) -> list[Event]:
        """Return the log of a run.

        Args:
            run_id: A stored run, or a stopped run in this runner's memory.
        """
        stopped = self._stopped.get(run_id)
        return list(stopped.events) if stopped is not None else await self._repository_with(run_id).events(run_id)

    @check_types
    def load_log(self, events: Iterable[Event]) -> str:
        """Import a log, for example from another process, into a runner without a store.

        Args:
            events: The events of a run of the same team that has not completed.

        Returns:
            The run's id; resume it with `resume` and pass the context again. If the team has changed, `resume` raises
            TeamChangedError unless `accept_changes` is true.

        Raises:
            SetupError: The runner has a store.
            RunError: The run has completed.
            LogError: The log is damaged, or has events that this version does not know.
        """
        if self._stored_runs is not None:
            raise SetupError(
                f"load_log() is for runners without a store, and this one has {self._stored_runs.store!r}; "
                "`await runner.fork(events)` stores a copy of a log as a new run"
            )
        recorded = list(events)
        started = run_started_event(recorded)
        if any(isinstance(event, RunCompleted) for event in recorded):
            raise RunError(f"run `{started.run_id}` has completed and cannot be resumed")
        require_known_events(recorded)
        Log(recorded)  # Raises for duplicate keys.
        self._stopped[started.run_id] = StoppedRun(events=recorded)
        return started.run_id

    def with_store(self, store: "Store | str | PathLike[str]") -> Self:
        """Return a runner of the same team with the same options and another store.

        Args:
            store: A store or its address.
        """
        twin = copy(self)
        twin._stopped, twin._thread_runs, twin._stored_runs = {}, None, self._create_repository(store)
        return twin

    @check_types
    def thread(self, id: str) -> "Thread":
        """Return a conversation: its messages, runs and active agent.

        Args:
            id: The thread's id, as passed to `run(thread=…)`.
        """
        from .threads import Thread

        repository = self._repository or self._threads_in_memory()
        return Thread(id, repository.store, repository.threads)

    async def close(self) -> None:
        """Close the store. The runner remains usable: the store opens again when needed."""
        for repository in (self._stored_runs, self._thread_runs):
            if repository is not None:
                await repository.relay.close()
                await repository.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _stream(self, input: RunInput, args: RunArgs[C]) -> RunStream[Out]:
        started = self._run_started(input, args)
        repository = self._repository or self._threads_in_memory() if started.thread else self._stored_runs
        if repository is not None:
            from .waiting import new_stored_run

            return self._create_stream(new_stored_run(repository, started, args))
        opened = open_run(started, Log(), self._config, args, first_events=[started])
        return self._create_stream(MemoryBackend(started.run_id, opened, self._stopped, is_new=True))

    def _run_started(self, input: RunInput, args: RunArgs[C]) -> RunStarted:
        started = new_run_started(input, args, self.team, self._fingerprint)
        if not self._observers:
            return started
        return msgspec.structs.replace(started, traceparent=current_traceparent(self._observers))

    async def _run_and_close(self, input: RunInput, args: RunArgs[C]) -> RunResult[Out]:
        # The store's connections belong to this event loop, which is about to end.
        try:
            return await self.run(input, **args)
        finally:
            await self.close()

    def _for_live(self, live: LiveConversation) -> Self:
        """Return a copy bound to one live session, with the same stored runs."""
        twin = copy(self)
        twin._config = msgspec.structs.replace(self._config, live=live)
        twin._stored_runs = None if self._stored_runs is None else self._stored_runs.with_config(twin._config)
        twin._thread_runs = None if self._stored_runs else self._threads_in_memory().with_config(twin._config)
        return twin

    def _with_context_factory(self, factory: ContextFactory) -> Self:
        """Return a copy that creates contexts with another function, with the same stored runs."""
        twin = copy(self)
        twin._config = msgspec.structs.replace(self._config, context_factory=factory)
        twin._stored_runs = None if self._stored_runs is None else self._stored_runs.with_config(twin._config)
        return twin

    def _create_stream(self, backend: RunBackend) -> RunStream[Out]:
        capacity = 128 if self._config.live is None else None
        return RunStream(backend, observers=self._observers, capacity=capacity)

    @property
    def _repository(self) -> "RunRepository | None":
        return self._stored_runs or self._thread_runs

    def _create_repository(self, store: "Store | str | PathLike[str]") -> "RunRepository":
        from ..stores import resolve_store
        from .stored_runs import RunRepository

        opened = measure_store(resolve_store(store), self._observers)
        return RunRepository(opened, self._config, self._fingerprint, ttl=self.lease_seconds, observers=self._observers)

    def _threads_in_memory(self) -> "RunRepository":
        if self._thread_runs is None:
            self._thread_runs = self._create_repository("memory:")
        return self._thread_runs

    def _repository_with(self, run_id: str) -> "RunRepository":
        if self._repository is None:
            raise RunNotFoundError(run_id, [*self._stopped])
        return self._repository

    def _require_repository(self, method: str) -> "RunRepository":
        return self._repository or self._no_store(f"Runner.{method}()")

    def _require_store(self, feature: str) -> FullStore:
        """Return the store. Raises SetupError, naming the feature that needs one, if there is none."""
        return (self._stored_runs or self._no_store(feature)).store

    def _no_store(self, feature: str) -> Never:
        raise SetupError(f"{feature} needs stored runs; give the runner a store: Runner(…, store=…)")


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _require_runner(runner: object, method: str) -> None:
    """Raise SetupError if a method was called on the class: `Runner.run(agent, …)`."""
    if not isinstance(runner, Runner):
        raise called_on_class(runner, method)
