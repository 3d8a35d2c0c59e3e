"""Connections: kept, shared, closed at once; and what breaks on the way."""

import asyncio
import gc
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import pytest
import trustme
from tests.models.openai.raw import CUT, END, HANG, STREAM, RawServer, answered, delta, event, heard, stream, whole

from baton.errors import MalformedResponseError, ModelConnectionError, ModelError, ModelTimeoutError, SetupError
from baton.messages import UserMessage
from baton.models import Chunk, ModelRequest, ModelSettings, TextChunk
from baton.models.openai import OpenAIModel

ASK = ModelRequest([UserMessage("Hello")])
ASK_WHOLE = ModelRequest([UserMessage("Hello")], stream=False)
HI = whole({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]})
PATIENT_FOR_A_MOMENT = ModelRequest([UserMessage("Hello")], settings=ModelSettings(timeout=0.05))


async def test_one_connection_serves_one_request_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.models.openai.transport.SECONDS_TO_DRAIN", 20)
    streamed = stream(delta(content="Hi."), delta("stop"), "[DONE]")
    # The end of the body comes later than the last event here.
    late = [STREAM + event(delta("stop", content="Hi.")) + event("[DONE]"), END]
    async with RawServer(HI, streamed, late, HI) as server:
        model = server.model()
        for request in (ASK_WHOLE, ASK, ASK, ASK_WHOLE):
            assert (await answered(model, request)).message is not None
        assert server.connections == 1
        await model.aclose()


async def test_what_a_server_sends_after_the_end_is_not_waited_for() -> None:
    async with RawServer([STREAM + event(delta("stop", content="Hi.")) + event("[DONE]"), HANG]) as server:
        assert [chunk for chunk in await heard(server.model(), ASK) if type(chunk) is TextChunk] == [TextChunk("Hi.")]
        await asyncio.wait_for(server.left.wait(), 60)


async def test_closing_the_iterator_closes_the_stream() -> None:
    async with RawServer([STREAM + event(delta(content="One")), HANG]) as server:
        async with aclosing(cast("AsyncGenerator[Chunk]", server.model().respond(ASK))) as chunks:
            assert await anext(chunks) == TextChunk("One")
        await asyncio.wait_for(server.left.wait(), 60)


async def test_cancelling_closes_the_connection_also_before_an_answer() -> None:
    async with RawServer([HANG]) as server:
        task = asyncio.create_task(heard(server.model(), ASK))
        while not server.asked:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 60)


def test_every_event_loop_has_connections_of_its_own_and_closes_them() -> None:
    models: list[OpenAIModel] = []

    async def ask() -> None:
        async with RawServer(HI) as server:
            models.append(server.model())
            await answered(models[-1], ASK_WHOLE)

    async def ask_again() -> None:
        with pytest.raises(ModelConnectionError):
            await answered(models[0], ASK_WHOLE)

    asyncio.run(ask())
    asyncio.run(ask_again())
    models.clear()
    # An open session would complain here, and a complaint fails this test.
    gc.collect()


async def test_nobody_is_there() -> None:
    async with RawServer() as server:
        url = server.base_url
    with pytest.raises(ModelConnectionError, match=rf"`openai:m` cannot be reached at {url}") as caught:
        await answered(OpenAIModel("m", base_url=url), ASK)
    assert caught.value.retryable
    assert caught.value.model == "openai:m"


async def test_a_connection_cut_before_the_answer() -> None:
    async with RawServer([CUT]) as server:
        with pytest.raises(ModelConnectionError, match="was closed before the response") as caught:
            await answered(server.model(), ASK)
    assert caught.value.retryable


@pytest.mark.parametrize("ending", [[CUT], [END]])
async def test_a_connection_cut_in_the_middle(ending: list[bytes | str]) -> None:
    async with RawServer([STREAM + event(delta(content="One")), *ending]) as server:
        chunks = aiter(server.model().respond(ASK))
        assert await anext(chunks) == TextChunk("One")
        with pytest.raises(ModelConnectionError, match="was closed in the middle of the response") as caught:
            await anext(chunks)
    assert caught.value.retryable


async def test_a_whole_answer_cut_in_the_middle() -> None:
    async with RawServer([HI[:-10], CUT]) as server:
        with pytest.raises(ModelConnectionError):
            await answered(server.model(), ASK_WHOLE)


@pytest.mark.parametrize("sent", [[], [STREAM + event(delta(content="One"))]])
async def test_nothing_comes_within_the_time_allowed(sent: list[bytes]) -> None:
    async with RawServer([*sent, HANG]) as server:
        with pytest.raises(ModelTimeoutError, match=r"`openai:gpt-test` sent nothing for 0\.05 s") as caught:
            await answered(server.model(), PATIENT_FOR_A_MOMENT)
    assert caught.value.retryable


@pytest.mark.parametrize("garbage", ["{", '{"choices": [{"delta": {"content": 7}}]}', "hello", "[1]"])
async def test_an_event_that_cannot_be_read(garbage: str) -> None:
    async with RawServer(stream(delta(content="One"), garbage)) as server:
        with pytest.raises(MalformedResponseError) as caught:
            await answered(server.model(), ASK)
    assert caught.value.retryable
    assert "One" not in str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        whole(b"<html>Welcome</html>", content_type="text/html"),
        whole(b"{}"),
        whole(b"[]"),
        whole(b"nothing of the kind"),
        whole(b"null"),
    ],
)
async def test_an_answer_that_is_none(reply: bytes) -> None:
    for request in (ASK, ASK_WHOLE):
        async with RawServer(reply) as server:
            with pytest.raises(MalformedResponseError):
                await answered(server.model(), request)


async def test_what_came_counts_and_not_what_was_asked_for() -> None:
    untyped = whole({"choices": [{"message": {"content": "Hi."}}]}, content_type="text/plain")
    async with RawServer(HI, untyped, stream(delta("stop", content="Hi."), "[DONE]")) as server:
        for request in (ASK, ASK, ASK_WHOLE):
            answer = (await answered(server.model(), request)).message
            assert answer is not None
            assert answer.content == "Hi."


async def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(HI, HI) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"{proxy.base_url.removesuffix('/v1')}")
        await answered(OpenAIModel("m", base_url="http://model.invalid/v1"), ASK_WHOLE)
        assert proxy.asked[0].path == "http://model.invalid/v1/chat/completions"
        monkeypatch.setenv("NO_PROXY", ".invalid")
        with pytest.raises(ModelConnectionError):
            await answered(OpenAIModel("m", base_url="http://model.invalid/v1"), ASK_WHOLE)
        assert len(proxy.asked) == 1
        model = OpenAIModel("m", base_url="http://model.invalid/v1", proxy=proxy.base_url)
        await answered(model, ASK_WHOLE)
        assert len(proxy.asked) == 2


def test_a_proxy_of_an_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(SetupError, match="a socks5 proxy"):
        OpenAIModel("m", base_url="https://model.invalid/v1")


async def test_a_certificate_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
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
        await answered(OpenAIModel("m", base_url=url), ASK_WHOLE)
    assert not caught.value.retryable
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)  # pyright: ignore[reportUnknownMemberType] - as above
    await answered(OpenAIModel("m", base_url=url, tls=trusting), ASK_WHOLE)
    with authority.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        await answered(OpenAIModel("m", base_url=url), ASK_WHOLE)
    server.close()


async def test_errors_name_the_model() -> None:
    async with RawServer(whole({"error": {"message": "no"}}, 418)) as server:
        with pytest.raises(ModelError) as caught:
            await answered(server.model(provider="vllm"), ASK)
    assert caught.value.model == "vllm:gpt-test"
