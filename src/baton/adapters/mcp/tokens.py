"""Where what OAuth obtains is kept: tokens, registrations, and authorizations that wait for their user."""

import asyncio
import os
from collections.abc import Mapping
from hashlib import blake2s
from pathlib import Path
from time import time
from typing import Any, Protocol

import msgspec
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata


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
