"""`RetryModel` retries retryable errors, waits between attempts, and does not repeat output."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonkit.errors import EmptyResponseError, ModelError, SetupError
from batonkit.messages import AssistantMessage, Image, Reasoning, ToolCall, Usage, UserMessage
from batonkit.models import (
    Chunk,
    Model,
    ModelRequest,
    ModelResponse,
    PartChunk,
    ReasoningChunk,
    RestartChunk,
    RetryModel,
    TextChunk,
    ToolCallChunk,
    collect_response,
)
from batonkit.testing import ScriptedModel, ScriptedStream, say

REQUEST = ModelRequest((UserMessage("my secret"),), agent="Desk")


def overloaded(retry_after: float | None = None) -> ModelError:
    return ModelError("overloaded: my secret", retryable=True, retry_after=retry_after)


class Delays(list[float]):
    """A sleep function that records the delays and does not wait."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


class CountingModel:
    """A model that counts the responses it started and closed."""

    name = "watched"

    def __init__(self, *attempts: Sequence[Chunk | Exception | asyncio.Event]) -> None:
        self._attempts = list(attempts)
        self.started = 0
        self.closed = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.started += 1
        try:
            for item in self._attempts[self.started - 1]:
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, asyncio.Event):
                    await item.wait()
                else:
                    yield item
        finally:
            self.closed += 1


def retrying(
    model: Model, delays: Delays, *, jitter: float = 0.0, attempts: int = 3, after_output: bool = False
) -> RetryModel:
    return RetryModel(model, sleep=delays, jitter=jitter, attempts=attempts, after_output=after_output)


async def test_it_retries_with_doubling_delays() -> None:
    model = ScriptedModel([overloaded(), overloaded(), overloaded(), "Hello"])
    delays = Delays()
    response = await collect_response(retrying(model, delays, attempts=5).respond(REQUEST))
    assert response == ModelResponse(AssistantMessage("Hello"), model="scripted")
    assert delays == [0.5, 1.0, 2.0]
    assert [request.messages for request in model.requests] == [REQUEST.messages] * 4


async def test_the_last_error_is_raised_with_the_number_of_attempts() -> None:
    errors = [overloaded(), overloaded(), overloaded()]
    model = ScriptedModel([*errors, "never asked for"])
    with pytest.raises(ModelError) as raised:
        await collect_response(retrying(model, Delays()).respond(REQUEST))
    assert raised.value is errors[2]
    assert raised.value.attempts == 3
    assert raised.value.__notes__ == [
        "`scripted` was called 3 times; not retried because RetryModel(attempts=3) allows no more"
    ]
    assert model.remaining == 1


async def test_an_error_that_is_not_retryable_is_raised_immediately() -> None:
    model = ScriptedModel([ModelError("wrong key"), "never asked for"])
    delays = Delays()
    with pytest.raises(ModelError, match="wrong key"):
        await collect_response(retrying(model, delays).respond(REQUEST))
    assert (delays, model.remaining) == ([], 1)


@pytest.mark.parametrize("error", [ValueError("a bug"), SetupError("no key")])
async def test_errors_other_than_model_errors_are_not_retried(error: Exception) -> None:
    with pytest.raises(type(error)):
        await collect_response(RetryModel(ScriptedModel([error]), should_retry=lambda _: True).respond(REQUEST))


async def test_should_retry_overrides_the_default() -> None:
    delays = Delays()
    retry = RetryModel(
        ScriptedModel([ModelError("odd"), overloaded()]), sleep=delays, should_retry=lambda error: not error.retryable
    )
    with pytest.raises(ModelError, match="overloaded") as raised:
        await collect_response(retry.respond(REQUEST))
    assert raised.value.__notes__ == ["`scripted` was called 2 times; not retried because this error is not retryable"]
    assert len(delays) == 1


@given(
    attempts=st.integers(1, 6) | st.just(1100),
    chance=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
    initial=st.floats(0.001, 100),
    maximum=st.floats(0, 100),
)
def test_delays_double_up_to_the_maximum_minus_jitter(
    attempts: int, chance: float, jitter: float, initial: float, maximum: float
) -> None:
    delays = Delays()
    model = ScriptedModel([overloaded()] * attempts)
    retry = RetryModel(
        model,
        attempts=attempts,
        initial_delay=initial,
        max_delay=maximum,
        jitter=jitter,
        sleep=delays,
        random=lambda: chance,
    )
    with pytest.raises(ModelError):
        asyncio.run(collect_response(retry.respond(REQUEST)))
    assert len(delays) == attempts - 1
    longest = initial
    for delay in delays:
        bounded = min(longest, maximum)
        assert bounded * (1 - jitter) <= delay <= bounded
        longest = min(2 * longest, 1e6)


async def test_full_jitter_is_the_default() -> None:
    delays = Delays()
    chances = iter([0.0, 0.25, 1.0])
    model = ScriptedModel([overloaded()] * 4)
    with pytest.raises(ModelError):
        await collect_response(
            RetryModel(model, attempts=4, sleep=delays, random=lambda: next(chances)).respond(REQUEST)
        )
    assert delays == [0.5, 0.75, 0.0]


async def test_retry_after_is_used_even_beyond_max_delay() -> None:
    delays = Delays()
    model = ScriptedModel([overloaded(0.0), overloaded(45.0), "Hello"])
    await collect_response(RetryModel(model, sleep=delays, max_delay=30.0).respond(REQUEST))
    assert delays == [0.0, 45.0]


async def test_retry_after_beyond_max_retry_after_is_raised_immediately() -> None:
    delays = Delays()
    model = ScriptedModel([overloaded(3600.0), "never asked for"])
    with pytest.raises(ModelError) as raised:
        await collect_response(RetryModel(model, sleep=delays, max_retry_after=60).respond(REQUEST))
    assert raised.value.__notes__ == [
        "`scripted` was called once; not retried because the provider asks to wait 3600 s, "
        "longer than RetryModel(max_retry_after=60)"
    ]
    assert delays == []


@pytest.mark.parametrize(
    "output",
    [
        TextChunk("Hel"),
        ToolCallChunk(0, "a", "look_up"),
        PartChunk(Image(url="https://example.org/cat.png")),
        ModelResponse(AssistantMessage("Hello"), model="watched"),
    ],
)
async def test_there_is_no_retry_after_output(output: Chunk) -> None:
    model = CountingModel([output, overloaded()], [TextChunk("Hello")])
    seen: list[Chunk] = []

    async def read() -> None:
        async for chunk in retrying(model, Delays()).respond(REQUEST):
            seen.append(chunk)  # noqa: PERF401 (the chunks before the error are wanted)

    with pytest.raises(ModelError) as raised:
        await read()
    assert seen == [output]
    assert "part of the response was already passed on" in raised.value.__notes__[0]
    assert (model.started, model.closed) == (1, 1)


async def test_reasoning_and_empty_text_are_not_output_and_are_dropped() -> None:
    model = CountingModel(
        [ReasoningChunk("Hm"), TextChunk(""), overloaded()],
        [ReasoningChunk("Aha"), TextChunk("Hello"), ModelResponse(usage=Usage(3, 4))],
    )
    response = await collect_response(retrying(model, Delays()).respond(REQUEST))
    assert response.message is not None
    assert [block.text for block in response.message.reasoning] == ["Aha"]
    assert (response.message.content, response.usage, response.model) == ("Hello", Usage(3, 4), "watched")


EMPTY: list[list[Chunk]] = [
    [ModelResponse()],
    [],
    [TextChunk(""), ModelResponse(stop_reason="stop")],
    [ReasoningChunk("Hm"), ModelResponse()],
    [ModelResponse(AssistantMessage(reasoning=(Reasoning("Hm"),)))],
]


@pytest.mark.parametrize("empty", EMPTY)
async def test_an_empty_response_is_retried(empty: list[Chunk]) -> None:
    # The agent raised the error, and the retry around the model never saw it.
    model, delays = CountingModel(empty, [ReasoningChunk("Aha"), TextChunk("Hello"), ModelResponse()]), Delays()
    response = await collect_response(retrying(model, delays).respond(REQUEST))
    assert response.message == AssistantMessage("Hello", reasoning=(Reasoning("Aha"),))
    assert (model.started, model.closed, len(delays)) == (2, 2, 1)


async def test_too_many_empty_responses_are_an_error() -> None:
    model = CountingModel(*[[ReasoningChunk("Hm"), ModelResponse()]] * 3)
    with pytest.raises(EmptyResponseError, match="`watched` returned neither text nor tool calls") as raised:
        await collect_response(retrying(model, Delays(), attempts=3).respond(REQUEST))
    assert raised.value.retryable
    assert "called 3 times" in raised.value.__notes__[0]


async def test_an_empty_response_for_a_lasting_reason_is_not_retried() -> None:
    model = CountingModel([ReasoningChunk("Hm"), ModelResponse(stop_reason="length")])
    with pytest.raises(EmptyResponseError, match="max_tokens"):
        await collect_response(retrying(model, Delays()).respond(REQUEST))
    assert model.started == 1


@pytest.mark.parametrize(
    "content",
    [
        [ToolCallChunk(0, "a", "wave"), ModelResponse()],
        [PartChunk(Image(url="https://x")), ModelResponse()],
        [ModelResponse(AssistantMessage("Hi"))],
    ],
)
async def test_calls_media_and_complete_messages_are_not_empty(content: list[Chunk]) -> None:
    model = CountingModel(content)
    await collect_response(retrying(model, Delays()).respond(REQUEST))
    assert model.started == 1


async def test_after_output_the_response_is_that_of_the_last_attempt() -> None:
    last = ScriptedStream("Hel", "lo", ToolCall("a", "wave"), ModelResponse(id="r2"))
    model = ScriptedModel([ScriptedStream("Good", overloaded()), last])
    pieces: list[str] = []
    chunks: list[Chunk] = []
    async for chunk in retrying(model, Delays(), after_output=True).respond(REQUEST):
        chunks.append(chunk)
        if isinstance(chunk, TextChunk):
            pieces.append(chunk.text)
    assert pieces == ["Good", "Hel", "lo"]
    # Nothing said that the first piece is discarded.
    assert chunks[1] == RestartChunk()
    assert sum(isinstance(chunk, RestartChunk) for chunk in chunks) == 1
    assert chunks[-1] == ModelResponse(AssistantMessage("Hello", (ToolCall("a", "wave"),)), model="scripted", id="r2")
    assert sum(isinstance(chunk, ModelResponse) for chunk in chunks) == 1


async def test_a_response_without_errors_is_passed_on_unchanged() -> None:
    chunks = [
        ReasoningChunk("Hm"),
        TextChunk("Hel"),
        TextChunk("lo"),
        ModelResponse(usage=Usage(1, 2), model="watched-2"),
    ]
    model = CountingModel(chunks)
    assert [chunk async for chunk in RetryModel(model).respond(REQUEST)] == chunks
    assert (model.started, model.closed) == (1, 1)


async def test_closing_the_response_closes_the_wrapped_model() -> None:
    model = CountingModel([TextChunk("Hel"), TextChunk("lo")])
    chunks = RetryModel(model).respond(REQUEST)
    assert await anext(chunks) == TextChunk("Hel")
    await chunks.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert (model.started, model.closed) == (1, 1)


async def test_cancelling_closes_the_wrapped_model() -> None:
    waiting = asyncio.Event()
    model = CountingModel([TextChunk("Hel"), waiting])
    reached = asyncio.Event()

    async def read() -> None:
        async for _ in RetryModel(model).respond(REQUEST):
            reached.set()

    task = asyncio.create_task(read())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (model.started, model.closed) == (1, 1)


async def test_cancelling_during_a_delay_stops_retrying() -> None:
    model = CountingModel([overloaded()], [TextChunk("never asked for")])
    is_waiting = asyncio.Event()

    async def wait_forever(seconds: float) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(collect_response(RetryModel(model, sleep=wait_forever).respond(REQUEST)))
    await is_waiting.wait()
    assert model.closed == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (model.started, model.closed) == (1, 1)


async def test_an_iterator_without_aclose_is_accepted() -> None:
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


async def test_the_log_names_the_retries_but_not_the_contents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="baton")
    await collect_response(retrying(ScriptedModel([overloaded(), say("Hello")]), Delays()).respond(REQUEST))
    assert [record.getMessage() for record in caplog.records] == [
        "model scripted failed with ModelError; attempt 2 of 3 follows in 0.50 s"
    ]


def test_it_has_the_name_of_the_wrapped_model() -> None:
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
def test_invalid_options_are_refused(make: Callable[[], RetryModel], problem: str) -> None:
    with pytest.raises(SetupError, match=problem):
        make()
