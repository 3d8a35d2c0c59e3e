"""The calls that are on their way in a session, and what the server asks about them meanwhile."""

import asyncio
from typing import Any, Protocol

import mcp_types as types
from mcp_types import INVALID_REQUEST

from ..context.run_context import SuspendRun
from .transports import logger


class RequestAnswerer(Protocol):
    """Who answers what a server asks while it carries out a call."""

    async def answer(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """The answer. Raises Suspend if somebody outside must give it first."""
        ...


class InFlightCall:
    """A call on its way. `place` is where in which run it is made, the same again when that run is resumed."""

    def __init__(self, job: "asyncio.Task[Any]", answering: RequestAnswerer | None, place: str) -> None:
        self.job = job
        self.answering = answering
        self.place = place
        self._asked: list[types.InputRequest] = []
        self._pause: SuspendRun | None = None
        self._answer: asyncio.Future[Any] | None = None
        """What the server waits for, if that must come from outside."""
        self._moved = asyncio.Event()
        job.add_done_callback(lambda _: self._moved.set())

    @property
    def is_parked(self) -> bool:
        """Whether it waits for an answer from outside, and its run is suspended for that long."""
        return self._pause is not None

    async def landed(self) -> None:
        """Return when the call has ended. Raises Suspend if it waits for somebody outside."""
        while not self.job.done():
            await self._moved.wait()
            if self._pause is not None:
                raise self._pause
            self._moved.clear()

    async def asked(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """The answer to what the server asks, be it the answer that the run is resumed with."""
        self._asked.append(request)
        if self.answering is None:
            return refusal("nobody can be asked about this call")
        try:
            return await _answered(self.answering, request)
        except SuspendRun as pause:
            self._pause = pause
            self._answer = asyncio.get_running_loop().create_future()
            self._moved.set()
        return await self._answer

    async def go_on(self, answering: RequestAnswerer) -> None:
        """Give the server its answer, now that the run goes on. Raises Suspend if there still is none."""
        answer, self.answering = self._answer, answering
        # What was answered before is on record; it is gone through so that each question finds its own answer.
        given = [await _answered(answering, request) for request in self._asked]
        self._pause, self._answer = None, None
        self._moved.clear()
        if answer is not None and not answer.done():
            answer.set_result(given[-1])


class InFlightCalls:
    """All calls that are on their way."""

    def __init__(self) -> None:
        self._flights: list[InFlightCall] = []
        self._asking = 0
        self._moved = asyncio.Event()
        """Set whenever a call has begun, asked or ended."""

    def __len__(self) -> int:
        return len(self._flights)

    def parked(self, place: str) -> InFlightCall | None:
        """The call of this place that waits for an answer from outside, if it still does."""
        return next((flight for flight in self._flights if flight.is_parked and flight.place == place), None)

    def has_parked(self) -> bool:
        """Whether any call waits for an answer from outside."""
        return any(flight.is_parked and not flight.job.done() for flight in self._flights)

    def begin(self, flight: InFlightCall) -> None:
        """A call is made."""
        self._flights.append(flight)
        self._has_moved()

    def end(self, flight: InFlightCall) -> None:
        """A call has its result, or nobody waits for it any more."""
        self._flights.remove(flight)
        self._has_moved()

    async def asked(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """The answer to what the server asks in the middle of a call.

        Before 2026-07-28 the protocol does not say of which call. So the others are waited for: one that asks does not
        end before it has its answer, and the one that is left is the one.
        """
        self._asking += 1
        self._has_moved()
        try:
            while len(self._flying()) > self._asking:
                await self._moved.wait()
            flying = self._flying()
            if len(flying) > 1:
                return refusal("several calls ask at once, and it cannot be told which is which")
            if not flying:
                return refusal("no call is being made that somebody could be asked about")
        finally:
            self._asking -= 1
            self._has_moved()
        return await flying[0].asked(request)

    def _flying(self) -> list[InFlightCall]:
        # One that waits for its own answer is not the one that asks now.
        return [flight for flight in self._flights if not flight.is_parked]

    def _has_moved(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


async def _answered(answering: RequestAnswerer, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
    try:
        return await answering.answer(request)
    except Exception as error:  # noqa: BLE001 - the server is told, and says in its result what that means
        logger.warning("a question in the middle of a call could not be answered", exc_info=error)
        return refusal(f"{type(error).__name__}: {error}")


def refusal(why: str) -> types.ErrorData:
    """What a server gets instead of an answer."""
    return types.ErrorData(code=INVALID_REQUEST, message=why)
