"""One open session with an MCP server and its calls in flight, owned by a task from opening to closing.

The SDK requires that a session is closed by the task that opened it, and cancels that task when the connection breaks.
A separate task keeps this away from callers, who only wait for their results.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from random import randrange
from typing import Any, Literal, TypeAlias, TypeVar

import mcp_types as types
from anyio import CancelScope
from mcp.client import ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp import Client, ClientSession

from ..context.run_context import SuspendRun
from ..version import __version__
from .transports import AuthorizationState, MCPSessionError, MCPTransport, describe_error, logger

T = TypeVar("T")

Send: TypeAlias = Callable[[ClientSession], Coroutine[Any, Any, T]]
"""Sends a request in a session."""
RequestAnswerer: TypeAlias = Callable[[types.InputRequest], Awaitable[types.InputResponse | types.ErrorData]]
"""Answers a server's request during a call. Raises `SuspendRun` if the answer must come from outside."""


class InFlightCall:
    """A call in flight."""

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
        answer = self._pending_answer
        self.answerer = answerer
        # Earlier answers are in the log; they are read again so that each request finds its own.
        answers = [await _answer(answerer, request) for request in self._requests]
        self._suspension = None
        self._pending_answer = None
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
        asks cannot end before it is answered, so it is the one that remains.
        """
        self._asking_count += 1
        self._notify()
        try:
            while len(self._running()) > self._asking_count:
                await self._changed.wait()
            running = self._running()
            if len(running) > 1:
                reason = "the protocol does not say which call a request belongs to"
                return refusal(f"several calls are asking at once, and {reason}")
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


Mode = Literal["auto", "legacy"] | str

_ACKNOWLEDGE_TIMEOUT = 2.0
_LEVELS: dict[str, int] = {"debug": 10, "info": 20, "notice": 20, "warning": 30, "error": 40}
_CRITICAL = 50


@dataclass(frozen=True)
class ServerSettings:
    """The transport, permissions and time limits of one server."""

    transport: MCPTransport
    mode: Mode
    roots: tuple[types.Root, ...]
    allow_sampling: bool
    connect_timeout: float
    timeout: float | None

    def list_roots(self) -> types.ListRootsResult:
        """Return the folders that the server may use."""
        return types.ListRootsResult(roots=list(self.roots))


class MCPSession:
    """A session that is opened once."""

    def __init__(self, settings: ServerSettings, *, on_change: Callable[[], None]) -> None:
        self._settings = settings
        self._transport = settings.transport
        self._label = settings.transport.label
        self._on_change = on_change
        self._auth_state = AuthorizationState()
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._opening = CancelScope()
        """Cancels the opening. Cancelling the task instead would interrupt stopping a process."""
        self._closing = asyncio.Event()
        self.calls = InFlightCalls()
        self._jobs: set[asyncio.Task[Any]] = set()
        self._retiring = False
        self.is_lost = False
        """True if the session has ended or was closed."""

    @property
    def is_closed(self) -> bool:
        """True if the session is closed completely."""
        return self._task is not None and self._task.done()

    async def open(self) -> None:
        """Open the session. Raises `MCPSessionError` or `AuthorizationRequiredError` if that fails."""
        timeout = self._settings.connect_timeout
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Retrieve the exception: the caller may have been cancelled.
        opened.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._task = asyncio.create_task(self._run(opened), name=f"baton mcp {self._label}")
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(opened)
        except TimeoutError:
            self._opening.cancel()
            raise MCPSessionError(f"{self._label} did not respond within {timeout:g} s") from None
        except asyncio.CancelledError:
            self._opening.cancel()
            raise

    async def _run(self, opened: "asyncio.Future[None]") -> None:
        try:
            with self._opening:
                await self._stay_open(opened)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - reported to the callers
            self._fail_opening(error, opened)
        finally:
            self._on_lost()
            if not opened.done():
                opened.set_exception(MCPSessionError(f"{self._label} was closed while it was being opened"))

    async def _stay_open(self, opened: "asyncio.Future[None]") -> None:
        async with self._new_client() as client:
            refused = self._auth_state.error(self._label)
            if refused is not None:
                raise refused
            self._auth_state.is_opening = False
            self._client = client
            _randomize_request_ids(client.session)
            _leave_results_unchecked(client.session)
            listener = await self._start_listening(client)
            opened.set_result(None)
            try:
                await self._closing.wait()
            finally:
                if listener is not None:
                    listener.cancel()

    def _fail_opening(self, error: BaseException, opened: "asyncio.Future[None]") -> None:
        if opened.done():
            logger.debug("the session with %s ended", self._label, exc_info=error)
            return
        output = self._transport.last_output()
        detail = f"; its last output: {output}" if output else ""
        failure = MCPSessionError(f"{self._label} cannot be reached: {describe_error(error)}{detail}")
        opened.set_exception(self._auth_state.error(self._label) or failure)

    def _new_client(self) -> Client:
        level = logger.getEffectiveLevel()
        return Client(
            self._transport.connect(self._on_lost, self._auth_state),
            mode=self._settings.mode,
            cache=None,
            client_info=types.Implementation(name="baton", version=__version__),
            message_handler=self._on_message,
            elicitation_callback=partial(self._ask, types.ElicitRequest),
            sampling_callback=partial(self._ask, types.CreateMessageRequest) if self._settings.allow_sampling else None,
            list_roots_callback=self._list_roots if self._settings.roots else None,
            logging_callback=self._on_log,
            log_level="debug" if level <= 10 else "info" if level <= 20 else "warning",
        )

    async def _start_listening(self, client: Client) -> "asyncio.Task[None] | None":
        """Start listening for changed tools, where the protocol requires a subscription."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return None
        acknowledged = asyncio.Event()
        task = asyncio.create_task(self._listen(client, acknowledged))
        # Subscribe before listing: a change between the two would be missed.
        waiter = asyncio.create_task(acknowledged.wait())
        await asyncio.wait([task, waiter], timeout=_ACKNOWLEDGE_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        return task

    async def _listen(self, client: Client, acknowledged: asyncio.Event) -> None:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                acknowledged.set()
                async for _ in changes:
                    self._on_change()
        except (MCPError, RuntimeError, TimeoutError) as error:
            logger.debug("%s no longer reports changes: %s", self._label, error)
        # Without notifications the tools must be listed again.
        self._on_change()

    async def request(self, send: Send[T], *, answerer: RequestAnswerer | None = None, key: str = "") -> T:
        """Send a request and return the server's response.

        A suspended call stays in flight when this raises `SuspendRun`, and is resumed under the same key.

        Raises:
            MCPSessionError: The session ended first.
            AuthorizationRequiredError: A user must authorize the client first.
            MCPError: The server responded with an error.
        """
        call = self.calls.find_suspended(key) if key else None
        if call is None:
            call = self._start_call(send, answerer, key)
        job: asyncio.Task[T] = call.job
        is_done = True
        try:
            if call.is_suspended and answerer is not None:
                await call.resume(answerer)
            # Not `await job`: if the session's end cancels the job, the caller must not appear cancelled.
            await call.wait()
        except SuspendRun:
            is_done = False
            raise
        finally:
            if is_done:
                job.cancel()
                self.calls.remove(call)
                if self._retiring and not self.calls:
                    self._closing.set()
        if job.cancelled():
            raise MCPSessionError(f"lost the connection to {self._label}", was_sent=True)
        try:
            return job.result()
        except MCPError as error:
            lost = self._transport.failure_from(error, is_lost=self.is_lost)
            if lost is None:
                raise
            raise lost from error

    def _start_call(self, send: Send[Any], answerer: RequestAnswerer | None, key: str) -> InFlightCall:
        if self.is_lost or self._client is None:
            raise MCPSessionError(f"lost the connection to {self._label}")
        job = asyncio.create_task(send(self._client.session))
        self._jobs.add(job)
        job.add_done_callback(self._on_job_done)
        call = InFlightCall(job, answerer, key)
        self.calls.add(call)
        return call

    def retire(self) -> None:
        """Close the session as soon as no call is in flight."""
        self._retiring = True
        if not self.calls:
            self._closing.set()

    async def close(self) -> None:
        """Close the session and cancel its calls. May be called from any task."""
        for job in self._jobs:
            job.cancel()
        if self._jobs:
            # Cancelled calls notify the server.
            await asyncio.wait(self._jobs, timeout=1.0)
        self._closing.set()
        if self._task is not None:
            if self._client is None:
                # Still being opened: fail the opening now instead of waiting for it.
                self._opening.cancel()
            await asyncio.wait([self._task])

    def _on_job_done(self, job: "asyncio.Task[Any]") -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            # Retrieve the exception: a cancelled caller does not.
            job.exception()

    def _on_lost(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._on_change()
            self._closing.set()

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()
        elif isinstance(message, Exception):
            logger.debug("%s sent an invalid message: %s", self._label, message)

    async def _on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        level = _LEVELS.get(params.level, _CRITICAL)
        logger.log(level, "%s: %s", self._label, params.data)

    async def _ask(self, kind: Callable[..., types.InputRequest], context: ClientRequestContext, params: Any) -> Any:
        # The answer has the type that belongs to the kind of request.
        return await self.calls.handle_request(kind(params=params))

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        return self._settings.list_roots()


def _randomize_request_ids(session: ClientSession) -> None:
    """Start request ids at a random number.

    A call repeated with answers needs an id that no earlier call had, in any process. The SDK counts from one in each
    session and has no option for it.
    """
    dispatcher: Any = session._dispatcher
    dispatcher._next_id = randrange(1_000, 2**31)


def _leave_results_unchecked(session: ClientSession) -> None:
    """Prevent the SDK from checking the results of tools.

    A server's output schema could keep it busy for hours. `check_result` of `convert.py` checks them, within limits.
    The SDK has no option for it.
    """

    async def accept(name: str, result: types.CallToolResult) -> None:
        """Accept a result."""

    unchecked: Any = session
    unchecked.validate_tool_result = accept
