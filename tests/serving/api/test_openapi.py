"""The OpenAPI document: it is one, it covers the paths there are, and nobody who follows it gets a 500."""

import asyncio
import zlib
from collections.abc import Iterator
from importlib import import_module
from threading import Event, Thread
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from jsonschema import Draft202012Validator
from starlette.routing import Route
from tests.conftest import PROFILE

from baton import Agent, RunContext, Runner, tool
from baton.serving import APIKeyAuth, BasicAuth, BearerAuth, api_app, serve_in_background
from baton.serving.api.openapi import openapi_document
from baton.testing import ScriptedModel, call

EXAMPLES = 150 if PROFILE == "soak" else 15
WAYS = (
    BearerAuth({"s1": "ada"}),
    APIKeyAuth({"k1": "ada"}, location="query", key_name="key"),
    BasicAuth({"ada": "pw"}),
)
HEADERS = {"Authorization": "Bearer s1"}
KNOWN = ("waits", "waits-too", "ended")
"""Runs that are there before anybody asks; `t` is a thread."""
QUESTION = "1/m1.0/ask1"
"""What they ask."""


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("well?")


def _app() -> Any:
    model = ScriptedModel([call("ask_me"), "hello"], cycle=True)
    return api_app(Runner(Agent("Desk", tools=[ask_me], model=model), store="memory:"), auth=WAYS)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A real server, in a thread of its own, with runs that can be asked for."""
    urls: list[str] = []
    is_up, may_end = Event(), Event()

    async def serve() -> None:
        async with serve_in_background(_app()) as address:
            urls.append(address)
            is_up.set()
            await asyncio.to_thread(may_end.wait)

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_up.wait(20)
        for run_id in KNOWN:
            body = {"input": "hi", "run_id": run_id, **({"thread": "t"} if run_id == "ended" else {})}
            assert httpx.post(f"{urls[0]}/runs", json=body, headers=HEADERS).status_code == 201
        httpx.post(f"{urls[0]}/runs/ended/cancel", headers=HEADERS)
        yield urls[0]
    finally:
        may_end.set()
        thread.join()


# Read as modules: their types are not all known.
basic: Any = import_module("schemathesis.checks")
of_document: Any = import_module("schemathesis.specs.openapi.checks")
schema: Any = schemathesis.openapi.from_dict(openapi_document(auth=WAYS))
asked: dict[str, set[int]] = {}
"""What was answered, by operation."""


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    phases=[Phase.generate],
    derandomize=True,
)
def test_whoever_follows_the_document_gets_no_500(case: Any, url: str) -> None:
    id = case.path_parameters.get("id", "")
    if zlib.crc32(id.encode()) % 4:
        # An id that somebody made up is nobody's; most should be of something that is there.
        known = ("t",) if "/threads/" in case.path else KNOWN
        case.path_parameters["id"] = known[zlib.crc32(id.encode()) % len(known)] if id else id
    given: Any = case.body
    if isinstance(given, dict) and "answers" in given and zlib.crc32(id.encode()) % 2:
        case.body = {"answers": {QUESTION: "an answer"}}
    answer = case.call_and_validate(
        base_url=url,
        headers=HEADERS,
        timeout=20,
        checks=[
            basic.not_a_server_error,
            of_document.status_code_conformance,
            of_document.content_type_conformance,
            of_document.response_schema_conformance,
            of_document.ignored_auth,
        ],
    )
    asked.setdefault(case.operation.definition.raw["operationId"], set()).add(answer.status_code)


def test_every_operation_was_carried_out_and_not_only_refused() -> None:
    assert [each for each, statuses in asked.items() if min(statuses) >= 300] == []


def test_it_names_every_path_and_every_schema_can_be_read() -> None:
    described = {(path, method.upper()) for path, item in openapi_document()["paths"].items() for method in item}
    routes = [route for route in _app().routes if isinstance(route, Route)]
    served = {(route.path, method) for route in routes for method in route.methods or ()}
    assert {each for each in described if each[1] != "PARAMETERS"} == {
        each for each in served if each[1] != "HEAD" and each[0] != "/openapi.json"
    }
    for each in openapi_document()["components"]["schemas"].values():
        Draft202012Validator.check_schema(each)


def test_it_says_where_it_is_mounted() -> None:
    assert openapi_document("/api")["servers"] == [{"url": "/api"}]


@pytest.mark.parametrize("kind", ["RunStarted", "AgentResponded", "InterruptRaised", "RunCompleted"])
def test_it_describes_events(kind: str) -> None:
    refs = [each["$ref"] for each in openapi_document()["components"]["schemas"]["Event"]["oneOf"]]
    assert f"#/components/schemas/{kind}" in refs
