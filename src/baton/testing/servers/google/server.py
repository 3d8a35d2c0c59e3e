"""Google's addresses, and who may use them."""

import re
from collections.abc import Iterable, Mapping

import msgspec
from typing_extensions import Unpack

from ....errors import ModelError, ModelNotFoundError
from ...steps import ScriptStep
from ..base import APIEndpoint
from ..received import ReceivedRequest, RequestRejectedError
from ..server import ProviderServer, ServerOptions
from .answers import Signatures
from .errors import bad_key, refused, wrong
from .generate import Generate

_PATH = re.compile(r"/(?P<version>v1|v1beta)/models/(?P<model>[^:/]+):(?P<method>\w+)")
_LIST = re.compile(r"/v1(?:beta)?/models")
_STREAM = "streamGenerateContent"


class GoogleServer(ProviderServer):
    """The Gemini API on this machine: generateContent, streamGenerateContent?alt=sse, and the list of models.

    It is stricter than Google in this: two turns of the same role in a row are refused, and so are words of JSON schema
    that are not documented. With `call_ids=False` it gives calls no ids, as many of Google's models do.
    """

    def __init__(
        self,
        steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]],
        *,
        call_ids: bool = True,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(steps, **options)
        self._gives_ids = call_ids
        self._signatures = Signatures()

    @property
    def base_url(self) -> str:
        """What the client is given: the origin alone."""
        return self.origin

    def route(self, received: ReceivedRequest) -> APIEndpoint | bytes:
        """The endpoint of this path."""
        self._authenticate(received)
        if _LIST.fullmatch(received.path):
            known = [{"name": f"models/{model}", "displayName": model} for model in self.models or ()]
            return msgspec.json.encode({"models": known})
        found = _PATH.fullmatch(received.path)
        if found is None or found["method"] not in ("generateContent", _STREAM) or received.method != "POST":
            raise RequestRejectedError(404, b"", headers={"content-type": "text/html; charset=UTF-8"})
        streams = found["method"] == _STREAM
        if streams and received.query.get("alt") != "sse":
            raise wrong("This test server streams server-sent events only: add ?alt=sse.")
        return Generate(found["model"], self._signatures, streams=streams, gives_ids=self._gives_ids)

    def refused(self, error: ModelError, received: ReceivedRequest) -> RequestRejectedError:
        """The status and the body that say the same as this error."""
        if isinstance(error, ModelNotFoundError):
            advice = "Call ListModels to see the list of available models and their supported methods."
            version = received.path.split("/")[1]
            what = f"models/{received.model} is not found for API version {version}"
            return wrong(f"{what}, or is not supported for generateContent. {advice}", status=404)
        return refused(error, received.tokens, self.context_window, received.path.endswith(_STREAM))

    def _authenticate(self, received: ReceivedRequest) -> None:
        given = received.headers.get("x-goog-api-key") or received.query.get("key")
        if not given:
            who = "callers without established identity"
            how = "Please use API Key or other form of API consumer identity to call this API."
            raise wrong(f"Method doesn't allow unregistered callers ({who}). {how}", status=403)
        if given != self.api_key:
            raise bad_key()
