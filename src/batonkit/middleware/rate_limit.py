"""`RateLimit`: at most so many model calls and tokens per minute."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from .._checks import check_arguments, check_positive
from ..agents.middleware import Middleware, NextModelCall
from ..context import RunContext
from ..errors import SetupError
from ..models import ModelRequest, ModelResponse
from .tool_results import estimate_request_tokens

_WINDOW = 60.0


class _ModelCall(Struct):
    """A model call in the last minute."""

    at: float
    tokens: int


class RateLimit(Middleware[Any]):
    """Limits the model calls and tokens in any 60 seconds; further calls wait.

    All runs and agents that share the object share the limit, in this process. Calls are let through in the order in
    which they came. A cancelled call gives up its place. Before a call its tokens are estimated; when the model has
    responded, the tokens that it used are counted instead. A call that is longer than `tokens_per_minute` waits until
    no other call counts any more.

    Put it last in the list, so that every call that other middleware makes is counted.

    Args:
        per_minute: The number of model calls; None for any number.
        tokens_per_minute: The number of input and output tokens; None for any number.
        clock: Returns the time in seconds; for tests.
        sleep: Waits for a number of seconds; for tests.

    Raises:
        SetupError: There is no limit, or one is not above 0.
    """

    @check_arguments
    def __init__(
        self,
        *,
        per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if per_minute is None and tokens_per_minute is None:
            raise SetupError("RateLimit() limits nothing; give per_minute=… or tokens_per_minute=…")
        check_positive("RateLimit(per_minute=…)", per_minute)
        check_positive("RateLimit(tokens_per_minute=…)", tokens_per_minute)
        self._per_minute = per_minute
        self._tokens_per_minute = tokens_per_minute
        self._clock = clock
        self._sleep = sleep
        self._calls: deque[_ModelCall] = deque()
        # A lock is fair, and waits in one event loop; runs in other threads have other loops.
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Wait until the call is within the limits, then call the model."""
        tokens = estimate_request_tokens(request) if self._tokens_per_minute is not None else 0
        call = await self._take_turn(tokens)
        response = await next(request)
        if response.usage is not None:
            call.tokens = response.usage.total_tokens
        return response

    async def _take_turn(self, tokens: int) -> _ModelCall:
        turn = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        # The first of those that wait sleeps; the others wait for the lock in the order in which they came.
        async with turn:
            while (delay := self._delay(tokens)) > 0:
                await self._sleep(delay)
            call = _ModelCall(self._clock(), tokens)
            self._calls.append(call)
            return call

    def _delay(self, tokens: int) -> float:
        """Return the seconds until a call of so many tokens is within the limits."""
        calls = self._calls
        now = self._clock()
        while calls and calls[0].at <= now - _WINDOW:
            calls.popleft()
        expired = 0
        if self._per_minute is not None:
            expired = len(calls) - self._per_minute + 1
        if self._tokens_per_minute is not None:
            excess = sum(call.tokens for call in calls) + tokens - self._tokens_per_minute
            needed = 0
            for call in calls:
                if excess <= 0:
                    break
                excess -= call.tokens
                needed += 1
            expired = max(expired, needed)
        return calls[expired - 1].at + _WINDOW - now if expired > 0 and calls else 0.0
