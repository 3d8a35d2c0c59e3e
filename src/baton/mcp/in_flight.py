"""Calls in flight in a session, and the server's requests during them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import mcp_types as types
from mcp_types import INVALID_REQUEST

from mcp import ClientSession

from ..context.run_context import SuspendRun
from .transports import logger

T = TypeVar("T")

Send: TypeAlias = Callable[[ClientSession], Coroutine[Any, Any, T]]
"""Sends a request in a session."""
RequestAnswerer: TypeAlias = Callable[[types.InputRequest], Awaitable[types.InputResponse | types.ErrorData]]
"""Answers a server's request during a call. Raises `SuspendRun` if the answer must come from outside."""


class InFlightCall:
    """A call in flight.

    Args:
        job: The task that sends the call.
        answerer: Answers the server's requests during the call.
        key: Identifies the call across resumptions of its run.
    """

    def __init__(self, job: "asyncio.Task[Any]", answerer: RequestAnswerer | None, key: str) -> None:
        self.job = job
        self.answerer = answerer
        self.key = key
        self._requests: list[types.InputRequest] = []
        self._suspension: SuspendRun | None = None
        self._pending_answer: asyncio.Future[Any] | None = None
        """Resolved with the answer that the server waits for, if it comes from outside."""
        self._changed = asyncio.Event()
        job.add_done_callback(lambda _: self._changed.set())

    @property
    def is_suspended(self) -> bool:
        """True if the call waits for an answer from outside while its run is suspended."""
        return self._suspension is not None

    async def wait(self) -> None:
        """Wait until the call ends. Raises `SuspendRun` if it waits for an answer from outside."""
        while not self.job.done():
            await self._changed.wait()
            if self._suspension is not None:
                raise self._suspension
            self._changed.clear()

    async def handle_request(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """Answer a request of the server, if need be with the answer that resumes the run."""
        self._requests.append(request)
        if self.answerer is None:
            return refusal("this call accepts no requests")
        try:
            return await _answer(self.answerer, request)
        except SuspendRun as suspension:
            self._suspension = suspension
            self._pending_answer = asyncio.get_running_loop().create_future()
            self._changed.set()
        return await self._pending_answer

    async def resume(self, answerer: RequestAnswerer) -> None:
        """Send the server its answer. Raises `SuspendRun` if there is still none."""
        answer, self.answerer = self._pending_answer, answerer
        # Earlier answers are in the log; they are read again so that each request finds its own.
        answers = [await _answer(answerer, request) for request in self._requests]
        self._suspension, self._pending_answer = None, None
        self._changed.clear()
        if answer is not None and not answer.done():
            answer.set_result(answers[-1])


class InFlightCalls:
    """The calls in flight in one session."""

    def __init__(self) -> None:
        self._calls: list[InFlightCall] = []
        self._asking_count = 0
        self._changed = asyncio.Event()
        """Set whenever a call starts, asks or ends; then replaced."""

    def __len__(self) -> int:
        return len(self._calls)

    def find_suspended(self, key: str) -> InFlightCall | None:
        """Return the call with this key if it is suspended."""
        return next((call for call in self._calls if call.is_suspended and call.key == key), None)

    def has_suspended(self, key: str) -> bool:
        """Return whether the call with this key, or any call, is suspended."""
        if key:
            return self.find_suspended(key) is not None
        return any(call.is_suspended and not call.job.done() for call in self._calls)

    def add(self, call: InFlightCall) -> None:
        """Add a call."""
        self._calls.append(call)
        self._notify()

    def remove(self, call: InFlightCall) -> None:
        """Remove a call that has ended or was abandoned."""
        self._calls.remove(call)
        self._notify()

    async def handle_request(self, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
        """Answer a request that the server makes during a call.

        Before protocol 2026-07-28 a request does not name its call. The other calls are awaited instead: the call that
        asks cannot remove before it is answered, so it is the one that remains.
        """
        self._asking_count += 1
        self._notify()
        try:
            while len(self._running()) > self._asking_count:
                await self._changed.wait()
            running = self._running()
            if len(running) > 1:
                return refusal(
                    "several calls are asking at once, and the protocol does not say which call a request belongs to"
                )
            if not running:
                return refusal("no call is in flight")
        finally:
            self._asking_count -= 1
            self._notify()
        return await running[0].handle_request(request)

    def _running(self) -> list[InFlightCall]:
        # A suspended call waits for its own answer; it is not the one asking now.
        return [call for call in self._calls if not call.is_suspended]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _answer(answerer: RequestAnswerer, request: types.InputRequest) -> types.InputResponse | types.ErrorData:
    try:
        return await answerer(request)
    except Exception as error:  # noqa: BLE001 - reported to the server, which decides what it means
        logger.warning("could not answer a server's request during a call", exc_info=error)
        return refusal(f"{type(error).__name__}: {error}")


def refusal(reason: str) -> types.ErrorData:
    """Return the error that refuses a server's request."""
    return types.ErrorData(code=INVALID_REQUEST, message=reason)
