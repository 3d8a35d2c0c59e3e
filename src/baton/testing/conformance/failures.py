"""Checks of what a model raises when its provider fails."""

import asyncio
from typing import ClassVar

import pytest

from ...errors import (
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
)
from ...messages import is_empty, text_of
from ...models import Chunk, Model, ModelSettings, TextChunk
from ..steps import ScriptedStream
from .answers import PATIENCE
from .bench import ModelBench, P, answer_of, chunks_of, opened, request

LASTING = (AuthenticationError, ModelNotFoundError, ModelRequestError, ContextTooLongError, ContentFilterError)
"""The same request would fail again."""
PASSING = (RateLimitError, OverloadedError, ModelConnectionError)
"""The same request may succeed later."""


class FailureChecks(ModelBench[P]):
    """Every failure has its own type, and says whether another attempt may help."""

    soon: ClassVar[float] = 0.05
    """The time limit that is set where the provider never answers."""

    @pytest.mark.parametrize("kind", LASTING)
    async def test_a_lasting_failure_has_its_type_and_is_not_retryable(self, kind: type[ModelError]) -> None:
        async with self.played(kind("it failed on purpose")) as (model, _):
            with pytest.raises(ModelError) as raised:
                await chunks_of(model)
        assert type(raised.value) is kind
        assert not raised.value.retryable

    @pytest.mark.parametrize("kind", PASSING)
    async def test_a_passing_failure_has_its_type_and_is_retryable(self, kind: type[ModelError]) -> None:
        async with self.played(kind("it failed on purpose", retryable=True)) as (model, _):
            with pytest.raises(ModelError) as raised:
                await chunks_of(model)
        assert type(raised.value) is kind
        assert raised.value.retryable

    async def test_a_failure_of_another_kind_is_a_model_error_to_retry(self) -> None:
        async with self.played(ModelError("something broke", retryable=True)) as (model, _):
            with pytest.raises(ModelError) as raised:
                await chunks_of(model)
        assert raised.value.retryable

    async def test_when_to_come_again_is_told(self) -> None:
        async with self.played(RateLimitError("slow down", retryable=True, retry_after=7)) as (model, _):
            with pytest.raises(RateLimitError) as raised:
                await chunks_of(model)
        assert raised.value.retry_after == 7

    async def test_what_the_provider_says_is_in_the_error(self) -> None:
        async with self.played(ModelRequestError("a very special reason")) as (model, _):
            with pytest.raises(ModelRequestError, match="a very special reason"):
                await chunks_of(model)

    async def test_an_answer_that_does_not_come_in_time_is_a_timeout(self) -> None:
        asked = request(settings=ModelSettings(timeout=self.soon))
        async with self.played(ModelTimeoutError("too slow", retryable=True)) as (model, _):
            with pytest.raises(ModelTimeoutError) as raised:
                await asyncio.wait_for(chunks_of(model, asked), PATIENCE)
        assert raised.value.retryable

    async def test_an_answer_that_is_not_in_its_format_is_malformed(self) -> None:
        async with self.played(MalformedResponseError("<html>no</html>")) as (model, _):
            with pytest.raises(MalformedResponseError):
                await chunks_of(model)

    @pytest.mark.parametrize("kind", [ModelConnectionError, OverloadedError, MalformedResponseError])
    async def test_a_failure_in_the_middle_comes_after_what_was_said(self, kind: type[ModelError]) -> None:
        self.needs("streaming")
        retryable = kind in PASSING
        seen: list[Chunk] = []
        async with self.played(ScriptedStream("So ", "far", kind("{broken", retryable=retryable))) as (model, _):
            with pytest.raises(ModelError) as raised:
                await _read_into(seen, model)
        assert "".join([chunk.text for chunk in seen if isinstance(chunk, TextChunk)]) == "So far"
        assert type(raised.value) is kind
        assert raised.value.retryable or not retryable

    async def test_an_answer_that_the_filter_stops_says_so(self) -> None:
        """By an error, or by the reason for the end: never as if the answer were complete."""
        self.needs("streaming")
        async with self.played(ScriptedStream("So ", "far", ContentFilterError("no more"))) as (model, _):
            try:
                response, _ = await answer_of(model)
            except ContentFilterError:
                return
        assert response.stop_reason == "content_filter"

    async def test_nothing_at_all_is_empty(self) -> None:
        async with self.played(EmptyResponseError("nothing", retryable=True)) as (model, _):
            try:
                _, message = await answer_of(model)
            except EmptyResponseError:
                return
        assert is_empty(message)

    async def test_it_answers_after_a_failure(self) -> None:
        steps = (ModelConnectionError("cut", retryable=True), OverloadedError("busy", retryable=True), "Here I am.")
        async with self.played(*steps) as (model, _):
            for kind in (ModelConnectionError, OverloadedError):
                with pytest.raises(kind):
                    await chunks_of(model)
            _, message = await answer_of(model)
        assert text_of(message.content) == "Here I am."


async def _read_into(seen: list[Chunk], model: Model) -> None:
    async with opened(model, request()) as chunks:
        async for chunk in chunks:
            seen += (chunk,)
