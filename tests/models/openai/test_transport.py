"""Connections are reused and closed; network failures map to errors."""

import asyncio
import gc
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import pytest
import trustme
from tests.models.openai.raw_server import (
    CUT,
    END,
    HANG,
    STREAM,
    RawServer,
    delta,
    event,
    json_reply,
    read_chunks,
    read_response,
    stream,
)
from tests.waiting import PATIENCE

from batonkit.errors import MalformedResponseError, ModelConnectionError, ModelError, ModelTimeoutError, SetupError
from batonkit.messages import UserMessage
from batonkit.models import Chunk, ModelRequest, ModelSettings, TextChunk
from batonkit.models.openai import OpenAIModel

ASK = ModelRequest([UserMessage("Hello")], settings=ModelSettings(max_retries=0))
ASK_UNSTREAMED = ModelRequest([UserMessage("Hello")], stream=False, settings=ModelSettings(max_retries=0))
HI = json_reply({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]})
ASK_WITH_SHORT_TIMEOUT = ModelRequest([UserMessage("Hello")], settings=ModelSettings(timeout=0.05, max_retries=0))


async def test_consecutive_requests_share_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonkit.models.event_stream.SECONDS_TO_DRAIN", PATIENCE)
    streamed = stream(delta(content="Hi."), delta("stop"), "[DONE]")
    # Here the end of the body arrives after the last event.
    late = [STREAM + event(delta("stop", content="Hi.")) + event("[DONE]"), END]
    async with RawServer(HI, streamed, late, HI) as server:
        model = server.model()
        for request in (ASK_UNSTREAMED, ASK, ASK, ASK_UNSTREAMED):
            assert (await read_response(model, request)).message is not None
        assert server.connections == 1
        await model.aclose()


async def test_reading_stops_after_the_done_event() -> None:
    async with RawServer([STREAM + event(delta("stop", content="Hi.")) + event("[DONE]"), HANG]) as server:
        assert [chunk for chunk in await read_chunks(server.model(), ASK) if type(chunk) is TextChunk] == [
            TextChunk("Hi.")
        ]
        await server.client_disconnected.wait()


async def test_closing_the_iterator_disconnects() -> None:
    async with RawServer([STREAM + event(delta(content="One")), HANG]) as server:
        async with aclosing(cast("AsyncGenerator[Chunk]", server.model().respond(ASK))) as chunks:
            assert await anext(chunks) == TextChunk("One")
        await server.client_disconnected.wait()


async def test_cancelling_before_the_response_disconnects() -> None:
    async with RawServer([HANG]) as server:
        task = asyncio.create_task(read_chunks(server.model(), ASK))
        while not server.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_disconnected.wait()


def test_each_event_loop_has_its_own_connections_and_closes_them() -> None:
    models: list[OpenAIModel] = []

    async def ask() -> None:
        async with RawServer(HI) as server:
            models.append(server.model())
            await read_response(models[-1], ASK_UNSTREAMED)

    async def ask_again() -> None:
        with pytest.raises(ModelConnectionError):
            await read_response(models[0], ASK_UNSTREAMED)

    asyncio.run(ask())
    asyncio.run(ask_again())
    models.clear()
    # An open session would emit a warning here, which fails this test.
    gc.collect()


async def test_an_unreachable_server_raises_a_connection_error() -> None:
    async with RawServer() as server:
        url = server.base_url
    with pytest.raises(ModelConnectionError, match=rf"`openai:m` cannot be reached at {url}") as caught:
        await read_response(OpenAIModel("m", base_url=url), ASK)
    assert caught.value.retryable
    assert caught.value.model == "openai:m"


async def test_a_connection_closed_before_the_response() -> None:
    async with RawServer([CUT]) as server:
        with pytest.raises(ModelConnectionError, match="was closed before the response") as caught:
            await read_response(server.model(), ASK)
    assert caught.value.retryable


@pytest.mark.parametrize("ending", [[CUT], [END]])
async def test_a_connection_closed_in_the_middle_of_a_stream(ending: list[bytes | str]) -> None:
    async with RawServer([STREAM + event(delta(content="One")), *ending]) as server:
        chunks = aiter(server.model().respond(ASK))
        assert await anext(chunks) == TextChunk("One")
        with pytest.raises(ModelConnectionError, match="was closed in the middle of the response") as caught:
            await anext(chunks)
    assert caught.value.retryable


async def test_a_connection_closed_in_the_middle_of_an_unstreamed_response() -> None:
    async with RawServer([HI[:-10], CUT]) as server:
        with pytest.raises(ModelConnectionError):
            await read_response(server.model(), ASK_UNSTREAMED)


@pytest.mark.parametrize("sent", [[], [STREAM + event(delta(content="One"))]])
async def test_silence_beyond_the_timeout_raises_a_timeout_error(sent: list[bytes]) -> None:
    async with RawServer(HI, [*sent, HANG]) as server:
        # This opens the connection, for which the same limit applies.
        await read_response(server.model(), ASK_UNSTREAMED)
        with pytest.raises(ModelTimeoutError, match=r"`openai:gpt-test` sent nothing for 0\.05 s") as caught:
            await read_response(server.model(), ASK_WITH_SHORT_TIMEOUT)
    assert caught.value.retryable


@pytest.mark.parametrize("garbage", ["{", '{"choices": [{"delta": {"content": 7}}]}', "hello", "[1]"])
async def test_an_invalid_event_raises_a_malformed_response_error(garbage: str) -> None:
    async with RawServer(stream(delta(content="One"), garbage)) as server:
        with pytest.raises(MalformedResponseError) as caught:
            await read_response(server.model(), ASK)
    assert caught.value.retryable
    assert "One" not in str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        json_reply(b"<html>Welcome</html>", content_type="text/html"),
        json_reply(b"{}"),
        json_reply(b"[]"),
        json_reply(b"nothing of the kind"),
        json_reply(b"null"),
    ],
)
async def test_an_invalid_body_raises_a_malformed_response_error(reply: bytes) -> None:
    for request in (ASK, ASK_UNSTREAMED):
        async with RawServer(reply) as server:
            with pytest.raises(MalformedResponseError):
                await read_response(server.model(), request)


async def test_streamed_and_unstreamed_bodies_are_recognised_by_content() -> None:
    untyped = json_reply({"choices": [{"message": {"content": "Hi."}}]}, content_type="text/plain")
    async with RawServer(HI, untyped, stream(delta("stop", content="Hi."), "[DONE]")) as server:
        for request in (ASK, ASK, ASK_UNSTREAMED):
            answer = (await read_response(server.model(), request)).message
            assert answer is not None
            assert answer.content == "Hi."


async def test_proxy_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(HI, HI) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"{proxy.base_url.removesuffix('/v1')}")
        await read_response(OpenAIModel("m", base_url="http://model.invalid/v1"), ASK_UNSTREAMED)
        assert proxy.requests[0].path == "http://model.invalid/v1/chat/completions"
        monkeypatch.setenv("NO_PROXY", ".invalid")
        with pytest.raises(ModelConnectionError):
            await read_response(OpenAIModel("m", base_url="http://model.invalid/v1"), ASK_UNSTREAMED)
        assert len(proxy.requests) == 1
        model = OpenAIModel("m", base_url="http://model.invalid/v1", proxy=proxy.base_url)
        await read_response(model, ASK_UNSTREAMED)
        assert len(proxy.requests) == 2


def test_an_unsupported_proxy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(SetupError, match="a socks5 proxy"):
        OpenAIModel("m", base_url="https://model.invalid/v1")


async def test_a_custom_certificate_authority_can_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    identity = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(identity)  # pyright: ignore[reportUnknownMemberType] - it also takes contexts of OpenSSL

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
        writer.write(HI.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=identity)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    with pytest.raises(ModelConnectionError, match="SSL_CERT_FILE") as caught:
        await read_response(OpenAIModel("m", base_url=url), ASK_UNSTREAMED)
    assert not caught.value.retryable
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)  # pyright: ignore[reportUnknownMemberType] - as above
    await read_response(OpenAIModel("m", base_url=url, tls=trusting), ASK_UNSTREAMED)
    with authority.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        await read_response(OpenAIModel("m", base_url=url), ASK_UNSTREAMED)
    server.close()


async def test_errors_name_the_model() -> None:
    async with RawServer(json_reply({"error": {"message": "no"}}, 418)) as server:
        with pytest.raises(ModelError) as caught:
            await read_response(server.model(provider="vllm"), ASK)
    assert caught.value.model == "vllm:gpt-test"
