"""Runs in the background: they go on whoever listens or leaves, and any number may listen, from any point on.

For servers: a request starts a run, another listens to it, a third answers its question, each perhaps in a process of
its own. What a run writes reaches everybody; its deltas reach those who listen in the process that drives it.

Looks after runs whose driver has died, or that nobody has driven yet: a hub goes on with them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from time import monotonic, time
from typing import Any, Literal, TypeAlias

from ..context import Limits
from ..errors import BatonError, RunConflictError, RunNotFoundError
from ..events import Delta, Event, ReasoningDelta, TextDelta, ToolCallDelta
from ..messages import RunInput
from ..stores import RunRecord, RunStatus
from .runner import Runner
from .stream import RunStream

_logger = logging.getLogger("baton.runner")
_LONGEST_PAUSE = 1.0
_MOST_WORK = 0.05
"""Which part of the time may go into looking, for stores that have to read much for it."""

PickedUp: TypeAlias = Callable[[RunRecord], Awaitable[None]]
"""Is told of a run that a hub goes on with, as its record was before."""


class RecoveryLoop:
    """One for each hub, however many apps show its runs."""

    def __init__(self, hub: "BackgroundRunner") -> None:
        self.picked_up: list[PickedUp] = []
        """Who is told of runs that were picked up."""
        self._hub = hub
        self._context: Callable[[str], Any] | None = None
        self._given_up: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self, context: Callable[[str], Any] | None = None) -> None:
        """Look again and again from now on; safe to call again.

        `context` makes the context object of a run from the name of its caller.
        """
        self._context = context or self._context
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_again_and_again(), name="baton caretaker")

    async def stop(self) -> None:
        """Look no more. What was picked up goes on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def look(self) -> None:
        """Go on with all that is unfinished now, and driven by nobody."""
        hub = self._hub
        for record in await hub.runner.list_unfinished():
            if hub.is_driving(record.run_id) or record.run_id in self._given_up:
                continue
            context = None if self._context is None else self._context(record.owner)
            try:
                await hub.take_over(record.run_id, context=context)
            except (RunConflictError, RunNotFoundError):
                continue  # Somebody else was faster.
            except BatonError:
                # The team has changed, for instance. It would be the same the next time.
                self._given_up.add(record.run_id)
                _logger.warning("run `%s` cannot be driven on here", record.run_id, exc_info=True)
            else:
                for tell in self.picked_up:
                    await tell(record)

    async def _look_again_and_again(self) -> None:
        pause = min(_LONGEST_PAUSE, self._hub.runner.lease_seconds / 3)
        while True:
            began = monotonic()
            try:
                await self.look()
            except BatonError:
                # The store may be away for a while; what is driven here goes on as long as its lease lasts.
                _logger.warning("unfinished runs could not be looked for", exc_info=True)
            await asyncio.sleep(max(pause, (monotonic() - began) / _MOST_WORK))


_MOST_WAITING = 4096


class BackgroundRunner:
    """Drives runs of one runner, which must have a store, apart from whoever asked for them."""

    def __init__(self, runner: Runner[Any, Any]) -> None:
        self.runner = runner
        self.caretaker = RecoveryLoop(self)
        """Goes on with runs whose driver has died, once it is started."""
        self._on_air: dict[str, RunBroadcast] = {}

    async def start(
        self,
        input: RunInput,
        *,
        context: Any = None,
        values: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        run_id: str | None = None,
        thread: str | None = None,
        start_at: Literal["active", "root"] = "active",
        owner: str = "",
    ) -> str:
        """Begin a run; its id, as soon as it is stored. Raises what keeps it from beginning, such as ThreadBusyError."""
        self.runner._require_store("Hub.start")
        live = self.runner.stream(
            input,
            context=context,
            values=values,
            limits=limits,
            run_id=run_id,
            thread=thread,
            start_at=start_at,
            owner=owner,
        )
        return await self._put_on_air(live)

    async def resume(
        self,
        run_id: str,
        answers: Any = None,
        *,
        context: Any = None,
        values: Mapping[str, Any] | None = None,
        accept_changes: bool = False,
    ) -> None:
        """Go on with a run that has stopped. Raises what keeps it from going on, such as an answer to no question."""
        self.runner._require_store("Hub.resume")
        await self._put_on_air(
            self.runner.stream_resume(run_id, answers, context=context, values=values, accept_changes=accept_changes)
        )

    async def take_over(self, run_id: str, *, context: Any = None) -> None:
        """Go on with a run whose driver has died. Raises RunConflictError if somebody has it, or it has stopped since."""
        record = await self.runner._require_store("Hub.pick_up").record(run_id)
        if record is not None and record.cancel_requested and record.lease_until <= time():
            # Whoever was to read that word is dead; it counts all the same.
            await self.runner.cancel(run_id, record.cancel_requested)
        await self._put_on_air(self.runner.stream_drive(run_id, context=context))

    async def subscribe(self, run_id: str, *, after: int = 0) -> AsyncIterator[tuple[int, Event | Delta]]:
        """What happens in a run, each event with its number from 1 on, leaving out the first `after`; then what comes.

        A delta has the number of the event before it. Who comes in the middle of an answer first hears the pieces of it
        that there have been. Ends when the run stops, for whatever reason.
        """
        broadcast = self._on_air.get(run_id)
        if broadcast is None:
            async for number, event in self.runner.watch(run_id, after=after):
                yield number, event
            return
        ear = broadcast.ear(after)
        try:
            while (heard := await ear.next()) is not None:
                yield heard
        finally:
            broadcast.ears.discard(ear)

    async def cancel(self, run_id: str, when: Literal["now", "after_turn"] = "now") -> RunStatus:
        """Have a run stopped, wherever it is driven; how it stands now."""
        broadcast = self._on_air.get(run_id)
        if broadcast is None:
            return await self.runner.cancel(run_id, when)
        await broadcast.live.cancel(when)
        if when == "now":
            await asyncio.wait([broadcast.task])
            return broadcast.live.result.status
        return "running"

    def is_driving(self, run_id: str) -> bool:
        """Whether the run is driven by this hub."""
        return run_id in self._on_air

    async def close(self) -> None:
        """Stop all runs that are driven here. They can be resumed."""
        await self.caretaker.stop()
        await asyncio.gather(*[self.cancel(run_id) for run_id in [*self._on_air]])

    async def release_all(self) -> None:
        """Drive nothing any more, and leave what was driven here to others: in the store it is still running."""
        await self.caretaker.stop()
        for broadcast in [*self._on_air.values()]:
            await broadcast.live._release()
            await asyncio.wait([broadcast.task])

    async def _put_on_air(self, live: RunStream[Any]) -> str:
        broadcast = RunBroadcast(live)
        broadcast.task = asyncio.create_task(self._broadcast(broadcast), name=f"baton hub {live.run_id}")
        await asyncio.wait([broadcast.begun, broadcast.task], return_when=asyncio.FIRST_COMPLETED)
        if broadcast.failure is not None and not broadcast.begun.done():
            raise broadcast.failure
        return live.run_id

    async def _broadcast(self, broadcast: "RunBroadcast") -> None:
        live = broadcast.live
        try:
            async with live as run:
                async for event in run:
                    if not broadcast.begun.done():
                        self._on_air[live.run_id] = broadcast
                        broadcast.begun.set_result(None)
                    broadcast.tell(event)
        except BatonError as error:
            # On record, if the run had begun; if not, whoever asked for it is told.
            broadcast.failure = error
        except Exception as error:
            broadcast.failure = error
            _logger.exception("run `%s` failed", live.run_id)
        finally:
            if self._on_air.get(live.run_id) is broadcast:
                del self._on_air[live.run_id]
            broadcast.end()


class RunBroadcast:
    """One run on its way, and those who listen to it."""

    task: "asyncio.Task[None]"

    def __init__(self, live: RunStream[Any]) -> None:
        self.live = live
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure: Exception | None = None
        self.ears: set[Subscriber] = set()
        self._told = 0
        self._halfway: dict[str, list[Delta]] = {}
        """The pieces of answers that are not on record yet, by the activation that gives them."""

    def tell(self, event: Event | Delta) -> None:
        """Pass one thing on. The number of an event is its place in the log, which has some that nobody is told."""
        if isinstance(event, Event):
            events = self.live.log.events
            while events[self._told] is not event:
                self._told += 1
            self._told += 1
            self._halfway.pop(event.origin.id, None)
        elif isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta):
            self._halfway.setdefault(event.origin.id, []).append(event)
        for ear in self.ears:
            ear.hear((self._told, event))

    def ear(self, after: int) -> "Subscriber":
        """A new listener, who first hears what it has missed."""
        ear = Subscriber()
        for number, event in enumerate(self.live.log.events[after : self._told], after + 1):
            ear.hear((number, event))
        for pieces in self._halfway.values():
            for piece in pieces:
                ear.hear((self._told, piece))
        self.ears.add(ear)
        return ear

    def end(self) -> None:
        """Nothing more will come."""
        for ear in self.ears:
            ear.hear(None)


class Subscriber:
    """What one listener has not heard yet. It does not hold the run up: if it is slow, it misses deltas."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Event | Delta] | None] = deque()
        self._more = asyncio.Event()

    def hear(self, item: tuple[int, Event | Delta] | None) -> None:
        """Take one thing."""
        if item is not None and isinstance(item[1], Delta) and len(self._waiting) > _MOST_WAITING:
            return
        self._waiting.append(item)
        self._more.set()

    async def next(self) -> tuple[int, Event | Delta] | None:
        """The next thing, or None if nothing more will come."""
        while not self._waiting:
            self._more.clear()
            await self._more.wait()
        return self._waiting.popleft()
