"""Google's endpoints with authentication; requests are parsed, checked and converted to Baton's types."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from tests.servers.base import AnswerStream, APIEndpoint, ReceivedRequest, RequestRejectedError, ValidRequest
from tests.servers.google.request_schema import (
    FunctionDeclaration,
    GenerateRequest,
    GenerationConfig,
    WireContent,
    WirePart,
    check_contents,
    check_options,
    check_tools,
    in_camel_case,
)
from tests.servers.google.responses import (
    ContentStream,
    Signatures,
    bad_key,
    encode_response,
    refused,
    rejection_of,
    wrong,
)
from tests.servers.server import ProviderServer, ServerOptions
from tests.servers.validation import InvalidBodyError, decoded
from typing_extensions import Unpack

from batonkit.errors import ModelError, ModelNotFoundError
from batonkit.messages import (
    AssistantMessage,
    Audio,
    Content,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    text_of,
)
from batonkit.models import ModelRequest, ModelResponse, ModelSettings, OutputSchema
from batonkit.testing.scripted import ScriptStep

_DECODER = msgspec.json.Decoder(GenerateRequest)
_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}


class Generate(APIEndpoint):
    """`models/…:generateContent` and `models/…:streamGenerateContent`, for one model."""

    def __init__(self, model: str, signatures: Signatures, *, streams: bool, gives_ids: bool) -> None:
        self._model = model
        self._streams = streams
        self._signatures = signatures
        self._gives_ids = gives_ids

    def read(self, received: ReceivedRequest) -> ValidRequest:
        """Parse and check a request."""
        try:
            wire = decoded(_DECODER, in_camel_case(received.raw))
        except msgspec.DecodeError as error:
            raise rejection_of(InvalidBodyError("json", "", given=str(error))) from None
        except InvalidBodyError as invalid:
            raise rejection_of(invalid) from None
        check_options(wire, self._model)
        check_tools(wire)
        check_contents(wire, self._model, self._signatures)
        return ValidRequest(self._model, self._streams, _request(wire), wire)

    def whole(self, valid: ValidRequest, whole: ModelResponse) -> bytes:
        """Encode a GenerateContentResponse."""
        return encode_response(valid, whole, self._signatures, gives_ids=self._gives_ids)

    def stream(self, valid: ValidRequest) -> AnswerStream:
        """Create the stream of GenerateContentResponses."""
        return ContentStream(valid, self._signatures, gives_ids=self._gives_ids)


def _request(wire: GenerateRequest) -> ModelRequest:
    config = wire.generation_config or GenerationConfig()
    system = wire.system_instruction
    schema = config.response_json_schema
    return ModelRequest(
        tuple(_messages(wire.contents)),
        text_of(_content(system.parts)) if system is not None else "",
        tuple([_spec(each) for tool in wire.tools or () for each in tool.function_declarations]),
        _settings(wire, config),
        OutputSchema("output", schema) if schema is not None else None,
        tool_choice=_tool_choice(wire),
    )


def _messages(contents: Sequence[WireContent]) -> Iterator[Message]:
    for content in contents:
        if content.role == "model":
            yield _assistant_message(content.parts)
            continue
        for part in content.parts:
            response = part.function_response
            if response is not None:
                yield ToolMessage(response.id or "", response.name, *_outcome(response.response))
        rest = [part for part in content.parts if part.function_response is None]
        if rest:
            yield UserMessage(_content(rest))


def _outcome(response: dict[str, Any]) -> tuple[str, bool]:
    for key, is_error in (("error", True), ("result", False)):
        if isinstance(response.get(key), str):
            return response[key], is_error
    return msgspec.json.encode(response).decode(), False


def _assistant_message(parts: Sequence[WirePart]) -> AssistantMessage:
    calls: list[ToolCall] = []
    reasoning: list[Reasoning] = []
    for part in parts:
        signature = {"signature": part.thought_signature} if part.thought_signature is not None else None
        call = part.function_call
        if call is not None:
            if signature is not None:
                reasoning.append(Reasoning("", "google", {**signature, "call": len(calls), "name": call.name}))
            calls.append(ToolCall(call.id or "", call.name, msgspec.json.encode(call.args or {}).decode()))
        elif part.thought or signature is not None:
            reasoning.append(Reasoning(part.text or "" if part.thought else "", "google", signature))
    content_parts = [part for part in parts if not part.thought and part.function_call is None and part.text != ""]
    return AssistantMessage(_content(content_parts) if content_parts else "", tuple(calls), tuple(reasoning))


def _content(parts: Sequence[WirePart]) -> Content:
    read = tuple([_part(part) for part in parts])
    if len(read) == 1 and isinstance(read[0], Text):
        return read[0].text
    return read


def _part(part: WirePart) -> Part:
    if part.file_data is not None:
        kind = part.file_data.mime_type or "application/octet-stream"
        return _media_part(kind, url=part.file_data.file_uri)
    if part.inline_data is not None:
        try:
            data = b64decode(part.inline_data.data, validate=True)
        except Error:
            raise wrong("Invalid value at 'inline_data.data' (TYPE_BYTES), Base64 decoding failed") from None
        return _media_part(part.inline_data.mime_type, data=data)
    return Text(part.text or "")


def _media_part(kind: str, *, url: str | None = None, data: bytes | None = None) -> Part:
    family = kind.partition("/")[0]
    if family == "image":
        return Image(url=url, data=data, media_type=kind)
    if family == "audio":
        return Audio(url=url, data=data, media_type=kind)
    return File(url=url, data=data, media_type=kind)


def _spec(function: FunctionDeclaration) -> ToolSpec:
    parameters = function.parameters_json_schema or {"type": "object", "properties": {}}
    return ToolSpec(function.name, function.description or "", parameters)


def _tool_choice(wire: GenerateRequest) -> str | None:
    choice = wire.tool_config.function_calling_config if wire.tool_config is not None else None
    if choice is None:
        return None
    return choice.allowed_function_names[0] if choice.allowed_function_names else _MODES[choice.mode]


_TIERS = {"unspecified": "auto", "standard": "default"}


def _settings(wire: GenerateRequest, config: GenerationConfig) -> ModelSettings:
    level = config.thinking_config.thinking_level if config.thinking_config is not None else None
    return ModelSettings(
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_output_tokens,
        reasoning_effort=level.lower() if level is not None else None,
        stop_sequences=tuple(config.stop_sequences) if config.stop_sequences else None,
        seed=config.seed,
        top_k=None if config.top_k is None else int(config.top_k),
        presence_penalty=config.presence_penalty,
        frequency_penalty=config.frequency_penalty,
        logprobs=config.response_logprobs,
        top_logprobs=config.logprobs,
        metadata=wire.labels,
        service_tier=_TIERS.get(wire.service_tier or "", wire.service_tier),
    )


_PATH = re.compile(r"/(?P<version>v1|v1beta)/models/(?P<model>[^:/]+):(?P<method>\w+)")
_LIST = re.compile(r"/v1(?:beta)?/models")
_STREAM = "streamGenerateContent"


class GoogleServer(ProviderServer):
    """A local server with generateContent, streamGenerateContent?alt=sse and the list of models.

    It is stricter than Google: it refuses two consecutive turns of the same role and undocumented JSON schema keywords.
    With `call_ids=False`, calls have no ids, as with many of Google's models.
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
        """Return the base URL for clients, which is the origin."""
        return self.origin

    def route(self, received: ReceivedRequest) -> APIEndpoint | bytes:
        """Return the endpoint of this path."""
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
        """Create the rejection that corresponds to this error."""
        if isinstance(error, ModelNotFoundError):
            advice = "Call ListModels to see the list of available models and their supported methods."
            version = received.path.split("/")[1]
            subject = f"models/{received.model} is not found for API version {version}"
            return wrong(f"{subject}, or is not supported for generateContent. {advice}", status=404)
        return refused(error, received.tokens, self.context_window, received.path.endswith(_STREAM))

    def _authenticate(self, received: ReceivedRequest) -> None:
        key = received.headers.get("x-goog-api-key") or received.query.get("key")
        if not key:
            callers = "callers without established identity"
            advice_for_callers = "Please use API Key or other form of API consumer identity to call this API."
            raise wrong(f"Method doesn't allow unregistered callers ({callers}). {advice_for_callers}", status=403)
        if key != self.api_key:
            raise bad_key()
