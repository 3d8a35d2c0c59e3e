"""The common behaviour of servers: scripts, faults, the record of requests, and disconnected clients."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from tests.loop_clock import LoopClock
from tests.servers import HttpFault, OpenAIServer, ReceivedRequest
from tests.servers.clients import HELLO, official_client, post
from tests.waiting import until

from batonkit.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextTooLongError,
    EmptyResponseError,
    MalformedResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
    SetupError,
)
from batonkit.messages import UserMessage
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedStream, call


async def ask(client: AsyncOpenAI, model: str = "gpt-test", messages: Any = HELLO) -> str | None:
    answer = await client.chat.completions.create(model=model, messages=messages)
    return answer.choices[0].message.content


async def ask_streamed(client: AsyncOpenAI, texts: list[str] | None = None) -> list[str]:
    texts = [] if texts is None else texts
    async for chunk in await client.chat.completions.create(model="gpt-test", messages=HELLO, stream=True):
        texts += [choice.delta.content or "" for choice in chunk.choices]
    return texts


async def test_steps_are_used_in_order_and_requests_are_recorded() -> None:
    async with OpenAIServer(["One.", "Two."]) as server, official_client(server) as client:
        assert [await ask(client), await ask(client)] == ["One.", "Two."]
        server.assert_done()
    first, _ = server.requests
    assert (first.method, first.path, first.model) == ("POST", "/v1/chat/completions", "gpt-test")
    assert first.body == {"model": "gpt-test", "messages": HELLO}
    assert first.headers["Authorization"] == "Bearer test-key"
    assert first.request.messages == (UserMessage("Hello"),)


async def test_a_step_can_be_a_function_of_the_request() -> None:
    def echo(request: ModelRequest) -> str:
        return f"{request.agent}: {request.messages[-1].content} {request.instructions}"

    messages_sent = [{"role": "system", "content": "Be kind."}, *HELLO]
    async with OpenAIServer({"gpt-test": [echo]}) as server, official_client(server) as client:
        assert await ask(client, messages=messages_sent) == "gpt-test: Hello Be kind."


async def test_each_model_has_its_own_steps_and_others_are_unknown() -> None:
    async with (
        OpenAIServer({"small": ["I am small."], "large": ["I am large."]}) as server,
        official_client(server) as client,
    ):
        assert await ask(client, "large") == "I am large."
        assert await ask(client, "small") == "I am small."
        with pytest.raises(openai.NotFoundError) as raised:
            await ask(client, "huge")
    assert raised.value.code == "model_not_found"
    assert [received.model for received in server.rejected] == ["huge"]


async def test_a_function_selects_the_steps() -> None:
    def key_of(received: ReceivedRequest) -> str:
        return "Router" if "routes" in received.request.instructions else "Weather"

    steps = {"Router": ["Routed."], "Weather": ["Sunny."]}
    async with OpenAIServer(steps, by=key_of) as server, official_client(server) as client:
        assert await ask(client) == "Sunny."
        assert await ask(client, messages=[{"role": "system", "content": "It routes."}, *HELLO]) == "Routed."


async def test_unused_steps_are_listed() -> None:
    async with OpenAIServer(["One."]) as server:
        pass
    assert server.remaining == 1
    with pytest.raises(AssertionError, match="step 1: said"):
        server.assert_done()


async def test_a_server_without_unused_steps_responds_with_an_error() -> None:
    async with OpenAIServer([]) as server, official_client(server) as client:
        with pytest.raises(openai.InternalServerError, match="has no step left"):
            await ask(client)


@pytest.mark.parametrize(
    ("step", "status", "code"),
    [
        (AuthenticationError("no"), 401, "invalid_api_key"),
        (ModelNotFoundError("no"), 404, "model_not_found"),
        (ModelRequestError("no"), 400, None),
        (ContextTooLongError("no"), 400, "context_length_exceeded"),
        (ContentFilterError("no"), 400, "content_filter"),
        (RateLimitError("no"), 429, "rate_limit_exceeded"),
        (OverloadedError("no"), 503, "server_is_overloaded"),
        (ModelError("no"), 500, None),
        (HttpFault(529), 529, None),
        (HttpFault(429), 429, "rate_limit_exceeded"),
        (ValueError("no"), 500, None),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_scripted_errors_have_the_providers_status(
    step: Exception, status: int, code: str | None, streams: bool
) -> None:
    async with OpenAIServer([step]) as server:
        body = {"model": "gpt-test", "messages": HELLO, "stream": streams}
        status_received, messages_sent = await post(server, "/v1/chat/completions", body)
    assert (status_received, messages_sent["error"]["code"]) == (status, code)
    (received,) = server.rejected
    assert received.rejection is not None
    assert received.rejection.status == status


async def test_retry_after_is_a_header() -> None:
    fault = HttpFault(503, headers={"retry-after-ms": "40"}, body={"error": {"message": "later"}})
    async with (
        OpenAIServer([RateLimitError("slow down", retry_after=2.5), fault]) as server,
        official_client(server) as client,
    ):
        with pytest.raises(openai.RateLimitError, match="slow down") as limited:
            await ask(client)
        with pytest.raises(openai.InternalServerError, match="later") as down:
            await ask(client)
    assert limited.value.response.headers["retry-after"] == "2.5"
    assert down.value.response.headers["retry-after-ms"] == "40"


async def test_a_connection_can_be_closed_before_or_during_a_response() -> None:
    steps = [ModelConnectionError("cut"), ScriptedStream("Hel", "lo", ModelConnectionError("cut"), "!")]
    async with OpenAIServer(steps) as server, official_client(server) as client:
        with pytest.raises(openai.APIConnectionError):
            await ask(client)
        texts: list[str] = []
        with pytest.raises(openai.APIConnectionError):
            await ask_streamed(client, texts)
    assert texts == ["", "Hel", "lo"]
    assert server.closed == []


async def test_malformed_and_empty_responses_can_be_sent() -> None:
    steps = [
        MalformedResponseError("<html>"),
        ScriptedStream("Hel", MalformedResponseError("{not json")),
        EmptyResponseError(""),
    ]
    async with OpenAIServer([*steps, EmptyResponseError("")]) as server, official_client(server) as client:
        with pytest.raises(ValueError, match="Expecting value"):
            await ask(client)
        with pytest.raises(ValueError, match="Expecting property name"):
            await ask_streamed(client)
        assert await ask_streamed(client) == ["", ""]
        assert await ask(client) == ""


async def test_an_error_in_the_middle_of_a_stream_is_sent() -> None:
    async with (
        OpenAIServer([ScriptedStream("Hel", OverloadedError("too much"))]) as server,
        official_client(server) as client,
    ):
        with pytest.raises(openai.APIError, match="too much"):
            await ask_streamed(client)


async def test_a_stream_can_wait_for_an_event_and_disconnects_are_recorded() -> None:
    never = asyncio.Event()
    async with OpenAIServer([ScriptedStream("Hel", never, "lo")]) as server, official_client(server) as client:
        stream = await client.chat.completions.create(model="gpt-test", messages=HELLO, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content == "Hel":
                break
        assert server.closed == []
        await stream.close()
        disconnected = await server.client_left()
    assert disconnected is server.requests[0]
    assert disconnected.has_left
    assert server.closed == [disconnected]


async def test_chunks_can_be_delayed() -> None:
    loop = asyncio.get_running_loop()
    async with OpenAIServer([ScriptedStream("a", "b", "c")], delay=0.02) as server, official_client(server) as client:
        start = loop.time()
        assert "".join(await ask_streamed(client)) == "abc"
        assert loop.time() - start >= 0.06


async def test_a_request_has_a_repr() -> None:
    async with OpenAIServer([HttpFault(503)]) as server, official_client(server) as client:
        with pytest.raises(openai.InternalServerError):
            await ask(client)
    assert repr(server.requests) == "[Received(POST /v1/chat/completions, gpt-test, 503)]"


async def test_client_left_raises_if_no_client_disconnects() -> None:
    async with OpenAIServer(["Hello."]) as server, official_client(server) as client:
        await ask(client)
        with pytest.raises(AssertionError, match="no client closed"):
            await server.client_left(within=0.01)


async def test_a_timeout_step_never_responds() -> None:
    clock = LoopClock()
    async with OpenAIServer([ModelTimeoutError("slow")]) as server, official_client(server, timeout=600) as client:
        asking = asyncio.create_task(ask(client))
        await until(lambda: server.requests)
        clock.advance(600)
        with pytest.raises(openai.APITimeoutError):
            await asking
        await server.client_left()


async def test_leaving_the_server_stops_its_responses() -> None:
    async with OpenAIServer([ScriptedStream("Hel", asyncio.Event())]) as server, official_client(server) as client:
        stream = await client.chat.completions.create(model="gpt-test", messages=HELLO, stream=True)
        await anext(aiter(stream))
        await server.__aexit__(None, None, None)
        assert server.closed == []


async def test_a_request_beyond_the_context_window_is_refused() -> None:
    async with OpenAIServer(["Hi."], context_window=50) as server, official_client(server) as client:
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(client, messages=[{"role": "user", "content": "word " * 100}])
        assert raised.value.code == "context_length_exceeded"
        assert await ask(client) == "Hi."


async def test_concurrent_clients_are_served() -> None:
    async with (
        OpenAIServer([call("wave"), "Hello."], cycle=True, record=False) as server,
        official_client(server) as client,
    ):
        answers = await asyncio.gather(*[ask(client) for _ in range(40)])
    assert sorted(map(str, answers)) == ["Hello."] * 20 + ["None"] * 20
    assert server.requests == []


async def test_a_server_must_be_entered_exactly_once() -> None:
    server = OpenAIServer(["Hi."])
    with pytest.raises(SetupError, match="async with"):
        _ = server.base_url
    async with server:
        assert server.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(SetupError, match="entered before"):
        await server.__aenter__()
