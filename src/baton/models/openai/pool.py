"""The connections of each event loop, shared by all models that are asked in it."""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...errors import SetupError

if TYPE_CHECKING:
    from aiohttp import ClientSession

# As many as the official client allows.
_MOST_CONNECTIONS = 1000


class _Pool:
    """The connections of one event loop; asyncio closes them when the loop shuts down, since nobody else knows when."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=_MOST_CONNECTIONS, ssl=tls or True)
        self.session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        self._life = self._until_shutdown()

    async def open(self) -> None:
        """Make sure that the end of the loop is the end of the connections."""
        # A loop closes the generators that were begun in it before it ends.
        await anext(self._life)

    async def close(self) -> None:
        """Close the connections."""
        await self._life.aclose()

    async def _until_shutdown(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            _forget(self)
            await self.session.close()


# Connections belong to an event loop and outlive every model, so no object of the program can hold them.
_pools: dict[tuple[asyncio.AbstractEventLoop, ssl.SSLContext | None], _Pool] = {}


async def session_for(tls: ssl.SSLContext | None) -> "ClientSession":
    """The connections of this event loop that trust what `tls` says."""
    key = (asyncio.get_running_loop(), tls)
    pool = _pools.get(key)
    if pool is None:
        # Other threads have loops of their own, and may open or close theirs meanwhile: hence the copies.
        for known in list(_pools):
            if known[0].is_closed():
                _pools.pop(known, None)
        pool = _pools[key] = _Pool(tls)
        await pool.open()
    return pool.session


async def close_all() -> None:
    """Close all connections of this event loop; whoever asks next opens new ones."""
    loop = asyncio.get_running_loop()
    for (owner, _), pool in list(_pools.items()):
        if owner is loop:
            await pool.close()


def trust_for(url: str, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """What to trust at this address: what was given, or what the environment and the system say."""
    if tls is not None or not url.startswith("https:"):
        return tls
    return _trust_of(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        raise SetupError(
            f"the environment names a proxy of the kind {urlsplit(proxy).scheme}, which is not supported; "
            "set HTTPS_PROXY to an http:// proxy, or NO_PROXY, or give client=AsyncOpenAI(…)"
        )
    return proxy


@lru_cache(maxsize=8)
def _trust_of(file: str | None, folder: str | None) -> ssl.SSLContext:
    # The library's own default is made when it is imported, and would not see what a program sets later.
    return ssl.create_default_context(cafile=file or None, capath=folder or None)


def _forget(pool: _Pool) -> None:
    for key, known in list(_pools.items()):
        if known is pool:
            _pools.pop(key, None)
