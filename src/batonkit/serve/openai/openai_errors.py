"""Errors in OpenAI's format."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..http.http_errors import ServingError, report_error


def error_body(error: ServingError) -> dict[str, Any]:
    """Return an error as OpenAI's object."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    code = "invalid_api_key" if error.status == 401 else error.code
    return {"error": {"message": error.message, "type": kind, "param": getattr(error, "param", None), "code": code}}


def error_response(error: ServingError) -> Response:
    """Return an error as a response."""
    # OpenAI has one status for all bodies that it does not accept.
    status = 400 if error.status == 422 else error.status
    return JSONResponse(error_body(error), status, headers=error.headers)


async def unknown_path(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or method."""
    if isinstance(error, HTTPException):
        message = f"there is no {request.method} {request.url.path} here; see GET /v1/models for the models"
        code = "unknown_url" if error.status_code == 404 else "method_not_allowed"
        error = ServingError(error.status_code, code, message, headers=error.headers)
    return error_response(report_error(request, error))
