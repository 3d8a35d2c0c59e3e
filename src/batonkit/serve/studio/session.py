"""Sign-in to Studio: a token in the printed URL that works once, exchanged for a cookie."""

from collections.abc import Mapping
from hmac import compare_digest
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from ..http.auth import Auth, Principal

if TYPE_CHECKING:
    from starlette.requests import Request


class StudioSession(Auth):
    """The sign-in to one Studio.

    The cookie is sent only to the origin that set it and never from pages of other sites. Its name includes the port,
    because cookies do not distinguish ports.
    """

    name = "studio"
    expects = "the cookie of Studio; open the URL that `baton studio` printed"
    is_ambient = True

    def __init__(self) -> None:
        self.token = token_urlsafe(24)
        """The token of the next sign-in; it works once."""
        self.secret = token_urlsafe(32)
        """The value of the cookie; a process that serves Studio again sets it, so that browsers stay signed in."""

    def openapi_scheme(self) -> Mapping[str, Any]:
        """Return the scheme as an OpenAPI security scheme object."""
        return {"type": "apiKey", "in": "cookie", "name": "baton_studio_<port>"}

    async def authenticate(self, request: "Request") -> Principal | None:
        """Return the principal of the cookie, who sees all runs."""
        return Principal(sees_all=True) if self.is_signed_in(request) else None

    def is_signed_in(self, request: "Request") -> bool:
        """Return whether a request has the cookie."""
        given = request.cookies.get(_cookie_name(request), "")
        return compare_digest(given.encode(errors="replace"), self.secret.encode())

    def exchange(self, token: str) -> bool:
        """Return whether a token is valid, and invalidate it if so."""
        is_valid = compare_digest(token.encode(errors="replace"), self.token.encode())
        if is_valid:
            self.token = token_urlsafe(24)
        return is_valid

    def cookie(self, request: "Request") -> str:
        """Return the `Set-Cookie` value for a browser that has signed in."""
        path = str(request.scope.get("root_path", "")) or "/"
        secure = "; Secure" if request.scope["scheme"] == "https" else ""
        return f"{_cookie_name(request)}={self.secret}; Path={path}; HttpOnly; SameSite=Strict{secure}"


class DeveloperAuth(Auth):
    """The credentials of another scheme, if their principal sees the runs of all owners.

    Studio shows every run, and a fork can run tools with any arguments.

    Args:
        scheme: The scheme that knows the credentials.
    """

    def __init__(self, scheme: Auth) -> None:
        self._scheme = scheme
        self.name = scheme.name
        self.challenge = scheme.challenge
        self.expects = f"{scheme.expects or scheme.name} of a principal that sees all runs"
        self.is_ambient = scheme.is_ambient

    def openapi_scheme(self) -> Mapping[str, Any]:
        """Return the scheme as an OpenAPI security scheme object."""
        return self._scheme.openapi_scheme()

    async def authenticate(self, request: "Request") -> Principal | None:
        """Return the principal of a request, or None if it does not see all runs."""
        principal = await self._scheme.authenticate(request)
        return principal if principal is not None and principal.sees_all else None


def _cookie_name(request: "Request") -> str:
    port = request.headers.get("host", "").rpartition(":")[2]
    default = "443" if request.scope["scheme"] == "https" else "80"
    return f"baton_studio_{port if port.isdecimal() else default}"
