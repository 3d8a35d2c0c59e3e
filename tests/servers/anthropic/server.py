"""Anthropic's endpoints with authentication; requests are parsed, checked and converted to Baton's types."""

from base64 import b64decode
from binascii import Error
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET
from tests.servers.anthropic.request_schema import (
    OLD_VERSION,
    AnyChoice,
    AutoChoice,
    Block,
    DisabledThinking,
    DocumentBlock,
    ImageBlock,
    MessagesRequest,
    NoChoice,
    RedactedThinkingBlock,
    TextBlock,
    TextSource,
    ThinkingBlock,
    Tool,
    ToolChoice,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
    check_offer,
    check_options,
    check_turns,
)
from tests.servers.anthropic.responses import MessageStream, Signatures, message, refused, rejection_of, wrong
from tests.servers.base import AnswerStream, APIEndpoint, ReceivedRequest, RequestRejectedError, ValidRequest
from tests.servers.server import ProviderServer, ServerOptions
from tests.servers.validation import InvalidBodyError, decoded
from typing_extensions import Unpack

from batonkit.errors import ModelError, ModelNotFoundError
from batonkit.messages import (
    AssistantMessage,
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
)
from batonkit.models import ModelRequest, ModelResponse, ModelSettings, OutputSchema
from batonkit.testing.scripted import ScriptStep

_DECODER = msgspec.json.Decoder(MessagesRequest)


class Messages(APIEndpoint):
    """`/v1/messages`. It keeps the signatures of the reasoning it sent, to verify them later."""

    def __init__(self) -> None:
        self.signatures = Signatures()

    def read(self, received: ReceivedRequest) -> ValidRequest:
        """Parse and check a request."""
        try:
            wire = decoded(_DECODER, received.raw)
        except InvalidBodyError as invalid:
            raise rejection_of(invalid) from None
        check_options(wire, received.headers.get("anthropic-version", ""))
        check_offer(wire)
        check_turns(wire, self.signatures)
        return ValidRequest(wire.model, wire.stream, _request(wire), wire)

    def whole(self, valid: ValidRequest, whole: ModelResponse) -> bytes:
        """Encode a `message`."""
        return message(valid, whole, self.signatures)

    def stream(self, valid: ValidRequest) -> AnswerStream:
        """Create the stream of events, from `message_start` to `message_stop`."""
        return MessageStream(valid, self.signatures, len(msgspec.json.encode(valid.wire)) // 4)


def _request(wire: MessagesRequest) -> ModelRequest:
    system = wire.system or ""
    instructions = system if isinstance(system, str) else "\n\n".join([block.text for block in system])
    form = wire.output_config.format if wire.output_config is not None else None
    return ModelRequest(
        tuple(_messages(wire)),
        instructions,
        tuple([_spec(tool) for tool in wire.tools or ()]),
        _settings(wire),
        OutputSchema("output", form.schema) if form is not None else None,
        tool_choice=_tool_choice(wire),
    )


def _messages(wire: MessagesRequest) -> Iterator[Message]:
    names: dict[str, str] = {}
    for index, turn in enumerate(wire.messages):
        place = f"messages.{index}.content"
        blocks: Sequence[Block] = [TextBlock(text=turn.content)] if isinstance(turn.content, str) else turn.content
        if turn.role == "assistant":
            message = _assistant(blocks)
            names |= {call.id: call.name for call in message.tool_calls}
            yield message
            continue
        for block in blocks:
            if isinstance(block, ToolResultBlock):
                value = block.content
                content = "" if value is UNSET else value if isinstance(value, str) else _content(value, place)
                yield ToolMessage(block.tool_use_id, names[block.tool_use_id], content, block.is_error)
        rest = [block for block in blocks if not isinstance(block, ToolResultBlock)]
        if rest:
            yield UserMessage(_content(rest, place))


def _assistant(blocks: Sequence[Block]) -> AssistantMessage:
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    reasoning: list[Reasoning] = []
    for block in blocks:
        if isinstance(block, ThinkingBlock):
            reasoning.append(Reasoning(block.thinking, "anthropic", {"signature": block.signature}))
        elif isinstance(block, RedactedThinkingBlock):
            reasoning.append(Reasoning("", "anthropic", {"data": block.data}))
    return AssistantMessage(
        "".join([block.text for block in blocks if isinstance(block, TextBlock)]),
        tuple([ToolCall(call.id, call.name, msgspec.json.encode(call.input).decode()) for call in calls]),
        tuple(reasoning),
    )


def _content(blocks: Sequence[Block], place: str) -> Content:
    parts = tuple([part for block in blocks if (part := _part(block, place)) is not None])
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return parts


def _part(block: Block, place: str) -> Part | None:
    match block:
        case TextBlock():
            return Text(block.text)
        case ImageBlock():
            source = block.source
            if isinstance(source, UrlSource):
                return Image(url=source.url)
            return Image(data=_bytes(source.data, place), media_type=source.media_type)
        case DocumentBlock():
            source = block.source
            if isinstance(source, UrlSource):
                return File(url=source.url, media_type="application/pdf", name=block.title)
            if isinstance(source, TextSource):
                return File(data=source.data.encode(), media_type="text/plain", name=block.title)
            return File(data=_bytes(source.data, place), media_type=source.media_type, name=block.title)
        case _:
            return None


def _bytes(text: str, place: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Error:
        raise wrong(f"{place}.source.base64.data: invalid base64 data") from None


def _spec(tool: Tool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description or "", tool.input_schema, bool(tool.strict))


def _tool_choice(wire: MessagesRequest) -> str | None:
    match wire.tool_choice:
        case None:
            return None
        case AutoChoice():
            return "auto"
        case AnyChoice():
            return "required"
        case NoChoice():
            return "none"
        case ToolChoice(name=name):
            return name


def _settings(wire: MessagesRequest) -> ModelSettings:
    disables_parallel = getattr(wire.tool_choice, "disable_parallel_tool_use", None)
    effort = wire.output_config.effort if wire.output_config is not None else None
    return ModelSettings(
        temperature=wire.temperature,
        top_p=wire.top_p,
        max_tokens=wire.max_tokens,
        parallel_tool_calls=None if disables_parallel is None else not disables_parallel,
        reasoning_effort="none" if isinstance(wire.thinking, DisabledThinking) else effort,
        stop_sequences=tuple(wire.stop_sequences) if wire.stop_sequences else None,
        top_k=wire.top_k,
        metadata={"user_id": wire.metadata.user_id} if wire.metadata is not None and wire.metadata.user_id else None,
        service_tier=wire.service_tier,
    )


_MESSAGES, _MODELS = "/v1/messages", "/v1/models"
_VERSIONS = (OLD_VERSION, "2026-10-21")
_BEARER = "Bearer "


class AnthropicServer(ProviderServer):
    """A local server with `/v1/messages` and `/v1/models`, with and without streaming.

    It is stricter than Anthropic: two consecutive turns of the same role are refused rather than joined.
    """

    def __init__(
        self, steps: Iterable[ScriptStep] | Mapping[str, Iterable[ScriptStep]], **options: Unpack[ServerOptions]
    ) -> None:
        super().__init__(steps, **options)
        self._messages = Messages()

    @property
    def base_url(self) -> str:
        """Return the base URL for clients, which is the origin."""
        return self.origin

    def route(self, received: ReceivedRequest) -> APIEndpoint | bytes:
        """Return the endpoint of this path."""
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
        """Create the rejection that corresponds to this error."""
        if isinstance(error, ModelNotFoundError):
            return wrong(f"model: {received.model}", status=404)
        return refused(error, received.tokens, self.context_window)

    def _authenticate(self, received: ReceivedRequest) -> None:
        value = received.headers.get("x-api-key") or received.headers.get("authorization", "").removeprefix(_BEARER)
        if not value:
            raise wrong("x-api-key header is required", status=401)
        if value != self.api_key:
            raise wrong("invalid x-api-key", status=401)
