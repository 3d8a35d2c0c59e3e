"""FallbackModel tries the next model when one fails, and names the one that answered."""

import asyncio
import logging

import pytest

from batonkit.errors import ModelError
from batonkit.messages import AssistantMessage, Reasoning, UserMessage
from batonkit.models import FallbackModel, ModelRequest, ModelResponse, RetryModel, TextChunk, collect_response
from batonkit.testing import ScriptedModel, ScriptedStream, ScriptStep

REQUEST = ModelRequest((UserMessage("my secret"),), agent="Desk")


def overloaded() -> ModelError:
    return ModelError("overloaded: my secret", retryable=True)


def models(*scripts: list[ScriptStep]) -> list[ScriptedModel]:
    return [ScriptedModel(script, name=name) for name, script in zip("abc", scripts, strict=False)]


async def test_the_first_model_that_does_not_fail_answers() -> None:
    a, b, c = models([overloaded()], ["Hello"], ["never asked for"])
    fallback = FallbackModel(a, b, c)
    assert fallback.name == "fallback(a, b, c)"
    assert await collect_response(fallback.respond(REQUEST), fallback.name) == ModelResponse(
        AssistantMessage("Hello"), model="b"
    )
    assert [len(model.requests) for model in (a, b, c)] == [1, 1, 0]
    assert b.requests[0].messages == REQUEST.messages


async def test_the_answering_model_is_named_even_if_its_response_is_not() -> None:
    a, b = models(
        [ScriptedStream("Hello", ModelResponse()), ScriptedStream(overloaded())],
        [ScriptedStream("Hi", ModelResponse(stop_reason="stop", id="r2"))],
    )
    fallback = FallbackModel(a, b)
    assert (await collect_response(fallback.respond(REQUEST), fallback.name)).model == "a"
    response = await collect_response(fallback.respond(REQUEST), fallback.name)
    assert (response.model, response.id) == ("b", "r2")


async def test_a_model_that_yields_no_response_is_named_too() -> None:
    class WithoutResponse:
        name = "terse"

        async def respond(self, request: ModelRequest):
            yield TextChunk("Hello")

    fallback = FallbackModel(WithoutResponse(), WithoutResponse())
    assert await collect_response(fallback.respond(REQUEST), fallback.name) == ModelResponse(
        AssistantMessage("Hello"), model="terse"
    )


async def test_when_all_models_fail_the_last_error_lists_all_errors() -> None:
    a, b = models([overloaded()], [ModelError("out of order", retryable=True)])
    with pytest.raises(ModelError, match="out of order") as raised:
        await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert raised.value.__notes__ == [
        "FallbackModel tried 2 models: `a` failed with ModelError: overloaded: my secret; "
        "`b` failed with ModelError: out of order"
    ]


async def test_an_error_that_is_not_retryable_is_raised_immediately() -> None:
    a, b = models([ModelError("no such parameter")], ["never asked for"])
    with pytest.raises(ModelError, match="no such parameter"):
        await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert b.requests == []


async def test_should_fall_back_overrides_the_default() -> None:
    a, b = models([ModelError("quota used up"), overloaded()], ["Hello"])
    fallback = FallbackModel(a, b, should_fall_back=lambda error: "quota" in str(error))
    assert (await collect_response(fallback.respond(REQUEST))).model == "b"
    with pytest.raises(ModelError, match="overloaded"):
        await collect_response(fallback.respond(REQUEST))


async def test_no_other_model_is_asked_after_output() -> None:
    a, b = models([ScriptedStream("Hel", overloaded())], ["never asked for"])
    with pytest.raises(ModelError, match="overloaded"):
        await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert b.requests == []


async def test_reasoning_of_the_failed_model_is_dropped() -> None:
    a, b = models([ScriptedStream(Reasoning("Hm"), overloaded())], [ScriptedStream(Reasoning("Aha"), "Hello")])
    response = await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert response == ModelResponse(AssistantMessage("Hello", reasoning=(Reasoning("Aha"),)), model="b")


async def test_fallback_and_retry_can_be_nested_both_ways() -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    a, b = models([overloaded()] * 4, [overloaded(), "Hello"])
    retry_outside = RetryModel(FallbackModel(a, b), sleep=sleep)
    assert (await collect_response(retry_outside.respond(REQUEST), retry_outside.name)).model == "b"
    assert [len(model.requests) for model in (a, b)] == [2, 2]

    a, b = models([overloaded()] * 2, ["Hello"])
    fallback_outside = FallbackModel(RetryModel(a, attempts=2, sleep=sleep), b)
    assert fallback_outside.name == "fallback(a, b)"
    assert (await collect_response(fallback_outside.respond(REQUEST), fallback_outside.name)).model == "b"
    assert [len(model.requests) for model in (a, b)] == [2, 1]


async def test_cancelling_does_not_ask_the_next_model() -> None:
    reached = asyncio.Event()

    async def never_answer(request: ModelRequest) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never said"

    a, b = models([never_answer], ["never asked for"])
    task = asyncio.create_task(collect_response(FallbackModel(a, b).respond(REQUEST)))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert b.requests == []


async def test_the_log_names_the_models_but_not_the_contents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="baton")
    await collect_response(FallbackModel(*models([overloaded()], ["Hello"])).respond(REQUEST))
    assert [record.getMessage() for record in caplog.records] == ["model a failed with ModelError; trying b"]


async def test_a_model_that_says_nothing_is_followed_by_the_next() -> None:
    a, b = models([AssistantMessage(reasoning=(Reasoning("Hm"),))], ["Hello"])
    response = await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert response == ModelResponse(AssistantMessage("Hello"), model="b")
