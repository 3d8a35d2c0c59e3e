"""`PerEventLoop` creates one client per event loop and closes it with the loop."""

import asyncio
import gc
from weakref import ref

from batonkit.models.sdk_clients import PerEventLoop


class Client:
    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def test_each_loop_has_its_own_client_and_closes_it_at_its_end() -> None:
    clients = PerEventLoop(Client, Client.close)

    async def get_twice() -> tuple[Client, Client]:
        return await clients.get(), await clients.get()

    first, second = asyncio.run(get_twice()), asyncio.run(get_twice())
    assert first[0] is first[1]
    assert second[0] is second[1]
    assert first[0] is not second[0]
    assert first[0].is_closed
    assert second[0].is_closed


def test_a_loop_that_has_ended_is_not_kept() -> None:
    clients = PerEventLoop(Client, Client.close)

    async def use() -> "ref[asyncio.AbstractEventLoop]":
        await clients.get()
        return ref(asyncio.get_running_loop())

    loop = asyncio.run(use())
    gc.collect()
    assert loop() is None


async def test_a_closed_client_is_replaced() -> None:
    clients = PerEventLoop(Client, Client.close)
    first = await clients.get()
    await clients.close()
    await clients.close()
    assert first.is_closed
    second = await clients.get()
    assert second is not first
    assert not second.is_closed
    await clients.close()
