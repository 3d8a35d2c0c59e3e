"""Ways to know who is calling: each looks at a request, and says who it is from or that it cannot tell.

Whatever is served over HTTP takes any of them. The same object says how it is described, in the OpenAPI document and in
an agent card, so that what is declared is what is enforced.

Who makes a request, the names that are theirs alone, and whose a secret is.
"""

import base64
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from secrets import compare_digest
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from ...errors import SetupError, check_choice

if TYPE_CHECKING:
    from starlette.requests import Request

TokenVerifier: TypeAlias = Callable[[str], str | None | Awaitable[str | None]]
"""Says whose a secret is: a name, or None if it is nobody's."""

TokenLike: TypeAlias = str | Mapping[str, str] | TokenVerifier
"""One secret, whose owner may see everything; secrets and whose they are; or a function that knows."""


class Principal(Struct, frozen=True):
    """Who makes a request. Runs and threads of callers with a name lie apart: nobody can even name another's."""

    name: str = ""
    sees_all: bool = False
    """Whether the runs of others are this caller's to see."""

    @property
    def prefix(self) -> str:
        """What the ids of this caller's runs and threads begin with in the store; "" for who has no name."""
        return f"{quote(self.name, safe='')}:" if self.name else ""

    @property
    def whose(self) -> str | None:
        """Whose runs this caller sees, as `Store.list(caller=…)` is asked; None for everybody's."""
        return None if self.sees_all else self.name

    def inside(self, id: str) -> str:
        """The id in the store of what this caller calls `id`."""
        return self.prefix + id

    def outside(self, id: str) -> str:
        """What this caller calls that which has this id in the store."""
        return id.removeprefix(self.prefix)

    def sees(self, owner: str) -> bool:
        """Whether a run is there for this caller: `owner` is the caller that the run's record names."""
        return self.sees_all or owner == self.name


class TokenRegistry:
    """Secrets and whose they are. Raises SetupError if it would let in whoever sends nothing."""

    def __init__(self, token: TokenLike) -> None:
        self._verify: TokenVerifier | None = None
        self._whose: dict[str, str] = {}
        self._is_single = isinstance(token, str)
        if isinstance(token, str):
            self._whose = {token: ""}
        elif callable(token):
            self._verify = token
            return
        else:
            self._whose = dict(token)
            if not all(self._whose.values()):
                raise SetupError("a secret belongs to nobody; give each a name, as in {secret: name}")
        if not self._whose or not all(self._whose):
            raise SetupError("a secret is empty; give one, or leave auth out")

    async def owner(self, given: str) -> Principal | None:
        """Whose a secret is; None if it is nobody's."""
        if self._verify is not None:
            name = self._verify(given)
            if isawaitable(name):
                name = await name
            return Principal(name) if name else None
        # All are looked at, so that the time it takes tells nothing.
        names = [name for secret, name in self._whose.items() if is_same(secret, given)]
        return Principal(names[0], sees_all=self._is_single) if names else None


def is_same(secret: str, given: str) -> bool:
    """Whether a secret is the one that was given, in a time that does not tell how much of it is."""
    return compare_digest(secret.encode(), given.encode(errors="replace"))


class Auth(ABC):
    """One way for callers to say who they are."""

    name: str
    """The name of the scheme where it is described."""
    challenge: str = ""
    """What a refusal says in `WWW-Authenticate`."""
    expects: str = ""
    """What callers must send, in words for people; `name` if it is empty."""

    @abstractmethod
    def openapi_scheme(self) -> Mapping[str, Any]:
        """How it is described: a security scheme as OpenAPI has them."""

    @abstractmethod
    async def authenticate(self, request: "Request") -> Principal | None:
        """Who calls; None if the request does not say, or says it wrongly."""


AuthLike: TypeAlias = Auth | Sequence[Auth] | TokenLike
"""One way or several; what is known about tokens stands for `Bearer` with just that."""


class BearerAuth(Auth):
    """A token in the `Authorization` header, whose owners you know."""

    challenge = "Bearer"
    expects = "Authorization: Bearer …"

    def __init__(self, known: TokenLike, *, name: str = "bearer", format: str = "") -> None:
        self.name = name
        self._known = TokenRegistry(known)
        self._format = format

    def openapi_scheme(self) -> Mapping[str, Any]:
        """How it is described."""
        return {"type": "http", "scheme": "Bearer", **({"bearerFormat": self._format} if self._format else {})}

    async def authenticate(self, request: "Request") -> Principal | None:
        """The owner of the token."""
        token = _authorization(request, "bearer")
        return await self._known.owner(token) if token else None


class JWTAuth(Auth):
    """A signed token in the `Authorization` header; its `claim` names the caller. Unsigned ones are never taken."""

    challenge = "Bearer"
    expects = "Authorization: Bearer …"

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
            raise SetupError("JWT(…) needs PyJWT: pip install 'pyjwt[crypto]'") from None
        self.name = name
        self._jwt: Any = jwt
        self._key = key
        self._options: dict[str, Any] = {"algorithms": list(algorithms), "audience": audience, "issuer": issuer}
        self._claim = claim

    def openapi_scheme(self) -> Mapping[str, Any]:
        """How it is described."""
        return {"type": "http", "scheme": "Bearer", "bearerFormat": "JWT"}

    async def authenticate(self, request: "Request") -> Principal | None:
        """Whom the claim names, if the token is signed with the key, and is still good."""
        token = _authorization(request, "bearer")
        if not token:
            return None
        try:
            claims = self._jwt.decode(token, self._key, options={"require": ["exp", self._claim]}, **self._options)
        except self._jwt.PyJWTError:
            return None
        named = claims.get(self._claim)
        return Principal(named) if isinstance(named, str) and named else None


class APIKeyAuth(Auth):
    """A key in a header, in the query or in a cookie."""

    def __init__(
        self,
        keys: TokenLike,
        *,
        location: Literal["header", "query", "cookie"] = "header",
        key_name: str = "X-API-Key",
        name: str = "api_key",
    ) -> None:
        check_choice("APIKeyAuth(place=…)", location, ("header", "query", "cookie"))
        self.name = name
        self.expects = f"{location} {key_name}"
        self._known = TokenRegistry(keys)
        self._place = location
        self._key_name = key_name

    def openapi_scheme(self) -> Mapping[str, Any]:
        """How it is described."""
        return {"type": "apiKey", "in": self._place, "name": self._key_name}

    async def authenticate(self, request: "Request") -> Principal | None:
        """The owner of the key."""
        places = {"header": request.headers, "query": request.query_params, "cookie": request.cookies}
        key = places[self._place].get(self._key_name)
        return await self._known.owner(key) if key else None


class BasicAuth(Auth):
    """A name and a password. `passwords` has them, or is a function of both that says whether they fit."""

    challenge = 'Basic realm="baton"'
    expects = "Authorization: Basic …"

    def __init__(
        self,
        passwords: Mapping[str, str] | Callable[[str, str], bool | Awaitable[bool]],
        *,
        name: str = "basic",
    ) -> None:
        self.name = name
        self._passwords = passwords

    def openapi_scheme(self) -> Mapping[str, Any]:
        """How it is described."""
        return {"type": "http", "scheme": "Basic"}

    async def authenticate(self, request: "Request") -> Principal | None:
        """The name, if the password is that of its owner."""
        given = _authorization(request, "basic")
        if not given:
            return None
        try:
            user, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:
            return None
        return Principal(user) if colon and user and await self._fits(user, password) else None

    async def _fits(self, user: str, password: str) -> bool:
        if not callable(self._passwords):
            wanted = self._passwords.get(user)
            return wanted is not None and is_same(wanted, password)
        fits = self._passwords(user, password)
        return await fits if isawaitable(fits) else fits


class MutualTLSAuth(Auth):
    """The client certificate's owner, as a proxy says in a header; only proxies are believed."""

    expects = "a client certificate"

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
        """How it is described."""
        return {"type": "mutualTLS", "description": "A client certificate."}

    async def authenticate(self, request: "Request") -> Principal | None:
        """Whom the header names, if it comes from a proxy."""
        if request.client is None or request.client.host not in self._proxies:
            return None
        name = request.headers.get(self._header)
        return Principal(name) if name else None


def to_auth_list(auth: AuthLike | None) -> tuple[Auth, ...]:
    """The ways that were asked for. Raises SetupError if two of them have one name."""
    if auth is None:
        return ()
    if isinstance(auth, Auth):
        return (auth,)
    if callable(auth) or isinstance(auth, str):
        return (BearerAuth(auth),)
    if not isinstance(auth, Sequence):
        return (BearerAuth(auth),)
    names = [each.name for each in auth]
    if not names:
        raise SetupError("auth=[] names no way to say who one is; name one, or leave auth out")
    if twice := [name for name in names if names.count(name) > 1]:
        raise SetupError(f"two ways of auth are called `{twice[0]}`; give one another name: Bearer(…, name=…)")
    return tuple(auth)


async def authenticate(request: "Request", auth: Sequence[Auth]) -> Principal | None:
    """Who calls, by the first of several ways that can tell."""
    for each in auth:
        caller = await each.authenticate(request)
        # A name that no store can keep is none.
        if caller is not None and (caller.name or caller.sees_all) and caller.name.isprintable():
            return caller
    return None


def refusal_of(auth: Sequence[Auth]) -> tuple[str, dict[str, str]]:
    """What whoever cannot be told is told, and the headers that go with it."""
    wanted = " or ".join([each.expects or each.name for each in auth])
    challenges = ", ".join([each.challenge for each in auth if each.challenge])
    return f"say who you are; send {wanted}", {"WWW-Authenticate": challenges} if challenges else {}


def _authorization(request: "Request", scheme: str) -> str:
    kind, _, rest = request.headers.get("authorization", "").partition(" ")
    return rest.strip() if kind.lower() == scheme else ""
