"""Clients of provider SDKs: one per event loop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from .._checks import check_arguments, require_extra

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

TRANSPORT_VARIABLES = ("SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""The beginnings of environment variables for HTTP, in upper case."""


@cache
def shared_ssl_context() -> "SSLContext":
    """Load the trusted certificates once for all clients: that takes about a tenth of a second."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


_loaded: set[str] = set()


async def load_modules(*names: str) -> None:
    """Load the modules of an SDK in a thread, because it takes up to some seconds."""
    if not _loaded.issuperset(names):
        await asyncio.to_thread(_load, names)
        _loaded.update(names)


def _load(names: Sequence[str]) -> None:
    for name in names:
        import_module(name)
    if "httpx2" in names:
        # The SDKs on httpx2 are given this one.
        shared_ssl_context()


class PerEventLoop(Generic[T]):
    """An object per event loop, because connections cannot move between loops."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[object]]) -> None:
        self._make = make
        self._close = close
        self._objects: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None]]] = (
            WeakKeyDictionary()
        )

    async def get(self) -> T:
        """Return the object of the running loop, created on first use."""
        loop = asyncio.get_running_loop()
        known = self._objects.get(loop)
        if known is None:
            # Other threads add and remove their loops meanwhile, hence the copy.
            for other in [other for other in list(self._objects) if other.is_closed()]:
                self._objects.pop(other, None)
            made = self._make()
            known = self._objects[loop] = made, self._until_shutdown(made)
            # A loop closes the generators started in it before it ends; there is no other signal for that.
            await anext(known[1])
        return known[0]

    async def close(self) -> None:
        """Close the object of the running loop; the next use creates another."""
        known = self._objects.pop(asyncio.get_running_loop(), None)
        if known is not None:
            await known[1].aclose()

    async def _until_shutdown(self, made: T) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            # The generator refers to its loop, which could not be freed otherwise.
            self._objects.pop(asyncio.get_running_loop(), None)
            await self._close(made)


class _Client(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Client)


class SDKModel(Generic[C]):
    """Base of models that use a provider's SDK, with one client per event loop.

    Args:
        model: The provider's name for the model.
        api_key: The API key; by default the environment provides it.
        base_url: The URL of the API; by default the provider's.
        headers: HTTP headers to add to each request.

    Raises:
        MissingExtraError: The SDK is not installed.
    """

    provider: ClassVar[str]
    """The prefix of the model's name."""
    sdk_modules: ClassVar[tuple[str, ...]]
    extra: ClassVar[str] = ""
    """The extra with the SDK, if it is not named after the provider."""
    _environment_prefixes: ClassVar[tuple[str, ...]]
    """The beginnings of environment variables that the SDK reads, in upper case."""

    @check_arguments
    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.model = model
        require_extra(f"the model `{self.name}`", self.extra or self.provider, *self.sdk_modules)
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._clients = PerEventLoop(self._make_client, lambda client: client.close())

    @property
    def name(self) -> str:
        """The provider's prefix and the model's name."""
        return f"{self.provider}:{self.model}"

    async def aclose(self) -> None:
        """Close the connections of this event loop; they are also closed when the loop ends."""
        await self._clients.close()

    def _make_client(self) -> C:
        raise NotImplementedError
