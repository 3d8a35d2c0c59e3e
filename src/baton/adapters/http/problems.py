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
    RunConflict,
    RunError,
    RunExistsError,
    RunNotFoundError,
    StoreError,
    TeamChanged,
    ThreadBusy,
)

_logger = logging.getLogger("baton.server")


class Problem(Exception):
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
    (ThreadBusy, 409, "thread_busy", "a run of this thread has not ended; answer or cancel it first"),
    (RunConflict, 409, "run_busy", "the run is under way; cancel it, or wait until it has stopped"),
    (TeamChanged, 409, "team_changed", "the team has changed since this run began"),
    (NotEncodableError, 422, "invalid", "the body holds something that cannot be kept as JSON"),
    (LogError, 503, "unavailable", "the log of this run cannot be read"),
    (StoreError, 503, "unavailable", "the store cannot be reached"),
)
_NEWS = (503, 500)


def problem_of(error: BatonError) -> Problem:
    """What a client is told of an error that kept a request from being carried out."""
    if isinstance(error, AnswerError):
        return Problem(422, "answer_not_wanted", str(error))
    if type(error) is StoreError and not error.store:
        # Not the store's own trouble, so it is about what was asked of it.
        return Problem(422, "invalid", "the store cannot make sense of what was asked for")
    for kind, status, code, message in _TOLD:
        if isinstance(error, kind):
            return Problem(status, code, message)
    if type(error) is RunError:
        return Problem(409, "run_ended", "the run is completed; there is nothing left to go on with")
    return Problem(500, "internal", "something went wrong here; it has been noted")


def tell_problem(request: Request, error: Exception) -> Response:
    """The answer to a request that ended with this error. What the client cannot help is logged."""
    problem = error if isinstance(error, Problem) else _unforeseen(error)
    if problem.status in _NEWS:
        _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem.response()


def _unforeseen(error: Exception) -> Problem:
    if isinstance(error, BatonError):
        return problem_of(error)
    return Problem(500, "internal", "something went wrong here; it has been noted")
