"""Responses of the SDKs of OpenAI and Anthropic, which have one design: opening, reading and closing them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

from ..errors import ModelError
from .event_stream import BaseResponseStream
from .provider_errors import Classify, cut_short, error_from_response, timed_out, unreachable

_HTTP_PACKAGES = ("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp")
_BROKEN_CONNECTIONS = ("RemoteProtocolError", "ReadError")


async def open_response(
    sdk: Any, client: Any, resource: Any, parameters: dict[str, Any], *, model: str, classify: Classify
) -> BaseResponseStream:
    """Call `create` of a resource of an SDK and return the response once it begins.

    Raises:
        ModelError: There is no response; other errors of the SDK are raised as they are.
    """
    seconds = parameters.get("timeout")
    opening = resource.with_streaming_response.create(**parameters)
    try:
        response = await opening.__aenter__()
    except sdk.APIStatusError as error:
        sent = error.response
        raise error_from_response(model, error.status_code, sent.headers, sent.content, classify) from error
    except sdk.APITimeoutError as error:
        raise timed_out(model, seconds) from error
    except sdk.APIConnectionError as error:
        cause = error.__cause__ or error
        if type(cause).__name__ in _BROKEN_CONNECTIONS:
            raise cut_short(model, has_begun=False, because=cause) from error
        raise unreachable(model, cause, url=str(client.base_url)) from error
    return _SDKResponse(opening, response, model, seconds)


class _SDKResponse(BaseResponseStream):
    def __init__(
        self, opening: AbstractAsyncContextManager[Any], response: Any, model: str, seconds: float | None
    ) -> None:
        content_type = cast(str, response.headers.get("content-type", "")).partition(";")[0]
        super().__init__(model, seconds, content_type.endswith("json"))
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
