"""The decoder protocol and its implementation with llama.cpp."""

import os
import secrets
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...errors import ContextTooLongError, MissingExtraError, ModelRequestError, WeightsError
from ...messages import Usage
from ..encoding import as_json, without_none

OnText: TypeAlias = Callable[[str], bool]
"""Called with each piece of text, and with "" while the prompt is read; returning True stops the decoding."""

SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed")
"""The settings that jobs and llama.cpp have under the names of `ModelSettings`."""
_SLOTS = {"choose": 0, "fill": 1, "speak": 2}
_CONTEXT_TOKENS = 8192
# Decoding can be stopped between two batches; larger ones are hardly faster on a CPU.
_BATCH_TOKENS = 64


class PromptTurn(Struct, frozen=True):
    """One message of a prompt, in a role that every chat template supports."""

    role: Literal["system", "user", "assistant"]
    text: str


class DecodeJob(Struct, frozen=True, kw_only=True):
    """The prompt and the constraints of one decoding; give `choices` or `schema`, not both."""

    kind: Literal["choose", "fill", "speak"]
    """Jobs of one kind share a prefix, which is cached."""
    turns: tuple[PromptTurn, ...]
    choices: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


class DecodeResult(Struct, frozen=True):
    """The end of a decoding; `stop_reason` is "stop", "length", or "" if it was stopped."""

    usage: Usage = Usage()
    stop_reason: str = ""


class Decoder(Protocol):
    """Decodes prompts. It is called from several threads at once."""

    def decode(self, job: DecodeJob, on_text: OnText) -> DecodeResult:
        """Decode until the end or until `on_text` returns True. Blocks."""
        ...


class LlamaDecoder:
    """llama.cpp with one file of weights.

    Raises:
        WeightsError: The file cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        parameters = _parameters(_library(), path)
        try:
            self._server: Any = _library().Server(parameters)
        except Exception as error:
            # The library has no error types of its own; errors here concern the file.
            raise WeightsError(f"llama.cpp cannot load `{path}`: {error}; it must be a complete GGUF file") from error

    def decode(self, job: DecodeJob, on_text: OnText) -> DecodeResult:
        """Decode until the end or until `on_text` returns True. Blocks without holding the GIL."""
        result = DecodeResult()
        failure: Exception | None = None

        def take(output: dict[str, Any]) -> bool:
            nonlocal result, failure
            try:
                if "error" in output:
                    raise self._rejection(output["error"])
                if "usage" in output:
                    result = replace(result, usage=_usage(output["usage"]))
                for choice in output["choices"]:
                    result = replace(result, stop_reason=choice.get("finish_reason") or result.stop_reason)
                    if on_text(choice["delta"].get("content") or ""):
                        return True
            except Exception as error:  # noqa: BLE001 - raised again below, as it cannot pass through C++
                failure = error
            return failure is not None

        try:
            self._server.handle_chat_completions(_body(job), take)
        except (ValueError, RuntimeError) as error:
            # Raised if a grammar or a schema cannot be used.
            raise self._rejection({"message": str(error)}) from error
        if failure is not None:
            raise failure
        return result

    def _rejection(self, error: dict[str, Any]) -> ModelRequestError:
        kind = ContextTooLongError if error.get("type") == "exceed_context_size_error" else ModelRequestError
        return kind(f"`{self._name}` rejected the request: {error.get('message', error)}")


def is_installed() -> bool:
    """Check whether llama.cpp is installed, without importing it."""
    return find_spec("xllamacpp") is not None


def _library() -> Any:
    # Threads that spin while waiting would take CPU time from the rest of the program.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return import_module("xllamacpp")
    except ImportError as error:
        raise MissingExtraError("the embedded model", "local", error) from error


def _parameters(library: Any, path: Path) -> Any:
    parameters = library.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_parallel = len(_SLOTS)
    parameters.kv_unified = True
    parameters.n_batch = parameters.n_ubatch = _BATCH_TOKENS
    parameters.cache_ram_mib = 0
    parameters.verbosity = -1
    parameters.warmup = False
    # The library listens on a local port that is not used; a random key locks it.
    parameters.api_keys = [secrets.token_urlsafe(32)]
    parameters.ui = False
    return parameters


def _body(job: DecodeJob) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [{"role": turn.role, "content": turn.text} for turn in job.turns],
        "id_slot": _SLOTS[job.kind],
        "cache_prompt": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "stop": list(job.stop) or None,
        **{name: getattr(job, name) for name in ("max_tokens", *SAMPLING)},
    }
    if job.choices:
        body["grammar"] = f"root ::= {' | '.join(as_json(choice) for choice in job.choices)}"
    elif job.schema is not None:
        # Small models otherwise emit endless whitespace between keys.
        body["json_schema"] = {**job.schema, "x-guidance": {"whitespace_flexible": False}}
    return without_none(body)


def _usage(output: dict[str, Any]) -> Usage:
    details: dict[str, int] = output.get("prompt_tokens_details", {})
    return Usage(output["prompt_tokens"], output["completion_tokens"], details.get("cached_tokens", 0))
