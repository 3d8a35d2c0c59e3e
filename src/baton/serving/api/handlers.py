"""The HTTP API's operations, and the routes that parse requests and encode responses."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import asdict, replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ...context import Limits
from ...errors import AnswerError, RunNotFoundError, quote_names
from ...events import Delta, Event
from ...log import Log
from ...runner import BackgroundRunner
from ...runner.backends import new_id
from ...stores import RUN_STATUSES, RunRecord, RunStatus, Store
from ..http import Principal
from ..http.app import ContextFactory, make_context
from ..http.errors import ServingError, error_response
from ..http.guard import RequestGuard
from ..http.sse import HEARTBEAT, SSEResponse, encode_frame, with_heartbeat
from .openapi import openapi_document
from .schemas import (
    ID,
    MAX_PAGE_SIZE,
    AnswersBody,
    CancelBody,
    HealthBody,
    LimitsBody,
    RunDetail,
    RunPage,
    StartRunBody,
    ThreadView,
    encode_public_event,
    to_run_detail,
    to_run_view,
)

_RESERVED_PREFIX = "baton."
_NumberedEvents = AsyncGenerator[tuple[int, Event | Delta]]


class RunService:
    """The operations of the API; each principal has runs and threads of its own.

    Args:
        background: The runner that drives the runs.
        guard: The checks that every request passes.
        context_factory: Creates the run's context object from the owner's name.
        heartbeat: Seconds of silence after which an event stream sends a comment.
        show_errors: Show callers the message of the exception that failed a run.
    """

    def __init__(
        self,
        background: BackgroundRunner,
        guard: RequestGuard,
        *,
        context_factory: ContextFactory | None,
        heartbeat: float,
        show_errors: bool,
    ) -> None:
        self.background = background
        self.guard = guard
        self._context_factory = context_factory
        self._heartbeat = heartbeat
        self._show_errors = show_errors
        self._store: Store = background.runner._require_store("api_app")

    async def start(self, principal: Principal, body: StartRunBody) -> RunDetail:
        """Start a run.

        Args:
            principal: The sender of the request.
            body: The parsed request.
        """
        for key in body.values:
            if key.startswith(_RESERVED_PREFIX):
                raise ServingError(
                    422, "invalid", f"keys of `values` that begin with `{_RESERVED_PREFIX}` are reserved"
                )
        run_id = await self.background.start(
            body.input,
            context=make_context(self._context_factory, principal.name),
            values=body.values,
            limits=self._limits(body.limits),
            run_id=principal.to_store_id(body.run_id or new_id()),
            thread=principal.to_store_id(body.thread) if body.thread else None,
            start_at=body.start_at,
            owner=principal.name,
        )
        return await self.get(principal, principal.to_public_id(run_id))

    async def get(self, principal: Principal, id: str) -> RunDetail:
        """Return one run with the details of its log.

        Args:
            principal: The sender of the request.
            id: The run's public id.
        """
        record = await self._record(principal, id)
        return to_run_detail(record, await self.background.runner.events(record.run_id), principal)

    async def resume(self, principal: Principal, id: str, answers: Mapping[str, Any] | None) -> RunDetail:
        """Resume a run that has stopped.

        Args:
            principal: The sender of the request.
            id: The run's public id.
            answers: Answers by interrupt id; None resumes a failed or cancelled run.
        """
        record = await self._record(principal, id)
        if answers is not None and record.status != "suspended":
            raise ServingError(409, "not_suspended", f"the run is {record.status}; it has no open interrupts")
        if answers is not None:
            # `resume` takes a mapping with other keys for the answer itself; here the keys are always interrupt ids.
            interrupts = Log(await self.background.runner.events(record.run_id)).open_interrupts()
            if unknown := [id for id in answers if id not in interrupts]:
                raise AnswerError(
                    f"unknown interrupt {quote_names(unknown)}; open interrupts are: {quote_names([*interrupts])}"
                )
        await self.background.resume(
            record.run_id, answers, context=make_context(self._context_factory, principal.name)
        )
        return await self.get(principal, id)

    async def cancel(self, principal: Principal, id: str, when: Literal["now", "after_turn"]) -> RunDetail:
        """Cancel a run, in whichever process it is driven.

        Args:
            principal: The sender of the request.
            id: The run's public id.
            when: Now, or after the current turn.
        """
        record = await self._record(principal, id)
        await self.background.cancel(record.run_id, when)
        return await self.get(principal, id)

    async def list_runs(
        self, principal: Principal, *, status: list[RunStatus] | None, thread: str | None, limit: int, after: str
    ) -> RunPage:
        """Return a page of the principal's runs, the newest first.

        Args:
            principal: The sender of the request.
            status: The statuses to include.
            thread: The public id of a thread.
            limit: The size of the page.
            after: The cursor of the page before.
        """
        page = await self._store.list(
            status=status,
            thread=None if thread is None else principal.to_store_id(thread),
            owner=principal.owner_filter,
            limit=limit,
            cursor=after,
        )
        return RunPage(runs=tuple(to_run_view(record, principal) for record in page.records), next=page.next_cursor)

    async def thread(self, principal: Principal, id: str) -> ThreadView:
        """Return a thread with its runs and messages.

        Args:
            principal: The sender of the request.
            id: The thread's public id.
        """
        thread = self.background.runner.thread(principal.to_store_id(id))
        runs = await thread.runs()
        if not runs:
            raise ServingError(404, "not_found", "there is no such thread")
        return ThreadView(
            id=id,
            active_agent=await thread.active_agent(),
            runs=tuple(to_run_view(record, principal) for record in runs),
            messages=await thread.messages(),
        )

    async def stream(self, principal: Principal, id: str, *, after: int) -> AsyncIterator[bytes] | None:
        """Return the run's events as frames, or None if it has stopped and no events are left.

        Args:
            principal: The sender of the request.
            id: The run's public id.
            after: The number of the last event that the client has.
        """
        record = await self._record(principal, id)
        if record.status != "running" and record.seq - 1 <= after:
            return None
        return self._frames(principal, record.run_id, after)

    async def _frames(self, principal: Principal, run_id: str, after: int) -> AsyncIterator[bytes]:
        events = cast(_NumberedEvents, self.background.subscribe(run_id, after=after))
        async with aclosing(with_heartbeat(events, self._heartbeat)) as items:
            async for item in items:
                if item is None:
                    yield HEARTBEAT
                    continue
                number, event = item
                # A delta is not in the log and cannot be requested again, so it has no id.
                id = "" if isinstance(event, Delta) else str(number)
                data = encode_public_event(event, principal, show_errors=self._show_errors)
                yield encode_frame(data, event=type(event).__name__, id=id)

    async def _record(self, principal: Principal, id: str) -> RunRecord:
        # Ids of runs that were started by another protocol have no owner prefix.
        for store_id in dict.fromkeys((principal.to_store_id(id), id)):
            record = await self._store.record(store_id)
            if record is not None and principal.sees(record.owner):
                return record
        raise RunNotFoundError(id)

    def _limits(self, requested: LimitsBody | None) -> Limits | None:
        """Return the runner's limits, lowered to the requested ones."""
        if requested is None:
            return None
        own = asdict(self.background.runner.limits)
        lower = {name: limit for name, limit in asdict(requested).items() if limit is not None}
        for name, limit in lower.items():
            lower[name] = limit if own[name] is None else min(limit, own[name])
        return replace(self.background.runner.limits, **lower)


_Endpoint = Callable[[RunService, Principal, Request], Awaitable[Response]]
_DIGITS = re.compile(r"\d{1,15}")
_CURSOR = re.compile(r"[\x20-\x7e]{1,1000}")


def make_routes(service: RunService) -> list[Route]:
    """Return the routes of the API.

    Args:
        service: The operations.
    """
    return [
        Route("/health", _health, methods=["GET"]),
        Route("/openapi.json", partial(_openapi, service), methods=["GET"]),
        Route("/runs", _by_method(service, GET=_list_runs, POST=_start_run), methods=["GET", "POST"]),
        Route("/runs/{id}", _by_method(service, GET=_get_run), methods=["GET"]),
        Route("/runs/{id}/events", _by_method(service, GET=_stream_events), methods=["GET"]),
        Route("/runs/{id}/answers", _by_method(service, POST=_answer_run), methods=["POST"]),
        Route("/runs/{id}/resume", _by_method(service, POST=_resume_run), methods=["POST"]),
        Route("/runs/{id}/cancel", _by_method(service, POST=_cancel_run), methods=["POST"]),
        Route("/threads/{id}", _by_method(service, GET=_get_thread), methods=["GET"]),
    ]


def _by_method(service: RunService, **endpoints: _Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            principal = await service.guard.admit(request)
            return await endpoints["GET" if request.method == "HEAD" else request.method](service, principal, request)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            return error_response(request, error)

    return endpoint


async def unknown_path(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or method.

    Args:
        request: The incoming request.
        error: The exception that Starlette raised.
    """
    if isinstance(error, HTTPException) and error.status_code == 405:
        message = "this path does not support the method"
        return ServingError(405, "method_not_allowed", message, headers=error.headers).response()
    if isinstance(error, HTTPException) and error.status_code == 404:
        return ServingError(404, "not_found", "there is no such path").response()
    return error_response(request, error)


async def _health(request: Request) -> Response:
    return _json(HealthBody())


async def _openapi(service: RunService, request: Request) -> Response:
    root = str(request.scope.get("root_path", ""))
    return JSONResponse(openapi_document(root, service.guard.auth))


async def _start_run(service: RunService, principal: Principal, request: Request) -> Response:
    body = await service.guard.parse_body(request, partial(msgspec.json.decode, type=StartRunBody))
    run = await service.start(principal, body)
    return _json(run, 201, {"Location": f"{request.url.path}/{run.id}"})


async def _list_runs(service: RunService, principal: Principal, request: Request) -> Response:
    query = request.query_params
    thread = query.get("thread")
    after = query.get("after", "")
    if after and not _CURSOR.fullmatch(after):
        raise ServingError(422, "invalid", "`after` must be the `next` cursor of the previous page")
    return _json(
        await service.list_runs(
            principal,
            status=_parse_statuses(query.getlist("status")),
            thread=None if thread is None else _check_id(thread, "thread"),
            limit=_parse_int(query.get("limit", "50"), "limit", minimum=1, maximum=MAX_PAGE_SIZE),
            after=after,
        )
    )


async def _get_run(service: RunService, principal: Principal, request: Request) -> Response:
    return _json(await service.get(principal, _id(request)))


async def _stream_events(service: RunService, principal: Principal, request: Request) -> Response:
    after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    frames = await service.stream(
        principal, _id(request), after=_parse_int(after, "Last-Event-ID", minimum=0, maximum=10**15)
    )
    if frames is None:
        # An EventSource reconnects whenever a stream ends, unless the response is 204.
        return Response(status_code=204)
    return Response(media_type="text/event-stream") if request.method == "HEAD" else SSEResponse(frames)


async def _answer_run(service: RunService, principal: Principal, request: Request) -> Response:
    id = _id(request)
    body = await service.guard.parse_body(request, partial(msgspec.json.decode, type=AnswersBody))
    return _json(await service.resume(principal, id, body.answers), 202)


async def _resume_run(service: RunService, principal: Principal, request: Request) -> Response:
    return _json(await service.resume(principal, _id(request), None), 202)


async def _cancel_run(service: RunService, principal: Principal, request: Request) -> Response:
    id = _id(request)
    body = await service.guard.parse_body(request, partial(msgspec.json.decode, type=CancelBody), default=CancelBody())
    return _json(await service.cancel(principal, id, body.when))


async def _get_thread(service: RunService, principal: Principal, request: Request) -> Response:
    id = request.path_params["id"]
    with _malformed_as_404("thread"):
        return _json(await service.thread(principal, _check_id(id, "thread")))


def _id(request: Request) -> str:
    with _malformed_as_404("run"):
        return _check_id(request.path_params["id"], "id")


@contextmanager
def _malformed_as_404(what: str) -> Generator[None]:
    try:
        yield
    except ServingError as error:
        if error.status != 422:
            raise
        raise ServingError(404, "not_found", f"there is no such {what}")


def _check_id(id: str, what: str) -> str:
    if not re.fullmatch(ID, id):
        raise ServingError(422, "invalid", f"`{what}` must consist of at most 128 letters, digits and . _ : -")
    return id


def _parse_int(text: str, what: str, *, minimum: int, maximum: int) -> int:
    if not text.isascii() or not _DIGITS.fullmatch(text) or not minimum <= int(text) <= maximum:
        raise ServingError(422, "invalid", f"`{what}` must be an integer from {minimum} to {maximum}")
    return int(text)


def _parse_statuses(names: list[str]) -> list[RunStatus] | None:
    statuses: list[RunStatus] = [status for status in RUN_STATUSES if status in names]
    if len(statuses) != len(set(names)):
        raise ServingError(422, "invalid", f"`status` must be one of: {', '.join(RUN_STATUSES)}")
    return statuses or None


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
