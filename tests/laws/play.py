"""Whole runs of a scenario, unattended: the models say their lines, the outside gives its answers."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any, TypeVar
from weakref import WeakSet
from zlib import crc32

from tests.laws.plans import ReplyPlan, Scenario
from tests.laws.stage import AnyAgent, Stage, Voice, cast_of, runner_with, spoken

from baton import BatonError, Runner, RunResult, RunStream
from baton.agents import HistoryPolicy
from baton.events import AgentResponded, Delta, Event
from baton.messages import AssistantMessage, RunInput
from baton.models import ModelRequest
from baton.runner.result import Interrupt

T = TypeVar("T")
RUN_ID = "r"


class Play:
    """One scenario on one stage. A new runner may take it up where another one left it."""

    def __init__(self, scenario: Scenario, *, in_pieces: bool = False, projection: HistoryPolicy | None = None) -> None:
        self.scenario = scenario
        self.stage = Stage()
        self.stage.has_open_gates = True
        self.voice = Voice(self._decide, in_pieces=in_pieces)
        self.said = 0
        self._root: AnyAgent
        self._projection: HistoryPolicy | None = projection
        self._root, *self._others = cast_of(scenario.team, self.stage)
        self.runner = self.new_runner()

    def new_runner(self) -> Runner[Any, Any]:
        """A runner that knows of no run yet."""
        return runner_with(self._root, self._others, self.scenario.run, self.voice, self._projection)

    async def run(self, input: RunInput = "go", *, deliver_to: list[Event | Delta] | None = None) -> RunResult[Any]:
        """The run from its beginning to its end; to a suspension only if nothing could answer it."""
        return await self._to_the_end(self.runner.stream(input, run_id=RUN_ID), deliver_to)

    async def take_up(self, events: Sequence[Event]) -> RunResult[Any]:
        """The rest of a run, by a new runner that has only this log of it."""
        self.runner = self.new_runner()
        self.said = sum(isinstance(event, AgentResponded) and bool(event.model) for event in events)
        return await self._to_the_end(self.runner.stream_resume(self.runner.load_log(events)), None)

    async def _to_the_end(self, live: RunStream[Any], deliver_to: list[Event | Delta] | None) -> RunResult[Any]:
        while True:
            await _drive(live, deliver_to)
            if live.result.status != "suspended":
                return live.result
            open_questions = live.result.interrupts
            chosen = open_questions[:1] if self.scenario.one_at_a_time else open_questions
            live = self.runner.stream_resume(RUN_ID, {question.id: self._answer(question) for question in chosen})

    def _decide(self, request: ModelRequest) -> AssistantMessage:
        number, replies = self.said, self.scenario.replies
        self.said += 1
        reply = replies[number] if number < len(replies) else ReplyPlan(f"enough {number}")
        return spoken(reply, self.scenario.team, self.scenario.team[request.agent], number=number)

    def _answer(self, question: Interrupt) -> object:
        choice = self.scenario.approvals if is_approval(question) else self.scenario.answers
        return choice[crc32(question.id.encode()) % len(choice)]


def is_approval(question: Interrupt) -> bool:
    """Whether somebody is asked to allow something."""
    payload: Any = question.payload
    return isinstance(payload, dict) and "kind" in payload


async def _drive(live: RunStream[Any], deliver_to: list[Event | Delta] | None) -> None:
    """Let it run until it stops. Only a BatonError may come out of it."""
    with suppress(BatonError):
        if deliver_to is None:
            await live._drive()
        else:
            async with live as run:
                async for event in run:
                    deliver_to.append(event)
    assert isinstance(live.result.error, BatonError if live.result.status == "failed" else NoneType)


class OwnTasks:
    """A task factory that records tasks, except those that a `__del__` of other tests' garbage starts meanwhile."""

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


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives, in an event loop of its own in which nothing is left running and nothing goes unnoticed."""
    unnoticed: list[dict[str, Any]] = []

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unnoticed.append(context))
        loop.set_task_factory(started := OwnTasks())
        given = await work
        left = started.tasks & asyncio.all_tasks()
        assert not left, f"still running: {left}"
        return given

    given = asyncio.run(watched())
    assert not unnoticed
    return given
