"""Faulty services, and services that speak gRPC only."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.ports import reserved_port
from tests.serve.a2a.clients import served

from batonkit import Agent, Runner, agent, tool
from batonkit.a2a import RemoteAgent
from batonkit.agents import AgentContext
from batonkit.errors import RemoteError, RemoteUnavailableError, SetupError
from batonkit.log import TextDelta
from batonkit.serve.a2a import a2a_app
from batonkit.testing import ScriptedModel, ScriptedStream, call


def _card(url: str, binding: str, *, streams: bool = True) -> AgentCard:
    card = AgentCard(name="There", capabilities=AgentCapabilities(streaming=streams))
    card.supported_interfaces.add(url=url, protocol_binding=binding, protocol_version="1.0")
    return card


async def _failure(remote: RemoteAgent) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        await Runner(remote).run("hi")
    await remote.close()
    return caught.value


def _rpc(result: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result})


_BODIES = [
    "this is not JSON",
    "[]",
    "null",
    "{}",
    json.dumps({"jsonrpc": "2.0", "id": 1, "error": "no"}),
    _rpc(5),
    _rpc({}),
    _rpc({"task": {"status": "nonsense"}}),
    _rpc({"task": {"id": 5}}),
    _rpc({"task": {"status": {"state": "TASK_STATE_WORKING"}}}),
    _rpc({"message": {"parts": "none"}}),
    "[" * 100_000,
]


@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_malformed_response_is_a_remote_error(binding: str, media_type: str) -> None:
    is_stream, body = media_type == "text/event-stream", ""

    async def respond(request: Request) -> Response:
        return Response(f"data: {body}\n\n" if is_stream else body, media_type=media_type)

    app = Starlette(routes=[Route("/{path:path}", respond, methods=["GET", "POST"])])
    async with served(app) as url:
        for response in _BODIES:
            has_result = '"result"' in response and binding == "HTTP+JSON"
            body = json.dumps(json.loads(response)["result"]) if has_result else response
            error = await _failure(RemoteAgent(_card(url, binding, streams=is_stream)))
            assert (type(error), "invalid response" in error.reason) == (RemoteError, True), body[:80]


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ("not JSON", "agent card"),
        ("[]", "agent card"),
        ("{}", "no interfaces"),
        ('{"supportedInterfaces": [{"url": "http://x", "protocolBinding": "SMOKE"}]}', "SMOKE"),
        ('{"supportedInterfaces": [{"url": "http://x:y", "protocolBinding": "JSONRPC"}]}', "invalid response"),
        ('{"supportedInterfaces": [{"url": "ftp://x", "protocolBinding": "JSONRPC"}]}', "invalid response"),
        ('{"supportedInterfaces": [{"url": "http://[x", "protocolBinding": "GRPC"}]}', "not a gRPC address"),
    ],
)
async def test_an_unusable_card_is_a_remote_error(card: str, message: str) -> None:
    async def respond(request: Request) -> Response:
        return Response(card, media_type="application/json")

    async with served(Starlette(routes=[Route("/{path:path}", respond)])) as url:
        error = await _failure(RemoteAgent(url, name="There"))
        assert type(error) is RemoteError
        assert message in error.reason
        if "invalid response" not in message:
            with pytest.raises(SetupError, match=message):
                await RemoteAgent.discover(url)


@pytest.mark.parametrize(("status", "kind"), [(401, RemoteError), (400, RemoteError), (503, RemoteUnavailableError)])
async def test_a_refused_request_is_told_from_a_service_that_is_away(status: int, kind: type[RemoteError]) -> None:
    async def respond(request: Request) -> Response:
        return Response("no", status_code=status)

    app = Starlette(routes=[Route("/{path:path}", respond, methods=["GET", "POST"])])
    async with served(app) as url:
        error = await _failure(RemoteAgent(_card(url, "JSONRPC"), unavailable_timeout=0.3))
    assert type(error) is kind
    assert f"{'unavailable' if status == 503 else 'refused the request'}: HTTP Error {status}" in error.reason


def test_a_url_that_is_none_is_refused() -> None:
    for url in ("http://[x", "http://", "httpx://x"):
        with pytest.raises(SetupError, match="needs the URL of a service"):
            RemoteAgent(url)


@asynccontextmanager
async def _served_over_grpc(served_agent: Any, port: int = 0, **options: Any) -> AsyncGenerator[str]:
    server = grpc.aio.server()
    app = a2a_app(served_agent, **options)
    app.add_to_grpc(server)
    address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    await server.start()
    try:
        yield address
    finally:
        await server.stop(0)
        await app.close()


@pytest.mark.parametrize("streams", [True, False])
async def test_a_grpc_service_answers(streams: bool) -> None:
    gate = asyncio.Event()
    if not streams:
        gate.set()
    model = ScriptedModel([ScriptedStream("It is ", gate, "sunny.")])
    async with _served_over_grpc(Agent("Weather", model=model)) as address:
        remote = RemoteAgent(_card(address, "GRPC", streams=streams), description="Weather.")
        heard: list[str] = []
        async with Runner(remote).stream("How is Rome?") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    heard.append(event.text)
                    gate.set()
        assert run.result.output == "".join(heard) == "It is sunny."
        await remote.close()


@tool(needs_approval=True)
async def send_alert(city: str) -> str:
    """Send a storm warning."""
    return f"sent to {city}"


async def test_a_grpc_service_asks_fails_and_can_be_cancelled() -> None:
    begun = asyncio.Event()

    @agent("Slow", description="Takes its time.")
    async def slow(ctx: AgentContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    model = ScriptedModel([call("send_alert", city="Rome"), "Sent."])
    async with _served_over_grpc(Agent("Alerts", tools=[send_alert], model=model)) as address:
        remote = RemoteAgent(_card(f"grpc://{address}", "GRPC"))
        runner = Runner(remote)
        asked = await runner.run("Warn Rome.")
        assert (await runner.resume(asked.run_id, True)).output == "Sent."
        with pytest.raises(RemoteError, match="the task is failed"):
            await runner.run("And now there is no answer left.")
        await remote.close()
    async with _served_over_grpc(slow) as address:
        remote = RemoteAgent(_card(f"http://{address}", "GRPC"))
        async with Runner(remote).stream("go") as run:
            await begun.wait()
            await run.cancel()
        assert run.result.status == "cancelled"
        await remote.close()


async def test_credentials_are_metadata_of_grpc_calls() -> None:
    async with _served_over_grpc(Agent("A", model=ScriptedModel(["hello"])), auth="s3cret") as address:
        remote = RemoteAgent(_card(address, "GRPC"), auth="s3cret", trusted_origins=[address])
        assert (await Runner(remote).run("hi")).output == "hello"
        await remote.close()
        wrong = RemoteAgent(_card(address, "GRPC"), auth="wrong", trusted_origins=[address])
        assert type(await _failure(wrong)) is RemoteError


async def test_a_grpc_service_that_is_away_is_waited_for() -> None:
    with reserved_port() as port:
        away = RemoteAgent(_card(f"127.0.0.1:{port}", "GRPC"), unavailable_timeout=0.3)
        assert type(await _failure(away)) is RemoteUnavailableError
        remote = RemoteAgent(_card(f"127.0.0.1:{port}", "GRPC"))
        async with _hanging_up(port) as has_hung_up:
            running = asyncio.create_task(Runner(remote).run("hi"))
            await has_hung_up.wait()
        async with _served_over_grpc(Agent("A", model=ScriptedModel(["hello"])), port):
            assert (await running).output == "hello"
            await remote.close()


@asynccontextmanager
async def _hanging_up(port: int) -> AsyncGenerator[asyncio.Event]:
    """Close every connection to a port; yields an event that is set after the first."""
    has_hung_up = asyncio.Event()

    def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        has_hung_up.set()

    async with await asyncio.start_server(hang_up, "127.0.0.1", port):
        yield has_hung_up


async def test_http_is_used_if_the_card_offers_both() -> None:
    model = ScriptedModel(["hello"])
    with reserved_port() as port:
        app = a2a_app(Agent("A", model=model), grpc_url=f"127.0.0.1:{port}")
    async with served(app) as url:
        remote = await RemoteAgent.discover(url)
        assert (await Runner(remote).run("hi")).output == "hello"
        await remote.close()


async def test_grpc_without_grpcio_is_an_error_that_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    error = await _failure(RemoteAgent(_card("127.0.0.1:1", "GRPC")))
    assert "pip install 'a2a-sdk[grpc]'" in error.reason


async def test_a_stream_may_begin_with_an_update_instead_of_the_task() -> None:
    status = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
    artifact = {"artifactId": "a", "parts": [{"text": "done"}]}
    updates = [
        {"statusUpdate": status},
        {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact}},
        {"statusUpdate": {**status, "status": {"state": "TASK_STATE_COMPLETED"}}},
    ]

    async def respond(request: Request) -> Response:
        lines = [f"data: {_rpc(update)}\n\n" for update in updates]
        return Response("".join(lines), media_type="text/event-stream")

    async with served(Starlette(routes=[Route("/", respond, methods=["POST"])])) as url:
        remote = RemoteAgent(_card(url, "JSONRPC"))
        result = await Runner(remote).run("hi")
        assert result.output == "done"
        assert result.values["thread:a2a:There"]["context"] == "c"
        await remote.close()


async def test_a_stream_that_ends_after_a_long_silence_is_opened_again() -> None:
    def task(state: str) -> Any:
        return {"task": {"id": "t", "contextId": "c", "status": {"state": state}}}

    completed = task("TASK_STATE_COMPLETED")
    completed["task"]["artifacts"] = [{"artifactId": "a", "parts": [{"text": "done"}]}]
    responses = [f"data: {_rpc(task('TASK_STATE_WORKING'))}\n\n", "", f"data: {_rpc(completed)}\n\n"]

    async def respond(request: Request) -> Response:
        content = responses.pop(0)
        return Response(content, status_code=200 if content else 503, media_type="text/event-stream")

    async with served(Starlette(routes=[Route("/", respond, methods=["POST"])])) as url:
        # Any silence is longer than this, but the service is unavailable only from its first failure on.
        remote = RemoteAgent(_card(url, "JSONRPC"), unavailable_timeout=1e-6)
        assert (await Runner(remote).run("hi")).output == "done"
        await remote.close()
