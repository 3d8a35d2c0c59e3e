"""One client for each event loop, because connections cannot move from one loop to another.

What a model needs that is not installed with Baton itself.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from ..errors import SetupError

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")


@cache
def trusted() -> "SSLContext":
    """The certificates to trust, read once for all clients: that takes about a tenth of a second."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


class PerEventLoop(Generic[T]):
    """What is made once in each event loop, and closed when the loop shuts down or somebody says so."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[object]]) -> None:
        self._make = make
        self._close = close
        self._kept: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None]]] = WeakKeyDictionary()

    async def get(self) -> T:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        kept = self._kept.get(loop)
        if kept is None:
            made = self._make()
            kept = self._kept[loop] = made, self._until_shutdown(made)
            # A loop closes the generators that were begun in it before it ends; nobody else knows when that is.
            await anext(kept[1])
        return kept[0]

    async def close(self) -> None:
        """Close the one of the running loop; the next request makes a new one."""
        kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept[1].aclose()

    async def _until_shutdown(self, made: T) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            # A generator refers to its loop, which would never be freed if it were kept.
            self._kept.pop(asyncio.get_running_loop(), None)
            await self._close(made)


def require_extra(*modules: str, model: str, what: str, extra: str) -> None:
    """Raise a SetupError that says what to install, unless all these modules are there; the parent before the child."""
    if not all(find_spec(module) is not None for module in modules):
        raise SetupError(f"the model `{model}` needs {what}; install it with: pip install 'baton-adk[{extra}]'")
