"""`Cache`, which answers repeated requests, and `PromptCache`, which lets the provider reuse the start of a prompt."""

from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from .._checks import check_arguments, check_callback, check_choice
from ..agents.middleware import Middleware, NextModelCall
from ..context import RunContext
from ..errors import SetupError
from ..models import ModelRequest, ModelResponse, PromptCaching
from .responses import open_responses, summarize


class Cache(Middleware[Any]):
    """Answers a repeated request with the stored response, for development and for tests.

    Requests are equal if model, instructions, messages, tools, settings, output schema and tool choice are; timeouts
    and headers do not count. A stored response costs no tokens and is no model call. Put it last in the list to store
    what the model said, or first to store what other middleware made of it.

    Args:
        store: A file, which is created, or any mutable mapping of texts to bytes, such as a dict. A file that ends in
            `.jsonl` is a cassette: text with one response per line, for tests; any other file is a SQLite database.
        on_miss: `"call"` calls the model and stores its response. `"error"` never calls it: a request without a
            stored response is a SetupError that says what is missing.

    Raises:
        SetupError: The store is neither, the file cannot be opened, or there is no such `on_miss`.
    """

    def __init__(
        self, store: str | Path | MutableMapping[str, bytes], *, on_miss: Literal["call", "error"] = "call"
    ) -> None:
        check_choice("Cache(on_miss=…)", on_miss, ("call", "error"))
        self._responses = open_responses(store)
        self._source = repr(str(store)) if isinstance(store, str | Path) else f"a {type(store).__name__}"
        self._on_miss = on_miss

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Return the stored response, or call the model and store its response."""
        stored = self._responses.find(request)
        if stored is not None:
            return stored
        if self._on_miss == "error":
            raise SetupError(
                f'Cache({self._source}, on_miss="error") has no response for this request: {summarize(request)} '
                f"({self._responses.explain_miss(request)}). To record it, run once with Cache({self._source}) and the "
                "provider's key"
            )
        response = await next(request)
        self._responses.keep(request, response)
        return response

    def close(self) -> None:
        """Close the file, if there is one; the next use opens it again."""
        self._responses.close()


CacheKey = str | Callable[[RunContext[Any], ModelRequest], str]


class PromptCache(Middleware[Any]):
    """Lets the provider reuse the unchanged beginning of prompts, which is cheaper and faster.

    Anthropic gets cache markers after the instructions and after the last two user turns; OpenAI and Azure, which cache
    by themselves, get a cache key, so that requests with the same beginning reach the same cache. Other models ignore
    it. `Usage.cached_tokens` says how much was reused. Instructions that change with every call, such as with the
    time, make caches useless.

    Args:
        key: The cache key for OpenAI, or a function `(ctx, request)` that returns it; by default the agent's name.
        ttl: How long Anthropic keeps the beginning after its last use: `"5m"` or `"1h"`, which costs more to write.

    Raises:
        SetupError: The key is neither text nor a function, or there is no such `ttl`.
    """

    @check_arguments
    def __init__(self, *, key: CacheKey | None = None, ttl: Literal["5m", "1h"] = "5m") -> None:
        check_choice("PromptCache(ttl=…)", ttl, ("5m", "1h"))
        if key is not None and not isinstance(key, str):
            check_callback("PromptCache(key=…)", key, "ctx", "request")
        self._key = key
        self._ttl: Literal["5m", "1h"] = ttl

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Call the model with a hint for its cache."""
        key = self._key
        if key is None:
            key = request.agent
        elif not isinstance(key, str):
            key = key(ctx, request)
        return await next(replace(request, prompt_cache=PromptCaching(key, self._ttl)))
