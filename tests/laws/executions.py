"""Execute whole scenarios: a model gives the planned replies, and interrupts get the planned answers."""

import asyncio
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any, TypeVar, cast
from weakref import WeakSet
from zlib import crc32

from tests.laws.plans import ReplyPlan, Scenario
from tests.laws.teams import AnyAgent, Environment, PlannedModel, build_agents, message_for, runner_with

from batonkit import AgentOptions, BatonError, Runner, RunResult, RunStream
from batonkit.agents import Compaction, HistoryPolicy
from batonkit.log import AgentResponded, Delta, Event
from batonkit.messages import AssistantMessage, RunInput
from batonkit.middleware import Middleware
from batonkit.models import ModelRequest
from batonkit.runs.result import Interrupt
from batonkit.stores import Store

T = TypeVar("T")
RUN_ID = "r"


class Execution:
    """One execution of a scenario; a second runner may resume what the first one started."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        stream: bool = False,
        projection: HistoryPolicy | None = None,
        agent_options: Mapping[str, AgentOptions] | None = None,
        middleware: Sequence[Middleware] = (),
        compaction: Compaction | None = None,
        store: Store | None = None,
    ) -> None:
        self.store = store
        self.scenario = scenario
        self.agent_options = agent_options
        self.environment = Environment()
        self.environment.has_open_gates = True
        self.model = PlannedModel(self._decide, stream=stream)
        self.responses = 0
        self._middleware = middleware
        self._root: AnyAgent
        self._projection: HistoryPolicy | None = projection
        self._compaction = compaction
        self._root, *self._others = build_agents(scenario.team, self.environment)
        self.runner = self.new_runner()

    def new_runner(self) -> Runner[Any, Any]:
        """Create a runner without any runs."""
        run, model, compaction = self.scenario.run, self.model, self._compaction
        return runner_with(
            self._root, self._others, run, model, self._projection, self._middleware, compaction, self.store
        )

    async def run(self, input: RunInput = "go", *, deliver_to: list[Event | Delta] | None = None) -> RunResult[Any]:
        """Run the scenario to its end, answering every interrupt."""
        return await self._run_to_end(
            self.runner.stream(input, run_id=RUN_ID, agent_options=self.agent_options), deliver_to
        )

    async def resume_from(self, events: Sequence[Event]) -> RunResult[Any]:
        """Resume a run from its log, or from the store, in a new runner, and run it to its end."""
        self.runner = self.new_runner()
        self.responses = sum(isinstance(event, AgentResponded) and bool(event.model) for event in events)
        run_id = RUN_ID if self.store is not None else await self.runner.runs.load(events)
        return await self._run_to_end(self.runner.stream_resume(run_id, agent_options=self.agent_options), None)

    async def _run_to_end(self, live: RunStream[Any], deliver_to: list[Event | Delta] | None) -> RunResult[Any]:
        while True:
            await _drive(live, deliver_to)
            if live.result.status != "suspended":
                return live.result
            open_questions = live.result.interrupts
            chosen = open_questions[:1] if self.scenario.one_at_a_time else open_questions
            live = self.runner.stream_resume(RUN_ID, {question.id: self._answer_to(question) for question in chosen})

    def _decide(self, request: ModelRequest) -> AssistantMessage:
        number, replies = self.responses, self.scenario.replies
        self.responses += 1
        reply = replies[number] if number < len(replies) else ReplyPlan(f"enough {number}")
        return message_for(reply, self.scenario.team, self.scenario.team[request.agent], number=number)

    def _answer_to(self, question: Interrupt) -> object:
        choice = self.scenario.approvals if is_approval(question) else self.scenario.answers
        return fitting(question, choice[crc32(question.id.encode()) % len(choice)])


def is_approval(question: Interrupt) -> bool:
    """Return whether the interrupt asks for an approval."""
    payload: Any = question.payload
    return isinstance(payload, dict) and "kind" in payload


def fitting(question: Interrupt, answer: Any) -> Any:
    """Return an answer without what the question about a transfer does not accept."""
    payload: Any = question.payload
    if not is_approval(question) or "handoff" not in payload or not isinstance(answer, dict):
        return answer
    left_out = {"always"} if payload["input"] is not None else {"always", "arguments"}
    return {key: value for key, value in cast("dict[str, Any]", answer).items() if key not in left_out}


async def _drive(live: RunStream[Any], deliver_to: list[Event | Delta] | None) -> None:
    """Drive the run until it stops. The only exception it may raise is a `BatonError`."""
    with suppress(BatonError):
        if deliver_to is None:
            await live._drive()
        else:
            async with live as run:
                async for event in run:
                    deliver_to.append(event)
    assert isinstance(live.result.error, BatonError if live.result.status == "failed" else NoneType)


class TaskTracker:
    """A task factory that records tasks, except those started by the `__del__` of other tests' objects."""

    def __init__(self) -> None:
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()

    def __call__(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task[Any](work, loop=loop, **options)
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "__del__":
            frame = frame.f_back
        if frame is None:
            self.tasks.add(task)
        return task

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are still running, except a renewal of leases.

        It belongs to the runner rather than to a run, and begins by the clock: on a slow machine, as the run ends.
        """
        running = self.tasks & asyncio.all_tasks()
        return [task for task in running if getattr(task.get_coro(), "__name__", "") != "_renew_all"]


def run_in_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop; assert that no task is left and no exception is unhandled."""
    unhandled: list[dict[str, Any]] = []

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        loop.set_task_factory(started := TaskTracker())
        result = await work
        assert not (unfinished := started.unfinished()), f"still running: {unfinished}"
        return result

    result = asyncio.run(watched())
    assert not unhandled
    return result
