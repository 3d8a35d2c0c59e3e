"""What a client is told when something goes wrong: a status, a code for programs, a sentence for people, no more."""

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

_logger = logging.getLogger("baton.server")


class ServingError(Exception):
    """Something that the client is to be told, and that is no news to whoever runs the server."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers

    def response(self) -> Response:
        """The answer that tells of it."""
        told = {"error": {"code": self.code, "message": self.message}}
        return JSONResponse(told, self.status, headers=self.headers)


_TOLD: tuple[tuple[type[BatonError], int, str, str], ...] = (
    (RunNotFoundError, 404, "not_found", "there is no such run"),
    (RunExistsError, 409, "run_exists", "there is a run of that id already"),
    (ThreadBusyError, 409, "thread_busy", "a run of this thread has not ended; answer or cancel it first"),
    (RunConflictError, 409, "run_busy", "the run is under way; cancel it, or wait until it has stopped"),
    (TeamChangedError, 409, "team_changed", "the team has changed since this run began"),
    (NotEncodableError, 422, "invalid", "the body holds something that cannot be kept as JSON"),
    (LogError, 503, "unavailable", "the log of this run cannot be read"),
    (StoreError, 503, "unavailable", "the store cannot be reached"),
)
_NEWS = (503, 500)


def to_serving_error(error: BatonError) -> ServingError:
    """What a client is told of an error that kept a request from being carried out."""
    if isinstance(error, AnswerError):
        return ServingError(422, "answer_not_wanted", str(error))
    if type(error) is StoreError and not error.store:
        # Not the store's own trouble, so it is about what was asked of it.
        return ServingError(422, "invalid", "the store cannot make sense of what was asked for")
    for kind, status, code, message in _TOLD:
        if isinstance(error, kind):
            return ServingError(status, code, message)
    if type(error) is RunError:
        return ServingError(409, "run_ended", "the run is completed; there is nothing left to go on with")
    return ServingError(500, "internal", "something went wrong here; it has been noted")


def error_response(request: Request, error: Exception) -> Response:
    """The answer to a request that ended with this error. What the client cannot help is logged."""
    problem = error if isinstance(error, ServingError) else _unforeseen(error)
    if problem.status in _NEWS:
        _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem.response()


def _unforeseen(error: Exception) -> ServingError:
    if isinstance(error, BatonError):
        return to_serving_error(error)
    return ServingError(500, "internal", "something went wrong here; it has been noted")
