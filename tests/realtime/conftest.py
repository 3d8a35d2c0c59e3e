"""Every test of a conversation that wants a stage is played on both."""

from collections.abc import AsyncIterator

import pytest
from tests.realtime.stages import InMemory, OverTheWire, Stage


@pytest.fixture(params=["in memory", "over the wire"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """A provider in memory, then a server behind a websocket."""
    there: Stage = InMemory() if request.param == "in memory" else OverTheWire()
    yield there
    await there.close()


@pytest.fixture
async def wire() -> AsyncIterator[OverTheWire]:
    """A server behind a websocket."""
    there = OverTheWire()
    yield there
    await there.close()


@pytest.fixture
async def scripted() -> AsyncIterator[InMemory]:
    """A provider in memory."""
    there = InMemory()
    yield there
    await there.close()
