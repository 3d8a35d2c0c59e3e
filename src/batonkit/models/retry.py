"""Models around models: RetryModel retries one model, FallbackModel tries several in order."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from logging import getLogger
from random import random as uniform
from typing import TypeAlias

from msgspec.structs import replace

from .._checks import check_arguments
from ..errors import ModelError, SetupError
from ..messages import AssistantMessage, is_empty
from .assembly import assemble_response
from .backoff import log_retry, note_attempts, retry_delay
from .model import Chunk, Model, ModelRequest, ModelResponse, ReasoningChunk, RestartChunk, TextChunk
from .provider_errors import empty
from .registry import resolve_model

_log = getLogger("baton.models")

_MakeRequest: TypeAlias = Callable[[int], ModelRequest]
"""Returns the request of the attempt after this number of failures."""
_NextAttempt: TypeAlias = Callable[[Sequence[ModelError], bool], Awaitable[Model | None]]
"""Returns the model to try after these errors, or None; the flag says whether output was already passed on."""


async def _respond(make_request: _MakeRequest, first: Model, next_attempt: _NextAttempt) -> AsyncIterator[Chunk]:
    """Yield the chunks of the first attempt that succeeds; the last one names its model."""
    model = first
    errors: list[ModelError] = []
    has_output = has_leftovers = False
    while True:
        if has_leftovers:
            yield RestartChunk()
        attempt = _Attempt(model, is_restart=has_leftovers)
        try:
            async with aclosing(attempt.respond(make_request(len(errors)))) as chunks:
                async for chunk in chunks:
                    has_leftovers = True
                    yield chunk
            return
        except ModelError as error:
            errors.append(error)
        has_output = has_output or attempt.has_output
        following = await next_attempt(errors, has_output)
        if following is None:
            errors[-1].given_up = True
            raise errors[-1]
        model = following


class _Attempt:
    """One call of a model, which must have content."""

    def __init__(self, model: Model, *, is_restart: bool) -> None:
        self._model = model
        self._is_restart = is_restart
        """True if chunks of a failed attempt were yielded: the final response has to contain the whole message."""
        self._has_content = False
        self.has_output = False
        """True if text or tool calls were yielded."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        """Yield the chunks of the model; the last one is a response that names it."""
        name = self._model.name
        received: list[Chunk] = []
        is_ended = False
        chunks = self._model.respond(request)
        try:
            async for chunk in chunks:
                self._check_content(chunk)
                if self._is_restart:
                    received.append(chunk)
                if type(chunk) is ModelResponse:
                    if self._is_restart:
                        continue
                    is_ended = self.has_output = True
                    chunk = chunk if chunk.model else replace(chunk, model=name)
                yield chunk
            if not self._has_content:
                raise empty(name, "")
            if self._is_restart:
                yield assemble_response(received, name)
            elif not is_ended:
                yield ModelResponse(model=name)
        finally:
            await _close(chunks)

    def _check_content(self, chunk: Chunk) -> None:
        """Raise ModelError for a response that ends without content."""
        if type(chunk) is ModelResponse:
            self._has_content = self._has_content or _has_content(chunk)
            if not self._has_content:
                raise empty(self._model.name, chunk.stop_reason)
        elif not self._has_content and _is_output(chunk):
            self._has_content = self.has_output = True


def _without_retries(request: ModelRequest) -> ModelRequest:
    """Switch off the default retries of the model that receives a request."""
    return replace(request, settings=replace(request.settings, max_retries=0))


def _is_retryable(error: ModelError) -> bool:
    return error.retryable


def _has_content(response: ModelResponse) -> bool:
    message = response.message
    return message is not None and (bool(message.tool_calls) or not is_empty(AssistantMessage(message.content)))


def _is_output(chunk: Chunk) -> bool:
    # Reasoning may be shown twice without harm; text and tool calls may not.
    if type(chunk) is TextChunk:
        return bool(chunk.text)
    return type(chunk) is not ReasoningChunk and type(chunk) is not RestartChunk


async def _close(chunks: AsyncIterable[Chunk]) -> None:
    # The protocol requires an iterable only, which need not have anything to close.
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()


class RetryModel:
    """A model that retries another model when it fails or answers with neither text nor calls.

    Its attempts replace the default retries of the model. The delay doubles with each retry. An error's `retry_after`
    is used instead, also beyond `max_delay`; if it exceeds `max_retry_after`, the error is raised at once, so that
    another model can be tried.

    Args:
        model: The model to call, or its string.
        attempts: The maximum number of calls, including the first.
        initial_delay: The seconds before the first retry.
        max_delay: The maximum delay in seconds.
        max_retry_after: The longest `retry_after`, in seconds, to wait for.
        jitter: The fraction of the delay that is random, from 0 to 1.
        after_output: Whether to retry after text, media or tool calls were passed on; subscribers then receive
            `ResponseRestarted` and the beginning again, and the response is that of the last attempt.
        should_retry: Decides whether to retry after an error; by default `error.retryable` does.
        sleep: Waits for a number of seconds; for tests.
        random: Returns a number from 0 to 1; for tests.

    Raises:
        SetupError: An argument is out of range, or the model cannot be resolved.
    """

    @check_arguments
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
            raise SetupError(f"RetryModel(attempts={attempts}) would never call its model; it must be at least 1")
        if not 0 <= jitter <= 1:
            raise SetupError(f"RetryModel(jitter={jitter}) is out of range; it must be a number from 0 to 1")
        if min(initial_delay, max_delay, max_retry_after) < 0:
            raise SetupError("RetryModel needs initial_delay, max_delay and max_retry_after of at least 0")
        self.model = resolve_model(model, wanted_by="RetryModel")
        self.attempts = attempts
        self.initial_delay = initial_delay
        self.max_delay = max_delay
        self.max_retry_after = max_retry_after
        self.jitter = jitter
        self.after_output = after_output
        self._should_retry = should_retry if should_retry is not None else _is_retryable
        self._sleep = sleep
        self._random = random

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self.model.name

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response of the wrapped model, retrying as configured.

        Args:
            request: The input of the call.
        """
        once = _without_retries(request)
        return _respond(lambda failures: once, self.model, self._next_attempt)

    async def _next_attempt(self, errors: Sequence[ModelError], has_output: bool) -> Model | None:
        error = errors[-1]
        error.attempts = len(errors)
        reason = self._reason_to_stop(errors, has_output)
        if reason:
            note_attempts(error, self.name, reason)
            return None
        delay = retry_delay(
            error,
            len(errors),
            initial_delay=self.initial_delay,
            max_delay=self.max_delay,
            jitter=self.jitter,
            random=self._random,
        )
        log_retry(self.name, error, len(errors), self.attempts, delay)
        await self._sleep(delay)
        return self.model

    def _reason_to_stop(self, errors: Sequence[ModelError], has_output: bool) -> str:
        error = errors[-1]
        if not self._should_retry(error):
            return "this error is not retryable"
        if has_output and not self.after_output:
            return "part of the response was already passed on"
        if len(errors) >= self.attempts:
            return f"RetryModel(attempts={self.attempts}) allows no more"
        if error.retry_after is not None and error.retry_after > self.max_retry_after:
            limit = f"RetryModel(max_retry_after={self.max_retry_after:g})"
            return f"the provider asks to wait {error.retry_after:g} s, longer than {limit}"
        return ""


class FallbackModel:
    """A model that tries several models in order until one responds.

    The next model is tried when one fails before any of its output was passed on, or answers with neither text nor
    calls. A model that has another one after it is called once, unless `ModelSettings(max_retries=…)` says more. The
    name lists all models; the response names the one that answered.

    Args:
        *models: At least two models or their strings, in order of preference.
        should_fall_back: Decides whether to try the next model after an error. By default `error.retryable` does: a
            request that one model rejects is usually rejected by the others. `lambda error: True` always tries.

    Raises:
        SetupError: There are fewer than two models, or one cannot be resolved.
    """

    @check_arguments
    def __init__(self, *models: Model | str, should_fall_back: Callable[[ModelError], bool] | None = None) -> None:
        if len(models) < 2:
            raise SetupError(f"FallbackModel needs at least two models, and got {len(models)}")
        self.models = tuple(resolve_model(model, wanted_by="FallbackModel") for model in models)
        self.name = f"fallback({', '.join(model.name for model in self.models)})"
        self._should_fall_back = should_fall_back if should_fall_back is not None else _is_retryable

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response of the first model that does not fail.

        Args:
            request: The input of the call.
        """

        def make_request(failures: int) -> ModelRequest:
            has_next_model = failures < len(self.models) - 1
            if has_next_model and request.settings.max_retries is None:
                return _without_retries(request)
            return request

        return _respond(make_request, self.models[0], self._next_attempt)

    async def _next_attempt(self, errors: Sequence[ModelError], has_output: bool) -> Model | None:
        failed = self.models[: len(errors)]
        error = errors[-1]
        if has_output or len(failed) == len(self.models) or not self._should_fall_back(error):
            if len(errors) > 1:
                pairs = zip(failed, errors, strict=True)
                each = [f"`{model.name}` failed with {type(error).__name__}: {error}" for model, error in pairs]
                error.add_note(f"FallbackModel tried {len(errors)} models: {'; '.join(each)}")
            return None
        following = self.models[len(errors)]
        _log.info("model %s failed with %s; trying %s", failed[-1].name, type(error).__name__, following.name)
        return following
