"""Runs that a test controls step by step: it gives the model's replies, unblocks tools, answers and cancels."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import NoneType
from typing import Any

from tests.laws.executions import TaskTracker
from tests.laws.log_checker import LogChecker, check_effects
from tests.laws.plans import ReplyPlan, RunPlan, TeamPlan
from tests.laws.providers import objections
from tests.laws.teams import Environment, PlannedModel, message_for, runner_for

from batonkit import BatonError, RunStream
from batonkit.log import Delta, Event
from batonkit.messages import AssistantMessage
from batonkit.middleware import Middleware
from batonkit.models import ModelRequest

_IDLE_ITERATIONS = 20
_MAX_ITERATIONS = 2000


class SteppedRuns:
    """One runner and its consecutive runs, in an event loop that only runs when the test wants it to."""

    def __init__(
        self, team: TeamPlan, run: RunPlan, *, is_streamed: bool, middleware: Sequence[Middleware] = ()
    ) -> None:
        self.has_middleware = bool(middleware)
        self.team = team
        self.run = run
        self.is_streamed = is_streamed
        self.loop = asyncio.new_event_loop()
        self.unhandled: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.unhandled.append(context))
        self.loop.set_task_factory(started := TaskTracker())
        self.started = started.tasks
        self.environment = Environment()
        self.model = PlannedModel(self._wait_for_reply, stream=is_streamed)
        self.runner = runner_for(team, run, self.environment, self.model, middleware)
        self.pending_request: tuple[ModelRequest, asyncio.Future[AssistantMessage]] | None = None
        self.replies = 0
        self.runs = 0
        self.start()

    @property
    def status(self) -> str:
        """Return the run's status; it is `running` until the driver has stopped."""
        return self.live.result.status if self.task.done() else "running"

    def start(self) -> None:
        """Start another run."""
        self.runs += 1
        self._follow(self.runner.stream("go", run_id=f"r{self.runs}"), known=0)

    def resume(self, answers: dict[str, Any] | None = None) -> None:
        """Resume the run."""
        self._follow(self.runner.stream_resume(self.live.run_id, answers), known=len(self.live.events))

    def refuse_to_resume(self, answers: dict[str, Any]) -> None:
        """Resume the run with answers that are not valid. Raises AnswerError."""
        self.loop.run_until_complete(self.runner.resume(self.live.run_id, answers))

    def say(self, reply: ReplyPlan) -> None:
        """Answer the pending model request with this reply."""
        assert self.pending_request is not None
        request, future = self.pending_request
        self.replies += 1
        future.set_result(message_for(reply, self.team, self.team[request.agent], number=self.replies))
        self._settle()

    def open_gate(self, pick: int) -> None:
        """Unblock one of the waiting tools."""
        gates = list(self.environment.gates.values())
        gates[pick % len(gates)].set_result(None)
        self._settle()

    def cancel(self) -> None:
        """Cancel the run."""
        if self.is_streamed:
            self.loop.run_until_complete(self.live.cancel())
        else:
            self.task.cancel()
        self._settle()

    def close(self) -> None:
        """Cancel the run if it is running, and close the event loop."""
        if not self.task.done():
            self.cancel()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def check(self) -> None:
        """Assert that the log, effects, requests and result so far satisfy the contract."""
        events = list(self.live.events)
        checker = LogChecker(self.team, self.run, self.model, has_middleware=self.has_middleware)
        checker.read(events)
        check_effects(checker, self.environment)
        assert checker.status == self.status
        if self.is_streamed:
            delivered = [event for event in self.delivered if isinstance(event, Event)]
            # A resumed run is stored, and no event is delivered before it is stored.
            is_behind = self.known > 0 and self.status == "running"
            assert delivered == events[self.known :][: len(delivered) if is_behind else None]
        for request, seen in zip(self.model.requests, self.model.seen, strict=True):
            assert not objections(seen)
            assert tuple(request.messages) == seen, "a request changed after it was made"
        if self.status != "running":
            self._check_result(checker)
        assert not self.unhandled

    def _check_result(self, checker: LogChecker) -> None:
        result = self.live.result
        assert isinstance(result.error, BatonError if result.status == "failed" else NoneType)
        assert [*result.messages] == [line.message for line in checker.lines]
        assert {question.id for question in result.interrupts} == set(checker.open)
        assert result.agent == (checker.agent if checker.path else self.team.agents[0].name)
        if result.status == "completed":
            key = self.team[checker.agent].output_key
            assert result.output == checker.output
            assert key is None or checker.is_exit or result.values[key] == checker.output
        assert not self.started & asyncio.all_tasks(self.loop), "a task is still running"

    def _follow(self, live: RunStream[Any], *, known: int) -> None:
        self.live = live
        self.known = known
        self.delivered: list[Event | Delta] = []
        self.task = self.loop.create_task(self._listen() if self.is_streamed else self._drive())
        self._settle()

    async def _drive(self) -> None:
        with suppress(BatonError, asyncio.CancelledError):
            await self.live._drive()

    async def _listen(self) -> None:
        with suppress(BatonError):
            async with self.live as run:
                async for event in run:
                    self.delivered.append(event)

    async def _wait_for_reply(self, request: ModelRequest) -> AssistantMessage:
        future: asyncio.Future[AssistantMessage] = self.loop.create_future()
        self.pending_request = request, future
        try:
            return await future
        finally:
            self.pending_request = None

    def _settle(self) -> None:
        """Run the event loop until everything waits for the test."""
        self.loop.run_until_complete(self._until_idle())
        if self.task.done():
            self.task.result()

    async def _until_idle(self) -> None:
        idle = 0
        for _ in range(_MAX_ITERATIONS):
            await asyncio.sleep(0)
            is_waiting = self.pending_request is not None or bool(self.environment.gates) or self.task.done()
            idle = idle + 1 if is_waiting else 0
            if idle == _IDLE_ITERATIONS:
                return
        raise AssertionError("the run neither waits nor stops")
