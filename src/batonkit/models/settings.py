"""`ModelSettings`, and the check that a model supports the settings of a request."""

from collections.abc import Mapping
from logging import getLogger
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from .._checks import CheckedStructMeta
from ..errors import ModelRequestError, SetupError

_log = getLogger("baton.models")

Verbosity: TypeAlias = Literal["low", "medium", "high"]
Truncation: TypeAlias = Literal["auto", "disabled"]

# These values ask for nothing, so that a model without the setting satisfies them.
_SATISFIED_BY_ALL = {"logprobs": False, "parallel_tool_calls": True}

_TOOLS = (
    "the agent's tools and handoffs; use the agent's `tools`. Tools that a provider executes itself, such as web "
    "search, are not supported, because their results and citations would be lost: use a function or MCPToolset(…)"
)
_MESSAGES = "the conversation; give it to the run, and change what an agent reads with its `history` or `middleware`"
_INSTRUCTIONS = "the agent's instructions; use its `instructions`"
_RETRIES = "the retries; use ModelSettings(max_retries=…)"
_REPLACES = {
    "tools": _TOOLS,
    "messages": _MESSAGES,
    "input": _MESSAGES,
    "contents": _MESSAGES,
    "instructions": _INSTRUCTIONS,
    "system": _INSTRUCTIONS,
    "systemInstruction": _INSTRUCTIONS,
    "system_instruction": _INSTRUCTIONS,
    "model": "the model that is recorded; use `model` of the agent, the runner or the run",
    "max_retries": _RETRIES,
    "num_retries": _RETRIES,
    "stream": "the mode in which the response is read; use Runner.stream(…) for a streamed run",
}
"""The parts of a request that fields would replace, in the API of any provider, and what to use instead."""


class ModelSettings(Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=CheckedStructMeta):
    """Sampling and transport settings of a model; None keeps the provider's default.

    No provider has all of them. A model that lacks one refuses the request with `ModelRequestError`, which names it.

    Args:
        temperature: The sampling temperature.
        top_p: The probability mass to sample from.
        top_k: The number of most likely tokens to sample from.
        max_tokens: The maximum number of tokens in the response.
        presence_penalty: Above 0, makes tokens less likely that have occurred before.
        frequency_penalty: Above 0, makes tokens less likely the more often they have occurred.
        stop_sequences: Texts that end the response.
        seed: The sampling seed.
        parallel_tool_calls: Whether the model may call several tools in one response.
        reasoning_effort: The reasoning effort, such as `none`, `low`, `medium` or `high`.
        verbosity: The length of answers: `low`, `medium` or `high`.
        truncation: `auto` lets the provider drop messages if the conversation is too long, `disabled` does not.
        logprobs: Whether to return the log probabilities of the tokens, in `AgentResponded.logprobs`.
        top_logprobs: The number of most likely tokens to return for each position; implies `logprobs`.
        metadata: Labels that the provider stores with the request.
        service_tier: The processing tier: `auto`, `default`, or the provider's own word, such as `flex`.
        timeout: The seconds to wait for a connection, and for the next bytes of the response.
        max_retries: How often a request is repeated that fails for a passing reason before its response has begun; by
            default twice. 0 switches retries off.
        extra_headers: HTTP headers to add to each request.
        extra_query: Query parameters to add to the URL of each request.
        extra_body: Fields to add to the body of each request as they are. Those that hold the conversation, the
            instructions, the tools or the model are refused.
        ignore_unsupported: Whether to leave out settings that the model lacks instead of refusing the request, for
            settings that models of several providers share.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop_sequences: tuple[str, ...] | None = None
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    verbosity: Verbosity | None = None
    truncation: Truncation | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    metadata: Mapping[str, str] | None = None
    service_tier: str | None = None
    timeout: float | None = None
    max_retries: int | None = None
    extra_headers: Mapping[str, str] | None = None
    extra_query: Mapping[str, str] | None = None
    extra_body: Mapping[str, Any] | None = None
    ignore_unsupported: bool | None = None

    def __post_init__(self) -> None:
        if self.max_retries is not None and self.max_retries < 0:
            raise SetupError(f"ModelSettings(max_retries={self.max_retries}) must be at least 0, which means none")
        refuse_replacing_fields("ModelSettings(extra_body=…)", self.extra_body)

    def merge(self, other: "ModelSettings | None") -> "ModelSettings":
        """Return a copy in which the values that `other` sets take precedence.

        Args:
            other: The settings to apply on top of these; None changes nothing.
        """
        if other is None:
            return self
        return replace(self, **{name: value for name, value in asdict(other).items() if value is not None})

    @property
    def wants_logprobs(self) -> bool:
        """True if log probabilities are requested."""
        return bool(self.logprobs) or self.top_logprobs is not None


def refuse_replacing_fields(what: str, fields: Mapping[str, Any] | None) -> None:
    """Raise SetupError if fields would replace an essential part of a request."""
    for name in fields or ():
        if name in _REPLACES:
            raise SetupError(f"{what} has `{name}`, which would replace {_REPLACES[name]}")


def require_supported(settings: ModelSettings, model: str, lacks: Mapping[str, str]) -> ModelSettings:
    """Check that a model supports all settings of a request.

    Returns:
        The settings; with `ignore_unsupported`, without those that the model lacks.

    Raises:
        ModelRequestError: The model lacks a setting.
    """
    unsupported = [name for name in lacks if _is_set(name, getattr(settings, name))]
    if not unsupported:
        return settings
    if settings.ignore_unsupported:
        _log.info("%s does not support %s; the request is sent without", model, " and ".join(unsupported))
        return replace(settings, **dict.fromkeys(unsupported))
    arguments = ", ".join(f"{name}=…" for name in unsupported)
    advice = "; ".join(f"{name}: {lacks[name]}" for name in unsupported)
    raise ModelRequestError(
        f"`{model}` does not support ModelSettings({arguments}): {advice}. "
        "ModelSettings(ignore_unsupported=True) leaves out what a model lacks",
        model=model,
    )


def _is_set(name: str, value: Any) -> bool:
    return value is not None and value != _SATISFIED_BY_ALL.get(name) and value not in ((), {})
