"""Checks of stores: messages between processes."""

import asyncio
from collections.abc import AsyncIterator, Callable

from .store_checks import StoreWithChannel, channel_check, expect_same, opened

PATIENCE = 60.0


@channel_check.opening
async def messages_reach_every_listener(open: Callable[[], StoreWithChannel]) -> None:
    """Messages reach all stores that listen, the sender too, in the order of sending."""
    async with opened(open) as store, opened(open) as other:
        listeners = [one.listen() for one in (store, other)]
        for messages in listeners:
            expect_same(await _next(messages), "", "the first item of a listener")
        await store.publish(["one", "日本語 🏃"])
        await other.publish(["three"])
        for messages in listeners:
            received = [await _next(messages) for _ in range(3)]
            expect_same(received, ["one", "日本語 🏃", "three"], "the messages that a listener received")


async def _next(messages: AsyncIterator[str]) -> str:
    async with asyncio.timeout(PATIENCE):
        return await anext(messages)
