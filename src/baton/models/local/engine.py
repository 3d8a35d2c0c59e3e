"""The seam to what decodes: a job goes in, pieces of text come out. Behind it is llama.cpp, in this process."""

import os
import secrets
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from ...errors import ContextTooLongError, ModelRequestError, SetupError, WeightsError
from ...messages import Usage

Hear: TypeAlias = Callable[[str], bool]
"""Is told each piece of text, and "" while the prompt is being read; True from it ends the decode."""

_SLOTS = {"choose": 0, "fill": 1, "speak": 2}
_CONTEXT_TOKENS = 8192
# Between two batches a decode can be stopped. Larger ones read a prompt hardly faster on a processor.
_BATCH_TOKENS = 64


class PromptTurn(Struct, frozen=True):
    """One message of a prompt, in the three roles that every chat template knows."""

    role: Literal["system", "user", "assistant"]
    text: str


class DecodeJob(Struct, frozen=True, kw_only=True):
    """One decode: what the model reads, and what it may write. At most one of `choices` and `schema` is given."""

    kind: Literal["choose", "fill", "speak"]
    """Jobs of a kind begin alike, and what they share is read only once."""
    turns: tuple[PromptTurn, ...]
    choices: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


class DecodeResult(Struct, frozen=True):
    """How a decode ended. `stop_reason` is "stop", "length", or "" if it was told to end."""

    usage: Usage = Usage()
    stop_reason: str = ""


class Decoder(Protocol):
    """Something that decodes. Called from worker threads, several at once."""

    def decode(self, job: DecodeJob, hear: Hear) -> DecodeResult:
        """Decode until it is done or `hear` says so. Blocks."""
        ...


class LlamaDecoder:
    """llama.cpp with one file of weights."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        parameters = _parameters(_library(), path)
        try:
            self._server: Any = _library().Server(parameters)
        except Exception as error:
            # The library has no error types of its own: whatever it raises here is about the file.
            raise WeightsError(f"llama.cpp cannot load `{path}`: {error}; it must be a whole GGUF file") from error

    def decode(self, job: DecodeJob, hear: Hear) -> DecodeResult:
        """Decode until it is done or `hear` says so. Blocks, without holding up other threads."""
        listener = _OutputHandler(hear)
        try:
            self._server.handle_chat_completions(_body(job), listener.take)
        except (ValueError, RuntimeError) as error:
            # So it says that a grammar or a schema cannot be used.
            raise self._refusal({"message": str(error)}) from error
        if listener.raised is not None:
            raise listener.raised
        if listener.error is not None:
            raise self._refusal(listener.error)
        return DecodeResult(listener.usage, listener.stop_reason)

    def _refusal(self, error: dict[str, Any]) -> ModelRequestError:
        kind = ContextTooLongError if error.get("type") == "exceed_context_size_error" else ModelRequestError
        return kind(f"`{self._name}` will not take this request: {error.get('message', error)}")


class _OutputHandler:
    """Hears what llama.cpp says about one job."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self.usage = Usage()
        self.stop_reason = ""
        self.error: dict[str, Any] | None = None
        self.raised: Exception | None = None

    def take(self, told: dict[str, Any]) -> bool:
        """Take one message; True ends the decode."""
        try:
            return self._understand(told)
        except Exception as error:  # noqa: BLE001 - raised again by decode: it cannot pass through C++
            self.raised = error
            return True

    def _understand(self, told: dict[str, Any]) -> bool:
        if "error" in told:
            self.error = told["error"]
            return True
        if "usage" in told:
            self.usage = _usage(told["usage"])
        for choice in told["choices"]:
            self.stop_reason = choice.get("finish_reason") or self.stop_reason
            if self._hear(choice["delta"].get("content") or ""):
                return True
        return False


def is_installed() -> bool:
    """Whether llama.cpp is there; nothing is imported to find out."""
    from importlib.util import find_spec

    return find_spec("xllamacpp") is not None


def _library() -> Any:
    # Threads that spin while they wait take the processor from everybody else, the run included.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return import_module("xllamacpp")
    except ImportError as error:
        raise SetupError(
            f"the embedded model needs llama.cpp ({error}); install it with: pip install 'baton-adk[local]'"
        ) from error


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
    # The library listens on a port of the loopback device, which nobody needs: so nobody has the key.
    parameters.api_keys = [secrets.token_urlsafe(32)]
    parameters.ui = False
    return parameters


def _body(job: DecodeJob) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [{"role": turn.role, "content": turn.text} for turn in job.turns],
        "id_slot": _SLOTS[job.kind],
        "cache_prompt": True,
        "max_tokens": job.max_tokens,
        "temperature": job.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
    }
    optional = {"top_p": job.top_p, "seed": job.seed, "stop": list(job.stop) or None}
    body.update({name: value for name, value in optional.items() if value is not None})
    if job.choices:
        body["grammar"] = f"root ::= {' | '.join(_literal(choice) for choice in job.choices)}"
    elif job.schema is not None:
        # Models this small otherwise lose themselves in blanks between two keys.
        body["json_schema"] = {**job.schema, "x-guidance": {"whitespace_flexible": False}}
    return body


def _literal(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(letter, letter) for letter in text) + '"'


def _usage(told: dict[str, Any]) -> Usage:
    details: dict[str, int] = told.get("prompt_tokens_details", {})
    return Usage(told["prompt_tokens"], told["completion_tokens"], details.get("cached_tokens", 0))
