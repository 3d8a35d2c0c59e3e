"""The mapping from exceptions to HTTP error responses: a status, an error code and a message without internals."""

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ... import errors

_logger = logging.getLogger("baton.serving")


class ServingError(Exception):
    """An error that is reported to the client."""

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


_RESPONSES: tuple[tuple[type[errors.BatonError], int, str, str], ...] = (
    (errors.ShuttingDownError, 503, "shutting_down", "the server is shutting down; send the request again"),
    (errors.RunNotFoundError, 404, "not_found", "there is no such run"),
    (errors.RunExistsError, 409, "run_exists", "a run with this id exists already"),
    (errors.ThreadBusyError, 409, "thread_busy", "a run of this thread has not ended; answer or cancel it first"),
    (errors.ThreadExistsError, 409, "thread_exists", "the thread has runs already; choose another id"),
    (errors.InboxFullError, 429, "inbox_full", "too many messages wait for this thread; send it later"),
    (errors.MessageGoneError, 409, "message_gone", "the message does not wait any more"),
    (errors.RunNotSuspendedError, 409, "not_suspended", "the run was cancelled or has failed; resume it to continue"),
    (errors.RunConflictError, 409, "run_busy", "the run is running; cancel it, or wait until it has stopped"),
    (errors.TeamChangedError, 409, "team_changed", "the team has changed since the run was started"),
    (errors.NotEncodableError, 422, "invalid", "the body contains a value that cannot be stored as JSON"),
    (errors.LogError, 503, "unavailable", "the run's log cannot be read"),
    (errors.StoreError, 503, "unavailable", "the store is unavailable"),
)


def to_serving_error(error: Exception) -> ServingError:
    """Map an exception to the error that the client receives."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error, errors.InvalidIdError):
        return ServingError(422, "invalid", str(error))
    if isinstance(error, errors.AnswerError):
        return ServingError(422, "invalid_answer", str(error))
    if type(error) is errors.StoreError and not error.store:
        # The store is available; it rejected the arguments of the request.
        return ServingError(422, "invalid", "the store rejected a parameter of the request")
    for kind, status, code, message in _RESPONSES:
        if isinstance(error, kind):
            headers = {"Retry-After": "1"} if kind is errors.ShuttingDownError else None
            return ServingError(status, code, message, headers=headers)
    if type(error) is errors.RunError:
        return ServingError(409, "run_ended", "the run has completed and cannot be resumed")
    return ServingError(500, "internal", "internal server error; the server has logged the details")


def check_interrupt_ids(given: Iterable[str], interrupts: Collection[str]) -> None:
    """Raise unless all answered interrupts are open.

    Raises:
        AnswerError: One of them is not open.
    """
    if unknown := [id for id in given if id not in interrupts]:
        raise errors.AnswerError(
            f"unknown interrupt {errors.quote_names(unknown)}; open interrupts are: {errors.quote_names([*interrupts])}"
        )


def error_response(request: Request, error: Exception) -> Response:
    """Return the response for a request that raised an exception; server errors are logged."""
    return report_error(request, error).response()


def report_error(request: Request, error: Exception) -> ServingError:
    """Map an exception to the error that the client receives; server errors are logged."""
    reported = to_serving_error(error)
    if reported.status >= 500:
        _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return reported


def exception_handlers() -> dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]]:
    """Return handlers that answer Baton's errors with JSON, as the HTTP API does.

    For apps of your own: `FastAPI(exception_handlers=exception_handlers())`. The body has an error code and a message
    without internals; server errors are logged.
    """

    async def handle(request: Request, error: Exception) -> Response:
        return error_response(request, error)

    return {errors.BatonError: handle, ServingError: handle}
