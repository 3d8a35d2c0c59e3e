"""A feature whose package is not installed says so in one wording, with the pip command."""

import sys
from collections.abc import Callable

import pytest

from batonkit import Agent, Runner
from batonkit.errors import MissingExtraError
from batonkit.models import GenAIPrices, resolve_model
from batonkit.otel import OTelObserver
from batonkit.serve import JWTAuth, agui_app, ai_sdk_app, api_app, openai_app, serve
from batonkit.serve.studio import studio_app
from batonkit.stores import MemoryStore
from batonkit.stores.postgres import PostgresStore
from batonkit.swarm import Swarm


def runner() -> Runner[None, str]:
    return Runner(Agent("A"), store=MemoryStore())


FEATURES: list[tuple[str, Callable[[], object], str, str]] = [
    ("api_app(…)", lambda: api_app(runner()), "starlette", "batonkit[serving]"),
    ("studio_app(…)", lambda: studio_app(runner()), "starlette", "batonkit[serving]"),
    ("agui_app(…)", lambda: agui_app(runner()), "ag_ui", "batonkit[agui]"),
    ("openai_app(…)", lambda: openai_app(runner()), "starlette", "batonkit[serving]"),
    ("ai_sdk_app(…)", lambda: ai_sdk_app(runner()), "starlette", "batonkit[serving]"),
    ("serving an app", lambda: serve(lambda: None), "uvicorn", "batonkit[serving]"),
    ("PostgresStore", lambda: PostgresStore("postgresql://nowhere"), "psycopg", "batonkit[postgres]"),
    ("OTelObserver", OTelObserver, "opentelemetry.trace", "batonkit[otel]"),
    ("OTelObserver", lambda: OTelObserver.to("http://nowhere"), "opentelemetry.sdk.trace", "batonkit[otel]"),
    ("GenAIPrices()", GenAIPrices, "genai_prices", "batonkit[prices]"),
    ("JWTAuth(…)", lambda: JWTAuth("key", algorithms=["HS256"]), "jwt", "pyjwt[crypto]"),
    ("Swarm() without client=…", lambda: Swarm().client, "openai", "batonkit[openai-sdk]"),
    ("the model `anthropic:missing`", lambda: resolve_model("anthropic:missing"), "anthropic", "batonkit[anthropic]"),
]


@pytest.mark.parametrize(
    ("what", "use", "module", "wanted"), FEATURES, ids=[f"{each[0]}-{each[2]}" for each in FEATURES]
)
def test_a_missing_package_is_named_with_the_pip_command(
    what: str, use: Callable[[], object], module: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None in sys.modules makes the import fail.
    monkeypatch.setitem(sys.modules, module, None)
    for loaded in [name for name in sys.modules if name in ("batonkit.otel.setup", "batonkit.stores.postgres.pool")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(MissingExtraError) as raised:
        use()
    assert str(raised.value) == f"{what} needs `{module}`, which is not installed: pip install '{wanted}'"
