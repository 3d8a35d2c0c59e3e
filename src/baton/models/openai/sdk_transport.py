"""Transport over OpenAI's client, for programs that already have one."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, cast

from ...errors import ModelError
from ..provider_errors import cut_short, timed_out, unreachable
from .errors import turned_down
from .transport import BaseResponseStream, OpenAIResponseStream, OutgoingRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_HTTP_PACKAGES = ("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp")


class SDKTransport:
    """A transport over an `AsyncOpenAI` or a subclass; its own retries and timeouts apply.

    Args:
        client: The client; you close it yourself.
    """

    def __init__(self, client: "AsyncOpenAI") -> None:
        self._client = client

    async def send(self, request: OutgoingRequest) -> OpenAIResponseStream:
        """Send a request and return its response once it begins."""
        import openai

        client: Any = self._client
        resource = client.responses if request.path == "/responses" else client.chat.completions
        options: dict[str, Any] = {"extra_headers": request.headers, "extra_body": request.extra}
        if request.timeout is not None:
            options["timeout"] = request.timeout
        opening = resource.with_streaming_response.create(**request.body, **options)
        try:
            response = await opening.__aenter__()
        except openai.APIStatusError as error:
            raise turned_down(
                request.name, error.status_code, error.response.headers, error.response.content
            ) from error
        except openai.APITimeoutError as error:
            raise timed_out(request.name, request.timeout) from error
        except openai.APIConnectionError as error:
            raise unreachable(request.name, error.__cause__ or error, url=str(client.base_url)) from error
        except openai.OpenAIError as error:
            raise ModelError(f"the client of `{request.name}` failed: {error}", model=request.name) from error
        return _SDKResponse(opening, response, request)

    async def close(self) -> None:
        """Do nothing: the owner of the client closes it."""


class _SDKResponse(BaseResponseStream):
    def __init__(self, opening: AbstractAsyncContextManager[Any], response: Any, request: OutgoingRequest) -> None:
        content_type = cast(str, response.headers.get("content-type", "")).partition(";")[0]
        super().__init__(request.name, request.timeout, content_type.endswith("json"))
        self._opening = opening
        self._response = response
        self._pieces = cast("AsyncIterator[bytes]", response.iter_bytes())

    async def close(self) -> None:
        """Close the connection."""
        await self._opening.__aexit__(None, None, None)

    async def _read(self) -> bytes:
        return await self._response.read() if self.is_whole else await anext(self._pieces, b"")

    def _translate(self, error: Exception) -> ModelError:
        if type(error).__module__.partition(".")[0] not in _HTTP_PACKAGES:
            raise error
        if any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__):
            return timed_out(self._name, self._seconds)
        return cut_short(self._name, has_begun=self._has_begun, because=error)
