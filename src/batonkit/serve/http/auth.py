"""Authentication schemes for HTTP apps, and the principals that they identify."""

import base64
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from ipaddress import ip_address
from secrets import compare_digest
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from ..._checks import check_arguments, check_choice, require_extra
from ...errors import SetupError

if TYPE_CHECKING:
    from starlette.requests import Request

TokenVerifier: TypeAlias = Callable[[str], str | None | Awaitable[str | None]]
"""A function that returns the name of a token's principal, or None for an invalid token."""

TokenLike: TypeAlias = str | Mapping[str, str] | TokenVerifier
"""One token that grants access to everything, a mapping of tokens to principal names, or a `TokenVerifier`."""


class Principal(Struct, frozen=True):
    """The sender of a request. Named principals see only their own runs and threads."""

    name: str = ""
    """The name that becomes the owner of the principal's runs; "" for an anonymous principal."""
    sees_all: bool = False
    """True if the principal may see the runs of every owner."""

    @property
    def prefix(self) -> str:
        """The prefix of this principal's run and thread ids in the store; "" without a name."""
        return f"{quote(self.name, safe='')}:" if self.name else ""

    @property
    def owner_filter(self) -> str | None:
        """The `owner` argument for `Store.list`; None lists the runs of every owner."""
        return None if self.sees_all else self.name

    def to_store_id(self, id: str) -> str:
        """Return the id in the store for an id that the principal uses.

        Args:
            id: The id as the principal sends it.
        """
        return self.prefix + id

    def to_public_id(self, id: str) -> str:
        """Return the id that the principal uses for an id in the store.

        Args:
            id: The id in the store.
        """
        return id.removeprefix(self.prefix)

    def sees(self, owner: str) -> bool:
        """Return whether the principal may see a run.

        Args:
            owner: The owner named in the run's record.
        """
        return self.sees_all or owner == self.name


class TokenRegistry:
    """Known tokens and the principals they belong to.

    Raises:
        SetupError: A token or a principal name is empty.
    """

    def __init__(self, tokens: TokenLike) -> None:
        self._verifier: TokenVerifier | None = None
        self._principals: dict[str, Principal] = {}
        if callable(tokens):
            self._verifier = tokens
            return
        if isinstance(tokens, str):
            self._principals = {tokens: Principal(sees_all=True)}
        elif all(tokens.values()):
            self._principals = {token: Principal(name) for token, name in tokens.items()}
        else:
            raise SetupError("a token has an empty principal name; pass {token: name}")
        if not self._principals or not all(self._principals):
            raise SetupError("a token is empty; pass a non-empty token or omit auth")

    async def find(self, token: str) -> Principal | None:
        """Return the principal of a token, or None if the token is invalid."""
        if self._verifier is not None:
            name = self._verifier(token)
            if isawaitable(name):
                name = await name
            return Principal(name) if name else None
        # Compare with every known token, so that the response time reveals nothing.
        matches = [principal for known, principal in self._principals.items() if _is_equal(known, token)]
        return matches[0] if matches else None


class Auth(ABC):
    """An authentication scheme that is enforced and declared by the same object."""

    name: str
    """The scheme's name in OpenAPI documents and agent cards."""
    challenge: str = ""
    """The `WWW-Authenticate` value of a 401 response."""
    expects: str = ""
    """A description of the expected credentials for error messages; defaults to `name`."""
    is_ambient: bool = True
    """True if browsers add the credentials to requests of any page, as they do with cookies, passwords and
    certificates; requests of other sites that change something are then refused."""

    @abstractmethod
    def openapi_scheme(self) -> Mapping[str, Any]:
        """Return the scheme as an OpenAPI security scheme object."""

    @abstractmethod
    async def authenticate(self, request: "Request") -> Principal | None:
        """Return the principal of a request, or None if its credentials are missing or invalid.

        Args:
            request: The incoming request.
        """


AuthLike: TypeAlias = Auth | Sequence[Auth] | TokenLike
"""One scheme, several schemes, or tokens for a `BearerAuth`."""


class BearerAuth(Auth):
    """Bearer tokens in the `Authorization` header.

    Args:
        tokens: The known tokens, or a function that verifies one.
        name: The scheme's name in OpenAPI documents and agent cards.
        format: The `bearerFormat` in the scheme's description.
    """

    challenge = "Bearer"
    expects = "Authorization: Bearer …"
    is_ambient = False

    @check_arguments
    def __init__(self, tokens: TokenLike, *, name: str = "bearer", format: str = "") -> None:
        self.name = name
        self._tokens = TokenRegistry(tokens)
        self._format = format

    def openapi_scheme(self) -> Mapping[str, Any]:
        """Return the scheme as an OpenAPI security scheme object."""
        return {"type": "http", "scheme": "Bearer", **({"bearerFormat": self._format} if self._format else {})}

    async def authenticate(self, request: "Request") -> Principal | None:
        """Return the principal of the bearer token.

        Args:
            request: The incoming request.
        """
        token = _credentials(request, "bearer")
        return await self._tokens.find(token) if token else None


class JWTAuth(BearerAuth):
    """Signed JSON Web Tokens in the `Authorization` header. Unsigned tokens are rejected.

    Args:
        key: The key that verifies signatures, as PyJWT takes it.
        algorithms: The accepted signature algorithms, such as RS256.
        audience: The required `aud` claim.
        issuer: The required `iss` claim.
        claim: The claim that holds the principal's name.
        name: The scheme's name in OpenAPI documents and agent cards.

    Raises:
        SetupError: No algorithm is named, or PyJWT is not installed.
    """

    @check_arguments
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
        if not algorithms or "none" in [algorithm.lower() for algorithm in algorithms]:
            raise SetupError("JWTAuth(algorithms=[…]) must name the signature algorithms, such as RS256")
        require_extra("JWTAuth(…)", "", "jwt", packages="pyjwt[crypto]")
        import jwt

        super().__init__(self._find_name, name=name, format="JWT")
        self._jwt: Any = jwt
        self._key = key
        self._options: dict[str, Any] = {"algorithms": list(algorithms), "audience": audience, "issuer": issuer}
        self._claim = claim

    def _find_name(self, token: str) -> str | None:
        try:
            claims = self._jwt.decode(token, self._key, options={"require": ["exp", self._claim]}, **self._options)
        except self._jwt.PyJWTError:
            return None
        name = claims.get(self._claim)
        return name if isinstance(name, str) else None


class APIKeyAuth(Auth):
    """An API key in a header, in the query string or in a cookie.

    Args:
        keys: The known keys, or a function that verifies one.
        location: The part of the request that holds the key.
        key_name: The name of the header, query parameter or cookie.
        name: The scheme's name in OpenAPI documents and agent cards.
    """

    @check_arguments
    def __init__(
        self,
        keys: TokenLike,
        *,
        location: Literal["header", "query", "cookie"] = "header",
        key_name: str = "X-API-Key",
        name: str = "api_key",
    ) -> None:
        check_choice("APIKeyAuth(location=…)", location, ("header", "query", "cookie"))
        self.name = name
        self.expects = f"{location} {key_name}"
        self.is_ambient = location == "cookie"
        self._keys = TokenRegistry(keys)
        self._location = location
        self._key_name = key_name

    def openapi_scheme(self) -> Mapping[str, Any]:
        """Return the scheme as an OpenAPI security scheme object."""
        return {"type": "apiKey", "in": self._location, "name": self._key_name}

    async def authenticate(self, request: "Request") -> Principal | None:
        """Return the principal of the API key.

        Args:
            request: The incoming request.
        """
        locations = {"header": request.headers, "query": request.query_params, "cookie": request.cookies}
        key = locations[self._location].get(self._key_name)
        return await self._keys.find(key) if key else None


class BasicAuth(Auth):
    """User names and passwords in the `Authorization` header.

    Args:
        passwords: Passwords by user name, or a function of name and password that returns whether they match.
        name: The scheme's name in OpenAPI documents and agent cards.
    """

    challenge = 'Basic realm="baton"'
    expects = "Authorization: Basic …"

    @check_arguments
    def __init__(
        self, passwords: Mapping[str, str] | Callable[[str, str], bool | Awaitable[bool]], *, name: str = "basic"
    ) -> None:
        self.name = name
        self._passwords = passwords

    def openapi_scheme(self) -> Mapping[str, Any]:
        """Return the scheme as an OpenAPI security scheme object."""
        return {"type": "http", "scheme": "Basic"}

    async def authenticate(self, request: "Request") -> Principal | None:
        """Return the named user if the password matches, else None.

        Args:
            request: The incoming request.
        """
        credentials = _credentials(request, "basic")
        if not credentials:
            return None
        try:
            user, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
        except ValueError:
            return None
        return Principal(user) if colon and user and await self._matches(user, password) else None

    async def _matches(self, user: str, password: str) -> bool:
        if not callable(self._passwords):
            expected = self._passwords.get(user)
            return expected is not None and _is_equal(expected, password)
        matches = self._passwords(user, password)
        return await matches if isawaitable(matches) else matches


class MutualTLSAuth(Auth):
    """Client certificates that a reverse proxy verifies and reports in a header.

    Args:
        header: The header with the certificate's subject.
        proxies: Addresses of the proxies whose header is trusted.
        name: The scheme's name in OpenAPI documents and agent cards.
    """

    expects = "a client certificate"

    @check_arguments
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

    def openapi_scheme(self) -> Mapping[str, Any]:
        """Return the scheme as an OpenAPI security scheme object."""
        return {"type": "mutualTLS", "description": "A client certificate."}

    async def authenticate(self, request: "Request") -> Principal | None:
        """Return the principal named by a trusted proxy, else None.

        Args:
            request: The incoming request.
        """
        if request.client is None or request.client.host not in self._proxies:
            return None
        name = request.headers.get(self._header)
        return Principal(name) if name else None


def to_auth_list(auth: AuthLike | None) -> tuple[Auth, ...]:
    """Normalize an `auth` argument to a tuple of schemes.

    Raises:
        SetupError: The sequence is empty, or two schemes have the same name.
    """
    if auth is None:
        return ()
    if isinstance(auth, Auth):
        return (auth,)
    if callable(auth) or isinstance(auth, str) or not isinstance(auth, Sequence):
        return (BearerAuth(auth),)
    names = [scheme.name for scheme in auth]
    if not names:
        raise SetupError("auth=[] contains no scheme; pass at least one, or omit auth")
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise SetupError(f"two auth schemes are named `{duplicates[0]}`; rename one: BearerAuth(…, name=…)")
    return tuple(auth)


async def authenticate(request: "Request", auth: Sequence[Auth]) -> Principal | None:
    """Return the principal of a request by the first scheme that accepts it, or None."""
    for scheme in auth:
        principal = await scheme.authenticate(request)
        # A name that no store can keep is rejected.
        if principal is not None and (principal.name or principal.sees_all) and principal.name.isprintable():
            return principal
    return None


def unauthorized(auth: Sequence[Auth]) -> tuple[str, dict[str, str]]:
    """Return the message and the headers of a 401 response."""
    expected = " or ".join([scheme.expects or scheme.name for scheme in auth])
    challenges = ", ".join([scheme.challenge for scheme in auth if scheme.challenge])
    return f"authentication required: send {expected}", {"WWW-Authenticate": challenges} if challenges else {}


def is_local(host: str) -> bool:
    """Return whether a host is a loopback name or address."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _is_equal(known: str, given: str) -> bool:
    """Compare secrets in constant time."""
    return compare_digest(known.encode(), given.encode(errors="replace"))


def _credentials(request: "Request", scheme: str) -> str:
    kind, _, credentials = request.headers.get("authorization", "").partition(" ")
    return credentials.strip() if kind.lower() == scheme else ""
