"""Who is calling: each of these looks at a request, and says who it is from or that it cannot tell.

The same object writes its part of the agent card, so that what is declared is what is enforced.
"""

import base64
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from a2a.types.a2a_pb2 import APIKeySecurityScheme, HTTPAuthSecurityScheme, MutualTlsSecurityScheme, SecurityScheme

from ...errors import SetupError, checked_choice
from ..http.callers import is_same, owner_in

if TYPE_CHECKING:
    from starlette.requests import Request

Known: TypeAlias = Mapping[str, str] | Callable[[str], str | None | Awaitable[str | None]]
"""Who has which secret: secrets with the names of their owners, or a function from a secret to a name or None."""


class Auth(ABC):
    """One way for callers to say who they are."""

    name: str
    """The name of the scheme in the agent card."""
    challenge: str = ""
    """What a refusal says in `WWW-Authenticate`."""

    @abstractmethod
    def scheme(self) -> SecurityScheme:
        """What the agent card says about it."""

    @abstractmethod
    async def caller(self, request: "Request") -> str | None:
        """The name of the caller; None if the request does not say, or says it wrongly."""


class Bearer(Auth):
    """A token in the `Authorization` header, whose owners you know."""

    challenge = "Bearer"

    def __init__(self, known: Known, *, name: str = "bearer", format: str = "") -> None:
        self.name = name
        self._known = known
        self._format = format

    def scheme(self) -> SecurityScheme:
        """What the agent card says about it."""
        return SecurityScheme(
            http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer", bearer_format=self._format)
        )

    async def caller(self, request: "Request") -> str | None:
        """The owner of the token."""
        token = _authorization(request, "bearer")
        return await _owner(self._known, token) if token else None


class JWT(Auth):
    """A signed token in the `Authorization` header; its `claim` names the caller. Unsigned ones are never taken."""

    challenge = "Bearer"

    def __init__(
        self,
        key: Any,
        *,
        algorithms: Sequence[str],
        audience: str | None = None,
        issuer: str | None = None,
        claim: str = "sub",
        name: str = "jwt",
    ) -> None:
        if not algorithms or "none" in [each.lower() for each in algorithms]:
            raise SetupError("JWT(algorithms=[…]) must name how tokens are signed, such as RS256")
        try:
            import jwt
        except ImportError:
            raise SetupError("JWT(…) needs PyJWT: pip install 'baton-adk[a2a]'") from None
        self.name = name
        self._jwt: Any = jwt
        self._key = key
        self._options: dict[str, Any] = {"algorithms": list(algorithms), "audience": audience, "issuer": issuer}
        self._claim = claim

    def scheme(self) -> SecurityScheme:
        """What the agent card says about it."""
        return SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer", bearer_format="JWT"))

    async def caller(self, request: "Request") -> str | None:
        """What the claim says, if the token is signed with the key, and is still good."""
        token = _authorization(request, "bearer")
        if not token:
            return None
        try:
            claims = self._jwt.decode(token, self._key, options={"require": ["exp", self._claim]}, **self._options)
        except self._jwt.PyJWTError:
            return None
        named = claims.get(self._claim)
        return named if isinstance(named, str) and named else None


class ApiKey(Auth):
    """A key in a header, in the query or in a cookie."""

    def __init__(
        self,
        known: Known,
        *,
        place: Literal["header", "query", "cookie"] = "header",
        key_name: str = "X-API-Key",
        name: str = "api_key",
    ) -> None:
        checked_choice("ApiKey(place=…)", place, ("header", "query", "cookie"))
        self.name = name
        self._known = known
        self._place = place
        self._key_name = key_name

    def scheme(self) -> SecurityScheme:
        """What the agent card says about it."""
        return SecurityScheme(api_key_security_scheme=APIKeySecurityScheme(location=self._place, name=self._key_name))

    async def caller(self, request: "Request") -> str | None:
        """The owner of the key."""
        places = {"header": request.headers, "query": request.query_params, "cookie": request.cookies}
        key = places[self._place].get(self._key_name)
        return await _owner(self._known, key) if key else None


class Basic(Auth):
    """A name and a password. `passwords` has them, or is a function of both that says whether they fit."""

    challenge = 'Basic realm="a2a"'

    def __init__(
        self,
        passwords: Mapping[str, str] | Callable[[str, str], bool | Awaitable[bool]],
        *,
        name: str = "basic",
    ) -> None:
        self.name = name
        self._passwords = passwords

    def scheme(self) -> SecurityScheme:
        """What the agent card says about it."""
        return SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Basic"))

    async def caller(self, request: "Request") -> str | None:
        """The name, if the password is that of its owner."""
        given = _authorization(request, "basic")
        if not given:
            return None
        try:
            user, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:
            return None
        if not colon or not user:
            return None
        if not callable(self._passwords):
            wanted = self._passwords.get(user)
            return user if wanted is not None and is_same(wanted, password) else None
        fits = self._passwords(user, password)
        return user if (await fits if isawaitable(fits) else fits) else None


class MutualTLS(Auth):
    """The client certificate's owner, as a proxy says in a header; only proxies are believed."""

    def __init__(
        self,
        header: str = "X-Client-Cert-Subject",
        *,
        proxies: Sequence[str] = ("127.0.0.1", "::1"),
        name: str = "mtls",
    ) -> None:
        self.name = name
        self._header = header
        self._proxies = frozenset(proxies)

    def scheme(self) -> SecurityScheme:
        """What the agent card says about it."""
        return SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme(description="A client certificate."))

    async def caller(self, request: "Request") -> str | None:
        """What the header says, if it comes from a proxy."""
        if request.client is None or request.client.host not in self._proxies:
            return None
        return request.headers.get(self._header) or None


def _authorization(request: "Request", scheme: str) -> str:
    kind, _, rest = request.headers.get("authorization", "").partition(" ")
    return rest.strip() if kind.lower() == scheme else ""


async def _owner(known: Known, secret: str) -> str | None:
    if not callable(known):
        return owner_in(known, secret)
    owner = known(secret)
    return await owner if isawaitable(owner) else owner
