"""Checks of stores: messages between processes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from .store_checks import StoreWithChannel, channel_check, expect_same, opened

PATIENCE = 60.0


@channel_check.opening
async def messages_reach_every_listener(open: Callable[[], StoreWithChannel]) -> None:
    """Messages reach all stores that listen, the sender too, in the order of sending."""
    async with opened(open) as store, opened(open) as other, _listening(store) as mine, _listening(other) as others:
        await store.publish(["one", "日本語 🏃"])
        await other.publish(["three"])
        for messages in (mine, others):
            received = [await _next(messages) for _ in range(3)]
            expect_same(received, ["one", "日本語 🏃", "three"], "the messages that a listener received")


@asynccontextmanager
async def _listening(store: StoreWithChannel) -> AsyncGenerator[AsyncIterator[str]]:
    messages = store.listen()
    try:
        expect_same(await _next(messages), "", "the first item of a listener")
        yield messages
    finally:
        if isinstance(messages, AsyncGenerator):
            await messages.aclose()


async def _next(messages: AsyncIterator[str]) -> str:
    async with asyncio.timeout(PATIENCE):
        return await anext(messages)
