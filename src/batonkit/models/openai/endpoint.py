"""Base URLs, API keys and defaults of the providers with an OpenAI-compatible API."""

import os
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import Struct

from ...errors import AuthenticationError, SetupError
from ..encoding import without_none

APIKey: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""An API key, or a function that returns the current one."""

StructuredOutputMode: TypeAlias = Literal["native", "json_object", "tool"]
"""The way to request structured output: the schema itself, JSON mode with a prompt, or a tool call."""

_CHAT_PATH = "/chat/completions"


class ProviderDefaults(Struct, frozen=True):
    """The defaults of a provider."""

    base_url: str = ""
    key_name: str = ""
    url_name: str = ""
    needs_key: bool = False
    structured: StructuredOutputMode = "native"
    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    returns_reasoning: bool = False
    lacks: tuple[str, ...] = ()


def _compatible(base_url: str, prefix: str, *differences: Any, **more: Any) -> ProviderDefaults:
    """Describe a compatible provider by its URL and the prefix of its environment variables."""
    return ProviderDefaults(base_url, f"{prefix}_API_KEY", f"{prefix}_BASE_URL", *differences, **more)


# Most compatible servers ignore what they do not document, so it must be refused here.
_ONLY_OPENAI = ("verbosity", "metadata")
PROVIDERS: dict[str, ProviderDefaults] = {
    "openai": _compatible(
        "https://api.openai.com/v1", "OPENAI", True, limit_name="max_completion_tokens", lacks=("top_k",)
    ),
    "azure": ProviderDefaults(
        *("", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", True),
        limit_name="max_completion_tokens",
        lacks=("top_k",),
    ),
    "ark": _compatible(
        *("https://ark.cn-beijing.volces.com/api/v3", "ARK", True, "json_object"),
        lacks=("top_k", "seed", *_ONLY_OPENAI),
    ),
    "deepseek": _compatible(
        *("https://api.deepseek.com/v1", "DEEPSEEK", True, "json_object"),
        returns_reasoning=True,
        lacks=("top_k", "seed", "service_tier", *_ONLY_OPENAI),
    ),
    "qwen": _compatible(
        *("https://dashscope.aliyuncs.com/compatible-mode/v1", "DASHSCOPE", True, "json_object"),
        lacks=("service_tier", *_ONLY_OPENAI),
    ),
    "ollama": _compatible("http://localhost:11434/v1", "OLLAMA", lacks=("top_k", "service_tier", *_ONLY_OPENAI)),
    "lmstudio": _compatible(
        "http://localhost:1234/v1", "LMSTUDIO", lacks=("logprobs", "top_logprobs", "service_tier", *_ONLY_OPENAI)
    ),
    "vllm": _compatible("http://localhost:8000/v1", "VLLM", lacks=("service_tier", *_ONLY_OPENAI)),
}

_SEND_ANYWAY = "leave it out; if the server accepts it, send it with extra_body"
_USE_RESPONSES = "use api='responses', or shorten the history with Agent(history=…)"
_USE_CHAT = "use api='chat', or leave it out"
_ONLY_IN_CHAT = ("presence_penalty", "frequency_penalty", "stop_sequences", "seed")


def lacking_settings(provider: str, api: str) -> dict[str, str]:
    """Return the model settings that an API lacks, and for each of them what would work."""
    lacks = PROVIDERS.get(provider, ProviderDefaults()).lacks
    if api == "chat":
        return {**dict.fromkeys(lacks, _SEND_ANYWAY), "truncation": _USE_RESPONSES}
    # The lists of other providers are those of their Chat Completions.
    own = lacks if provider in ("openai", "azure") else ()
    return {**dict.fromkeys(own, _SEND_ANYWAY), **dict.fromkeys(_ONLY_IN_CHAT, _USE_CHAT)}


def environment_prefixes(provider: str) -> tuple[str, ...]:
    """Return the beginnings of a provider's environment variables."""
    known = PROVIDERS.get(provider, ProviderDefaults())
    # The variables of Azure begin with AZURE_OPENAI_, but for organization, project and version.
    own = {f"{name.partition('_')[0]}_" for name in (known.key_name, known.url_name) if name}
    return (*own, "OPENAI_") if provider == "azure" else tuple(own)


class OpenAIEndpoint:
    """The URL and the headers of requests. Its repr does not show the key.

    Raises:
        SetupError: There is no base URL, or it is not valid.
    """

    def __init__(
        self,
        provider: str,
        base_url: str | None = None,
        api_key: APIKey | None = None,
        organization: str | None = None,
        project: str | None = None,
        api_version: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        known = PROVIDERS.get(provider, ProviderDefaults())
        self.provider = provider
        self._known = known
        self._default_url = None if base_url else _default_url(provider, known)
        """The URL that the environment named, or the provider's own."""
        is_azure = provider == "azure"
        self._azure_version = api_version or _env("OPENAI_API_VERSION") if is_azure else None
        self.base_url = _check_url(base_url or self._default_url or "", provider, known)
        if is_azure and base_url is None and "/openai" not in self.base_url:
            self.base_url += "/openai" if self._azure_version is not None else "/openai/v1"
        self._key = api_key
        self.is_original = is_azure or self.base_url == known.base_url
        # A self-hosted server usually has no keys, and reports it if it has.
        self._needs_key = known.needs_key and self.is_original
        if provider in ("openai", "azure"):
            organization = organization or _env("OPENAI_ORG_ID")
            project = project or _env("OPENAI_PROJECT_ID")
        own = {"OpenAI-Organization": organization or None, "OpenAI-Project": project or None}
        self._headers = _override({"Content-Type": "application/json", **without_none(own)}, headers or {})

    def url(self, path: str, model: str) -> str:
        """Return the URL of a request; `path` is `/chat/completions` or `/responses`."""
        if self._azure_version is None:
            return f"{self.base_url}{path}"
        if path == _CHAT_PATH and "/deployments" not in self.base_url:
            path = f"/deployments/{quote(model, safe='')}{path}"
        return f"{self.base_url}{path}?api-version={quote(self._azure_version, safe='')}"

    async def headers(self, extra: Mapping[str, str] | None, *, model: str) -> dict[str, str]:
        """Return the headers of a request. Raises AuthenticationError if a key is missing."""
        # Read for each request: a program may load its environment after creating its models.
        key = self._key or self._read_key(model)
        if callable(key):
            current = key()
            key = await current if isawaitable(current) else current
        headers: dict[str, str] = {}
        is_azure = self.provider == "azure"
        if key and is_azure:
            headers["api-key"] = key
        elif token := key or (_env("AZURE_OPENAI_AD_TOKEN") if is_azure else None):
            headers["Authorization"] = f"Bearer {token}"
        elif self._needs_key and not _has_key({**self._headers, **(extra or {})}):
            raise AuthenticationError(
                f"`{model}` needs an API key: set {self._known.key_name}, or pass api_key=…", model=model
            )
        headers = _override(headers, self._headers)
        return _override(headers, extra) if extra else headers

    def _read_key(self, model: str) -> str | None:
        """Return the key in the environment. Raises SetupError if it may belong to another host."""
        if self._default_url is not None and self._default_url != _default_url(self.provider, self._known):
            raise SetupError(
                f"{self._known.url_name} has changed since `{model}` was made for {self.base_url}; "
                "set the environment before you make models and runners, or pass base_url=…"
            )
        return _env(self._known.key_name)


def _default_url(provider: str, known: ProviderDefaults) -> str:
    named = _env(known.url_name) if known.url_name else None
    if named is None and provider == "ollama":
        return _ollama_url() or known.base_url
    return named or known.base_url


def _ollama_url() -> str | None:
    # The variable is meant for the server: it may lack scheme and port, and name the address to listen on.
    host = _env("OLLAMA_HOST")
    if host is None:
        return None
    parts = urlsplit(host if "://" in host else f"http://{host}")
    name = "localhost" if parts.hostname in (None, "0.0.0.0", "::") else parts.hostname
    default = {"http": 80, "https": 443}[parts.scheme] if "://" in host else 11434
    name = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{name}:{parts.port or default}{parts.path.rstrip('/')}/v1"


def _check_url(url: str, provider: str, known: ProviderDefaults) -> str:
    if not url:
        where = f"set {known.url_name}, or pass base_url=…" if known.url_name else "pass base_url=…"
        raise SetupError(f"the provider `{provider}` has no base URL; {where}")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SetupError(f"base_url is {url!r}; it must start with http:// or https:// and name a host")
    return url.rstrip("/")


def _override(headers: dict[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    # Header names are case-insensitive; a header that is sent twice is rejected or misread.
    replaced = {name.lower() for name in extra}
    return {**{name: value for name, value in headers.items() if name.lower() not in replaced}, **extra}


def _has_key(headers: Mapping[str, str]) -> bool:
    return any(name.lower() in ("authorization", "api-key") for name in headers)


def _env(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None
