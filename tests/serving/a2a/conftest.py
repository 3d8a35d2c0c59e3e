"""The system under test at the other end of each binding."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import grpc.aio
import httpx
import pytest
from tests.serving.a2a.sut import served_sut
from tests.serving.a2a.wires import BINDINGS, GrpcWire, JsonRpcWire, Line, RestWire


@pytest.fixture(params=BINDINGS)
async def line(request: pytest.FixtureRequest) -> AsyncGenerator[Line]:
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(served_sut(delay=0.5))
        if request.param == "grpc":
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(place.grpc))
            yield Line(GrpcWire(place, channel), place, "grpc")
            return
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=60))
        wire = JsonRpcWire(place, http) if request.param == "jsonrpc" else RestWire(place, http)
        yield Line(wire, place, request.param)
