"""A fixture that serves the system under test with each binding."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import grpc.aio
import pytest
from tests.serve.a2a.bindings import BINDINGS, GrpcClient, JsonRpcClient, RestClient, ServiceUnderTest
from tests.serve.a2a.sut import serve_sut
from tests.sockets import http_client


@pytest.fixture(params=BINDINGS)
async def service(request: pytest.FixtureRequest) -> AsyncGenerator[ServiceUnderTest]:
    async with AsyncExitStack() as stack:
        endpoints = await stack.enter_async_context(serve_sut())
        if request.param == "grpc":
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(endpoints.grpc))
            yield ServiceUnderTest(GrpcClient(endpoints, channel), endpoints, "grpc")
            return
        http = await stack.enter_async_context(http_client())
        client = JsonRpcClient(endpoints, http) if request.param == "jsonrpc" else RestClient(endpoints, http)
        yield ServiceUnderTest(client, endpoints, request.param)
