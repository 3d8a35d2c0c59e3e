"""Retry asks again when that can help, waits as it should, and never says a thing twice."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import ModelError, SetupError
from baton.messages import AssistantMessage, Image, ToolCall, Usage, UserMessage
from baton.models import (
    Chunk,
    Model,
    ModelRequest,
    ModelResponse,
    PartChunk,
    ReasoningChunk,
    RetryModel,
    TextChunk,
    ToolCallChunk,
    collect_response,
)
from baton.testing import ScriptedModel, ScriptedStream, say

REQUEST = ModelRequest((UserMessage("my secret"),), agent="Desk")


def overloaded(retry_after: float | None = None) -> ModelError:
    return ModelError("overloaded: my secret", retryable=True, retry_after=retry_after)


class Waits(list[float]):
    """A clock that notes how long it was asked to wait, and does not wait."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


class Watched:
    """A model that counts how many of its answers were begun and how many were closed."""

    name = "watched"

    def __init__(self, *attempts: Sequence[Chunk | Exception | asyncio.Event]) -> None:
        self._attempts = list(attempts)
        self.begun = 0
        self.closed = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.begun += 1
        try:
            for happening in self._attempts[self.begun - 1]:
                if isinstance(happening, Exception):
                    raise happening
                if isinstance(happening, asyncio.Event):
                    await happening.wait()
                else:
                    yield happening
        finally:
            self.closed += 1


def retrying(
    model: Model, waits: Waits, *, jitter: float = 0.0, attempts: int = 3, after_output: bool = False
) -> RetryModel:
    return RetryModel(model, sleep=waits, jitter=jitter, attempts=attempts, after_output=after_output)


async def test_it_asks_again_until_it_gets_an_answer_and_waits_twice_as_long_each_time() -> None:
    model = ScriptedModel([overloaded(), overloaded(), overloaded(), "Hello"])
    waits = Waits()
    response = await collect_response(retrying(model, waits, attempts=5).respond(REQUEST))
    assert response == ModelResponse(AssistantMessage("Hello"), model="scripted")
    assert waits == [0.5, 1.0, 2.0]
    assert model.requests == [REQUEST] * 4


async def test_the_last_error_is_raised_and_says_how_often_the_model_was_asked() -> None:
    errors = [overloaded(), overloaded(), overloaded()]
    model = ScriptedModel([*errors, "never asked for"])
    with pytest.raises(ModelError) as raised:
        await collect_response(retrying(model, Waits()).respond(REQUEST))
    assert raised.value is errors[2]
    assert raised.value.__notes__ == [
        "`scripted` was called 3 times; not retried because RetryModel(attempts=3) allows no more"
    ]
    assert model.remaining == 1


async def test_an_error_that_is_not_retryable_is_raised_at_once() -> None:
    model = ScriptedModel([ModelError("wrong key"), "never asked for"])
    waits = Waits()
    with pytest.raises(ModelError, match="wrong key"):
        await collect_response(retrying(model, waits).respond(REQUEST))
    assert (waits, model.remaining) == ([], 1)


@pytest.mark.parametrize("error", [ValueError("a bug"), SetupError("no key")])
async def test_errors_that_are_not_the_models_pass_through(error: Exception) -> None:
    with pytest.raises(type(error)):
        await collect_response(RetryModel(ScriptedModel([error]), should_retry=lambda _: True).respond(REQUEST))


async def test_should_retry_decides_in_place_of_the_error() -> None:
    waits = Waits()
    picky = RetryModel(
        ScriptedModel([ModelError("odd"), overloaded()]), sleep=waits, should_retry=lambda error: not error.retryable
    )
    with pytest.raises(ModelError, match="overloaded") as raised:
        await collect_response(picky.respond(REQUEST))
    assert raised.value.__notes__ == ["`scripted` was called 2 times; not retried because this error is not retryable"]
    assert len(waits) == 1


@given(
    attempts=st.integers(1, 6) | st.just(1100),
    chance=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
    initial=st.floats(0.001, 100),
    maximum=st.floats(0, 100),
)
def test_every_wait_lies_between_what_jitter_leaves_and_the_doubled_bounded_one(
    attempts: int, chance: float, jitter: float, initial: float, maximum: float
) -> None:
    waits = Waits()
    model = ScriptedModel([overloaded()] * attempts)
    retry = RetryModel(
        model,
        attempts=attempts,
        initial_delay=initial,
        max_delay=maximum,
        jitter=jitter,
        sleep=waits,
        random=lambda: chance,
    )
    with pytest.raises(ModelError):
        asyncio.run(collect_response(retry.respond(REQUEST)))
    assert len(waits) == attempts - 1
    longest = initial
    for wait in waits:
        bounded = min(longest, maximum)
        assert bounded * (1 - jitter) <= wait <= bounded
        longest = min(2 * longest, 1e6)


async def test_full_jitter_is_the_default() -> None:
    waits = Waits()
    chances = iter([0.0, 0.25, 1.0])
    model = ScriptedModel([overloaded()] * 4)
    with pytest.raises(ModelError):
        await collect_response(
            RetryModel(model, attempts=4, sleep=waits, random=lambda: next(chances)).respond(REQUEST)
        )
    assert waits == [0.5, 0.75, 0.0]


async def test_retry_after_is_obeyed_to_the_second_even_beyond_maximum() -> None:
    waits = Waits()
    model = ScriptedModel([overloaded(0.0), overloaded(45.0), "Hello"])
    await collect_response(RetryModel(model, sleep=waits, max_delay=30.0).respond(REQUEST))
    assert waits == [0.0, 45.0]


async def test_retry_after_beyond_patience_is_raised_at_once() -> None:
    waits = Waits()
    model = ScriptedModel([overloaded(3600.0), "never asked for"])
    with pytest.raises(ModelError) as raised:
        await collect_response(RetryModel(model, sleep=waits, max_retry_after=60).respond(REQUEST))
    assert raised.value.__notes__ == [
        "`scripted` was called once; not retried because the provider asks to wait 3600 s, "
        "longer than RetryModel(max_retry_after=60)"
    ]
    assert waits == []


@pytest.mark.parametrize(
    "output",
    [
        TextChunk("Hel"),
        ToolCallChunk(0, "a", "look_up"),
        PartChunk(Image(url="https://example.org/cat.png")),
        ModelResponse(AssistantMessage("Hello"), model="watched"),
    ],
)
async def test_it_does_not_ask_again_after_output(output: Chunk) -> None:
    model = Watched([output, overloaded()], [TextChunk("Hello")])
    seen: list[Chunk] = []

    async def read() -> None:
        async for chunk in retrying(model, Waits()).respond(REQUEST):
            seen.append(chunk)  # noqa: PERF401 (the chunks before the error are wanted)

    with pytest.raises(ModelError) as raised:
        await read()
    assert seen == [output]
    assert "part of the response was already passed on" in raised.value.__notes__[0]
    assert (model.begun, model.closed) == (1, 1)


async def test_thoughts_and_empty_text_are_no_output_and_do_not_get_into_the_answer() -> None:
    model = Watched(
        [ReasoningChunk("Hm"), TextChunk(""), overloaded()],
        [ReasoningChunk("Aha"), TextChunk("Hello"), ModelResponse(usage=Usage(3, 4))],
    )
    response = await collect_response(retrying(model, Waits()).respond(REQUEST))
    assert response.message is not None
    assert [block.text for block in response.message.reasoning] == ["Aha"]
    assert (response.message.content, response.usage, response.model) == ("Hello", Usage(3, 4), "watched")


async def test_after_output_gives_the_answer_of_the_last_attempt_alone() -> None:
    model = ScriptedModel([ScriptedStream("Good", overloaded()), ScriptedStream("Hel", "lo", ToolCall("a", "wave"))])
    pieces: list[str] = []
    chunks: list[Chunk] = []
    async for chunk in retrying(model, Waits(), after_output=True).respond(REQUEST):
        chunks.append(chunk)
        if isinstance(chunk, TextChunk):
            pieces.append(chunk.text)
    assert pieces == ["Good", "Hel", "lo"]
    assert chunks[-1] == ModelResponse(AssistantMessage("Hello", (ToolCall("a", "wave"),)), model="scripted")
    assert sum(isinstance(chunk, ModelResponse) for chunk in chunks) == 1


async def test_an_answer_that_succeeds_at_once_passes_through_as_it_is() -> None:
    chunks = [
        ReasoningChunk("Hm"),
        TextChunk("Hel"),
        TextChunk("lo"),
        ModelResponse(usage=Usage(1, 2), model="watched-2"),
    ]
    model = Watched(chunks)
    assert [chunk async for chunk in RetryModel(model).respond(REQUEST)] == chunks
    assert (model.begun, model.closed) == (1, 1)


async def test_a_reader_that_leaves_closes_the_model_inside() -> None:
    model = Watched([TextChunk("Hel"), TextChunk("lo")])
    chunks = RetryModel(model).respond(REQUEST)
    assert await anext(chunks) == TextChunk("Hel")
    await chunks.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert (model.begun, model.closed) == (1, 1)


async def test_cancelling_closes_the_model_inside() -> None:
    waiting = asyncio.Event()
    model = Watched([TextChunk("Hel"), waiting])
    reached = asyncio.Event()

    async def read() -> None:
        async for _ in RetryModel(model).respond(REQUEST):
            reached.set()

    task = asyncio.create_task(read())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (model.begun, model.closed) == (1, 1)


async def test_cancelling_while_it_waits_asks_no_more() -> None:
    model = Watched([overloaded()], [TextChunk("never asked for")])
    is_waiting = asyncio.Event()

    async def wait_for_ever(seconds: float) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(collect_response(RetryModel(model, sleep=wait_for_ever).respond(REQUEST)))
    await is_waiting.wait()
    assert model.closed == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (model.begun, model.closed) == (1, 1)


async def test_an_iterator_that_cannot_be_closed_will_do() -> None:
    class OneChunk:
        name = "plain"

        def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            return self

        def __init__(self) -> None:
            self._chunks: list[Chunk] = [TextChunk("Hello")]

        def __aiter__(self) -> AsyncIterator[Chunk]:
            return self

        async def __anext__(self) -> Chunk:
            if not self._chunks:
                raise StopAsyncIteration
            return self._chunks.pop()

    assert (await collect_response(RetryModel(OneChunk()).respond(REQUEST))).message == AssistantMessage("Hello")


async def test_it_logs_each_retry_but_nothing_that_was_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="baton")
    await collect_response(retrying(ScriptedModel([overloaded(), say("Hello")]), Waits()).respond(REQUEST))
    assert [record.getMessage() for record in caplog.records] == [
        "model scripted failed with ModelError; attempt 2 of 3 follows in 0.50 s"
    ]


def test_it_has_the_name_of_the_model_inside() -> None:
    assert RetryModel(ScriptedModel([], name="fake:one")).name == "fake:one"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: RetryModel(ScriptedModel([]), attempts=0), "attempts=0"),
        (lambda: RetryModel(ScriptedModel([]), jitter=1.5), "jitter=1.5"),
        (lambda: RetryModel(ScriptedModel([]), initial_delay=-1), "of at least 0"),
        (lambda: RetryModel("no-such-provider:x"), "for `RetryModel` needs the provider `no-such-provider`"),
    ],
)
def test_a_retry_that_cannot_work_is_refused(make: Callable[[], RetryModel], problem: str) -> None:
    with pytest.raises(SetupError, match=problem):
        make()
