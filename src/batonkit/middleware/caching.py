"""`Cache`, which answers repeated requests, and `PromptCache`, which lets the provider reuse the start of a prompt."""

import hashlib
import logging
from collections.abc import Callable, MutableMapping
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from .._checks import check_arguments, check_callback, check_choice
from .._wording import show
from ..agents.middleware import Middleware, NextModelCall
from ..context import RunContext
from ..errors import SetupError
from ..models import ModelRequest, ModelResponse, PromptCaching

_logger = logging.getLogger("baton.middleware")
_NOT_IN_KEYS = {"timeout": None, "extra_headers": None}


class Cache(Middleware[Any]):
    """Answers a repeated request with the stored response, for development.

    Requests are equal if model, instructions, messages, tools, settings, output schema and tool choice are; timeouts
    and headers do not count. A stored response costs no tokens and is no model call. Put it last in the list to store
    what the model said, or first to store what other middleware made of it.

    Args:
        store: A file, which is created (SQLite), or any mutable mapping of texts to bytes, such as a dict.

    Raises:
        SetupError: The store is neither, or the file cannot be opened.
    """

    def __init__(self, store: str | Path | MutableMapping[str, bytes]) -> None:
        given: Any = store
        if isinstance(given, str | Path) and str(given):
            self._store: MutableMapping[str, bytes] | _ResponseFile = _ResponseFile(given)
        elif isinstance(given, MutableMapping):
            self._store = given
        else:
            raise SetupError(f'Cache({show(given)}): give a file, such as "cache.db", or a dict')

    async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: NextModelCall) -> ModelResponse:
        """Return the stored response, or call the model and store its response."""
        key = request_hash(request)
        stored = self._store.get(key)
        if stored is not None:
            try:
                return msgspec.json.decode(stored, type=ModelResponse)
            except msgspec.MsgspecError as error:
                _logger.warning("the cache has an invalid response, and the model is called: %s", error)
        response = await next(request)
        self._store[key] = msgspec.json.encode(response)
        return response

    def close(self) -> None:
        """Close the file, if there is one; the next use opens it again."""
        if isinstance(self._store, _ResponseFile):
            self._store.close()


def request_hash(request: ModelRequest) -> str:
    """Return a hash of everything in a request that the response depends on."""
    model: Any = request.model
    name = model if isinstance(model, str) or model is None else model.name
    settings = replace(request.settings, **_NOT_IN_KEYS)
    parts = (name, request.instructions, list(request.messages), request.tools, settings, request.output_schema)
    return hashlib.sha256(msgspec.json.encode((*parts, request.tool_choice))).hexdigest()


class _ResponseFile:
    """Responses in a SQLite file. Processes and threads may share it."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._lock = Lock()
        self._connection: Any = None
        with self._lock:
            self._open()

    def get(self, key: str) -> bytes | None:
        """Return the response with a key."""
        with self._lock:
            row = self._open().execute("SELECT response FROM responses WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def __setitem__(self, key: str, response: bytes) -> None:
        with self._lock:
            self._open().execute("INSERT OR REPLACE INTO responses VALUES (?, ?)", (key, response))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _open(self) -> Any:
        if self._connection is None:
            import sqlite3

            try:
                opened = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
                try:
                    opened.execute("PRAGMA journal_mode = WAL")
                    opened.execute("PRAGMA synchronous = NORMAL")
                    opened.execute("CREATE TABLE IF NOT EXISTS responses(key TEXT PRIMARY KEY, response BLOB NOT NULL)")
                except sqlite3.Error:
                    opened.close()
                    raise
            except sqlite3.Error as error:
                raise SetupError(f"Cache({self._path!r}): cannot open the file: {error}") from None
            self._connection = opened
        return self._connection


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
