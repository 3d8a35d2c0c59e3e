"""A model of Google, over its official SDK."""

import os
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

from ...errors import AuthenticationError
from ..base import Chunk, ModelRequest
from ..extras import require_extra
from ..failures import cut_short, malformed, refused, timed_out, unreachable
from ..per_loop import PerEventLoop
from .answer import GoogleStreamParser
from .connection import GoogleClient
from .failures import complaint
from .request import parameters

_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_CLOUD = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


class GoogleModel:
    """Gemini, by the name that Google gives it, such as `gemini-3.8-flash`.

    The key is `api_key`, or else GOOGLE_API_KEY or GEMINI_API_KEY; with GOOGLE_GENAI_USE_VERTEXAI=true the SDK finds
    project and credentials by itself.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.model = model
        require_extra("google", "google.genai", model=self.name, what="the SDK google-genai", extra="google")
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._connections = PerEventLoop(self._made, _closed)

    @property
    def name(self) -> str:
        """`google:` and the model's name."""
        return f"google:{self.model}"

    async def aclose(self) -> None:
        """Close the connections of this event loop; they close by themselves when the loop ends."""
        await self._connections.close()

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer one request, piece by piece. Closing the iterator closes the stream."""
        answer = GoogleStreamParser(self.name, request.tools)
        connection = await self._connections.get()
        given = parameters(request, self.model, self.name)
        async with aclosing(connection.stream(given)) as pieces:
            with self._told(request.settings.timeout) as progress:
                async for piece in pieces:
                    progress.has_begun = True
                    for chunk in answer.chunks(piece):
                        yield chunk
        if not answer.is_complete:
            raise cut_short(self.name, has_begun=True)
        for chunk in answer.end():
            yield chunk

    @contextmanager
    def _told(self, seconds: float | None) -> Generator["_Progress"]:
        """What the SDK and its HTTP client raise, as errors of ours."""
        import httpx2
        from google.genai import errors
        from pydantic import ValidationError

        progress = _Progress()
        try:
            yield progress
        except errors.UnknownApiResponseError as error:
            raise malformed(self.name, "a piece is not JSON") from error
        except errors.APIError as error:
            said: Any = error
            headers = getattr(said.response, "headers", None)
            raise complaint(self.name, said.code or 500, said.details, headers) from error
        except ValidationError as error:
            # The SDK checks what it is given with the same means as what it gets.
            if not error.title.startswith("GenerateContentResponse"):
                raise refused(self.name, "bad request", f"the SDK says: {error}") from error
            raise malformed(self.name, "fields are not as documented") from error
        except httpx2.TimeoutException as error:
            raise timed_out(self.name, seconds) from error
        except httpx2.ConnectError as error:
            raise unreachable(self.name, error) from error
        except httpx2.TransportError as error:
            raise cut_short(self.name, has_begun=progress.has_begun, because=error) from error
        except (TypeError, AttributeError, LookupError) as error:
            raise malformed(self.name, f"fields are not as documented: {error}") from error

    def _made(self) -> GoogleClient:
        is_cloud = any(os.environ.get(name, "").lower() in ("true", "1") for name in _CLOUD)
        if not self._api_key and not is_cloud and not any(os.environ.get(name) for name in _KEYS):
            advice = "set GOOGLE_API_KEY or GEMINI_API_KEY, or give GoogleModel(…, api_key=…)"
            raise AuthenticationError(f"`{self.name}` needs a key: {advice}", model=self.name)
        return GoogleClient(self._api_key, self._base_url, self._headers)


class _Progress:
    """Whether anything has come yet."""

    has_begun = False


async def _closed(connection: GoogleClient) -> None:
    await connection.close()
