"""Fixtures: each test that takes `backend` runs in memory and over a websocket."""

from collections.abc import AsyncIterator

import pytest
from tests.realtime.backends import Backend, InMemory, OverTheWire


@pytest.fixture(params=["in memory", "over the wire"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """A provider in memory, then a server behind a websocket."""
    backend: Backend = InMemory() if request.param == "in memory" else OverTheWire()
    yield backend
    await backend.close()


@pytest.fixture
async def wire() -> AsyncIterator[OverTheWire]:
    """A server behind a websocket."""
    backend = OverTheWire()
    yield backend
    await backend.close()


@pytest.fixture
async def scripted() -> AsyncIterator[InMemory]:
    """A provider in memory."""
    backend = InMemory()
    yield backend
    await backend.close()
