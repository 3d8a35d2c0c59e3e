"""The retries that the models of all providers make by default, and the delay before each of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from logging import getLogger
from random import random as uniform

from ..errors import EmptyResponseError, MalformedResponseError, ModelError
from .model import Chunk, ModelRequest

_log = getLogger("baton.models")

DEFAULT_RETRIES = 2
# The figures of OpenAI's and Anthropic's clients.
_MAX_DELAY = 8.0
_MAX_RETRY_AFTER = 60.0
# An empty response is left to the agent, which asks again; a malformed one is usually due to a wrong base_url.
_LEFT_TO_OTHERS = (EmptyResponseError, MalformedResponseError)


async def respond_with_retries(
    respond: Callable[[ModelRequest], AsyncGenerator[Chunk]],
    request: ModelRequest,
    *,
    model: str,
    default: int = DEFAULT_RETRIES,
) -> AsyncGenerator[Chunk]:
    """Stream a response; repeat the request if it fails before the first chunk.

    Args:
        respond: Sends the request once and streams the response.
        request: The input of the call; `max_retries` of its settings replaces the default.
        model: The model's name, for errors.
        default: The number of retries unless the settings have one.
    """
    given = request.settings.max_retries
    retries = default if given is None else given
    attempts = 0
    while True:
        attempts += 1
        has_begun = False
        try:
            async with aclosing(respond(request)) as chunks:
                async for chunk in chunks:
                    has_begun = True
                    yield chunk
            return
        except ModelError as error:
            error.attempts = attempts
            if has_begun or retries == 0 or not _is_passing(error):
                raise
            if reason := _reason_to_stop(error, retries):
                note_attempts(error, model, reason)
                raise
            delay = retry_delay(error, attempts, max_delay=_MAX_DELAY)
            log_retry(model, error, attempts, retries + 1, delay)
        await asyncio.sleep(delay)


def _is_passing(error: ModelError) -> bool:
    return error.retryable and not isinstance(error, _LEFT_TO_OTHERS)


def _reason_to_stop(error: ModelError, retries: int) -> str:
    if error.attempts > retries:
        return f"ModelSettings(max_retries={retries}) allows no more"
    if error.retry_after is not None and error.retry_after > _MAX_RETRY_AFTER:
        return f"the provider asks to wait {error.retry_after:g} s; RetryModel(max_retry_after=…) waits longer"
    return ""


def retry_delay(
    error: ModelError,
    failed: int,
    *,
    initial_delay: float = 0.5,
    max_delay: float = 30.0,
    jitter: float = 1.0,
    random: Callable[[], float] = uniform,
) -> float:
    """Return the seconds to wait: `retry_after`, or a delay that doubles with each failure."""
    if error.retry_after is not None:
        return max(0.0, error.retry_after)
    # The exponent is bounded because 2.0**1024 overflows.
    longest = min(max_delay, initial_delay * 2.0 ** min(failed - 1, 64))
    return longest * (1 - jitter * random())


def note_attempts(error: ModelError, model: str, reason: str) -> None:
    """Add a note that says how often a model was called, and why it was not called again."""
    times = "once" if error.attempts == 1 else f"{error.attempts} times"
    error.add_note(f"`{model}` was called {times}; not retried because {reason}")


def log_retry(model: str, error: ModelError, failed: int, attempts: int, delay: float) -> None:
    """Log that another attempt follows."""
    # The text of an error may quote the conversation, so only its type is logged.
    _log.info(
        "model %s failed with %s; attempt %d of %d follows in %.2f s",
        model,
        type(error).__name__,
        failed + 1,
        attempts,
        delay,
    )
