"""Models of any provider that LiteLLM supports: `"litellm:bedrock/…"`."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import msgspec
from msgspec.structs import replace

from .._checks import check_arguments, require_extra, unknown_argument
from ..errors import ModelError, ModelRequestError
from ..messages import AssistantMessage, Audio, File, Part, Usage, pair_calls_with_results
from . import provider_errors
from .backoff import respond_with_retries
from .encoding import Block, as_base64, signed_reasoning, without_none
from .model import Chunk, ModelRequest
from .openai.chat import ChatDelta, ChatDialect, ChatEvent, ChatStreamParser
from .settings import ModelSettings, refuse_replacing_fields

_MISSPELT = 0.85
"""The similarity from which an option counts as misspelt; `top_k`, which some providers have, is 0.8 like `top_p`."""
# Errors whose class says more than their status.
_REASONS: dict[str, provider_errors.RejectionReason] = {
    "ContextWindowExceededError": "too_long",
    "ContentPolicyViolationError": "filtered",
    "BudgetExceededError": "quota",
    "LiteLLMUnknownProvider": "unknown_model",
}


LACKS = {
    "truncation": "shorten the history with Agent(history=…)",
    "extra_query": "put the query into LiteLLMModel(base_url=…)",
}
"""The model settings that LiteLLM lacks for every provider, and what would work; each provider lacks more."""
_IF_UNSUPPORTED = (
    "leave it out, or send it anyway with LiteLLMModel(…, allowed_openai_params=[…]). "
    "ModelSettings(ignore_unsupported=True) leaves out what a model lacks"
)


class LiteLLMModel:
    """A model that is called with LiteLLM.

    Raises:
        SetupError: LiteLLM is not installed, or an option is a misspelt argument.
    """

    @check_arguments
    def __init__(self, model: str, *, api_key: str | None = None, base_url: str | None = None, **options: Any) -> None:
        names = ("api_key", "base_url", *ModelSettings.__struct_fields__)
        for name in options:
            # Any other name may be an argument of one provider, which LiteLLM passes on.
            if name not in names and get_close_matches(name, names, 1, _MISSPELT):
                raise unknown_argument("LiteLLMModel", name, names)
        refuse_replacing_fields("LiteLLMModel()", options)
        refuse_replacing_fields("LiteLLMModel(extra_body=…)", options.get("extra_body"))
        self.model = model
        require_extra(f"the model `{self.name}`", "litellm", "litellm")
        self._options = without_none({"api_key": api_key, "api_base": base_url, **options})
        self._dialect = _LiteLLMDialect(model, self.name, "litellm", lacks=LACKS, limit_name="max_tokens")

    @property
    def name(self) -> str:
        """The prefix `litellm:` and the model's name."""
        return f"litellm:{self.model}"

    def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the response to one request. Closing the iterator closes the connection."""
        return respond_with_retries(self._respond_once, request, model=self.name)

    async def _respond_once(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        parser = _LiteLLMStreamParser(self._dialect, request)
        stream: Any = None
        await asyncio.to_thread(_litellm)
        try:
            stream = await _litellm().acompletion(**self._options, **self._parameters(request))
            async for piece in stream:
                event = msgspec.convert(piece, ChatEvent, strict=False, from_attributes=True)
                for chunk in parser.take_event(event):
                    yield chunk
        except ModelError:
            raise
        except Exception as error:
            raise self._translate(error, request.settings, parser.has_begun) from error
        finally:
            if stream is not None:
                await stream.aclose()
        if _is_cut(stream):
            raise provider_errors.cut_short(self.name, has_begun=parser.has_begun)
        for chunk in parser.end(is_done=True):
            yield chunk

    def _parameters(self, request: ModelRequest) -> Block:
        settings = request.settings
        body = self._dialect.body(replace(request, messages=pair_calls_with_results(request.messages), stream=True))
        transport = {
            "timeout": settings.timeout,
            "extra_headers": dict(settings.extra_headers) if settings.extra_headers else None,
            "extra_body": dict(settings.extra_body) if settings.extra_body else None,
        }
        # LiteLLM knows what each provider supports: it refuses the rest, or drops it.
        drops = bool(settings.ignore_unsupported)
        return {**body, **without_none(transport), "num_retries": 0, "max_retries": 0, "drop_params": drops}

    def _translate(self, error: Exception, settings: ModelSettings, has_begun: bool) -> Exception:
        """Return the ModelError for an error of LiteLLM or the network, any other error as it is."""
        cause: Exception = getattr(error, "original_exception", None) or error
        family = [kind.__name__ for kind in type(cause).__mro__]
        if "Connection error" in str(cause) and not has_begun:
            return provider_errors.unreachable(self.name, cause.__cause__ or cause)
        if "Timeout" in family or "TimeoutException" in family:
            return provider_errors.timed_out(self.name, settings.timeout)
        if "UnsupportedParamsError" in family:
            detail = str(getattr(error, "message", error)).partition(" To drop")[0].rpartition("Error: ")[2]
            return ModelRequestError(f"`{self.name}`: {detail} {_IF_UNSUPPORTED}", model=self.name)
        reason: provider_errors.RejectionReason | None = next(
            (_REASONS[name] for name in family if name in _REASONS), None
        )
        if reason or "APIStatusError" in family:
            status, headers = _status_and_headers(cause)
            detail = str(getattr(error, "message", error))[:500]
            return provider_errors.rejected(
                self.name,
                reason or provider_errors.reason_for_status(status),
                detail,
                retry_after=provider_errors.retry_after(headers),
            )
        if {"APIConnectionError", "APIError", "TransportError", "ClientError"} & set(family):
            return provider_errors.cut_short(self.name, has_begun=has_begun, because=error)
        return error


class _LiteLLMDialect(ChatDialect, frozen=True):
    """Chat Completions with LiteLLM's additions: more media, and reasoning with signatures."""

    def encode_part(self, part: Part) -> Block:
        if isinstance(part, File) and part.url is not None:
            return {"type": "file", "file": {"file_id": part.url, "format": part.media_type}}
        if isinstance(part, Audio):
            if part.data is None:
                raise provider_errors.unsupported(self.name, "audio by URL", "pass Audio(data=…)")
            kind = part.media_type.rpartition("/")[2].replace("mpeg", "mp3")
            return {"type": "input_audio", "input_audio": {"data": as_base64(part.data), "format": kind}}
        return super().encode_part(part)

    def encode_response(self, message: AssistantMessage, text: str) -> list[Block]:
        (encoded,) = super().encode_response(message, text)
        signatures = [signature for _, signature in signed_reasoning(message, "litellm")]
        if signatures:
            encoded["thinking_blocks"] = [block for each in signatures for block in each["thinking_blocks"]]
        return [encoded]


class _LiteLLMStreamParser(ChatStreamParser):
    def __init__(self, dialect: ChatDialect, request: ModelRequest) -> None:
        super().__init__(dialect, request)
        self._thinking_blocks: list[Any] = []

    def _take_delta(self, delta: ChatDelta) -> None:
        # Thinking blocks also arrive in pieces; only complete ones can be sent back.
        complete = [block for block in delta.thinking_blocks or () if block.get("signature") or block.get("data")]
        self._thinking_blocks += complete
        self._is_reasoning = self._is_reasoning or bool(complete)
        super()._take_delta(delta)

    def _close_reasoning(self, signature: Any = None) -> None:
        blocks = self._thinking_blocks
        self._thinking_blocks = []
        super()._close_reasoning({"thinking_blocks": blocks} if blocks else None)

    def _finish(self, stop_reason: str, usage: Usage | None, model: str = "") -> None:
        super()._finish(stop_reason, usage and replace(usage, model_calls=1), self._model)


def _is_cut(stream: Any) -> bool:
    """Check whether a stream ended without a stop reason, for which LiteLLM makes up `stop`."""
    names = ("received_finish_reason", "intermittent_finish_reason")
    return hasattr(stream, names[0]) and not any(getattr(stream, name, None) for name in names)


def _status_and_headers(error: BaseException) -> tuple[int, Mapping[str, str]]:
    """Return status and headers of the response, which only the wrapped errors have."""
    inner: BaseException | None = error
    status = 0
    headers: Mapping[str, str] = {}
    while inner is not None:
        status = getattr(inner, "status_code", None) or status
        headers = getattr(getattr(inner, "response", None), "headers", None) or headers
        inner = inner.__cause__ or inner.__context__
    return status, headers


def _litellm() -> Any:
    # Without this, the import downloads a price list.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm: Any = import_module("litellm")
    # It would print advice on each error.
    litellm.suppress_debug_info = True
    return litellm
