"""Where a provider is: its address, its key, and in what it differs from OpenAI."""

import os
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Literal, TypeAlias, TypedDict
from urllib.parse import quote, urlsplit

from msgspec import Struct

from ...errors import AuthenticationError, SetupError

APIKey: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A key, or a function that gives the one to use now."""

StructuredOutputMode: TypeAlias = Literal["native", "json_object", "tool"]
"""How an answer of a given schema is asked for: by the schema, by a prompt and JSON mode, or as a call of a tool."""

_OF_A_DEPLOYMENT = "/chat/completions"


class ProviderDefaults(Struct, frozen=True):
    """What is known about a provider before anybody says more."""

    base_url: str = ""
    key_names: tuple[str, ...] = ()
    url_name: str = ""
    needs_key: bool = False
    structured: StructuredOutputMode = "native"
    limit_name: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    returns_reasoning: bool = False
    """Whether the thinking that led to a call must be sent back with it."""


PROVIDERS: dict[str, ProviderDefaults] = {
    "openai": ProviderDefaults(
        "https://api.openai.com/v1", ("OPENAI_API_KEY",), "OPENAI_BASE_URL", True, limit_name="max_completion_tokens"
    ),
    "azure": ProviderDefaults(
        "", ("AZURE_OPENAI_API_KEY",), "AZURE_OPENAI_ENDPOINT", True, limit_name="max_completion_tokens"
    ),
    "ark": ProviderDefaults(
        "https://ark.cn-beijing.volces.com/api/v3", ("ARK_API_KEY",), "ARK_BASE_URL", True, "json_object"
    ),
    "deepseek": ProviderDefaults(
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        "DEEPSEEK_BASE_URL",
        True,
        "json_object",
        returns_reasoning=True,
    ),
    "qwen": ProviderDefaults(
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        ("DASHSCOPE_API_KEY",),
        "DASHSCOPE_BASE_URL",
        True,
        "json_object",
    ),
    "ollama": ProviderDefaults("http://localhost:11434/v1", ("OLLAMA_API_KEY",), "OLLAMA_BASE_URL"),
    "lmstudio": ProviderDefaults("http://localhost:1234/v1", ("LMSTUDIO_API_KEY",), "LMSTUDIO_BASE_URL"),
    "vllm": ProviderDefaults("http://localhost:8000/v1", ("VLLM_API_KEY",), "VLLM_BASE_URL"),
}


class EndpointOptions(TypedDict, total=False):
    """What a program may say about where a provider is; whatever it does not say, the environment does."""

    base_url: str | None
    api_key: APIKey | None
    organization: str | None
    project: str | None
    api_version: str | None
    headers: Mapping[str, str] | None


class OpenAIEndpoint:
    """An address with what it wants in every request. It does not show its key."""

    __slots__ = (
        "_azure_version",
        "_headers",
        "_key",
        "_key_names",
        "_needs_key",
        "base_url",
        "is_original",
        "provider",
    )

    def __init__(
        self,
        provider: str,
        *,
        base_url: str | None = None,
        api_key: APIKey | None = None,
        organization: str | None = None,
        project: str | None = None,
        api_version: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        known = PROVIDERS.get(provider, ProviderDefaults())
        self.provider = provider
        self._key_names = known.key_names
        is_azure = provider == "azure"
        self._azure_version = api_version or _set("OPENAI_API_VERSION") if is_azure else None
        self.base_url = _checked(base_url or _configured(provider, known), provider, known)
        if is_azure and base_url is None:
            self.base_url = _azure_base(self.base_url, has_version=self._azure_version is not None)
        self._key = api_key
        self.is_original = is_azure or self.base_url == known.base_url
        # A server of one's own mostly has no keys; it will say so if it has.
        self._needs_key = known.needs_key and self.is_original
        organization = organization or (_set("OPENAI_ORG_ID") if provider in ("openai", "azure") else None)
        project = project or (_set("OPENAI_PROJECT_ID") if provider in ("openai", "azure") else None)
        own = {
            "Content-Type": "application/json",
            **({"OpenAI-Organization": organization} if organization else {}),
            **({"OpenAI-Project": project} if project else {}),
        }
        self._headers = _overridden(own, headers or {})

    def url(self, path: str, model: str) -> str:
        """Where this request goes; `path` is `/chat/completions` or `/responses`."""
        if self._azure_version is None:
            return f"{self.base_url}{path}"
        if path == _OF_A_DEPLOYMENT and "/deployments" not in self.base_url:
            path = f"/deployments/{quote(model, safe='')}{path}"
        return f"{self.base_url}{path}?api-version={quote(self._azure_version, safe='')}"

    async def headers(self, extra: Mapping[str, str] | None, *, model: str) -> dict[str, str]:
        """The headers of one request. Raises AuthenticationError if there is no key and there must be one."""
        # A program may read its environment from a file after it has named its models.
        key = self._key or _first_set(self._key_names)
        if callable(key):
            given = key()
            key = await given if isawaitable(given) else given
        headers: dict[str, str] = {}
        token = _set("AZURE_OPENAI_AD_TOKEN") if self.provider == "azure" and not key else None
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif key and self.provider == "azure":
            headers["api-key"] = key
        elif key:
            headers["Authorization"] = f"Bearer {key}"
        elif self._needs_key and not _names_a_key({**self._headers, **(extra or {})}):
            raise AuthenticationError(
                f"`{model}` needs a key: set {' or '.join(self._key_names)}, or give api_key=…", model=model
            )
        headers = _overridden(headers, self._headers)
        return _overridden(headers, extra) if extra else headers


def _configured(provider: str, known: ProviderDefaults) -> str:
    """The address that the environment names, or else the known one."""
    named = _set(known.url_name) if known.url_name else None
    if named is None and provider == "ollama":
        return _ollama_address() or known.base_url
    return named or known.base_url


def _ollama_address() -> str | None:
    # Written for its server: without a scheme or port, and with the address to listen on.
    host = _set("OLLAMA_HOST")
    if host is None:
        return None
    parts = urlsplit(host if "://" in host else f"http://{host}")
    name = "localhost" if parts.hostname in (None, "0.0.0.0", "::") else parts.hostname
    default = {"http": 80, "https": 443}[parts.scheme] if "://" in host else 11434
    name = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{name}:{parts.port or default}{parts.path.rstrip('/')}/v1"


def _azure_base(endpoint: str, *, has_version: bool) -> str:
    if "/openai" in endpoint:
        return endpoint
    return f"{endpoint}/openai" if has_version else f"{endpoint}/openai/v1"


def _checked(url: str, provider: str, known: ProviderDefaults) -> str:
    if not url:
        where = f"set {known.url_name}, or give base_url=…" if known.url_name else "give base_url=…"
        raise SetupError(f"the provider `{provider}` has no address here; {where}")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SetupError(f"base_url is {url!r}; it must begin with http:// or https:// and name a host")
    return url.rstrip("/")


def _overridden(headers: dict[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    # Names differ in case and mean the same; a header that is sent twice is refused, or the wrong one is taken.
    given = {name.lower() for name in extra}
    return {**{name: value for name, value in headers.items() if name.lower() not in given}, **extra}


def _names_a_key(headers: Mapping[str, str]) -> bool:
    return any(name.lower() in ("authorization", "api-key") for name in headers)


def _first_set(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := _set(name))), None)


def _set(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None
