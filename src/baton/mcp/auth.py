"""How a client shows a server who it is: a token, credentials of its own, or the leave of a user."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Literal, Protocol, TypeAlias

from ..errors import SetupError

try:
    import httpx2
    from mcp.client.auth.extensions.client_credentials import (
        ClientCredentialsOAuthProvider,
        PrivateKeyJWTOAuthProvider,
        SignedJWTParameters,
    )
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
    from pydantic import AnyUrl

    from .oauth import AuthorizationCodeFlow, ConcurrentAuth, MemoryTokenStore, ServerCredentials, TokenStore
except ImportError as error:
    raise SetupError("MCP needs its library: pip install 'baton-adk[mcp]'") from error

Headers: TypeAlias = "Mapping[str, str] | Awaitable[Mapping[str, str]]"
AuthorizationHandler: TypeAlias = Callable[[str], Awaitable[str]]
"""Has the user visit a page; gives the address they were sent back to."""


class MCPAuth(Protocol):
    """How to get leave to use a server."""

    def flow(self, url: str) -> httpx2.Auth:
        """What adds that leave to the requests for this server, in one event loop."""
        ...


class MCPBearerAuth:
    """A token, or headers that a function gives for each request."""

    def __init__(self, given: str | Callable[[], Headers]) -> None:
        self._given = given

    def flow(self, url: str) -> httpx2.Auth:
        """The same for every server."""
        return _BearerHTTPAuth(self._given)

    def __repr__(self) -> str:
        return "Bearer(…)"


class _BearerHTTPAuth(httpx2.Auth):
    def __init__(self, given: str | Callable[[], Headers]) -> None:
        self._given = given

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if isinstance(self._given, str):
            request.headers["Authorization"] = f"Bearer {self._given}"
        else:
            headers = self._given()
            request.headers.update(await headers if isawaitable(headers) else headers)
        yield request


@dataclass(frozen=True, kw_only=True)
class ClientCredentials:
    """Credentials that a program has of its own, for `MCPToolset(url, auth=…)`: no user is asked.

    `issuer` is the authorization server that they are for: they are sent to no other, whatever the MCP server says.
    """

    client_id: str
    client_secret: str = field(default="", repr=False)
    issuer: str
    private_key: str = field(default="", repr=False)
    """Instead of the secret: the key, as PEM, that assertions are signed with."""
    algorithm: str = "RS256"
    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    scope: str | None = None
    tokens: TokenStore = field(default_factory=MemoryTokenStore)

    def __post_init__(self) -> None:
        if bool(self.client_secret) is bool(self.private_key):
            raise SetupError("ClientCredentials takes either a client_secret or a private_key")

    def flow(self, url: str) -> httpx2.Auth:
        """What obtains tokens for this server."""
        wallet = ServerCredentials(self.tokens, url)
        if self.client_secret:
            provider = ClientCredentialsOAuthProvider(
                url, wallet, self.client_id, self.client_secret, self.method, self.scope, self.issuer
            )
        else:
            signing = SignedJWTParameters(
                issuer=self.client_id,
                subject=self.client_id,
                signing_key=self.private_key,
                signing_algorithm=self.algorithm,
            )
            assertion = signing.create_assertion_provider()
            provider = PrivateKeyJWTOAuthProvider(url, wallet, self.client_id, assertion, self.scope, self.issuer)
        return ConcurrentAuth(provider)


@dataclass(frozen=True, kw_only=True)
class AuthorizationCode:
    """The leave of a user who visits a page for it, for `MCPToolset(url, auth=…)`.

    The run that needs it is suspended with the page's address, and answered with the address that the user was sent
    back to. With `visit` that function is asked instead. A client that has no `client_id` is registered where that is
    possible, or known by the address of its own description, `client_metadata_url`.
    """

    redirect_uri: str
    client_name: str = "Baton"
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    issuer: str | None = None
    """The authorization server that `client_id` is known to; it is shown to no other."""
    client_metadata_url: str | None = None
    tokens: TokenStore = field(default_factory=MemoryTokenStore)
    on_authorize: AuthorizationHandler | None = field(default=None, repr=False)

    def flow(self, url: str) -> httpx2.Auth:
        """What obtains tokens for this server. Raises AuthorizationPending if the user must be sent to a page for that."""
        redirects = [AnyUrl(self.redirect_uri)]
        client = None
        if self.client_id:
            client = OAuthClientInformationFull(
                client_id=self.client_id,
                client_secret=self.client_secret or None,
                redirect_uris=redirects,
                token_endpoint_auth_method="client_secret_basic" if self.client_secret else "none",
                issuer=self.issuer,
            )
        about = OAuthClientMetadata(
            client_name=self.client_name,
            redirect_uris=redirects,
            grant_types=["authorization_code", "refresh_token"],
            application_type="native" if AnyUrl(self.redirect_uri).host in _LOOPBACK else "web",
        )
        provider = AuthorizationCodeFlow(
            url, about, ServerCredentials(self.tokens, url, client), client_metadata_url=self.client_metadata_url
        )
        return ConcurrentAuth(provider)


_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

MCPAuthLike: TypeAlias = "str | Callable[[], Headers] | MCPAuth | httpx2.Auth"


class _CustomAuth:
    """An `httpx2.Auth` of the application's own, such as another provider of the SDK."""

    def __init__(self, given: httpx2.Auth) -> None:
        self._given = given

    def flow(self, url: str) -> httpx2.Auth:
        return self._given


def auth_of(given: "MCPAuthLike | None") -> MCPAuth | None:
    """What somebody gave as `auth`. Raises SetupError if it is none."""
    if given is None:
        return None
    if isinstance(given, httpx2.Auth):
        return _CustomAuth(given)
    if isinstance(given, ClientCredentials | AuthorizationCode):
        return given
    if (isinstance(given, str) and given) or callable(given):
        return MCPBearerAuth(given)
    works = "a token, a function that gives headers, ClientCredentials, AuthorizationCode or an httpx2.Auth"
    raise SetupError(f"MCPToolset(auth=…) takes {works}; not a {type(given).__name__}")
