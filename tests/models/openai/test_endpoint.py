"""Base URLs and keys come from arguments or the environment, as with the official client."""

import pytest
from tests.models.openai.raw_server import RawServer, json_reply, read_response

from batonkit.errors import AuthenticationError, SetupError
from batonkit.messages import UserMessage
from batonkit.models import ModelRequest, ModelSettings, resolve_model
from batonkit.models.openai import OpenAIModel
from batonkit.models.openai.endpoint import PROVIDERS, OpenAIEndpoint

ASK = ModelRequest([UserMessage("Hello")], stream=False)
HI = json_reply({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]})
VARIABLES = {name for known in PROVIDERS.values() for name in (known.key_name, known.url_name)}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OLLAMA_HOST", "AZURE_OPENAI_AD_TOKEN", "OPENAI_API_VERSION")
    for name in (*VARIABLES, *more):
        monkeypatch.delenv(name, raising=False)


async def test_url_key_organization_and_project_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(HI) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base_url}/")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
        await read_response(OpenAIModel("m"), ASK)
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.headers["openai-organization"] == "org-1"
    assert request.headers["openai-project"] == "proj-1"


async def test_arguments_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    async with RawServer(HI, HI, HI) as server:
        model = OpenAIModel("m", base_url=server.base_url, api_key="sk-2", headers={"X-Team": "a"})
        await read_response(model, ASK)
        await read_response(OpenAIModel("m", base_url=server.base_url, api_key=lambda: "sk-3"), ASK)

        async def key() -> str:
            return "sk-4"

        await read_response(OpenAIModel("m", base_url=server.base_url, api_key=key), ASK)
    assert [request.headers["authorization"][-1] for request in server.requests] == ["2", "3", "4"]
    assert server.requests[0].headers["x-team"] == "a"


async def test_given_headers_override_the_default_ones_case_insensitively() -> None:
    async with RawServer(HI, HI) as server:
        model = OpenAIModel("m", base_url=server.base_url, api_key="sk-1", headers={"authorization": "Basic 1"})
        await read_response(model, ASK)
        await read_response(
            model, ModelRequest(ASK.messages, settings=ModelSettings(extra_headers={"AUTHORIZATION": "2"}))
        )
    assert [request.headers["authorization"] for request in server.requests] == ["Basic 1", "2"]
    assert [request.header_names.count("authorization") for request in server.requests] == [1, 1]


@pytest.mark.parametrize(
    ("prefix", "variable"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("openai-responses", "OPENAI_API_KEY"),
        ("deepseek", "DEEPSEEK_API_KEY"),
        ("qwen", "DASHSCOPE_API_KEY"),
        ("ark", "ARK_API_KEY"),
    ],
)
async def test_a_missing_key_names_the_environment_variable(prefix: str, variable: str) -> None:
    with pytest.raises(AuthenticationError) as caught:
        await read_response(_resolve(f"{prefix}:some-model"), ASK)
    assert str(caught.value) == f"`{prefix}:some-model` needs an API key: set {variable}, or pass api_key=…"
    assert not caught.value.retryable


async def test_a_custom_server_needs_no_key() -> None:
    async with RawServer(HI) as server:
        await read_response(OpenAIModel("m", base_url=server.base_url), ASK)
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("host", "url"),
    [
        (None, "http://localhost:11434/v1"),
        ("0.0.0.0", "http://localhost:11434/v1"),
        ("10.0.0.7:8080", "http://10.0.0.7:8080/v1"),
        ("https://ollama.example", "https://ollama.example:443/v1"),
        ("http://[::1]:5", "http://[::1]:5/v1"),
        ("https://example/ollama/", "https://example:443/ollama/v1"),
    ],
)
def test_the_ollama_url_is_derived_from_its_host_variable(
    host: str | None, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host is not None:
        monkeypatch.setenv("OLLAMA_HOST", host)
    assert OpenAIEndpoint("ollama").base_url == url


@pytest.mark.parametrize(
    "prefix", ["openai", "openai-responses", "ollama", "vllm", "lmstudio", "deepseek", "qwen", "ark"]
)
def test_every_prefix_resolves_to_a_model_of_that_name(prefix: str) -> None:
    model = _resolve(f"{prefix}:llama3:8b")
    assert model.name == f"{prefix}:llama3:8b"
    assert model.model == "llama3:8b"
    assert model.api == ("responses" if prefix == "openai-responses" else "chat")


async def test_azure_without_a_version_uses_the_v1_path(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(HI) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.base_url.removesuffix("/v1"))
        monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "token")
        await read_response(OpenAIModel("mine", provider="azure"), ASK)
    assert server.requests[0].path == "/openai/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == "Bearer token"
    assert "api-key" not in server.requests[0].headers


def test_invalid_base_urls_are_refused() -> None:
    with pytest.raises(SetupError, match="it must start with http:// or https://"):
        OpenAIModel("m", base_url="localhost:8000/v1")
    with pytest.raises(SetupError, match="set AZURE_OPENAI_ENDPOINT, or pass base_url"):
        OpenAIModel("m", provider="azure")
    with pytest.raises(SetupError, match="the provider `mine` has no base URL; pass base_url"):
        OpenAIModel("m", provider="mine")


def test_a_key_is_not_in_the_repr() -> None:
    model = OpenAIModel("m", api_key="sk-secret")
    endpoint = OpenAIEndpoint("openai", api_key="sk-secret")
    assert "secret" not in f"{model!r} {model} {endpoint!r}"


def _resolve(name: str) -> OpenAIModel:
    model = resolve_model(name)
    assert isinstance(model, OpenAIModel)
    return model
