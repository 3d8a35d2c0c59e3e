"""What callers can ask for, in the API's own words: the hub, the door, and what is allowed.

The paths of the API: each reads a request, asks the desk, and writes the answer.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, TypeVar, cast

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
from ..http.errors import ServingError, error_response
from ..http.guard import RequestGuard
from ..http.sse import COMMENT, SSEResponse, frame, with_heartbeat
from .openapi import document
from .schemas import (
    ID,
    MOST_LISTED,
    AnswersBody,
    CancelBody,
    HealthBody,
    LimitsBody,
    RunDetail,
    RunPage,
    StartRunBody,
    ThreadView,
    as_sent,
    listed_run,
    whole_run,
)

_OURS = "baton."
_Numbered = AsyncGenerator[tuple[int, Event | Delta]]


class RunService:
    """Serves one hub to callers, each of whom has runs and threads of their own."""

    def __init__(
        self,
        hub: BackgroundRunner,
        door: RequestGuard,
        *,
        context: Callable[[str], Any] | None,
        heartbeat: float,
        show_errors: bool,
    ) -> None:
        self.hub = hub
        self.door = door
        self._context = context
        self._heartbeat = heartbeat
        self._show_errors = show_errors
        self._store: Store = hub.runner._require_store("The HTTP API")

    async def begin(self, caller: Principal, wanted: StartRunBody) -> RunDetail:
        """Start a run; how it stands now."""
        for key in wanted.values:
            if key.startswith(_OURS):
                raise ServingError(422, "invalid", f"keys of values that begin with `{_OURS}` are not the caller's")
        run_id = await self.hub.start(
            wanted.input,
            context=self._context_for(caller),
            values=wanted.values,
            limits=self._limits(wanted.limits),
            run_id=caller.inside(wanted.run_id or new_id()),
            thread=caller.inside(wanted.thread) if wanted.thread else None,
            start_at=wanted.start_at,
            owner=caller.name,
        )
        return await self.run(caller, caller.outside(run_id))

    async def run(self, caller: Principal, id: str) -> RunDetail:
        """One run with what its log says."""
        record = await self._record(caller, id)
        return whole_run(record, await self.hub.runner.events(record.run_id), caller)

    async def answer(self, caller: Principal, id: str, answers: Mapping[str, Any] | None) -> RunDetail:
        """Go on with a run that has stopped, with answers or without."""
        record = await self._record(caller, id)
        if answers is not None and record.status != "suspended":
            raise ServingError(409, "not_waiting", f"the run is {record.status}; it waits for no answers")
        if answers is not None:
            # A hub takes a mapping of other keys for the one answer itself; here the ids are always given.
            questions = Log(await self.hub.runner.events(record.run_id)).open_interrupts()
            if unknown := [id for id in answers if id not in questions]:
                raise AnswerError(
                    f"no open question is called {quote_names(unknown)}; open are: {quote_names([*questions])}"
                )
        await self.hub.resume(record.run_id, answers, context=self._context_for(caller))
        return await self.run(caller, id)

    async def stop(self, caller: Principal, id: str, how: Any) -> RunDetail:
        """Have a run stopped, wherever it is driven."""
        record = await self._record(caller, id)
        await self.hub.cancel(record.run_id, how)
        return await self.run(caller, id)

    async def runs(
        self, caller: Principal, *, status: list[RunStatus] | None, thread: str | None, limit: int, after: str
    ) -> RunPage:
        """The caller's runs, the newest first."""
        inside = None if thread is None else caller.inside(thread)
        page = await self._store.list(status=status, thread=inside, owner=caller.whose, limit=limit, cursor=after)
        return RunPage(runs=tuple(listed_run(record, caller) for record in page.records), next=page.next_cursor)

    async def thread(self, caller: Principal, id: str) -> ThreadView:
        """A conversation of the caller's."""
        thread = self.hub.runner.thread(caller.inside(id))
        runs = await thread.runs()
        if not runs:
            raise ServingError(404, "not_found", "there is no such thread")
        return ThreadView(
            id=id,
            floor=await thread.active_agent(),
            runs=tuple(listed_run(record, caller) for record in runs),
            messages=await thread.messages(),
        )

    async def listening(self, caller: Principal, id: str, *, after: int) -> AsyncIterator[bytes] | None:
        """What happens in a run as server-sent events; None if it has stopped and nothing is left to hear."""
        record = await self._record(caller, id)
        if record.status != "running" and record.seq - 1 <= after:
            return None
        return self._frames(caller, record.run_id, after)

    async def _frames(self, caller: Principal, run_id: str, after: int) -> AsyncIterator[bytes]:
        heard = cast(_Numbered, self.hub.subscribe(run_id, after=after))
        async with aclosing(with_heartbeat(heard, self._heartbeat)) as items:
            async for item in items:
                if item is None:
                    yield COMMENT
                    continue
                number, event = item
                # A delta has no number: it is not in the log, and nobody can ask for it again.
                id = "" if isinstance(event, Delta) else str(number)
                data = as_sent(event, caller, show_errors=self._show_errors)
                yield frame(data, event=type(event).__name__, id=id)

    async def _record(self, caller: Principal, id: str) -> RunRecord:
        # Runs that came in by another protocol have ids that no caller chose, and that are the same for everybody.
        for known_as in dict.fromkeys((caller.inside(id), id)):
            record = await self._store.record(known_as)
            if record is not None and caller.sees(record.owner):
                return record
        raise RunNotFoundError(id)

    def _context_for(self, caller: Principal) -> Any:
        return None if self._context is None else self._context(caller.name)

    def _limits(self, wanted: LimitsBody | None) -> Limits | None:
        """The runner's limits, but for what a caller wants lower."""
        if wanted is None:
            return None
        own = asdict(self.hub.runner.limits)
        lower = {name: most for name, most in asdict(wanted).items() if most is not None}
        for name, most in lower.items():
            lower[name] = most if own[name] is None else min(most, own[name])
        return replace(self.hub.runner.limits, **lower)


T = TypeVar("T")
_Endpoint = Callable[[RunService, Principal, Request], Awaitable[Response]]
_NUMBER = re.compile(r"\d{1,15}")
_CURSOR = re.compile(r"[\x20-\x7e]{1,1000}")


def routes_of(desk: RunService) -> list[Route]:
    """All routes of the API."""
    return [
        Route("/health", _health, methods=["GET"]),
        Route("/openapi.json", partial(_openapi, desk), methods=["GET"]),
        Route("/runs", _by_method(desk, GET=_list, POST=_begin), methods=["GET", "POST"]),
        Route("/runs/{id}", _by_method(desk, GET=_run), methods=["GET"]),
        Route("/runs/{id}/events", _by_method(desk, GET=_events), methods=["GET"]),
        Route("/runs/{id}/answers", _by_method(desk, POST=_answer), methods=["POST"]),
        Route("/runs/{id}/resume", _by_method(desk, POST=_resume), methods=["POST"]),
        Route("/runs/{id}/cancel", _by_method(desk, POST=_cancel), methods=["POST"]),
        Route("/threads/{id}", _by_method(desk, GET=_thread), methods=["GET"]),
    ]


def _by_method(desk: RunService, **endpoints: _Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            caller = await desk.door.admit(request)
            # HEAD is a GET whose body nobody sends.
            return await endpoints["GET" if request.method == "HEAD" else request.method](desk, caller, request)
        except Exception as error:  # noqa: BLE001 - the edge of the program: here a failure becomes an answer
            return error_response(request, error)

    return endpoint


async def no_such_path(request: Request, error: Exception) -> Response:
    """What is told of a path or a method that is not there."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        told = "this path does not take that method"
        return ServingError(405, "method_not_allowed", told, headers=error.headers).response()
    if isinstance(error, HTTPException) and error.status_code == 404:
        return ServingError(404, "not_found", "there is no such path").response()
    return error_response(request, error)


async def _health(request: Request) -> Response:
    return _json(HealthBody())


async def _openapi(desk: RunService, request: Request) -> Response:
    root = str(request.scope.get("root_path", ""))
    return JSONResponse(document(root, desk.door.auth))


async def _begin(desk: RunService, caller: Principal, request: Request) -> Response:
    wanted = await desk.door.body(request, partial(msgspec.json.decode, type=StartRunBody))
    run = await desk.begin(caller, wanted)
    return _json(run, 201, {"Location": f"{request.url.path}/{run.id}"})


async def _list(desk: RunService, caller: Principal, request: Request) -> Response:
    query = request.query_params
    thread = query.get("thread")
    after = query.get("after", "")
    if after and not _CURSOR.fullmatch(after):
        raise ServingError(422, "invalid", "`after` must be the `next` of the page before")
    return _json(
        await desk.runs(
            caller,
            status=_statuses(query.getlist("status")),
            thread=None if thread is None else _checked_id(thread, "thread"),
            limit=_number(query.get("limit", "50"), "limit", least=1, most=MOST_LISTED),
            after=after,
        )
    )


async def _run(desk: RunService, caller: Principal, request: Request) -> Response:
    return _json(await desk.run(caller, _id(request)))


async def _events(desk: RunService, caller: Principal, request: Request) -> Response:
    given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    frames = await desk.listening(caller, _id(request), after=_number(given, "Last-Event-ID", least=0, most=10**15))
    if frames is None:
        # Browsers ask again whenever a stream ends; this tells them that there is nothing more to ask for.
        return Response(status_code=204)
    return Response(media_type="text/event-stream") if request.method == "HEAD" else SSEResponse(frames)


async def _answer(desk: RunService, caller: Principal, request: Request) -> Response:
    id = _id(request)
    given = await desk.door.body(request, partial(msgspec.json.decode, type=AnswersBody))
    return _json(await desk.answer(caller, id, given.answers), 202)


async def _resume(desk: RunService, caller: Principal, request: Request) -> Response:
    return _json(await desk.answer(caller, _id(request), None), 202)


async def _cancel(desk: RunService, caller: Principal, request: Request) -> Response:
    id = _id(request)
    stop = await desk.door.body(request, partial(msgspec.json.decode, type=CancelBody), default=CancelBody())
    return _json(await desk.stop(caller, id, stop.how))


async def _thread(desk: RunService, caller: Principal, request: Request) -> Response:
    id = request.path_params["id"]
    with _not_found_if_odd("thread"):
        return _json(await desk.thread(caller, _checked_id(id, "thread")))


def _id(request: Request) -> str:
    with _not_found_if_odd("run"):
        return _checked_id(request.path_params["id"], "id")


@contextmanager
def _not_found_if_odd(what: str) -> Generator[None]:
    try:
        yield
    except ServingError as problem:
        if problem.status != 422:
            raise
        raise ServingError(404, "not_found", f"there is no such {what}")


def _checked_id(id: str, what: str) -> str:
    if not re.fullmatch(ID, id):
        raise ServingError(
            422, "invalid", f"`{what}` is not an id: letters, digits and . _ : - only, at most 128 of them"
        )
    return id


def _number(text: str, what: str, *, least: int, most: int) -> int:
    if not text.isascii() or not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ServingError(422, "invalid", f"`{what}` must be a number from {least} to {most}")
    return int(text)


def _statuses(given: list[str]) -> list[RunStatus] | None:
    statuses: list[RunStatus] = [status for status in RUN_STATUSES if status in given]
    if len(statuses) != len(set(given)):
        raise ServingError(422, "invalid", f"`status` can be: {', '.join(RUN_STATUSES)}")
    return statuses or None


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
