"""What a provider complains about becomes the error that says what to do."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from tests.models.openai.raw import RawServer, answered, delta, stream, whole

from baton import FallbackModel, RetryModel
from baton.errors import (
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
from baton.messages import UserMessage
from baton.models import Chunk, ModelRequest, TextChunk
from baton.testing import ScriptedModel

ASK = ModelRequest([UserMessage("Hello")])
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
async def test_every_status_has_its_error(status: int, body: Any, kind: type[ModelError], retryable: bool) -> None:
    async with RawServer(whole(body, status)) as server:
        with pytest.raises(ModelError) as caught:
            await answered(server.model(), ASK)
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
async def test_when_to_come_again(headers: dict[str, str], seconds: float | None) -> None:
    async with RawServer(whole(_error(), 429, **headers)) as server:
        with pytest.raises(RateLimitError) as caught:
            await answered(server.model(), ASK)
    assert caught.value.retry_after == seconds


async def test_when_to_come_again_as_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    async with RawServer(whole(_error(), 503, retry_after=later)) as server:
        with pytest.raises(OverloadedError) as caught:
            await answered(server.model(), ASK)
    assert caught.value.retry_after is not None
    assert 50 < caught.value.retry_after <= 60


async def test_the_server_knows_best_whether_to_retry() -> None:
    replies = whole(_error(), 500, x_should_retry="false"), whole(_error(), 400, x_should_retry="true")
    async with RawServer(*replies) as server:
        for retryable in (False, True):
            with pytest.raises(ModelError) as caught:
                await answered(server.model(), ASK)
            assert caught.value.retryable is retryable


async def test_the_name_of_the_request_is_noted() -> None:
    async with RawServer(whole(_error(), 500, x_request_id="req_7")) as server:
        with pytest.raises(OverloadedError) as caught:
            await answered(server.model(), ASK)
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
async def test_a_complaint_in_the_middle_of_an_answer(error: Any, kind: type[ModelError]) -> None:
    payloads: list[dict[str, Any]] = [{"error": error}, {"choices": [{"delta": None, "error": error}]}]
    for payload in payloads:
        async with RawServer(stream(delta(content="One"), payload)) as server:
            with pytest.raises(kind):
                await answered(server.model(), ASK)


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
async def test_an_answer_that_says_nothing_or_is_broken_off(
    end: dict[str, Any], kind: type[ModelError], retryable: bool
) -> None:
    async with RawServer(stream(end, "[DONE]")) as server:
        with pytest.raises(kind) as caught:
            await answered(server.model(), ASK)
    assert caught.value.retryable is retryable


async def test_retry_waits_as_long_as_the_provider_asks_for() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    limited, down = whole(_error(), 429, retry_after="7"), whole(_error(), 503)
    async with RawServer(limited, down, HI) as server:
        model = RetryModel(server.model(), initial_delay=0.5, jitter=0, sleep=sleep)
        chunks = [chunk async for chunk in model.respond(ASK)]
    assert chunks[0] == TextChunk("Hi.")
    assert waits == [7, 1.0]


@pytest.mark.parametrize("status", [400, 401, 404, 402])
async def test_retry_and_failover_leave_alone_what_cannot_succeed(status: int) -> None:
    spare = ScriptedModel(["Never asked."])
    async with RawServer(whole(_error(), status)) as server:
        with pytest.raises(ModelError):
            async for _ in FallbackModel(RetryModel(server.model()), spare).respond(ASK):
                pass
        assert len(server.asked) == 1
    assert spare.requests == []


async def test_nothing_is_asked_again_once_text_was_shown() -> None:
    spare = ScriptedModel(["Never asked."])
    shown: list[Chunk] = []
    async with RawServer(stream(delta(content="One"))) as server:
        with pytest.raises(ModelConnectionError):
            await _listen(FallbackModel(RetryModel(server.model()), spare), shown)
        assert len(server.asked) == 1
    assert shown == [TextChunk("One")]
    assert spare.requests == []


async def test_a_connection_closed_before_any_text_falls_back() -> None:
    shown: list[Chunk] = []
    async with RawServer(stream(delta(reasoning_content="Hm")), stream(delta(role="assistant", content=""))) as server:
        await _listen(FallbackModel(server.model(), server.model(), ScriptedModel(["The spare."])), shown)
        assert len(server.asked) == 2
    assert "The spare." in str(shown[-1])


async def _listen(model: FallbackModel, shown: list[Chunk]) -> None:
    async for chunk in model.respond(ASK):
        shown.append(chunk)  # noqa: PERF401 - what was shown before an error is what is looked at
