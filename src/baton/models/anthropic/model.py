"""A model of Anthropic, over its official SDK."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from logging import getLogger
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import AuthenticationError, ModelError
from ..base import Chunk, ModelRequest
from ..extras import require_extra
from ..failures import cut_short, malformed, retry_after, timed_out, unreachable
from ..per_loop import PerEventLoop, trusted
from .answer import AnthropicStreamParser
from .failures import complaint
from .request import parameters

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from httpx2 import Response as HTTPResponse

_log = getLogger(__name__)

_SECONDS_FOR_THE_END = 0.1


class AnthropicModel:
    """Claude, by the name that Anthropic gives it, such as `claude-opus-5-5`.

    The key is `api_key`, or else whatever the SDK finds: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, a profile. With
    `client`, an AsyncAnthropic or its like for Bedrock or Vertex, that one is used; closing it is up to you.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: "AsyncAnthropic | None" = None,
    ) -> None:
        self.model = model
        require_extra("anthropic", model=self.name, what="the SDK of Anthropic", extra="anthropic")
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._given = client
        self._clients = PerEventLoop(self._made, _closed)

    @property
    def name(self) -> str:
        """`anthropic:` and the model's name."""
        return f"anthropic:{self.model}"

    async def aclose(self) -> None:
        """Close the connections of this event loop; they close by themselves when the loop ends."""
        await self._clients.close()

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer one request, piece by piece. Closing the iterator closes the stream."""
        answer = AnthropicStreamParser(self.name)
        async with self._opened(request) as response, aclosing(self._events(response, request)) as events:
            try:
                async for event in events:
                    for chunk in answer.chunks(event):
                        yield chunk
                    if answer.is_complete:
                        await _read_to_its_end(events)
                        break
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise malformed(self.name, f"{type(error).__name__} in an event") from error
        if not answer.is_complete:
            raise cut_short(self.name, has_begun=True)
        ending = answer.end()
        if isinstance(ending, ModelError):
            raise ending
        yield ending

    @asynccontextmanager
    async def _opened(self, request: ModelRequest) -> AsyncGenerator["HTTPResponse"]:
        import anthropic

        given = parameters(request, self.model, self.name)
        try:
            client: Any = self._given or await self._clients.get()
            opening = client.messages.with_streaming_response.create(**given)
            response = await opening.__aenter__()
        except anthropic.APIStatusError as error:
            raise complaint(self.name, error.status_code, error.body, retry_after(error.response.headers)) from error
        except anthropic.APITimeoutError as error:
            raise timed_out(self.name, request.settings.timeout) from error
        except anthropic.APIConnectionError as error:
            raise _not_reached(self.name, error) from error
        except anthropic.CredentialsError as error:
            raise self._without_key(f" ({error})") from error
        except TypeError as error:
            # This is how the SDK says that it has found no key.
            if "authentication" not in str(error):
                raise
            raise self._without_key() from error
        try:
            yield response.http_response
        finally:
            await opening.__aexit__(None, None, None)

    async def _events(self, response: "HTTPResponse", request: ModelRequest) -> AsyncGenerator[dict[str, Any]]:
        import httpx2
        from anthropic import AsyncStream

        has_begun = False
        try:
            async for event in AsyncStream.raw_events(response):
                has_begun = True
                if not event.data or event.event == "ping":
                    continue
                read = msgspec.json.decode(event.data)
                if event.event == "error" or read["type"] == "error":
                    raise complaint(self.name, 200, read, None)
                yield read
        except httpx2.TimeoutException as error:
            raise timed_out(self.name, request.settings.timeout) from error
        except httpx2.TransportError as error:
            raise cut_short(self.name, has_begun=has_begun, because=error) from error

    def _without_key(self, because: str = "") -> AuthenticationError:
        advice = "set ANTHROPIC_API_KEY, or give AnthropicModel(…, api_key=…)"
        return AuthenticationError(f"`{self.name}` needs a key: {advice}{because}", model=self.name)

    def _made(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            default_headers=self._headers or None,
            # Retrying is done by baton.models.Retry, which knows what was passed on already.
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=trusted()),
        )


async def _read_to_its_end(events: AsyncGenerator[dict[str, Any]]) -> None:
    """Read what little is left after the last event, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_SECONDS_FOR_THE_END):
            async for _ in events:
                pass
    except (TimeoutError, ModelError) as error:
        # The answer is complete: that its connection cannot be used again concerns nobody.
        _log.debug("the connection of a complete answer is not used again: %s", error)


async def _closed(client: "AsyncAnthropic") -> None:
    await client.close()


def _not_reached(name: str, error: Exception) -> ModelError:
    import httpx2

    cause = error.__cause__
    if isinstance(cause, httpx2.RemoteProtocolError | httpx2.ReadError):
        return cut_short(name, has_begun=False, because=cause)
    return unreachable(name, cause or error)
