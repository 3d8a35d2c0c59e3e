"""The official client of OpenAI as the wire, for programs that have one already."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, cast

from ...errors import ModelConnectionError, ModelError
from ..provider_errors import cut_short, malformed, timed_out
from .errors import turned_down
from .transport import SECONDS_FOR_THE_END, OpenAIResponseStream, OutgoingRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_TRANSPORTS = ("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp")


class SDKTransport:
    """Sends with an `AsyncOpenAI`, or a client derived from it; its own retries and time-outs apply."""

    def __init__(self, client: "AsyncOpenAI") -> None:
        self._client = client

    async def send(self, sending: OutgoingRequest) -> OpenAIResponseStream:
        """Send one request and wait until its answer begins."""
        import openai

        client: Any = self._client
        resource = client.responses if sending.path == "/responses" else client.chat.completions
        options: dict[str, Any] = {"extra_headers": sending.headers, "extra_body": sending.extra}
        if sending.timeout is not None:
            options["timeout"] = sending.timeout
        opening = resource.with_streaming_response.create(**sending.body, **options)
        try:
            response = await opening.__aenter__()
        except openai.APIStatusError as error:
            raise turned_down(
                sending.name, error.status_code, error.response.headers, error.response.content
            ) from error
        except openai.APITimeoutError as error:
            raise timed_out(sending.name, sending.timeout) from error
        except openai.APIConnectionError as error:
            base_url = str(client.base_url)
            what = f"`{sending.name}` cannot be reached at {base_url}: {error.__cause__ or error}; check that it runs"
            raise ModelConnectionError(what, model=sending.name, retryable=True) from error
        except openai.OpenAIError as error:
            raise ModelError(f"the client of `{sending.name}` refused: {error}", model=sending.name) from error
        return _SDKResponse(opening, response, sending)

    async def close(self) -> None:
        """Nothing: whoever made the client closes it."""


class _SDKResponse:
    """An answer that comes through the official client."""

    def __init__(self, opening: AbstractAsyncContextManager[Any], response: Any, sending: OutgoingRequest) -> None:
        self._opening = opening
        self._response = response
        self._sending = sending
        self._has_begun = False
        self.is_whole = cast(str, response.headers.get("content-type", "")).partition(";")[0].endswith("json")
        self._pieces = cast("AsyncIterator[bytes]", response.iter_bytes())

    async def piece(self) -> bytes:
        """The next bytes; of a whole answer, all of it."""
        try:
            piece = await self._response.read() if self.is_whole else await anext(self._pieces, b"")
        except Exception as error:
            raise self._broken(error) from error
        if not self._has_begun:
            self._has_begun = True
            if piece.lstrip()[:1] == b"<":
                raise malformed(self._sending.name, "it is a page for people", piece)
        return piece

    async def end(self) -> None:
        """Read what little is left, so that the client can use the connection again."""
        # The answer is complete: that its connection cannot be used again concerns nobody.
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(SECONDS_FOR_THE_END):
                while await self.piece():
                    pass

    async def close(self) -> None:
        """Close the stream."""
        await self._opening.__aexit__(None, None, None)

    def _broken(self, error: Exception) -> ModelError:
        family = type(error).__mro__
        if type(error).__module__.partition(".")[0] not in _TRANSPORTS:
            raise error
        if any(kind.__name__ == "TimeoutException" for kind in family):
            return timed_out(self._sending.name, self._sending.timeout)
        return cut_short(self._sending.name, has_begun=self._has_begun, because=error)
