"""A realtime model of OpenAI, over the websocket of its official SDK."""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import AuthenticationError
from ...models.extras import require_extra
from ...models.per_loop import PerEventLoop
from ..settings import SessionConfig
from .checks import VOICES, check_settings
from .connection import OpenAIRealtimeConnection, opened
from .failures import not_opened

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.resources.realtime.realtime import AsyncRealtimeConnection

_SECONDS_TO_CLOSE = 2.0
_MOST_WAITING = 16_384
"""How many events may wait to be read. Not few: who tells a long history reads only afterwards, and while nothing is
read, the provider reads nothing either."""


class OpenAIRealtimeModel:
    """A model of OpenAI's Realtime API, such as `gpt-realtime`.

    The key is `api_key`, or else OPENAI_API_KEY. `base_url` may begin with http(s) or ws(s). With `client`, an
    AsyncOpenAI or AsyncAzureOpenAI, that one is used; closing it is up to you. `voices` are those that it can speak
    with; `timeout` is how long it may take to open a conversation.
    """

    def __init__(
        self,
        model: str = "gpt-realtime",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: "AsyncOpenAI | None" = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        voices: Collection[str] = VOICES,
        timeout: float = 10.0,
    ) -> None:
        self.model = model
        require_extra(
            "openai", "websockets", model=self.name, what="the SDK of OpenAI and websockets", extra="realtime"
        )
        self._api_key = api_key
        self._base_url = _as_http(base_url)
        self._headers = dict(headers or {})
        self._query = dict(query or {})
        self._voices = voices
        self._timeout = timeout
        self._given = client
        self._clients = PerEventLoop(self._made, _closed)

    @property
    def name(self) -> str:
        """`openai:` and the model's name."""
        return f"openai:{self.model}"

    def check(self, settings: SessionConfig) -> None:
        """Raise SetupError if OpenAI would not take these settings."""
        check_settings(settings, self.name, self._voices)

    async def connect(self, settings: SessionConfig) -> OpenAIRealtimeConnection:
        """Open a conversation under these settings."""
        try:
            websocket = await self._websocket()
            return await opened(self.name, websocket, settings, within=self._timeout)
        except TimeoutError as error:
            raise not_opened(self.name, error, self._timeout) from error

    async def aclose(self) -> None:
        """Close what is kept for this event loop; conversations stay open, and it closes by itself with the loop."""
        await self._clients.close()

    async def _websocket(self) -> "AsyncRealtimeConnection":
        from openai import OpenAIError
        from websockets.exceptions import WebSocketException

        options: Any = {"close_timeout": _SECONDS_TO_CLOSE, "max_queue": _MOST_WAITING}
        try:
            async with asyncio.timeout(self._timeout):
                client = self._given or await self._clients.get()
                return await client.realtime.connect(
                    model=self.model,
                    extra_headers=self._headers,
                    extra_query=dict(self._query),
                    websocket_connection_options=options,
                ).enter()
        except OpenAIError as error:
            advice = "set OPENAI_API_KEY, or give OpenAIRealtimeModel(…, api_key=…)"
            raise AuthenticationError(f"`{self.name}` needs a key: {advice} ({error})", model=self.name) from error
        except (WebSocketException, OSError) as error:
            raise not_opened(self.name, error, self._timeout) from error

    def _made(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        return AsyncOpenAI(api_key=self._api_key, base_url=self._base_url, max_retries=0)


def _as_http(base_url: str | None) -> str | None:
    """The address as the SDK wants it: it makes a websocket's of it by itself."""
    for websocket, http in (("ws://", "http://"), ("wss://", "https://")):
        if base_url is not None and base_url.startswith(websocket):
            return http + base_url.removeprefix(websocket)
    return base_url


async def _closed(client: "AsyncOpenAI") -> None:
    await client.close()
