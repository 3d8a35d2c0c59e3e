"""FallbackModel tries the next model when one fails, and names the one that answered."""

import asyncio
import logging

import pytest

from baton.errors import ModelError
from baton.messages import AssistantMessage, Reasoning, UserMessage
from baton.models import FallbackModel, ModelRequest, ModelResponse, RetryModel, TextChunk, collect_response
from baton.testing import ScriptedModel, ScriptedStream, ScriptStep

REQUEST = ModelRequest((UserMessage("my secret"),), agent="Desk")


def overloaded() -> ModelError:
    return ModelError("overloaded: my secret", retryable=True)


def models(*scripts: list[ScriptStep]) -> list[ScriptedModel]:
    return [ScriptedModel(script, name=name) for name, script in zip("abc", scripts, strict=False)]


async def test_the_first_model_that_does_not_fail_answers_and_is_named() -> None:
    a, b, c = models([overloaded()], ["Hello"], ["never asked for"])
    failover = FallbackModel(a, b, c)
    assert failover.name == "fallback(a, b, c)"
    assert await collect_response(failover.respond(REQUEST), failover.name) == ModelResponse(
        AssistantMessage("Hello"), model="b"
    )
    assert (a.requests, b.requests, c.requests) == ([REQUEST], [REQUEST], [])


async def test_the_model_that_answered_is_named_even_if_it_does_not_say_so_itself() -> None:
    a, b = models(
        [ScriptedStream("Hello", ModelResponse()), ScriptedStream(overloaded())],
        [ScriptedStream("Hi", ModelResponse(stop_reason="stop"))],
    )
    failover = FallbackModel(a, b)
    assert (await collect_response(failover.respond(REQUEST), failover.name)).model == "a"
    assert (await collect_response(failover.respond(REQUEST), failover.name)).model == "b"


async def test_a_model_that_ends_without_a_response_is_named_too() -> None:
    class Terse:
        name = "terse"

        async def respond(self, request: ModelRequest):
            yield TextChunk("Hello")

    failover = FallbackModel(Terse(), Terse())
    assert await collect_response(failover.respond(REQUEST), failover.name) == ModelResponse(
        AssistantMessage("Hello"), model="terse"
    )


async def test_when_all_fail_the_last_error_tells_of_them_all() -> None:
    a, b = models([overloaded()], [ModelError("out of order", retryable=True)])
    with pytest.raises(ModelError, match="out of order") as raised:
        await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert raised.value.__notes__ == [
        "FallbackModel tried 2 models: `a` failed with ModelError: overloaded: my secret; "
        "`b` failed with ModelError: out of order"
    ]


async def test_an_error_that_is_not_the_providers_fault_is_raised_at_once() -> None:
    a, b = models([ModelError("no such parameter")], ["never asked for"])
    with pytest.raises(ModelError, match="no such parameter"):
        await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert b.requests == []


async def test_on_decides_in_place_of_the_error() -> None:
    a, b = models([ModelError("quota used up"), overloaded()], ["Hello"])
    failover = FallbackModel(a, b, should_fall_back=lambda error: "quota" in str(error))
    assert (await collect_response(failover.respond(REQUEST))).model == "b"
    with pytest.raises(ModelError, match="overloaded"):
        await collect_response(failover.respond(REQUEST))


async def test_nobody_else_is_asked_after_output() -> None:
    a, b = models([ScriptedStream("Hel", overloaded())], ["never asked for"])
    with pytest.raises(ModelError, match="overloaded"):
        await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert b.requests == []


async def test_what_the_failed_model_thought_does_not_get_into_the_answer() -> None:
    a, b = models([ScriptedStream(Reasoning("Hm"), overloaded())], [ScriptedStream(Reasoning("Aha"), "Hello")])
    response = await collect_response(FallbackModel(a, b).respond(REQUEST))
    assert response == ModelResponse(AssistantMessage("Hello", reasoning=(Reasoning("Aha"),)), model="b")


async def test_it_works_around_a_retry_and_inside_one() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    a, b = models([overloaded()] * 4, [overloaded(), "Hello"])
    inside = RetryModel(FallbackModel(a, b), sleep=sleep)
    assert (await collect_response(inside.respond(REQUEST), inside.name)).model == "b"
    assert [len(model.requests) for model in (a, b)] == [2, 2]

    a, b = models([overloaded()] * 2, ["Hello"])
    around = FallbackModel(RetryModel(a, attempts=2, sleep=sleep), b)
    assert around.name == "fallback(a, b)"
    assert (await collect_response(around.respond(REQUEST), around.name)).model == "b"
    assert [len(model.requests) for model in (a, b)] == [2, 1]


async def test_cancelling_does_not_make_it_ask_the_next_model() -> None:
    reached = asyncio.Event()

    async def answer_never(request: ModelRequest) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never said"

    a, b = models([answer_never], ["never asked for"])
    task = asyncio.create_task(collect_response(FallbackModel(a, b).respond(REQUEST)))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert b.requests == []


async def test_it_logs_the_switch_but_nothing_that_was_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="baton")
    await collect_response(FallbackModel(*models([overloaded()], ["Hello"])).respond(REQUEST))
    assert [record.getMessage() for record in caplog.records] == ["model a failed with ModelError; trying b"]
