"""The SDK's OAuth, with what a durable run needs: a user may come back later, to another process.

Where what OAuth obtains is kept: tokens, registrations, and authorizations that wait for their user.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Mapping
from hashlib import blake2s
from pathlib import Path
from time import time
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, PKCEParameters
from mcp.client.auth.utils import validate_authorization_response_iss
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from msgspec.structs import replace


class TokenStore(Protocol):
    """Keeps secrets under keys. Whoever can read it can act for the user."""

    async def get(self, key: str) -> bytes | None:
        """What was kept under the key, if anything."""
        ...

    async def set(self, key: str, value: bytes) -> None:
        """Keep it, in the place of what was there."""
        ...


class MemoryTokenStore:
    """Keeps secrets as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        """What was kept under the key, if anything."""
        return self._kept.get(key)

    async def set(self, key: str, value: bytes) -> None:
        """Keep it, in the place of what was there."""
        self._kept[key] = value


class FileTokenStore:
    """Keeps secrets in the files of a folder that only its owner can read."""

    def __init__(self, folder: "str | os.PathLike[str]") -> None:
        self._folder = Path(folder)

    async def get(self, key: str) -> bytes | None:
        """What was kept under the key, if anything."""
        return await asyncio.to_thread(self._read, self._file_of(key))

    async def set(self, key: str, value: bytes) -> None:
        """Keep it, in the place of what was there."""
        await asyncio.to_thread(self._write, self._file_of(key), value)

    def _file_of(self, key: str) -> Path:
        return self._folder / f"{blake2s(key.encode(), digest_size=16).hexdigest()}.json"

    def _read(self, file: Path) -> bytes | None:
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, file: Path, value: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as written:
            written.write(value)
        new.replace(file)


class PendingAuthorization(msgspec.Struct, frozen=True):
    """An authorization that a user was sent away for. `came_back` is what they came back with."""

    url: str
    about: dict[str, str]
    state: str
    verifier: str
    came_back: dict[str, str] | None = None


class ServerCredentials:
    """What is kept for one server, in the words of the SDK."""

    def __init__(self, store: TokenStore, url: str, client: OAuthClientInformationFull | None = None) -> None:
        """`client` is the registration there is from the beginning."""
        self._store = store
        self._url = url
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens, with what is left of their time."""
        kept = await self._get("tokens")
        if kept is None:
            return None
        tokens = OAuthToken.model_validate(kept["tokens"])
        if kept["expires_at"] is not None:
            tokens.expires_in = int(kept["expires_at"] - time())
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens. Whoever was sent away for them need not come back."""
        expires_at = None if tokens.expires_in is None else time() + tokens.expires_in
        await self._set("tokens", {"tokens": tokens.model_dump(mode="json"), "expires_at": expires_at})
        await self.set_pending(None)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Who the client is to the authorization server."""
        kept = await self._get("client")
        return self._client if kept is None else OAuthClientInformationFull.model_validate(kept)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a registration."""
        await self._set("client", client_info.model_dump(mode="json"))

    async def pending(self) -> PendingAuthorization | None:
        """The authorization that a user was sent away for, if one is open."""
        kept = await self._get("pending")
        return None if kept is None else msgspec.convert(kept, PendingAuthorization)

    async def set_pending(self, pending: PendingAuthorization | None) -> None:
        """Keep it, or forget it."""
        await self._set("pending", None if pending is None else msgspec.to_builtins(pending))

    async def discovered(self) -> tuple[OAuthMetadata | None, ProtectedResourceMetadata | None]:
        """What is known of the authorization server and of the resource, so that tokens can be renewed there."""
        kept = await self._get("discovered") or {}
        server, resource = kept.get("server"), kept.get("resource")
        return (
            None if server is None else OAuthMetadata.model_validate(server),
            None if resource is None else ProtectedResourceMetadata.model_validate(resource),
        )

    async def set_discovered(self, server: OAuthMetadata | None, resource: ProtectedResourceMetadata | None) -> None:
        """Keep what was found out."""
        found: dict[str, Any] = {
            "server": None if server is None else server.model_dump(mode="json", exclude_none=True),
            "resource": None if resource is None else resource.model_dump(mode="json", exclude_none=True),
        }
        await self._set("discovered", found)

    async def _get(self, what: str) -> dict[str, Any] | None:
        kept = await self._store.get(f"{self._url}#{what}")
        return None if kept is None else msgspec.json.decode(kept)

    async def _set(self, what: str, value: Mapping[str, Any] | None) -> None:
        await self._store.set(f"{self._url}#{what}", msgspec.json.encode(value))


class AuthorizationPending(BaseException):
    """Unwinds the SDK's flow: a user must visit a page before the request can be made. Not an error, to the SDK either:
    it logs those.
    """

    def __init__(self, url: str) -> None:
        super().__init__("a user must give leave first")
        self.url = url


class AuthorizationCodeFlow(OAuthClientProvider):
    """Authorization by a code that a user fetches. It does not wait for them: it ends, and is begun again."""

    def __init__(
        self, url: str, about: OAuthClientMetadata, wallet: ServerCredentials, *, client_metadata_url: str | None
    ) -> None:
        super().__init__(url, about, wallet, client_metadata_url=client_metadata_url)
        self._wallet = wallet

    async def came_back(self, answer: Any) -> bool:
        """Take what the user came back with; whether it belongs to the page that they are to visit now."""
        pending, fields = await self._wallet.pending(), _fields_of(answer)
        if pending is None or not secrets.compare_digest(fields.get("state", ""), pending.state):
            return False
        await self._wallet.set_pending(replace(pending, came_back=fields))
        return True

    async def _initialize(self) -> None:
        # The SDK forgets when stored tokens end and where they are renewed; the user would have to come again.
        await super()._initialize()
        context = self.context
        if context.current_tokens is not None:
            context.update_token_expiry(context.current_tokens)
            context.oauth_metadata, context.protected_resource_metadata = await self._wallet.discovered()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        await self._wallet.set_discovered(self.context.oauth_metadata, self.context.protected_resource_metadata)

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        pending = await self._wallet.pending()
        if pending is None or pending.came_back is None:
            raise AuthorizationPending(await self._page(pending))
        # A code is good for one attempt.
        await self._wallet.set_pending(None)
        fields = pending.came_back
        validate_authorization_response_iss(fields.get("iss"), self.context.oauth_metadata)
        if "code" not in fields:
            raise OAuthFlowError(f"the user gave no leave: {fields.get('error', 'there is no code in the answer')}")
        return fields["code"], pending.verifier

    async def _page(self, pending: PendingAuthorization | None) -> str:
        """The page to visit: the one that somebody is at already, if it is for the same."""
        about, context = self._about(), self.context
        if pending is not None and pending.about == about:
            return pending.url
        metadata, proof, state = context.oauth_metadata, PKCEParameters.generate(), secrets.token_urlsafe(32)
        if metadata is not None and metadata.authorization_endpoint:
            endpoint = str(metadata.authorization_endpoint)
        else:
            endpoint = urljoin(context.get_authorization_base_url(context.server_url), "/authorize")
        fields = {**about, "state": state, "code_challenge": proof.code_challenge, "code_challenge_method": "S256"}
        url = f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(fields)}"
        await self._wallet.set_pending(PendingAuthorization(url, about, state, proof.code_verifier))
        return url

    def _about(self) -> dict[str, str]:
        """What the user is asked for."""
        context = self.context
        client, uris = context.client_info, context.client_metadata.redirect_uris
        assert client is not None
        assert uris
        about = {"response_type": "code", "client_id": client.client_id, "redirect_uri": str(uris[0])}
        if context.should_include_resource_param(context.protocol_version):
            about["resource"] = context.get_resource_url()
        scope = context.client_metadata.scope
        if scope:
            about["scope"] = scope
            if "offline_access" in scope.split():
                # OpenID Connect gives it only to who was asked anew.
                about["prompt"] = "consent"
        return about


def _fields_of(answer: Any) -> dict[str, str]:
    """The fields of an address that a user was sent back to, or of an object that has them already."""
    if isinstance(answer, dict):
        return {str(name): str(value) for name, value in answer.items() if value is not None}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - whatever the application answered
    if isinstance(answer, str):
        return {name: values[0] for name, values in parse_qs(urlsplit(answer).query).items()}
    return {}


class ConcurrentAuth(httpx2.Auth):
    """Sends requests side by side while there is a good token. The SDK's flow takes one request at a time."""

    def __init__(self, provider: OAuthClientProvider) -> None:
        self.provider = provider

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        context = self.provider.context
        refused: httpx2.Response | None = None
        if context.is_token_valid() and context.current_tokens is not None:
            shown = request.headers["Authorization"] = f"Bearer {context.current_tokens.access_token}"
            refused = yield request
            if refused.status_code not in (401, 403):
                return
        else:
            shown = ""
        flow = self.provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if refused is not None and outgoing is request and request.headers.get("Authorization") == shown:
                    # With this very token it has just been refused.
                    response = refused
                else:
                    response = yield outgoing
                refused = None
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()
