"""The calls that are on their way in a session, and what the server asks about them meanwhile."""

import asyncio
from typing import Any, Protocol

import mcp_types as types
from mcp_types import INVALID_REQUEST

from ...context import Suspend
from .ways import logger


class Answering(Protocol):
    """Who answers what a server asks while it carries out a call."""

    async def answer(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """The answer. Raises Suspend if somebody outside must give it first."""
        ...


class Flight:
    """A call on its way."""

    def __init__(self, job: "asyncio.Task[Any]", answering: Answering | None) -> None:
        self.job = job
        self.answering = answering
        self.pause: Suspend | None = None
        """Set if the call is given up because it waits for an answer from outside."""


class Flights:
    """All calls that are on their way."""

    def __init__(self) -> None:
        self._flights: list[Flight] = []
        self._asking = 0
        self._moved = asyncio.Event()
        """Set whenever a call has begun, asked or ended."""

    def __len__(self) -> int:
        return len(self._flights)

    def begin(self, flight: Flight) -> None:
        """A call is made."""
        self._flights.append(flight)
        self._has_moved()

    def end(self, flight: Flight) -> None:
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
            while len(self._flights) > self._asking:
                await self._moved.wait()
            if len(self._flights) > 1:
                return refusal("several calls ask at once, and it cannot be told which is which")
            if not self._flights or self._flights[0].answering is None:
                return refusal("no call is being made that somebody could be asked about")
            return await _answered(self._flights[0], self._flights[0].answering, request)
        finally:
            self._asking -= 1
            self._has_moved()

    def _has_moved(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


async def _answered(
    flight: Flight, answering: Answering, request: types.InputRequest
) -> types.InputResponse | types.ErrorData:
    try:
        return await answering.answer(request)
    except Suspend as pause:
        flight.pause = pause
        flight.job.cancel()
        return refusal("the answer comes later; the call will be made again then")
    except Exception as error:  # noqa: BLE001 - the server is told, and says in its result what that means
        logger.warning("a question in the middle of a call could not be answered", exc_info=error)
        return refusal(f"{type(error).__name__}: {error}")


def refusal(why: str) -> types.ErrorData:
    """What a server gets instead of an answer."""
    return types.ErrorData(code=INVALID_REQUEST, message=why)
