"""The paths of the API: each reads a request, asks the desk, and writes the answer."""

import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..adapters.http import Principal
from ..adapters.http.problems import ServingError, error_response
from ..adapters.http.sse import SSEResponse
from ..stores import RUN_STATUSES, RunStatus
from .bodies import ID, MOST_LISTED, AnswersBody, CancelBody, HealthBody, StartRunBody
from .desk import RunService
from .openapi import document

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
