"""What all servers have in common: scripts, faults, the record of requests, and who left."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from tests.servers import HttpFault, OpenAIServer, ReceivedRequest
from tests.servers.clients import HELLO, official, posted

from baton.errors import (
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
from baton.messages import UserMessage
from baton.models import ModelRequest
from baton.testing import ScriptedStream, call


async def said(client: AsyncOpenAI, model: str = "gpt-test", messages: Any = HELLO) -> str | None:
    answer = await client.chat.completions.create(model=model, messages=messages)
    return answer.choices[0].message.content


async def streamed(client: AsyncOpenAI, pieces: list[str] | None = None) -> list[str]:
    pieces = [] if pieces is None else pieces
    async for chunk in await client.chat.completions.create(model="gpt-test", messages=HELLO, stream=True):
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    return pieces


async def test_steps_are_played_in_order_and_requests_are_kept() -> None:
    async with OpenAIServer(["One.", "Two."]) as server, official(server) as client:
        assert [await said(client), await said(client)] == ["One.", "Two."]
        server.assert_done()
    first, _ = server.requests
    assert (first.method, first.path, first.model) == ("POST", "/v1/chat/completions", "gpt-test")
    assert first.body == {"model": "gpt-test", "messages": HELLO}
    assert first.headers["Authorization"] == "Bearer test-key"
    assert first.request.messages == (UserMessage("Hello"),)


async def test_a_function_of_the_request_reads_the_same_request_as_with_a_scripted_model() -> None:
    def echo(request: ModelRequest) -> str:
        return f"{request.agent}: {request.messages[-1].content} {request.instructions}"

    told = [{"role": "system", "content": "Be kind."}, *HELLO]
    async with OpenAIServer({"gpt-test": [echo]}) as server, official(server) as client:
        assert await said(client, messages=told) == "gpt-test: Hello Be kind."


async def test_each_model_has_steps_of_its_own_and_others_do_not_exist() -> None:
    async with OpenAIServer({"small": ["I am small."], "large": ["I am large."]}) as server, official(server) as client:
        assert await said(client, "large") == "I am large."
        assert await said(client, "small") == "I am small."
        with pytest.raises(openai.NotFoundError) as raised:
            await said(client, "huge")
    assert raised.value.code == "model_not_found"
    assert [received.model for received in server.rejected] == ["huge"]


async def test_a_function_chooses_whose_steps_are_played() -> None:
    def who(received: ReceivedRequest) -> str:
        return "Router" if "routes" in received.request.instructions else "Weather"

    steps = {"Router": ["Routed."], "Weather": ["Sunny."]}
    async with OpenAIServer(steps, by=who) as server, official(server) as client:
        assert await said(client) == "Sunny."
        assert await said(client, messages=[{"role": "system", "content": "It routes."}, *HELLO]) == "Routed."


async def test_steps_that_are_left_are_named() -> None:
    async with OpenAIServer(["One."]) as server:
        pass
    assert server.remaining == 1
    with pytest.raises(AssertionError, match="step 1: said"):
        server.assert_done()


async def test_a_server_without_steps_left_says_who_asked() -> None:
    async with OpenAIServer([]) as server, official(server) as client:
        with pytest.raises(openai.InternalServerError, match="has no step left"):
            await said(client)


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
async def test_a_scripted_error_has_the_status_that_says_so(
    step: Exception, status: int, code: str | None, streams: bool
) -> None:
    async with OpenAIServer([step]) as server:
        body = {"model": "gpt-test", "messages": HELLO, "stream": streams}
        answered, told = await posted(server, "/v1/chat/completions", body)
    assert (answered, told["error"]["code"]) == (status, code)
    (received,) = server.rejected
    assert received.rejection is not None
    assert received.rejection.status == status


async def test_when_to_come_again_is_a_header() -> None:
    fault = HttpFault(503, headers={"retry-after-ms": "40"}, body={"error": {"message": "later"}})
    async with (
        OpenAIServer([RateLimitError("slow down", retry_after=2.5), fault]) as server,
        official(server) as client,
    ):
        with pytest.raises(openai.RateLimitError, match="slow down") as limited:
            await said(client)
        with pytest.raises(openai.InternalServerError, match="later") as down:
            await said(client)
    assert limited.value.response.headers["retry-after"] == "2.5"
    assert down.value.response.headers["retry-after-ms"] == "40"


async def test_a_connection_is_cut_before_or_in_the_middle_of_an_answer() -> None:
    steps = [ModelConnectionError("cut"), ScriptedStream("Hel", "lo", ModelConnectionError("cut"), "!")]
    async with OpenAIServer(steps) as server, official(server) as client:
        with pytest.raises(openai.APIConnectionError):
            await said(client)
        pieces: list[str] = []
        with pytest.raises(openai.APIConnectionError):
            await streamed(client, pieces)
    assert pieces == ["", "Hel", "lo"]
    assert server.closed == []


async def test_garbage_and_nothing_at_all_can_be_sent() -> None:
    steps = [
        MalformedResponseError("<html>"),
        ScriptedStream("Hel", MalformedResponseError("{not json")),
        EmptyResponseError(""),
    ]
    async with OpenAIServer([*steps, EmptyResponseError("")]) as server, official(server) as client:
        with pytest.raises(ValueError, match="Expecting value"):
            await said(client)
        with pytest.raises(ValueError, match="Expecting property name"):
            await streamed(client)
        assert await streamed(client) == ["", ""]
        assert await said(client) == ""


async def test_an_error_in_the_middle_of_an_answer_is_told_there() -> None:
    async with OpenAIServer([ScriptedStream("Hel", OverloadedError("too much"))]) as server, official(server) as client:
        with pytest.raises(openai.APIError, match="too much"):
            await streamed(client)


async def test_an_answer_waits_for_an_event_and_a_client_that_leaves_is_noticed() -> None:
    never = asyncio.Event()
    async with OpenAIServer([ScriptedStream("Hel", never, "lo")]) as server, official(server) as client:
        stream = await client.chat.completions.create(model="gpt-test", messages=HELLO, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content == "Hel":
                break
        assert server.closed == []
        await stream.close()
        left = await server.client_left(within=10)
    assert left is server.requests[0]
    assert left.has_left
    assert server.closed == [left]


async def test_pieces_can_take_their_time() -> None:
    loop = asyncio.get_running_loop()
    async with OpenAIServer([ScriptedStream("a", "b", "c")], delay=0.02) as server, official(server) as client:
        begun = loop.time()
        assert "".join(await streamed(client)) == "abc"
        assert loop.time() - begun >= 0.06


async def test_a_request_can_be_shown() -> None:
    async with OpenAIServer([HttpFault(503)]) as server, official(server) as client:
        with pytest.raises(openai.InternalServerError):
            await said(client)
    assert repr(server.requests) == "[Received(POST /v1/chat/completions, gpt-test, 503)]"


async def test_nobody_left_is_an_assertion() -> None:
    async with OpenAIServer(["Hello."]) as server, official(server) as client:
        await said(client)
        with pytest.raises(AssertionError, match="no client closed"):
            await server.client_left(within=0.01)


async def test_a_model_that_never_answers_outlasts_its_client() -> None:
    async with OpenAIServer([ModelTimeoutError("slow")]) as server, official(server, timeout=0.05) as client:
        with pytest.raises(openai.APITimeoutError):
            await said(client)
        await server.client_left(within=10)


async def test_a_server_that_is_left_stops_its_answers() -> None:
    async with OpenAIServer([ScriptedStream("Hel", asyncio.Event())]) as server, official(server) as client:
        stream = await client.chat.completions.create(model="gpt-test", messages=HELLO, stream=True)
        await anext(aiter(stream))
        await asyncio.wait_for(server.__aexit__(None, None, None), 30)
        assert server.closed == []


async def test_a_conversation_that_is_too_long_is_refused() -> None:
    async with OpenAIServer(["Hi."], context_window=50) as server, official(server) as client:
        with pytest.raises(openai.BadRequestError) as raised:
            await said(client, messages=[{"role": "user", "content": "word " * 100}])
        assert raised.value.code == "context_length_exceeded"
        assert await said(client) == "Hi."


async def test_many_clients_are_served_at_once() -> None:
    async with OpenAIServer([call("wave"), "Hello."], cycle=True, record=False) as server, official(server) as client:
        answers = await asyncio.gather(*[said(client) for _ in range(40)])
    assert sorted(map(str, answers)) == ["Hello."] * 20 + ["None"] * 20
    assert server.requests == []


async def test_a_server_has_no_address_before_it_is_entered_and_is_entered_once() -> None:
    server = OpenAIServer(["Hi."])
    with pytest.raises(SetupError, match="async with"):
        _ = server.base_url
    async with server:
        assert server.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(SetupError, match="entered before"):
        await server.__aenter__()
