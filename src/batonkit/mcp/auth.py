"""Ways to authenticate with an MCP server: tokens, client credentials, authorization codes."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Literal, TypeAlias

from ..errors import MissingExtraError, SetupError

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
    raise MissingExtraError("batonkit.mcp", "mcp", error) from error

Headers: TypeAlias = "Mapping[str, str] | Awaitable[Mapping[str, str]]"
AuthorizationHandler: TypeAlias = Callable[[str], Awaitable[str]]
"""Sends the user to a URL and returns the URL they were redirected to."""


class MCPBearerAuth(httpx2.Auth):
    """A bearer token, or a function that returns headers for each request."""

    def __init__(self, credential: str | Callable[[], Headers]) -> None:
        self._credential = credential

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the headers to a request."""
        if isinstance(self._credential, str):
            request.headers["Authorization"] = f"Bearer {self._credential}"
        else:
            headers = self._credential()
            request.headers.update(await headers if isawaitable(headers) else headers)
        yield request


@dataclass(frozen=True, kw_only=True)
class ClientCredentials:
    """OAuth client credentials for `MCPToolset(url, auth=…)`; no user is involved.

    Args:
        client_id: The client's id at the authorization server.
        client_secret: Its secret; give either this or `private_key`.
        issuer: The authorization server the credentials belong to. They are sent to no other server.
        private_key: The PEM key that signs JWT assertions, instead of a secret.
        algorithm: The signing algorithm of `private_key`.
        method: The authentication method at the token endpoint.
        scope: The scopes to request, separated by spaces.
        tokens: Where tokens are stored; in memory by default.
    """

    client_id: str
    client_secret: str = field(default="", repr=False)
    issuer: str
    private_key: str = field(default="", repr=False)
    algorithm: str = "RS256"
    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    scope: str | None = None
    tokens: TokenStore = field(default_factory=MemoryTokenStore)

    def __post_init__(self) -> None:
        if bool(self.client_secret) is bool(self.private_key):
            raise SetupError("ClientCredentials takes either a client_secret or a private_key")

    def flow(self, url: str) -> httpx2.Auth:
        """Return the auth that obtains tokens for the server at `url`.

        Args:
            url: The address of the MCP server.
        """
        credentials = ServerCredentials(self.tokens, url)
        if self.client_secret:
            provider = ClientCredentialsOAuthProvider(
                url, credentials, self.client_id, self.client_secret, self.method, self.scope, self.issuer
            )
        else:
            assertion = SignedJWTParameters(
                issuer=self.client_id,
                subject=self.client_id,
                signing_key=self.private_key,
                signing_algorithm=self.algorithm,
            ).create_assertion_provider()
            provider = PrivateKeyJWTOAuthProvider(url, credentials, self.client_id, assertion, self.scope, self.issuer)
        return ConcurrentAuth(provider)


@dataclass(frozen=True, kw_only=True)
class AuthorizationCode:
    """Authorization by a user in a browser, for `MCPToolset(url, auth=…)`.

    The run that needs it is suspended with the URL to visit, and is resumed with the URL that the user was redirected
    to. A client without a `client_id` is registered dynamically, or identified by `client_metadata_url`.

    Args:
        redirect_uri: The URL that the authorization server redirects the user to.
        client_name: The name shown to the user.
        client_id: The id of a client that is registered already.
        client_secret: Its secret, if it has one.
        issuer: The authorization server that `client_id` belongs to; it is sent to no other.
        client_metadata_url: The URL of the client's metadata document.
        tokens: Where tokens and pending authorizations are stored; in memory by default.
        on_authorize: Sends the user to a URL and returns the redirect, instead of suspending the run.
    """

    redirect_uri: str
    client_name: str = "Baton"
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    issuer: str | None = None
    client_metadata_url: str | None = None
    tokens: TokenStore = field(default_factory=MemoryTokenStore)
    on_authorize: AuthorizationHandler | None = field(default=None, repr=False)

    def flow(self, url: str) -> httpx2.Auth:
        """Return the auth that obtains tokens for the server at `url`.

        Its requests raise `AuthorizationPending` if a user must authorize the client first.

        Args:
            url: The address of the MCP server.
        """
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
        metadata = OAuthClientMetadata(
            client_name=self.client_name,
            redirect_uris=redirects,
            grant_types=["authorization_code", "refresh_token"],
            application_type="native" if AnyUrl(self.redirect_uri).host in _LOOPBACK else "web",
        )
        provider = AuthorizationCodeFlow(
            url, metadata, ServerCredentials(self.tokens, url, client), client_metadata_url=self.client_metadata_url
        )
        return ConcurrentAuth(provider)


_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

MCPAuth: TypeAlias = httpx2.Auth | ClientCredentials | AuthorizationCode
"""Credentials for a server; those with a `flow` have one for each server and event loop."""
MCPAuthLike: TypeAlias = "str | Callable[[], Headers] | MCPAuth"


def to_mcp_auth(auth: "MCPAuthLike | None") -> MCPAuth | None:
    """Convert the `auth` argument of `MCPToolset`.

    Raises:
        SetupError: It has an unsupported type.
    """
    if auth is None or isinstance(auth, MCPAuth):
        return auth
    if (isinstance(auth, str) and auth) or callable(auth):
        return MCPBearerAuth(auth)
    works = "a token, a function that returns headers, ClientCredentials, AuthorizationCode or an httpx2.Auth"
    refused = "an empty text" if auth == "" else type(auth).__name__
    raise SetupError(f"MCPToolset(auth=…) takes {works}, not {refused}")
