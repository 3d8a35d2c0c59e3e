"""A model that asks again when its provider fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from logging import getLogger
from random import random as uniform

from ..errors import ModelError, SetupError
from .attempts import answer, is_retryable
from .base import Chunk, Model, ModelRequest
from .registry import resolve_model

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
