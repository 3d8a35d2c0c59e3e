"""Provider errors are mapped to Baton's errors."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from tests.models.openai.raw_server import RawServer, delta, json_reply, read_response, stream

from batonkit import FallbackModel, RetryModel
from batonkit.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextTooLongError,
    EmptyResponseError,
    ModelConnectionError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    ModelTimeoutError,
    OverloadedError,
    RateLimitError,
)
from batonkit.messages import UserMessage
from batonkit.models import Chunk, ModelRequest, ModelSettings, TextChunk
from batonkit.testing import ScriptedModel

ASK = ModelRequest([UserMessage("Hello")], settings=ModelSettings(max_retries=0))
HI = stream(delta(content="Hi."), delta("stop"), "[DONE]")


def _error(message: str = "Because.", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}}


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (401, _error("Incorrect API key provided", code="invalid_api_key"), AuthenticationError, False),
        (403, _error("Country not supported"), AuthenticationError, False),
        (404, _error("The model `x` does not exist", code="model_not_found"), ModelNotFoundError, False),
        (404, {"error": {"code": "DeploymentNotFound", "message": "no"}}, ModelNotFoundError, False),
        (404, {"error": "model 'x' not found, try pulling it first"}, ModelNotFoundError, False),
        (404, {"object": "error", "message": "The model `x` does not exist.", "code": 404}, ModelNotFoundError, False),
        (400, _error("Model Not Exist"), ModelNotFoundError, False),
        (404, {"detail": "Not Found"}, ModelRequestError, False),
        (400, _error("Too long", code="context_length_exceeded"), ContextTooLongError, False),
        (400, _error("This model's maximum context length is 8192 tokens."), ContextTooLongError, False),
        (400, _error("Range of input length should be [1, 6000]"), ContextTooLongError, False),
        (400, _error("filtered", code="content_filter"), ContentFilterError, False),
        (400, _error("inappropriate", code="data_inspection_failed"), ContentFilterError, False),
        (400, _error("Unknown parameter: 'x'"), ModelRequestError, False),
        (422, {"detail": [{"loc": ["body"], "msg": "wrong"}]}, ModelRequestError, False),
        (429, _error("Slow down", code="rate_limit_exceeded"), RateLimitError, True),
        (429, _error("You exceeded your current quota", code="insufficient_quota"), RateLimitError, False),
        (402, _error("Insufficient Balance"), RateLimitError, False),
        (408, _error("timeout"), ModelTimeoutError, True),
        (409, _error("conflict"), OverloadedError, True),
        (500, _error("The server had an error", type="server_error"), OverloadedError, True),
        (503, b"upstream connect error", OverloadedError, True),
        (529, b"", OverloadedError, True),
        (502, b"<html>Bad gateway</html>", OverloadedError, True),
        (400, b"[]", ModelRequestError, False),
    ],
)
async def test_statuses_map_to_errors(status: int, body: Any, kind: type[ModelError], retryable: bool) -> None:
    async with RawServer(json_reply(body, status)) as server:
        with pytest.raises(ModelError) as caught:
            await read_response(server.model(), ASK)
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    assert caught.value.model == "openai:gpt-test"
    assert f"(status {status})" in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after_ms": "250", "retry_after": "1"}, 0.25),
        ({"retry_after": "-3"}, 0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({}, None),
    ],
)
async def test_retry_after_is_parsed(headers: dict[str, str], seconds: float | None) -> None:
    async with RawServer(json_reply(_error(), 429, **headers)) as server:
        with pytest.raises(RateLimitError) as caught:
            await read_response(server.model(), ASK)
    assert caught.value.retry_after == seconds


async def test_retry_after_may_be_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    async with RawServer(json_reply(_error(), 503, retry_after=later)) as server:
        with pytest.raises(OverloadedError) as caught:
            await read_response(server.model(), ASK)
    assert caught.value.retry_after is not None
    assert 50 < caught.value.retry_after <= 60


async def test_the_should_retry_header_overrides_the_default() -> None:
    replies = json_reply(_error(), 500, x_should_retry="false"), json_reply(_error(), 400, x_should_retry="true")
    async with RawServer(*replies) as server:
        for retryable in (False, True):
            with pytest.raises(ModelError) as caught:
                await read_response(server.model(), ASK)
            assert caught.value.retryable is retryable


async def test_the_request_id_is_added_as_a_note() -> None:
    async with RawServer(json_reply(_error(), 500, x_request_id="req_7")) as server:
        with pytest.raises(OverloadedError) as caught:
            await read_response(server.model(), ASK)
    assert caught.value.__notes__ == ["The provider's request id is req_7."]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "The server had an error", "type": "server_error"}, OverloadedError),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, RateLimitError),
        ({"message": "bad", "type": "invalid_request_error"}, ModelRequestError),
        ({"message": "too long", "code": 400, "type": "context_length_exceeded"}, ContextTooLongError),
        ("everything is broken", OverloadedError),
    ],
)
async def test_an_error_event_in_a_stream_is_raised(error: Any, kind: type[ModelError]) -> None:
    payloads: list[dict[str, Any]] = [{"error": error}, {"choices": [{"delta": None, "error": error}]}]
    for payload in payloads:
        async with RawServer(stream(delta(content="One"), payload)) as server:
            with pytest.raises(kind):
                await read_response(server.model(), ASK)


@pytest.mark.parametrize(
    ("end", "kind", "retryable"),
    [
        (delta("stop"), EmptyResponseError, True),
        (delta("stop", content=""), EmptyResponseError, True),
        (delta("length", reasoning_content="Hm"), EmptyResponseError, False),
        (delta("content_filter"), ContentFilterError, False),
        (delta("content_filter", content="One"), ContentFilterError, False),
        (delta("insufficient_system_resource", content="One"), OverloadedError, True),
    ],
)
async def test_empty_and_aborted_responses_raise(end: dict[str, Any], kind: type[ModelError], retryable: bool) -> None:
    async with RawServer(stream(end, "[DONE]")) as server:
        with pytest.raises(kind) as caught:
            await read_response(server.model(), ASK)
    assert caught.value.retryable is retryable


async def test_retry_waits_for_retry_after() -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    limited, down = json_reply(_error(), 429, retry_after="7"), json_reply(_error(), 503)
    async with RawServer(limited, down, HI) as server:
        model = RetryModel(server.model(), initial_delay=0.5, jitter=0, sleep=sleep)
        chunks = [chunk async for chunk in model.respond(ASK)]
    assert chunks[0] == TextChunk("Hi.")
    assert delays == [7, 1.0]


@pytest.mark.parametrize("status", [400, 401, 404, 402])
async def test_permanent_errors_are_not_retried(status: int) -> None:
    spare = ScriptedModel(["Never asked."])
    async with RawServer(json_reply(_error(), status)) as server:
        with pytest.raises(ModelError):
            async for _ in FallbackModel(RetryModel(server.model()), spare).respond(ASK):
                pass
        assert len(server.requests) == 1
    assert spare.requests == []


async def test_there_is_no_retry_after_the_first_text() -> None:
    spare = ScriptedModel(["Never asked."])
    chunks: list[Chunk] = []
    async with RawServer(stream(delta(content="One"))) as server:
        with pytest.raises(ModelConnectionError):
            await _collect(FallbackModel(RetryModel(server.model()), spare), chunks)
        assert len(server.requests) == 1
    assert chunks == [TextChunk("One")]
    assert spare.requests == []


async def test_a_connection_closed_before_any_text_falls_back() -> None:
    chunks: list[Chunk] = []
    async with RawServer(stream(delta(reasoning_content="Hm")), stream(delta(role="assistant", content=""))) as server:
        await _collect(FallbackModel(server.model(), server.model(), ScriptedModel(["The spare."])), chunks)
        assert len(server.requests) == 2
    assert "The spare." in str(chunks[-1])


async def _collect(model: FallbackModel, chunks: list[Chunk]) -> None:
    async for chunk in model.respond(ASK):
        chunks.append(chunk)  # noqa: PERF401 - the chunks before an error are needed
