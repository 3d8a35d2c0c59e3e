"""One open session with a server, kept by a task of its own from opening to closing.

The SDK wants a session closed by the task that opened it, and ends that task's work when the connection breaks. Here
that task is nobody else's: callers only wait for what becomes of their calls.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import randrange
from typing import Any, Literal, TypeVar, cast

import mcp_types as types
from anyio import CancelScope
from mcp.client import ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp import Client, ClientSession

from ..context.run_context import SuspendRun
from ..version import __version__
from .in_flight import InFlightCall, InFlightCalls, RequestAnswerer, refusal
from .oauth import AuthorizationPending
from .transports import (
    SENT,
    VISIT,
    AuthorizationRequiredError,
    AuthorizationState,
    MCPSessionError,
    MCPTransport,
    logger,
)

T = TypeVar("T")

Mode = Literal["auto", "legacy"] | str

_ACKNOWLEDGED_WITHIN = 2.0
_LEVELS: dict[str, int] = {"debug": 10, "info": 20, "notice": 20, "warning": 30, "error": 40}
_CRITICAL = 50


class MCPSession:
    """A session that is opened once. `on_change` is called when the server has other tools."""

    def __init__(
        self,
        way: MCPTransport,
        *,
        on_change: Callable[[], None],
        mode: Mode,
        roots: tuple[types.Root, ...],
        sampling: bool,
    ) -> None:
        self._way = way
        self._on_change = on_change
        self._mode = mode
        self._roots = roots
        self._sampling = sampling
        self._leave = AuthorizationState()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._opening = CancelScope()
        """Ends the opening. Not by the task's own `cancel`, which would also end the stopping of a process."""
        self._closing = asyncio.Event()
        self._flights = InFlightCalls()
        self._jobs: set[asyncio.Task[Any]] = set()
        self._retires = False
        self.is_lost = False
        """Whether it has ended, by itself or because it was closed."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it to close."""
        return self._owner is not None and self._owner.done()

    async def open(self, within: float) -> None:
        """Open it. Raises Gone if that does not work."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Nobody may be left to read it.
        opened.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._owner = asyncio.create_task(self._own(opened), name=f"baton mcp {self._way.label}")
        try:
            async with asyncio.timeout(within):
                await asyncio.shield(opened)
        except TimeoutError:
            self._opening.cancel()
            raise MCPSessionError(f"{self._way.label} did not answer within {within:g} s", was_sent=False) from None
        except asyncio.CancelledError:
            self._opening.cancel()
            raise

    async def _own(self, opened: "asyncio.Future[None]") -> None:
        try:
            with self._opening:
                await self._kept_open(opened)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - whatever ends a session is told to its callers
            self._ended_with(error, opened)
        finally:
            self._lost()
            if not opened.done():
                opened.set_exception(
                    MCPSessionError(f"{self._way.label} was given up while it was opened", was_sent=False)
                )

    async def _kept_open(self, opened: "asyncio.Future[None]") -> None:
        async with self._new_client() as client:
            self._check_leave()
            self._client = client
            _number_from_anywhere(client.session)
            listening = await self._listening(client)
            opened.set_result(None)
            try:
                await self._closing.wait()
            finally:
                if listening is not None:
                    listening.cancel()

    def _ended_with(self, error: BaseException, opened: "asyncio.Future[None]") -> None:
        if opened.done():
            logger.debug("the session with %s ended", self._way.label, exc_info=error)
            return
        try:
            self._check_leave()
        except MCPSessionError as gone:
            opened.set_exception(gone)
            return
        words = self._way.last_words()
        because = f"; it said: {words}" if words else ""
        opened.set_exception(
            MCPSessionError(f"{self._way.label} cannot be reached: {_root_of(error)}{because}", was_sent=False)
        )

    def _check_leave(self) -> None:
        """Raises Gone if the server may not be used, or AuthorizationRequiredError if not yet."""
        match self._leave.trouble:
            case None:
                self._leave.is_opening = False
            case AuthorizationPending(url=url):
                raise AuthorizationRequiredError(self._way.label, url)
            case trouble:
                raise MCPSessionError(f"there is no leave to use {self._way.label}: {trouble}", was_sent=False)

    def _new_client(self) -> Client:
        level = logger.getEffectiveLevel()
        return Client(
            self._way.reach(self._lost, self._leave),
            mode=self._mode,
            cache=None,
            client_info=types.Implementation(name="baton", version=__version__),
            message_handler=self._hear,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample if self._sampling else None,
            list_roots_callback=self._list_roots if self._roots else None,
            logging_callback=self._log,
            log_level="debug" if level <= 10 else "info" if level <= 20 else "warning",
        )

    async def _listening(self, client: Client) -> "asyncio.Task[None] | None":
        """What notices that the server has other tools, if that has to be asked for."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return None
        is_heard = asyncio.Event()
        task = asyncio.create_task(self._listen(client, is_heard))
        # Listening before listing: a change between the two would be missed.
        heard = asyncio.create_task(is_heard.wait())
        await asyncio.wait([task, heard], timeout=_ACKNOWLEDGED_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        heard.cancel()
        return task

    async def _listen(self, client: Client, is_heard: asyncio.Event) -> None:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                is_heard.set()
                async for _ in changes:
                    self._on_change()
        except (MCPError, RuntimeError, TimeoutError) as error:
            logger.debug("%s no longer tells of changes: %s", self._way.label, error)
        # Whoever is not told must look.
        self._on_change()

    async def request(
        self,
        send: Callable[[ClientSession], Awaitable[T]],
        *,
        answering: RequestAnswerer | None = None,
        place: str = "",
    ) -> T:
        """What the server answers. Raises Gone if the session ends first, MCPError if the server says so.

        A call that waits for an answer from outside stays on its way when this raises Suspend, and is taken up again
        from the same place.
        """
        flight = self._flights.parked(place) if place else None
        if flight is None:
            flight = self._begun(send, answering, place)
        job: asyncio.Task[T] = flight.job
        is_over = True
        try:
            if flight.is_parked and answering is not None:
                await flight.go_on(answering)
            # Not `await job`: if the session's end cancels the job, that must not look as if the caller were cancelled.
            await flight.landed()
        except SuspendRun:
            is_over = False
            raise
        finally:
            if is_over:
                job.cancel()
                self._flights.end(flight)
                if self._retires and not self._flights:
                    self._closing.set()
        if job.cancelled():
            raise MCPSessionError(f"{self._way.label} is gone", was_sent=True)
        try:
            return job.result()
        except MCPError as error:
            gone = self._as_gone(error)
            if gone is None:
                raise
            raise gone from error

    def _begun(
        self, send: Callable[[ClientSession], Awaitable[T]], answering: RequestAnswerer | None, place: str
    ) -> InFlightCall:
        if self.is_lost or self._client is None:
            raise MCPSessionError(f"{self._way.label} is gone", was_sent=False)
        job = asyncio.create_task(_sent(send, self._client.session))
        self._jobs.add(job)
        job.add_done_callback(self._job_ended)
        flight = InFlightCall(job, answering, place)
        self._flights.begin(flight)
        return flight

    def has_parked(self, place: str = "") -> bool:
        """Whether a call of this place, or any call, waits for an answer from outside."""
        return self._flights.parked(place) is not None if place else self._flights.has_parked()

    def _as_gone(self, error: MCPError) -> MCPSessionError | None:
        """The error as the end of the session, if that is what it means."""
        page = _page_in(error)
        if page is not None:
            return AuthorizationRequiredError(self._way.label, page)
        data: Any = error.data
        if isinstance(data, dict) and SENT in data:
            return MCPSessionError(f"{self._way.label} does not answer ({error.message})", was_sent=data[SENT] is True)
        if error.code != CONNECTION_CLOSED:
            return None
        # A server may use this code for its own errors; over pipes it is known whether the connection has ended.
        if self.is_lost or self._way.is_http or error.message == "Connection closed":
            words = self._way.last_words()
            # For the log alone: what a process writes there is not meant for a model.
            logger.debug("%s is gone; it said last: %s", self._way.label, words or "nothing")
            return MCPSessionError(f"{self._way.label} is gone ({error.message})", was_sent=True)
        return None

    def retire(self) -> None:
        """Close it as soon as no call is on its way."""
        self._retires = True
        if not self._flights:
            self._closing.set()

    async def close(self) -> None:
        """Close it, whoever is still waiting. May be called from any task."""
        for job in self._jobs:
            job.cancel()
        if self._jobs:
            # What is cancelled tells the server so.
            await asyncio.wait(self._jobs, timeout=1.0)
        self._closing.set()
        if self._owner is not None:
            if self._client is None:
                # Still being opened: whoever waits for that is told, and need not wait for it to fail.
                self._opening.cancel()
            await asyncio.wait([self._owner])

    def _job_ended(self, job: "asyncio.Task[Any]") -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            # A caller that was cancelled does not ask any more.
            job.exception()

    def _lost(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._on_change()
            self._closing.set()

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()
        elif isinstance(message, Exception):
            logger.debug("%s sent something unreadable: %s", self._way.label, message)

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        level = _LEVELS.get(params.level, _CRITICAL)
        logger.log(level, "%s: %s", self._way.label, params.data)

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        answer = await self._flights.asked(types.ElicitRequest(params=params))
        return answer if isinstance(answer, types.ElicitResult | types.ErrorData) else refusal("no answer to that")

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        answer = await self._flights.asked(types.CreateMessageRequest(params=params))
        return answer if isinstance(answer, types.CreateMessageResult | types.ErrorData) else refusal("no answer")

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=list(self._roots))


def _number_from_anywhere(session: ClientSession) -> None:
    """Begin the ids of requests at a random number.

    A call that is made again with answers must have another id than the one before, also if that was made by another
    process. The SDK counts from one in each session, and offers no other way to say where to begin.
    """
    dispatcher: Any = session._dispatcher
    dispatcher._next_id = randrange(1_000, 2**31)


async def _sent(send: Callable[[ClientSession], Awaitable[T]], session: ClientSession) -> T:
    return await send(session)


def _page_in(error: MCPError) -> str | None:
    """The page that a user must visit, if that is what is the matter."""
    data: Any = error.data
    return cast("dict[str, str]", data).get(VISIT) if isinstance(data, dict) else None


def _root_of(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
