"""Fixtures: each test that takes `backend` runs with the scripted and the websocket backend."""

from collections.abc import AsyncIterator

import pytest
from tests.realtime.backends import Backend, ScriptedBackend, WebSocketBackend


@pytest.fixture(params=["scripted", "websocket"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """Return the scripted backend, then the websocket backend."""
    backend: Backend = ScriptedBackend() if request.param == "scripted" else WebSocketBackend()
    yield backend
    await backend.close()


@pytest.fixture
async def websocket_backend() -> AsyncIterator[WebSocketBackend]:
    """Return a websocket backend."""
    backend = WebSocketBackend()
    yield backend
    await backend.close()


@pytest.fixture
async def scripted_backend() -> AsyncIterator[ScriptedBackend]:
    """Return a scripted backend."""
    backend = ScriptedBackend()
    yield backend
    await backend.close()
