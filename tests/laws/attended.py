"""A run that a test steers: it says what models say, lets tools go on, answers, cancels, and looks in between."""

import asyncio
from contextlib import suppress
from types import NoneType
from typing import Any

from tests.laws.plans import ReplyPlan, RunPlan, TeamPlan
from tests.laws.play import OwnTasks
from tests.laws.providers import objections
from tests.laws.stage import Stage, Voice, runner_for, spoken
from tests.laws.story import Story, check_deeds

from baton import BatonError, RunStream
from baton.events import Delta, Event
from baton.messages import AssistantMessage
from baton.models import ModelRequest

_QUIET = 20
_LOUD = 2000


class AttendedRuns:
    """One runner and its runs, one after the other, in an event loop that only turns while the test wants it to."""

    def __init__(self, team: TeamPlan, run: RunPlan, *, is_streamed: bool) -> None:
        self.team = team
        self.run = run
        self.is_streamed = is_streamed
        self.loop = asyncio.new_event_loop()
        self.unnoticed: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.unnoticed.append(context))
        self.loop.set_task_factory(started := OwnTasks())
        self.started = started.tasks
        self.stage = Stage()
        self.voice = Voice(self._wait_for_reply, in_pieces=is_streamed)
        self.runner = runner_for(team, run, self.stage, self.voice)
        self.asked: tuple[ModelRequest, asyncio.Future[AssistantMessage]] | None = None
        self.replies = 0
        self.runs = 0
        self.start()

    @property
    def status(self) -> str:
        """Where the run stands: `running` until it has stopped."""
        return self.live.result.status if self.task.done() else "running"

    def start(self) -> None:
        """Begin another run."""
        self.runs += 1
        self._follow(self.runner.stream("go", run_id=f"r{self.runs}"), known=0)

    def resume(self, answers: dict[str, Any] | None = None) -> None:
        """Take the run up again."""
        self._follow(self.runner.stream_resume(self.live.run_id, answers), known=len(self.live.events))

    def say(self, reply: ReplyPlan) -> None:
        """Have the model that was asked say this."""
        assert self.asked is not None
        request, future = self.asked
        self.replies += 1
        future.set_result(spoken(reply, self.team, self.team[request.agent], number=self.replies))
        self._settle()

    def open_gate(self, pick: int) -> None:
        """Let one of the tools go on that wait."""
        gates = list(self.stage.gates.values())
        gates[pick % len(gates)].set_result(None)
        self._settle()

    def cancel(self) -> None:
        """Stop the run where it is."""
        if self.is_streamed:
            self.loop.run_until_complete(self.live.cancel())
        else:
            self.task.cancel()
        self._settle()

    def close(self) -> None:
        """Leave nothing behind."""
        if not self.task.done():
            self.cancel()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def check(self) -> None:
        """Assert that everything so far is as the contract wants it."""
        events = list(self.live.events)
        story = Story(self.team, self.run, self.voice)
        story.read(events)
        check_deeds(story, self.stage)
        assert story.status == self.status
        if self.is_streamed:
            assert [event for event in self.delivered if isinstance(event, Event)] == events[self.known :]
        for request, seen in zip(self.voice.requests, self.voice.seen, strict=True):
            assert not objections(seen)
            assert tuple(request.messages) == seen, "a request changed after it was made"
        if self.status != "running":
            self._check_result(story)
        assert not self.unnoticed

    def _check_result(self, story: Story) -> None:
        result = self.live.result
        assert isinstance(result.error, BatonError if result.status == "failed" else NoneType)
        assert [*result.messages] == [line.message for line in story.lines]
        assert {question.id for question in result.interrupts} == set(story.open)
        assert result.agent == (story.agent if story.path else self.team.agents[0].name)
        if result.status == "completed":
            key = self.team[story.agent].output_key
            assert result.output == story.output
            assert key is None or story.is_exit or result.values[key] == story.output
        assert not self.started & asyncio.all_tasks(self.loop), "something is left running"

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
        self.asked = request, future
        try:
            return await future
        finally:
            self.asked = None

    def _settle(self) -> None:
        """Let everything happen that can happen without the test."""
        self.loop.run_until_complete(self._until_quiet())
        if self.task.done():
            self.task.result()

    async def _until_quiet(self) -> None:
        quiet = 0
        for _ in range(_LOUD):
            await asyncio.sleep(0)
            is_waiting = self.asked is not None or bool(self.stage.gates) or self.task.done()
            quiet = quiet + 1 if is_waiting else 0
            if quiet == _QUIET:
                return
        raise AssertionError("the run neither goes on nor stops")
