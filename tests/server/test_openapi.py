"""The OpenAPI document: it is one, it covers the paths there are, and nobody who follows it gets a 500."""

from importlib import import_module
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from jsonschema import Draft202012Validator
from starlette.routing import Route

from baton import Agent, RunContext, Runner, tool
from baton.server import api_app
from baton.server.openapi import document
from baton.testing import ScriptedModel, call


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("well?")


def _app() -> Any:
    model = ScriptedModel([call("ask_me"), "hello"], cycle=True)
    return api_app(Runner(Agent("Desk", tools=[ask_me], model=model), store="memory:"), allow_anyone=True)


# Read as modules: their types are not all known.
basic: Any = import_module("schemathesis.checks")
of_document: Any = import_module("schemathesis.specs.openapi.checks")
schema: Any = schemathesis.openapi.from_asgi("/openapi.json", _app())


@schema.parametrize()
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    phases=[Phase.generate],
    derandomize=True,
)
def test_whoever_follows_the_document_gets_no_500(case: Any) -> None:
    case.call_and_validate(
        checks=[
            basic.not_a_server_error,
            of_document.status_code_conformance,
            of_document.content_type_conformance,
            of_document.response_schema_conformance,
        ]
    )


def test_it_names_every_path_and_every_schema_can_be_read() -> None:
    described = {(path, method.upper()) for path, item in document()["paths"].items() for method in item}
    routes = [route for route in _app().routes if isinstance(route, Route)]
    served = {(route.path, method) for route in routes for method in route.methods or ()}
    assert {each for each in described if each[1] != "PARAMETERS"} == {
        each for each in served if each[1] != "HEAD" and each[0] != "/openapi.json"
    }
    for each in document()["components"]["schemas"].values():
        Draft202012Validator.check_schema(each)


def test_it_says_where_it_is_mounted() -> None:
    assert document("/api")["servers"] == [{"url": "/api"}]


@pytest.mark.parametrize("kind", ["RunStarted", "Said", "Asked", "Completed"])
def test_it_describes_events(kind: str) -> None:
    refs = [each["$ref"] for each in document()["components"]["schemas"]["Event"]["oneOf"]]
    assert f"#/components/schemas/{kind}" in refs
