"""A model that asks again when its provider fails.

One answer out of several attempts: what retrying and failing over have in common.

A model that asks other models when the first one fails.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from logging import getLogger
from random import random as uniform
from typing import TypeAlias

from msgspec.structs import replace

from ..errors import ModelError, SetupError
from .assembly import assemble_response
from .base import Chunk, Model, ModelRequest, ModelResponse, ReasoningChunk, TextChunk
from .registry import resolve_model

NextAttempt: TypeAlias = Callable[[Sequence[ModelError], bool], Awaitable[Model | None]]
"""Who tries after these failures, the latest last; the flag says whether output was already passed on. None: nobody."""


async def answer(request: ModelRequest, first: Model, *, next_attempt: NextAttempt) -> AsyncIterator[Chunk]:
    """The chunks of the first attempt that does not fail, ended by a Response that names the model behind it."""
    model = first
    failures: list[ModelError] = []
    has_output = has_leftovers = False
    while True:
        # What a failed attempt has left with the reader is made void by a Response that is the whole answer.
        repeated: list[Chunk] | None = [] if has_leftovers else None
        is_ended = False
        chunks = model.respond(request)
        try:
            async for chunk in chunks:
                if repeated is not None:
                    repeated.append(chunk)
                if type(chunk) is ModelResponse:
                    if repeated is not None:
                        continue
                    is_ended = True
                    chunk = chunk if chunk.model else replace(chunk, model=model.name)
                has_leftovers = True
                has_output = has_output or _is_output(chunk)
                yield chunk
            if not is_ended:
                yield (
                    assemble_response(repeated, model.name) if repeated is not None else ModelResponse(model=model.name)
                )
            return
        except ModelError as error:
            failures.append(error)
        finally:
            await _close(chunks)
        following = await next_attempt(failures, has_output)
        if following is None:
            raise failures[-1]
        model = following


def is_retryable(error: ModelError) -> bool:
    """Whether the error says that the same request may succeed later."""
    return error.retryable


def _is_output(chunk: Chunk) -> bool:
    # Thinking may be shown twice without harm; what the user reads as the answer, and calls, may not.
    if type(chunk) is TextChunk:
        return bool(chunk.text)
    return type(chunk) is not ReasoningChunk


async def _close(chunks: AsyncIterable[Chunk]) -> None:
    # The protocol asks for an iterator only; one written as a class need not have anything to close.
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()


_log = getLogger(__name__)


class RetryModel:
    """A model around a model that tries up to `attempts` times.

    The wait before a retry doubles from `initial` up to `maximum` seconds; `jitter` is the share of it that is left to
    chance, from 0 to 1. An error that says `retry_after` is obeyed to the second, beyond `maximum` too. If it asks for
    more than `patience`, Retry gives up at once: to ask earlier is useless, and somebody else may take over.

    Nothing is tried again once text, media or calls were passed on, unless `after_output`: then listeners see the
    beginning twice, and the answer is that of the last attempt. `should_retry` decides in place of `error.retryable`.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        attempts: int = 3,
        initial_delay: float = 0.5,
        max_delay: float = 30.0,
        max_retry_after: float = 120.0,
        jitter: float = 1.0,
        after_output: bool = False,
        should_retry: Callable[[ModelError], bool] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = uniform,
    ) -> None:
        if attempts < 1:
            raise SetupError(f"Retry(attempts={attempts}) would never ask its model; the first attempt counts as 1")
        if not 0 <= jitter <= 1:
            raise SetupError(f"Retry(jitter={jitter}) is not a share; give a number from 0 to 1")
        if min(initial_delay, max_delay, max_retry_after) < 0:
            raise SetupError("Retry cannot wait for less than no time; initial, maximum and patience are at least 0")
        self.model = resolve_model(model, wanted_by="Retry")
        self.attempts = attempts
        self.initial = initial_delay
        self.maximum = max_delay
        self.patience = max_retry_after
        self.jitter = jitter
        self.after_output = after_output
        self._should_retry = should_retry or is_retryable
        self._sleep = sleep
        self._random = random

    @property
    def name(self) -> str:
        """The name of the model inside."""
        return self.model.name

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer of the model inside, asked again as often as needed and allowed."""
        return answer(request, self.model, next_attempt=self._next_attempt)

    async def _next_attempt(self, failures: Sequence[ModelError], has_output: bool) -> Model | None:
        error = failures[-1]
        obstacle = self._obstacle(failures, has_output)
        if obstacle:
            error.add_note(f"`{self.name}` was asked {_times(len(failures))}; not again, because {obstacle}")
            return None
        delay = self._delay(error, len(failures))
        # An error's text may quote the conversation, so only its kind is logged.
        _log.info(
            "model %s failed with %s; attempt %d of %d follows in %.2f s",
            self.name,
            type(error).__name__,
            len(failures) + 1,
            self.attempts,
            delay,
        )
        await self._sleep(delay)
        return self.model

    def _obstacle(self, failures: Sequence[ModelError], has_output: bool) -> str:
        error = failures[-1]
        if not self._should_retry(error):
            return "this error is not one to retry"
        if has_output and not self.after_output:
            return "a part of its answer had been passed on already"
        if len(failures) >= self.attempts:
            return f"Retry(attempts={self.attempts}) allows no more"
        if error.retry_after is not None and error.retry_after > self.patience:
            return f"it wants {error.retry_after:g} s of rest and Retry(patience={self.patience:g}) is shorter"
        return ""

    def _delay(self, error: ModelError, failed: int) -> float:
        if error.retry_after is not None:
            return max(0.0, error.retry_after)
        # The exponent is bounded because a float is: 2.0**1024 overflows, and nobody waits that long.
        longest = min(self.maximum, self.initial * 2.0 ** min(failed - 1, 64))
        return longest * (1 - self.jitter * self._random())


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


class FallbackModel:
    """Models in order of preference: the next one is asked when one fails and nothing of its answer was passed on.

    Its name lists them all; the Response says which one answered. By default only `retryable` errors count, which are
    the provider's fault: a request that is wrong for one model is mostly wrong for all. `on` decides instead, for
    instance `on=lambda error: True`.
    """

    def __init__(
        self, first: Model | str, *others: Model | str, should_fall_back: Callable[[ModelError], bool] | None = None
    ) -> None:
        self.models = tuple(resolve_model(model, wanted_by="Failover") for model in (first, *others))
        self.name = f"failover({', '.join(model.name for model in self.models)})"
        self._is_reason_to_switch = should_fall_back or is_retryable

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """The answer of the first model that does not fail."""
        return answer(request, self.models[0], next_attempt=self._next_attempt)

    async def _next_attempt(self, failures: Sequence[ModelError], has_output: bool) -> Model | None:
        failed = self.models[: len(failures)]
        error = failures[-1]
        if has_output or len(failed) == len(self.models) or not self._is_reason_to_switch(error):
            if len(failures) > 1:
                error.add_note(f"Failover asked {len(failures)} models: {_told(failed, failures)}")
            return None
        following = self.models[len(failures)]
        _log.info("model %s failed with %s; asking %s", failed[-1].name, type(error).__name__, following.name)
        return following


def _told(models: Sequence[Model], failures: Sequence[ModelError]) -> str:
    pairs = zip(models, failures, strict=True)
    return "; ".join(f"`{model.name}` failed with {type(error).__name__}: {error}" for model, error in pairs)
