"""OpenAI's endpoints with authentication."""

from collections.abc import Iterable, Mapping

import msgspec
from tests.servers.base import APIEndpoint, ReceivedRequest, RequestRejectedError
from tests.servers.openai.chat import ChatCompletions
from tests.servers.openai.chat_schema import ReasoningField
from tests.servers.openai.errors import need_key, refused, wrong
from tests.servers.openai.responses import Responses
from tests.servers.server import ProviderServer, ServerOptions
from typing_extensions import Unpack

from batonkit.errors import ContextTooLongError, ModelError
from batonkit.testing.scripted import ScriptStep

_CHAT, _RESPONSES, _MODELS = "/v1/chat/completions", "/v1/responses", "/v1/models"
_CREATED = 1_700_000_000


class OpenAIServer(ProviderServer):
    """A local server with `/v1/chat/completions`, `/v1/responses` and `/v1/models`, with and without streaming.

    `reasoning_field` is for compatible servers that return their reasoning in Chat Completions.
    """

    def __init__(
        self,
        steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]],
        *,
        reasoning_field: ReasoningField = "",
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(steps, **options)
        self._chat = ChatCompletions(reasoning_field)
        self._responses = Responses()

    @property
    def base_url(self) -> str:
        """Return the base URL for clients: the origin and `/v1`."""
        return f"{self.origin}/v1"

    def route(self, received: ReceivedRequest) -> APIEndpoint | bytes:
        """Return the endpoint of this path."""
        need_key(received, self.api_key)
        path, method = received.path, received.method
        if path == _MODELS or path.startswith(f"{_MODELS}/"):
            return self._listing(path.removeprefix(_MODELS).removeprefix("/"))
        if path not in (_CHAT, _RESPONSES):
            raise wrong(f"Invalid URL ({method} {path})", status=404)
        if method != "POST":
            hint = "(HINT: Perhaps you meant to use a different HTTP method?)"
            raise wrong(f"Not allowed to {method} on {path}. {hint}", status=405)
        content_type = received.headers.get("content-type", "")
        if not content_type.startswith("application/json"):
            accepted = "This API method only accepts 'application/json' requests"
            raise wrong(f"Unsupported content type: '{content_type}'. {accepted}.")
        return self._chat if path == _CHAT else self._responses

    def refused(self, error: ModelError, received: ReceivedRequest) -> RequestRejectedError:
        """Create the rejection that corresponds to this error."""
        is_chat = received.path == _CHAT
        param = ("messages" if is_chat else "input") if isinstance(error, ContextTooLongError) else None
        return refused(error, param)

    def _listing(self, name: str) -> bytes:
        known = [
            {"id": model, "object": "model", "created": _CREATED, "owned_by": "baton"} for model in self.models or ()
        ]
        if not name:
            return msgspec.json.encode({"object": "list", "data": known})
        for model in known:
            if model["id"] == name:
                return msgspec.json.encode(model)
        raise wrong(f"The model '{name}' does not exist", param="model", code="model_not_found", status=404)
