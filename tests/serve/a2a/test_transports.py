"""gRPC with the same handler, with and without the SDK's servicer, and signed cards."""

from collections.abc import Callable
from typing import Any

import a2a.types.a2a_pb2_grpc as services
import grpc.aio
import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, GetTaskRequest
from a2a.utils.errors import InvalidRequestError
from a2a.utils.signing import ProtectedHeader, create_agent_card_signer, create_signature_verifier
from google.protobuf.json_format import ParseDict
from tests.serve.a2a.clients import COMPLETED, message_request, read_stream, served, task_view, text_in
from tests.sockets import http_client

from batonkit import Agent
from batonkit.serve import BearerAuth
from batonkit.serve.a2a import A2AApp, a2a_app
from batonkit.testing import ScriptedModel

KEY = "k" * 32


def _add_with_sdk(app: A2AApp, server: grpc.aio.Server) -> None:
    generated: Any = services
    generated.add_A2AServiceServicer_to_server(GrpcHandler(app.handler), server)


async def _run_with_grpc(app: A2AApp, add: Callable[[A2AApp, grpc.aio.Server], None] = A2AApp.add_to_grpc) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    add(app, server)
    await server.start()
    try:
        interface = AgentInterface(url=f"127.0.0.1:{port}", protocol_binding="GRPC", protocol_version="1.0")
        card = AgentCard(supported_interfaces=[interface], capabilities=AgentCapabilities(streaming=True))
        config = ClientConfig(supported_protocol_bindings=["GRPC"], grpc_channel_factory=grpc.aio.insecure_channel)
        client = ClientFactory(config).create(card)
        view = task_view(await read_stream(client.send_message(message_request("hi"))))
        task = await client.get_task(GetTaskRequest(id=view.task.id))
        assert (view.states[-1], text_in(task)) == (COMPLETED, "hello there")
        await client.close()
    finally:
        await server.stop(0)
        await app.close()


@pytest.mark.parametrize("add", [A2AApp.add_to_grpc, _add_with_sdk])
async def test_a_task_runs_over_grpc(add: Any) -> None:
    await _run_with_grpc(a2a_app(Agent("A", model=ScriptedModel(["hello there"], stream=True))), add)


@pytest.mark.parametrize("add", [A2AApp.add_to_grpc, _add_with_sdk])
async def test_the_handler_refuses_unauthenticated_calls_of_any_transport(add: Any) -> None:
    with pytest.raises(InvalidRequestError, match="authentication required"):
        await _run_with_grpc(a2a_app(Agent("A", model=ScriptedModel([])), auth=BearerAuth({"t": "ann"})), add)


async def test_a_card_can_be_signed() -> None:
    header: ProtectedHeader = {"alg": "HS256", "kid": "one", "jku": None, "typ": "JOSE"}
    app = a2a_app(Agent("A", model=ScriptedModel([])), sign_card=create_agent_card_signer(KEY, header))
    async with served(app) as url, http_client() as http:
        answer = await http.get(f"{url}/.well-known/agent-card.json")
    card = ParseDict(answer.json(), AgentCard())
    assert len(card.signatures) == 1
    create_signature_verifier(lambda kid, jku: KEY, ["HS256"])(card)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "application/a2a+json"),
        ("*/*", "application/a2a+json"),
        ("application/*", "application/a2a+json"),
        ("application/json", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("application/json, application/a2a+json", "application/a2a+json"),
        ("application/json, application/a2a+json;q=0.5", "application/json"),
        ("application/a2a+json;q=0.9, application/json;q=0.5", "application/a2a+json"),
        ("application/json, */*;q=0.1", "application/json"),
        ("application/json;q=0, */*", "application/a2a+json"),
        ("text/html", "application/a2a+json"),
        (";;q=x,,", "application/a2a+json"),
    ],
)
async def test_rest_responses_have_the_media_type_that_the_client_accepts(accept: str | None, media_type: str) -> None:
    app = a2a_app(Agent("A", model=ScriptedModel([])))
    transport = httpx.ASGITransport(app)
    async with http_client(base_url="http://localhost", transport=transport) as http:
        http.headers["A2A-Version"] = "1.0"
        del http.headers["accept"]
        headers = {} if accept is None else {"Accept": accept}
        response = await http.get("/tasks", headers=headers)
        assert (response.status_code, response.headers["content-type"]) == (200, media_type)
        assert response.headers["vary"] == "Accept"
    await app.close()
