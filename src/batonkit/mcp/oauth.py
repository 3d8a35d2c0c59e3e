"""OAuth for durable runs: token stores, and an authorization code flow that can finish in another process."""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator
from hashlib import blake2s
from pathlib import Path
from tempfile import mkstemp
from time import time
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, PKCEParameters
from mcp.client.auth.utils import validate_authorization_response_iss
from mcp.shared import auth
from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)

_CLEARED = b"null"
TOKENS = "tokens"
CLIENT = "client"
PENDING = "pending"
DISCOVERED = "discovered"
"""The names of the values that are stored for each server."""


class TokenStore(Protocol):
    """Storage for secrets by key. Anyone who can read it can act for the user."""

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, if there is one.

        Args:
            key: The key.
        """
        ...

    async def set(self, key: str, value: bytes) -> None:
        """Set the value of a key.

        Args:
            key: The key.
            value: The value.
        """


class MemoryTokenStore:
    """A token store in memory."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, if there is one."""
        return self._values.get(key)

    async def set(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self._values[key] = value


class FileTokenStore:
    """A token store in files that only their owner can read.

    Args:
        folder: The folder of the files; it is created if it does not exist.
    """

    def __init__(self, folder: "str | os.PathLike[str]") -> None:
        self._folder = Path(folder)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, if there is one."""
        try:
            return await asyncio.to_thread(self._path(key).read_bytes)
        except FileNotFoundError:
            return None

    async def set(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        await asyncio.to_thread(self._write, self._path(key), value)

    def _path(self, key: str) -> Path:
        return self._folder / f"{blake2s(key.encode(), digest_size=16).hexdigest()}.json"

    def _write(self, file: Path, value: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only the owner can read a file of mkstemp.
        descriptor, temporary = mkstemp(dir=self._folder)
        with open(descriptor, "wb") as output:
            output.write(value)
        Path(temporary).replace(file)


class PendingAuthorization(BaseModel, frozen=True):
    """An authorization that a user has been sent to.

    Attributes:
        url: The page that the user visits.
        parameters: The parameters of the request, without state and challenge.
        state: The state that identifies the redirect.
        verifier: The PKCE code verifier.
        redirect: The parameters that the user came back with.
    """

    url: str
    parameters: dict[str, str]
    state: str
    verifier: str
    redirect: dict[str, str] | None = None


class _StoredTokens(BaseModel):
    tokens: auth.OAuthToken
    expires_at: float | None = None


class DiscoveredMetadata(BaseModel):
    """The metadata of a server and its authorization server, needed to refresh tokens."""

    server: auth.OAuthMetadata | None = None
    resource: auth.ProtectedResourceMetadata | None = None


class ServerCredentials:
    """The stored credentials for one server, in the interface the SDK expects."""

    def __init__(self, store: TokenStore, url: str, client: auth.OAuthClientInformationFull | None = None) -> None:
        self._store = store
        self._url = url
        self._client = client

    async def get_tokens(self) -> auth.OAuthToken | None:
        """Return the tokens, with the rest of their lifetime."""
        stored = await self.get(TOKENS, _StoredTokens)
        if stored is None:
            return None
        if stored.expires_at is not None:
            stored.tokens.expires_in = int(stored.expires_at - time())
        return stored.tokens

    async def set_tokens(self, tokens: auth.OAuthToken) -> None:
        """Store tokens and forget the pending authorization."""
        expires_at = None if tokens.expires_in is None else time() + tokens.expires_in
        await self.set(TOKENS, _StoredTokens(tokens=tokens, expires_at=expires_at))
        await self.set(PENDING, None)

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        """Return the client's registration at the authorization server."""
        return await self.get(CLIENT, auth.OAuthClientInformationFull) or self._client

    async def set_client_info(self, client_info: auth.OAuthClientInformationFull) -> None:
        """Store a registration."""
        await self.set(CLIENT, client_info)

    async def get(self, name: str, kind: type[M]) -> M | None:
        """Return a stored value, if there is one."""
        stored = await self._store.get(f"{self._url}#{name}")
        return None if stored in (None, _CLEARED) else kind.model_validate_json(stored)

    async def set(self, name: str, value: BaseModel | None) -> None:
        """Store a value, or remove it."""
        encoded = _CLEARED if value is None else value.model_dump_json(exclude_none=True).encode()
        await self._store.set(f"{self._url}#{name}", encoded)


class AuthorizationPending(BaseException):
    """Stops the SDK's flow because a user must visit a page before the request can be sent.

    A BaseException, because the SDK logs every Exception as an error.
    """

    def __init__(self, url: str) -> None:
        super().__init__("a user must authorize the client first")
        self.url = url


class AuthorizationCodeFlow(OAuthClientProvider):
    """An authorization code flow that stops instead of waiting for the user."""

    @property
    def _credentials(self) -> ServerCredentials:
        return cast("ServerCredentials", self.context.storage)

    async def accept_redirect(self, answer: Any) -> bool:
        """Store the redirect; return whether it belongs to the pending authorization."""
        pending = await self._credentials.get(PENDING, PendingAuthorization)
        fields = _parse_redirect(answer)
        if pending is None or not secrets.compare_digest(fields.get("state", "").encode(), pending.state.encode()):
            return False
        await self._credentials.set(PENDING, pending.model_copy(update={"redirect": fields}))
        return True

    async def _initialize(self) -> None:
        # The SDK does not restore expiry and endpoints of stored tokens; the user would have to return.
        await super()._initialize()
        context = self.context
        if context.current_tokens is not None:
            context.update_token_expiry(context.current_tokens)
            discovered = await self._credentials.get(DISCOVERED, DiscoveredMetadata) or DiscoveredMetadata()
            context.oauth_metadata = discovered.server
            context.protected_resource_metadata = discovered.resource

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        server = self.context.oauth_metadata
        resource = self.context.protected_resource_metadata
        await self._credentials.set(DISCOVERED, DiscoveredMetadata(server=server, resource=resource))

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        pending = await self._credentials.get(PENDING, PendingAuthorization)
        if pending is None or pending.redirect is None:
            raise AuthorizationPending(await self._authorization_url(pending))
        # A code can be used once.
        await self._credentials.set(PENDING, None)
        fields = pending.redirect
        validate_authorization_response_iss(fields.get("iss"), self.context.oauth_metadata)
        if "code" not in fields:
            raise OAuthFlowError(f"authorization was denied: {fields.get('error', 'the redirect has no code')}")
        return fields["code"], pending.verifier

    async def _authorization_url(self, pending: PendingAuthorization | None) -> str:
        """Return the page to visit: the pending one if it is for the same request."""
        parameters = self._request_parameters()
        if pending is not None and pending.parameters == parameters:
            return pending.url
        proof = PKCEParameters.generate()
        state = secrets.token_urlsafe(32)
        query = {**parameters, "state": state, "code_challenge": proof.code_challenge, "code_challenge_method": "S256"}
        endpoint = self._authorization_endpoint()
        url = f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"
        verifier = proof.code_verifier
        pending = PendingAuthorization(url=url, parameters=parameters, state=state, verifier=verifier)
        await self._credentials.set(PENDING, pending)
        return url

    def _authorization_endpoint(self) -> str:
        context = self.context
        if context.oauth_metadata is not None and context.oauth_metadata.authorization_endpoint:
            return str(context.oauth_metadata.authorization_endpoint)
        return urljoin(context.get_authorization_base_url(context.server_url), "/authorize")

    def _request_parameters(self) -> dict[str, str]:
        context = self.context
        client = context.client_info
        uris = context.client_metadata.redirect_uris
        assert client is not None
        assert uris
        parameters = {"response_type": "code", "client_id": client.client_id, "redirect_uri": str(uris[0])}
        if context.should_include_resource_param(context.protocol_version):
            parameters["resource"] = context.get_resource_url()
        scope = context.client_metadata.scope
        if scope:
            parameters["scope"] = scope
            if "offline_access" in scope.split():
                # OpenID Connect grants it only after asking the user again.
                parameters["prompt"] = "consent"
        return parameters


def _parse_redirect(answer: Any) -> dict[str, str]:
    """Return the parameters of a redirect URL or of an object; {} for anything else."""
    if isinstance(answer, dict):
        return {str(name): str(value) for name, value in answer.items() if value is not None}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any JSON value
    if not isinstance(answer, str):
        return {}
    try:
        query = urlsplit(answer).query
    except ValueError:
        return {}
    return {name: values[0] for name, values in parse_qs(query).items()}


class ConcurrentAuth(httpx2.Auth):
    """Sends requests concurrently while the token is valid; the SDK's flow is sequential."""

    def __init__(self, provider: OAuthClientProvider) -> None:
        self.provider = provider

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Authorize a request, refreshing or obtaining tokens where needed."""
        context = self.provider.context
        sent = ""
        refused: httpx2.Response | None = None
        if context.is_token_valid() and context.current_tokens is not None:
            sent = request.headers["Authorization"] = f"Bearer {context.current_tokens.access_token}"
            refused = yield request
            if refused.status_code not in (401, 403):
                return
        flow = self.provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if refused is not None and outgoing is request and request.headers.get("Authorization") == sent:
                    # This token has just been refused.
                    response = refused
                else:
                    response = yield outgoing
                refused = None
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()
