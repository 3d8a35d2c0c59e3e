"""What every request passes first: its size, its type, who it is from, and which version it speaks."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from a2a.auth.user import UnauthenticatedUser, User
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtensionSupportRequiredError,
    InvalidRequestError,
    VersionNotSupportedError,
)

from ..http import Auth, Principal
from ..http.auth import authenticate, refusal_of

if TYPE_CHECKING:
    from starlette.requests import Request

_SPOKEN = "baton.version"
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")
_JSON_TYPES = ("application/json", A2A_JSON_MEDIA_TYPE)


class RequestRefusedError(Exception):
    """A request that is not let in: what is said about it, and with which HTTP status."""

    def __init__(self, error: A2AError, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status
        self.headers = dict(headers or {})


class NamedUser(User):
    """A caller whose name is known."""

    def __init__(self, caller: Principal) -> None:
        self.caller = caller

    @property
    def is_authenticated(self) -> bool:
        """Always."""
        return True

    @property
    def user_name(self) -> str:
        """The name."""
        return self.caller.name


class A2ARequestGuard:
    """Lets requests in, or raises what they are refused with."""

    def __init__(self, card: AgentCard, auth: Sequence[Auth], largest: int) -> None:
        self._required = frozenset(each.uri for each in card.capabilities.extensions if each.required)
        self._auth = tuple(auth)
        self._largest = largest

    async def admitted(self, request: "Request") -> ServerCallContext:
        """Who calls, and what the request says about itself in its headers."""
        user = await self._user(request)
        extensions = get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER))
        return ServerCallContext(user=user, state={"headers": dict(request.headers)}, requested_extensions=extensions)

    async def _user(self, request: "Request") -> User:
        if not self._auth:
            return UnauthenticatedUser()
        caller = await authenticate(request, self._auth)
        if caller is not None:
            return NamedUser(caller)
        told, headers = refusal_of(self._auth)
        raise RequestRefusedError(InvalidRequestError(message=told), 401, headers)

    def check_version(self, request: "Request", context: ServerCallContext) -> None:
        """Only 1.x is spoken here; a request that names no version means 0.3."""
        spoken = version_of(request)
        if spoken.partition(".")[0] != "1":
            raise VersionNotSupportedError(
                message=f"version `{spoken[:20]}` is not spoken here; send the header {VERSION_HEADER}: 1.0"
            )
        self.check_extensions(context)

    def check_extensions(self, context: ServerCallContext) -> None:
        """Raise unless the caller knows of all extensions that this service cannot do without."""
        missing = self._required - context.requested_extensions
        if missing:
            raise ExtensionSupportRequiredError(
                message=f"this service needs the extensions {sorted(missing)}; name them in {HTTP_EXTENSION_HEADER}"
            )

    async def body(self, request: "Request") -> bytes:
        """The body, if it is JSON and not too large. It is not read further than that."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _JSON_TYPES:
            told = f"the body must be application/json, not {kind or 'of no type'}"
            raise ContentTypeNotSupportedError(message=told)
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._largest:
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        async for piece in request.stream():
            size += len(piece)
            if size > self._largest:
                raise self._too_large()
            pieces.append(piece)
        whole = b"".join(pieces)
        if _HALVES.search(whole) and not _is_text(whole):
            raise InvalidRequestError(message="the body spells half of a surrogate pair, which is no text")
        return whole

    def _too_large(self) -> RequestRefusedError:
        told = f"the body is larger than the {self._largest} bytes that are taken here"
        return RequestRefusedError(InvalidRequestError(message=told), 413)


def _is_text(body: bytes) -> bool:
    """Whether what the body says can be written down again; JSON has a way to spell what no text can hold."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    except (ValueError, RecursionError):
        pass  # Whoever reads it says that it is not JSON.
    return True


def spoken_in(context: ServerCallContext) -> str:
    """The version that the caller is answered in."""
    return str(context.state.get(_SPOKEN, PROTOCOL_VERSION_1_0))


def note_version(context: ServerCallContext, version: str) -> None:
    """Remember the version that the caller is answered in."""
    context.state[_SPOKEN] = version


def version_of(request: "Request") -> str:
    """The version of the protocol that a request says it speaks."""
    return request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER) or PROTOCOL_VERSION_0_3
