"""The routes of the HTTP API, and the responses that need no principal: health, OpenAPI and unknown paths."""

from collections.abc import Sequence
from functools import partial

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..http.guard import RequestGuard
from ..http.http_errors import ServingError, error_response
from . import run_schemas as schemas
from .endpoints import ApiEndpoints
from .openapi import openapi_document


def make_routes(endpoints: Sequence[ApiEndpoints], guard: RequestGuard, *, inspection: bool) -> list[Route]:
    """Return the routes of the API."""

    async def openapi(request: Request) -> Response:
        root = str(request.scope.get("root_path", ""))
        return JSONResponse(openapi_document(root, guard.auth, inspection=inspection))

    return [
        Route("/health", _health, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
        *[
            Route(path, partial(each.handle, by_method), methods=[*by_method])
            for each in endpoints
            for path, by_method in each.endpoints().items()
        ],
    ]


async def _health(request: Request) -> Response:
    return Response(msgspec.json.encode(schemas.HealthBody()), media_type="application/json")


async def unknown_path(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or method."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        message = "this path does not support the method"
        return ServingError(405, "method_not_allowed", message, headers=error.headers).response()
    if isinstance(error, HTTPException) and error.status_code == 404:
        return ServingError(404, "not_found", "there is no such path").response()
    return error_response(request, error)
