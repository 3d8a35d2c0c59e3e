"""The mapping from exceptions to HTTP error responses: a status, an error code and a message without internals."""

import logging
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...errors import (
    AnswerError,
    BatonError,
    LogError,
    NotEncodableError,
    RunConflictError,
    RunError,
    RunExistsError,
    RunNotFoundError,
    StoreError,
    TeamChangedError,
    ThreadBusyError,
)

_logger = logging.getLogger("baton.serving")


class ServingError(Exception):
    """An error that is reported to the client.

    Args:
        status: The HTTP status.
        code: A machine-readable error code.
        message: A message for people.
        headers: Additional response headers.
    """

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers

    def response(self) -> Response:
        """Return the error as a JSON response."""
        body = {"error": {"code": self.code, "message": self.message}}
        return JSONResponse(body, self.status, headers=self.headers)


_RESPONSES: tuple[tuple[type[BatonError], int, str, str], ...] = (
    (RunNotFoundError, 404, "not_found", "there is no such run"),
    (RunExistsError, 409, "run_exists", "a run with this id exists already"),
    (ThreadBusyError, 409, "thread_busy", "a run of this thread has not ended; answer or cancel it first"),
    (RunConflictError, 409, "run_busy", "the run is running; cancel it, or wait until it has stopped"),
    (TeamChangedError, 409, "team_changed", "the team has changed since the run was started"),
    (NotEncodableError, 422, "invalid", "the body contains a value that cannot be stored as JSON"),
    (LogError, 503, "unavailable", "the run's log cannot be read"),
    (StoreError, 503, "unavailable", "the store is unavailable"),
)


def to_serving_error(error: Exception) -> ServingError:
    """Map an exception to the error that the client receives.

    Args:
        error: The exception that ended the request.
    """
    if isinstance(error, ServingError):
        return error
    if isinstance(error, AnswerError):
        return ServingError(422, "invalid_answer", str(error))
    if type(error) is StoreError and not error.store:
        # The store is available; it rejected the arguments of the request.
        return ServingError(422, "invalid", "the store rejected a parameter of the request")
    for kind, status, code, message in _RESPONSES:
        if isinstance(error, kind):
            return ServingError(status, code, message)
    if type(error) is RunError:
        return ServingError(409, "run_ended", "the run has completed and cannot be resumed")
    return ServingError(500, "internal", "internal server error; the server has logged the details")


def error_response(request: Request, error: Exception) -> Response:
    """Return the response for a request that raised an exception; server errors are logged.

    Args:
        request: The request that failed.
        error: The exception.
    """
    reported = to_serving_error(error)
    if reported.status >= 500:
        _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return reported.response()
