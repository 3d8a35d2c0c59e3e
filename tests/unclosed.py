"""Finds HTTP clients that a test leaves open.

The official clients of providers start a task from `__del__` in whatever event loop is running, so one that is left to
the garbage collector disturbs a test that has nothing to do with it.
"""

import functools
from typing import Any

import aiohttp
import httpx
import httpx2

_KINDS: tuple[Any, ...] = (httpx.AsyncClient, httpx.Client, httpx2.AsyncClient, httpx2.Client, aiohttp.ClientSession)

created: list[Any] = []
"""Every client since it was last emptied. Holding them here keeps them from being collected before they are checked."""


def watch_clients() -> None:
    """Record every client of this process in `created` from now on."""
    for kind in _KINDS:
        _watch(kind)


def _watch(kind: Any) -> None:
    init = kind.__init__

    @functools.wraps(init)
    def recording(self: Any, *given: Any, **options: Any) -> None:
        init(self, *given, **options)
        created.append(self)

    kind.__init__ = recording


def is_closed(client: Any) -> bool:
    """Return whether a client is closed, or never had a connection and does nothing when it is collected."""
    if isinstance(client, aiohttp.ClientSession):
        return client.closed
    is_unused = client._state.name == "UNOPENED" and not hasattr(client, "__del__")
    return client.is_closed or is_unused
