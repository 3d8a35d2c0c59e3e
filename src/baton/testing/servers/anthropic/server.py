"""Anthropic's addresses, and who may use them."""

from collections.abc import Iterable, Mapping

import msgspec
from typing_extensions import Unpack

from ....errors import ModelError, ModelNotFoundError
from ...steps import ScriptStep
from ..base import APIEndpoint
from ..received import ReceivedRequest, RequestRejectedError
from ..server import ProviderServer, ServerOptions
from .checks import OLD_VERSION
from .errors import refused, wrong
from .messages import Messages

_MESSAGES, _MODELS = "/v1/messages", "/v1/models"
_VERSIONS = (OLD_VERSION, "2026-10-21")
_BEARER = "Bearer "


class AnthropicServer(ProviderServer):
    """Anthropic on this machine: `/v1/messages` and `/v1/models`, with and without streaming.

    It is stricter than Anthropic in one thing: two turns of the same role in a row are refused rather than joined.
    """

    def __init__(
        self, steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]], **options: Unpack[ServerOptions]
    ) -> None:
        super().__init__(steps, **options)
        self._messages = Messages()

    @property
    def base_url(self) -> str:
        """What the client is given: the origin alone."""
        return self.origin

    def route(self, received: ReceivedRequest) -> APIEndpoint | bytes:
        """The endpoint of this path."""
        self._authenticate(received)
        version = received.headers.get("anthropic-version", "")
        if not version:
            raise wrong("anthropic-version: header is required")
        if version not in _VERSIONS:
            raise wrong(f'anthropic-version: "{version}" is not a valid version')
        if received.path == _MODELS:
            known = [{"type": "model", "id": model, "display_name": model} for model in self.models or ()]
            return msgspec.json.encode({"data": known, "has_more": False, "first_id": None, "last_id": None})
        if received.path != _MESSAGES:
            raise wrong("Not Found", status=404)
        if received.method != "POST":
            raise wrong("Method Not Allowed", status=405)
        return self._messages

    def refused(self, error: ModelError, received: ReceivedRequest) -> RequestRejectedError:
        """The status and the body that say the same as this error."""
        if isinstance(error, ModelNotFoundError):
            return wrong(f"model: {received.model}", status=404)
        return refused(error, received.tokens, self.context_window)

    def _authenticate(self, received: ReceivedRequest) -> None:
        given = received.headers.get("x-api-key") or received.headers.get("authorization", "").removeprefix(_BEARER)
        if not given:
            raise wrong("x-api-key header is required", status=401)
        if given != self.api_key:
            raise wrong("invalid x-api-key", status=401)
