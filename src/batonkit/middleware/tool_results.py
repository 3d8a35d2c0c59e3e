"""`ClearToolResults`, and the estimate of a request's tokens."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from .._checks import check_arguments
from ..agents.middleware import Middleware, NextModelCall
from ..context import RunContext
from ..errors import SetupError
from ..messages import AssistantMessage, Message, ToolMessage, estimate_text_tokens, estimate_tokens
from ..models import ModelRequest, ModelResponse

_CLEARED = "[This result was removed to save space. Call the tool again if you need it.]"


def estimate_request_tokens(request: ModelRequest) -> int:
    """Estimate the tokens of a request.

    A token is four bytes; an image, sound or file counts as 1,000.
    """
    tokens = estimate_text_tokens(request.instructions) + estimate_tokens(request.messages)
    return tokens + (len(msgspec.json.encode(request.tools)) // 4 if request.tools else 0)


class ClearToolResults(Middleware[Any]):
    """Replaces the contents of old tool results with a short note in what the model reads.

    The log and the result of the run keep them. Results that the model has not read yet are never cleared.

    Args:
        keep_last: The number of newest results to keep.
        over_tokens: Clear only if the request is estimated to be longer than this; None clears always.
        keep_tools: The names of tools whose results are always kept. They count towards `keep_last`.
        note: The text that replaces a result.

    Raises:
        SetupError: `keep_last` or `over_tokens` is negative.
    """

    @check_arguments
    def __init__(
        self,
        *,
        keep_last: int = 3,
        over_tokens: int | None = None,
        keep_tools: Collection[str] = (),
        note: str = _CLEARED,
    ) -> None:
        for name, count in (("keep_last", keep_last), ("over_tokens", over_tokens)):
            if count is not None and count < 0:
                raise SetupError(f"ClearToolResults({name}={count}): give 0 or more")
        if isinstance(keep_tools, str):
            raise SetupError(f"ClearToolResults(keep_tools={keep_tools!r}): give a list of names")
        self._keep_last = keep_last
        self._over_tokens = over_tokens
        self._keep_tools = frozenset(keep_tools)
        self._note = note

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Clear old results, then call the model."""
        over = self._over_tokens
        if over is None or estimate_request_tokens(request) > over:
            request = self._clear(request)
        return await next(request)

    def _clear(self, request: ModelRequest) -> ModelRequest:
        old = self._find_old(request.messages)
        if not old:
            return request
        messages = list(request.messages)
        for position in old:
            messages[position] = replace(messages[position], content=self._note)
        return replace(request, messages=messages)

    def _find_old(self, messages: Sequence[Message]) -> list[int]:
        newer_results = 0
        is_read = False
        old: list[int] = []
        for position, message in reversed([*enumerate(messages)]):
            if isinstance(message, AssistantMessage):
                # The model has written something after the results before this message.
                is_read = True
            elif isinstance(message, ToolMessage):
                if is_read and newer_results >= self._keep_last and message.name not in self._keep_tools:
                    old.append(position)
                newer_results += 1
        return old
