"""The base of all endpoints of the HTTP API: access to runs, errors, parameters and responses."""

import gzip
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...errors import RunNotFoundError
from ...stores import RunRecord, WaitingMessage
from ..http.application import Endpoints
from ..http.auth import Principal
from ..http.http_errors import ServingError, error_response
from . import run_schemas as schemas

Endpoint: TypeAlias = Callable[[Principal, Request], Awaitable[Response]]
"""A function that answers a request of a principal."""
EndpointTable: TypeAlias = Mapping[str, Mapping[str, Endpoint]]
"""Endpoints by path and method."""
_DIGITS = re.compile(r"\d{1,15}")
_SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_MIN_COMPRESSED = 1400
"""Smaller bodies fit into one packet."""


@dataclass(eq=False)
class ApiEndpoints(Endpoints, ABC):
    """Endpoints of the HTTP API; each principal has runs and threads of its own."""

    @abstractmethod
    def endpoints(self) -> EndpointTable:
        """Return the endpoints by path and method."""

    async def handle(self, by_method: Mapping[str, Endpoint], request: Request) -> Response:
        """Answer a request; every failure becomes a response."""
        try:
            principal = await self.guard.admit(request)
            return await by_method["GET" if request.method == "HEAD" else request.method](principal, request)
        except Exception as error:  # noqa: BLE001 - every failure becomes a response
            return error_response(request, error)

    async def run_response(
        self, principal: Principal, id: str, status: int = 200, headers: dict[str, str] | None = None
    ) -> Response:
        """Return a run with the details of its log, or a message that waits."""
        record = await self.find_run(principal, id)
        if isinstance(record, WaitingMessage):
            return json_response(schemas.to_waiting_detail(record, principal), status, headers)
        events = await self.background.runner.runs.events(record.run_id)
        detail = schemas.to_run_detail(record, events, principal, show_errors=self.show_errors)
        return json_response(detail, status, headers)

    async def require_run(self, principal: Principal, id: str) -> RunRecord:
        """Return the record of a run.

        Raises:
            RunNotFoundError: There is no such run.
            ServingError: It is a message that waits.
        """
        found = await self.find_run(principal, id)
        if isinstance(found, WaitingMessage):
            raise ServingError(409, "waiting", "the message waits for the unfinished run of its thread")
        return found

    async def find_run(self, principal: Principal, id: str) -> RunRecord | WaitingMessage:
        """Return a run, or a message that waits.

        Raises:
            RunNotFoundError: There is no such run.
        """
        # Ids of runs that were started by another protocol have no owner prefix.
        for store_id in dict.fromkeys((principal.to_store_id(id), id)):
            record = await self.store.record(store_id)
            if record is not None and principal.sees(record.owner):
                return record
        message = await self.store.waiting(principal.to_store_id(id))
        if message is None or not principal.sees(message.owner):
            raise RunNotFoundError(id)
        return message


def path_id(request: Request, what: str, name: str = "id") -> str:
    """Return an id in the path of a request.

    Raises:
        ServingError: 404 if no run and no thread can have it.
    """
    id = request.path_params[name]
    # Ids of other protocols and prefixes of owners have more characters than those that clients of this API choose.
    if not id.isprintable():
        raise ServingError(404, "not_found", f"there is no such {what}")
    return id


def parse_int(text: str, what: str, *, minimum: int, maximum: int) -> int:
    """Parse a parameter that is an integer.

    Raises:
        ServingError: 422 if it is invalid.
    """
    if not text.isascii() or not _DIGITS.fullmatch(text) or not minimum <= int(text) <= maximum:
        raise ServingError(422, "invalid", f"`{what}` must be an integer from {minimum} to {maximum}")
    return int(text)


def parse_time(text: str | None, what: str) -> float | None:
    """Parse a parameter that is a time in seconds since the epoch.

    Raises:
        ServingError: 422 if it is invalid.
    """
    if text is None:
        return None
    if not _SECONDS.fullmatch(text):
        raise ServingError(422, "invalid", f"`{what}` must be a time in seconds since the epoch")
    return float(text)


def parse_choice(text: str, what: str, choices: Sequence[str]) -> str:
    """Parse a parameter that is one of several words.

    Raises:
        ServingError: 422 if it is not one of them.
    """
    if text not in choices:
        raise ServingError(422, "invalid", f"`{what}` must be one of: {', '.join(choices)}")
    return text


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


def compressed_response(request: Request, content: bytes, media_type: str = "application/json") -> Response:
    """Return a response that is compressed if it is large and the client accepts it."""
    headers = {"Vary": "Accept-Encoding"}
    if len(content) > _MIN_COMPRESSED and "gzip" in request.headers.get("accept-encoding", ""):
        content = gzip.compress(content, compresslevel=5, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, 200, headers, media_type=media_type)
