"""The runner: compiles a team once, then starts, streams and resumes its runs."""

import asyncio
from collections.abc import Coroutine, Sequence
from copy import copy
from datetime import datetime, timedelta
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

import msgspec
from msgspec import UNSET, UnsetType
from typing_extensions import TypeVar

from .._checks import check_arguments, check_types
from ..agents import BaseAgent, Compaction, HistoryPolicy, RunHooks
from ..agents.middleware import Middleware
from ..context import Limits
from ..context.run_state import LiveConversation, resolve_time
from ..errors import SetupError
from ..handoffs import PromptLanguage
from ..log import RunStarted
from ..log.log import Log
from ..messages import RunInput
from ..models import Model, ModelSettings, Prices
from ..stores import FullStore, Store
from ..team import Team
from ..team.follow import FlowConfig
from ..team.team import team_fingerprint
from .configuration import RunnerOptions
from .observers import Observer, current_traceparent
from .opening import RunBackend, UnstoredRun, new_run_started, open_run
from .result import RunResult
from .rules import HandoffRules, HistoryOptions
from .run_args import (
    ContextFactory,
    ResumeArgs,
    RunArgs,
    called_on_class,
    check_resume_args,
    check_run_args,
    check_submit_args,
    check_team_arguments,
)
from .stored.access import StoreAccess
from .stored.runs import Runs
from .stream import RunStream
from .threads.waiting_messages import Schedule

# What resumed and stored runs need is loaded at the first of them: a process starts faster without it.
if TYPE_CHECKING:
    from .stored.repository import RunRepository
    from .threads.thread import Thread

C = TypeVar("C", default=Any)
Out = TypeVar("Out", default=str, covariant=True)


class Runner(Generic[C, Out]):
    """Runs one team of agents; any number of its runs may be in progress at once.

    With a store, every run is stored and any runner of the same team can resume it. Without one, only runs that stopped
    before their end and runs of threads are kept, in the runner's memory. `runs` has the operations on stored runs.

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
        history: What agents read of each other: a policy name, a function, or `HistoryOptions(…)`.
        compaction: When and how long histories are compacted; an agent's own takes precedence.
        handoff_rules: What happens at several transfers, invalid calls and loops; `HandoffRules(…)`.
        extra_agents: Agents that belong to the team although no handoff refers to them.
        prompt_language: The language of generated prompts and tool descriptions, `"en"` or `"zh"`.
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
        history: HistoryPolicy | HistoryOptions = "rewritten",
        compaction: Compaction | None = None,
        handoff_rules: HandoffRules | None = None,
        extra_agents: Sequence[BaseAgent[Any, Out]] = (),
        prompt_language: PromptLanguage = "en",
        context_factory: ContextFactory | None = None,
        prices: Prices | bool = True,
    ) -> None:
        check_team_arguments(agent, extra_agents, prompt_language)
        self.team = Team.compile(agent, extra=extra_agents, language=prompt_language)
        """The compiled team."""
        self._fingerprint = team_fingerprint(self.team)
        self._options = RunnerOptions().change(
            "Runner()",
            model=model,
            model_settings=model_settings,
            limits=limits,
            hooks=hooks,
            observers=observers,
            middleware=middleware,
            history=history,
            compaction=compaction,
            handoff_rules=handoff_rules,
            context_factory=context_factory,
            prices=prices,
        )
        self._config = self._options.compile(self.team)
        self._access = self._access_to(store)
        self.runs: Runs[C, Out] = Runs(self._access)
        """The runs of the team: inspect, answer, cancel, delete, copy and drive them."""
        fallback = self._config.loop_fallback
        self.team.warn(entries=() if fallback is None else [fallback])

    def __repr__(self) -> str:
        agents = len(self.team.members)
        store = "" if self._access.store is None else f", store={self._access.store!r}"
        return f"Runner({self.team.root!r}, {agents} agent{'s' if agents != 1 else ''}{store})"

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
        _require_no_loop("run_sync", "run")
        return asyncio.run(self._and_close(self.run(input, **args)))

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
    def resume_sync(self, run_id: str, answers: Any = None, **args: Unpack[ResumeArgs[C]]) -> RunResult[Out]:
        """Resume a run synchronously, and close the store afterwards.

        Args:
            run_id: The run to resume.
            answers: Answers by interrupt id, the answer itself if exactly one interrupt is open, or `Dismiss(reason)`.
            **args: See `ResumeArgs`.

        Returns:
            The result at the run's end or at its next interrupt.

        Raises:
            SetupError: It was called inside a running event loop.
            BatonError: The errors of `resume`.
        """
        check_resume_args("Runner.resume_sync()", args)
        _require_no_loop("resume_sync", "resume")
        return asyncio.run(self._and_close(self.resume(run_id, answers, **args)))

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
        from .stored.backends import ReopenedRun

        first_events = partial(resume_events, answers=answers, args=args)
        return self._create_stream(ReopenedRun(self._repository, run_id, first_events, args))

    @check_types
    async def submit(
        self,
        input: RunInput,
        *,
        not_before: datetime | timedelta | None = None,
        priority: int = 0,
        **args: Unpack[RunArgs[C]],
    ) -> str:
        """Create a run for another worker, or a later `runs.drive`, to drive.

        Args:
            input: The user's message, or a list of messages.
            not_before: The time before which no worker drives it, or a duration from now, by the store's clock.
            priority: Runs with a higher priority are driven first.
            **args: See `RunArgs`; all but `context`, which the driving worker passes to `drive`.

        Returns:
            The run's id.
        """
        check_submit_args("Runner.submit()", args, "not_before", "priority")
        started = self._run_started(input, args)
        wake_at = await resolve_time("Runner.submit(not_before=…)", not_before, self._repository.store.now)
        return await self._repository.submit(started, args, Schedule(wake_at, priority))

    @check_types
    def clone(
        self,
        *,
        model: Model | str | UnsetType | None = UNSET,
        model_settings: ModelSettings | UnsetType | None = UNSET,
        store: "Store | str | PathLike[str] | UnsetType | None" = UNSET,
        limits: Limits | UnsetType | None = UNSET,
        hooks: RunHooks | UnsetType | None = UNSET,
        observers: Sequence[Observer] | UnsetType = UNSET,
        middleware: Sequence[Middleware[C]] | UnsetType = UNSET,
        history: HistoryPolicy | HistoryOptions | UnsetType = UNSET,
        compaction: Compaction | UnsetType | None = UNSET,
        handoff_rules: HandoffRules | UnsetType | None = UNSET,
        context_factory: ContextFactory | UnsetType | None = UNSET,
        prices: Prices | bool | UnsetType = UNSET,
    ) -> Self:
        """Return a runner of the same compiled team with some options changed.

        It has the same runs, those in memory too, unless it gets another store.

        Args:
            model: The model of agents that have none of their own; None for the one named by `BATON_MODEL`.
            model_settings: Default model settings.
            store: Another store or its address; None for a memory of its own.
            limits: Limits that apply to each run.
            hooks: Lifecycle hooks in place of those of this runner.
            observers: Observers in place of those of this runner.
            middleware: Middleware in place of that of this runner.
            history: What agents read of each other.
            compaction: When and how long histories are compacted.
            handoff_rules: What happens at several transfers, invalid calls and loops.
            context_factory: Creates the context of a run for which none is given.
            prices: A `PriceTable`, True or False.

        Raises:
            SetupError: An argument is invalid.
        """
        options = self._options.change(
            "Runner.clone()",
            model=model,
            model_settings=model_settings,
            limits=limits,
            hooks=hooks,
            observers=observers,
            middleware=middleware,
            history=history,
            compaction=compaction,
            handoff_rules=handoff_rules,
            context_factory=context_factory,
            prices=prices,
        )
        return self._with_config(options, options.compile(self.team), store)

    @check_types
    def thread(self, id: str) -> "Thread":
        """Return a conversation: its messages, runs and active agent.

        Args:
            id: The thread's id, as passed to `run(thread=…)`.
        """
        from .threads.thread import Thread

        return Thread(id, self._repository.store, self._repository.threads)

    async def close(self) -> None:
        """Close the store. The runner remains usable: the store opens again when needed."""
        await self._access.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _stream(self, input: RunInput, args: RunArgs[C]) -> RunStream[Out]:
        started = self._run_started(input, args)
        # Runs of a thread read each other, so they are all stored.
        if self._access.store is not None or started.thread:
            from .threads.waiting import backend_of_new_run

            return self._create_stream(backend_of_new_run(self._repository, started, args))
        opened = open_run(started, Log(), self._config, args, first_events=[started])
        return self._create_stream(UnstoredRun(started.run_id, opened, self._access))

    def _run_started(self, input: RunInput, args: RunArgs[C]) -> RunStarted:
        started = new_run_started(input, args, self.team, self._fingerprint)
        # The process that drives the run may trace it, even if this one does not.
        traceparent = current_traceparent()
        return msgspec.structs.replace(started, traceparent=traceparent) if traceparent else started

    async def _and_close(self, running: Coroutine[Any, Any, RunResult[Out]]) -> RunResult[Out]:
        # The store's connections belong to this event loop, which is about to end.
        try:
            return await running
        finally:
            await self.close()

    def _for_live(self, live: LiveConversation) -> Self:
        """Return a copy bound to one live session, with the same stored runs."""
        return self._with_config(self._options, msgspec.structs.replace(self._config, live=live))

    def _with_config(
        self,
        options: RunnerOptions,
        config: FlowConfig,
        store: "Store | str | PathLike[str] | UnsetType | None" = UNSET,
    ) -> Self:
        twin = copy(self)
        twin._options = options
        twin._config = config
        if store is UNSET:
            twin._access = self._access.with_config(config, options.observers)
        else:
            twin._access = twin._access_to(store)
        twin.runs = Runs(twin._access)
        return twin

    def _create_stream(self, backend: RunBackend) -> RunStream[Out]:
        capacity = 128 if self._config.live is None else None
        return RunStream(backend, observers=self._options.observers, capacity=capacity)

    @property
    def _repository(self) -> "RunRepository":
        return self._access.repository

    def _access_to(self, store: "Store | str | PathLike[str] | None") -> StoreAccess:
        if store is not None:
            from ..stores import resolve_store

            store = resolve_store(store)
        return StoreAccess(store, self._config, self._fingerprint, self._options.observers)

    def _require_store(self, feature: str) -> FullStore:
        """Return the store. Raises SetupError, naming the feature that needs one, if there is none."""
        if self._access.store is None:
            raise SetupError(f"{feature} needs stored runs; give the runner a store: Runner(…, store=…)")
        return self._repository.store


def _require_no_loop(method: str, coroutine_method: str) -> None:
    """Raise SetupError if a synchronous method was called inside a running event loop."""
    # Not in a handler of RuntimeError: the run's own error would be shown as if that error had led to it.
    if _is_loop_running():
        raise SetupError(
            f"{method}() was called inside a running event loop; use `await runner.{coroutine_method}(…)` there"
        )


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
