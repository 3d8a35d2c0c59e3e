"""The OpenAPI document is valid and complete, and requests that follow it never cause a 500."""

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
from tests.waiting import PATIENCE

from batonkit import Agent, RunContext, Runner, tool
from batonkit.messages import ToolMessage
from batonkit.serve import APIKeyAuth, BasicAuth, BearerAuth, api_app, serve_in_background
from batonkit.serve.api.openapi import openapi_document
from batonkit.testing import ScriptedModel, call

EXAMPLES = 150 if PROFILE == "soak" else 15
SCHEMES = (
    BearerAuth({"s1": "ada"}),
    APIKeyAuth({"k1": "ada"}, location="query", key_name="key"),
    BasicAuth({"ada": "pw"}),
)
HEADERS = {"Authorization": "Bearer s1"}
OPTIONS: dict[str, Any] = {"headers": HEADERS, "timeout": PATIENCE, "verify": False}
KNOWN = ("waits", "waits-too", "ended")
"""Runs that exist before the tests; `t` is a thread."""
REQUEST = "1/m1"
"""The key of their first response."""
QUESTION = "1/m1.0/ask1"
"""The id of their open interrupt."""


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("well?")


def _app() -> Any:
    # It decides by what it reads, so that every new run asks, in whichever order requests arrive.
    model = ScriptedModel(
        [lambda r: "hello" if isinstance(r.messages[-1], ToolMessage) else call("ask_me")], cycle=True
    )
    return api_app(Runner(Agent("Desk", tools=[ask_me], model=model), store="memory:"), auth=SCHEMES, inspection=True)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Start a server in its own thread, with some runs."""
    urls: list[str] = []
    is_up, can_end = Event(), Event()

    async def serve() -> None:
        async with serve_in_background(_app()) as address:
            urls.append(address)
            is_up.set()
            await asyncio.to_thread(can_end.wait)

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_up.wait(PATIENCE)
        for run_id in KNOWN:
            body = {"input": "hi", "run_id": run_id, **({"thread": "t"} if run_id == "ended" else {})}
            assert httpx.post(f"{urls[0]}/runs", json=body, **OPTIONS).status_code == 201
        httpx.post(f"{urls[0]}/runs/ended/cancel", **OPTIONS)
        yield urls[0]
    finally:
        can_end.set()
        thread.join()


def _suspended_run(url: str) -> str:
    run = httpx.post(f"{url}/runs", json={"input": "hi"}, **OPTIONS).json()
    with httpx.stream("GET", f"{url}/runs/{run['id']}/events", **OPTIONS) as frames:
        for _ in frames.iter_raw():
            pass
    return run["id"]


def _stopped_run(url: str) -> str:
    run = httpx.post(f"{url}/runs", json={"input": "hi"}, **OPTIONS).json()
    httpx.post(f"{url}/runs/{run['id']}/cancel", **OPTIONS)
    return run["id"]


# Imported dynamically because their types are incomplete.
basic_checks: Any = import_module("schemathesis.checks")
openapi_checks: Any = import_module("schemathesis.specs.openapi.checks")
# The stream of changes does not end; `test_overview` reads it.
whole: Any = schemathesis.openapi.from_dict(openapi_document(auth=SCHEMES, inspection=True))
schema: Any = whole.exclude(path="/events")


@pytest.fixture
def statuses() -> Iterator[set[int]]:
    """Collect the status codes of one operation's responses, and check that a request succeeded."""
    found: set[int] = set()
    yield found
    assert min(found) < 300


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    phases=[Phase.generate],
    derandomize=True,
)
def test_requests_that_follow_the_document_never_cause_a_500_and_some_succeed(
    case: Any, url: str, statuses: set[int]
) -> None:
    id = case.path_parameters.get("id", "")
    if zlib.crc32(id.encode()) % 4:
        # Generated ids are unknown to the server; replace most of them with existing ones.
        known = ("t",) if "/threads/" in case.path else KNOWN
        case.path_parameters["id"] = known[zlib.crc32(id.encode()) % len(known)] if id else id
    if case.method == "DELETE" and case.path_parameters.get("id") in KNOWN:
        # The known runs stay for the other operations.
        case.path_parameters["id"] = _stopped_run(url)
    if case.path.endswith("/test") and zlib.crc32(id.encode()) % 2:
        # Other operations cancel the known runs, which can then not be repeated.
        case.path_parameters["id"] = _suspended_run(url)
    if "key" in case.path_parameters and zlib.crc32(id.encode()) % 2:
        case.path_parameters["key"] = REQUEST
    if "other" in case.path_parameters:
        case.path_parameters["other"] = KNOWN[0]
    body: Any = case.body
    if isinstance(body, dict) and "answers" in body and zlib.crc32(id.encode()) % 2:
        case.body = {"answers": {QUESTION: "an answer"}}
        case.path_parameters["id"] = _suspended_run(url)
    answer = case.call_and_validate(
        base_url=url,
        headers=HEADERS,
        timeout=PATIENCE,
        checks=[
            basic_checks.not_a_server_error,
            openapi_checks.status_code_conformance,
            openapi_checks.content_type_conformance,
            openapi_checks.response_schema_conformance,
            openapi_checks.ignored_auth,
        ],
    )
    statuses.add(answer.status_code)


def test_the_document_has_every_path_and_valid_schemas() -> None:
    paths = openapi_document(inspection=True)["paths"]
    described = {(path, method.upper()) for path, item in paths.items() for method in item}
    routes = [route for route in _app().routes if isinstance(route, Route)]
    served = {(route.path.replace(":path}", "}"), method) for route in routes for method in route.methods or ()}
    assert {each for each in described if each[1] != "PARAMETERS"} == {
        each for each in served if each[1] != "HEAD" and each[0] != "/openapi.json"
    }
    for each in openapi_document(inspection=True)["components"]["schemas"].values():
        Draft202012Validator.check_schema(each)


def test_the_document_has_the_mount_path() -> None:
    assert openapi_document("/api")["servers"] == [{"url": "/api"}]


@pytest.mark.parametrize("kind", ["RunStarted", "AgentResponded", "InterruptRaised", "RunCompleted"])
def test_the_document_describes_events(kind: str) -> None:
    refs = [each["$ref"] for each in openapi_document()["components"]["schemas"]["Event"]["oneOf"]]
    assert f"#/components/schemas/{kind}" in refs


def test_the_document_leaves_out_the_endpoints_for_developers_unless_they_are_served() -> None:
    assert "/team" not in openapi_document()["paths"]
    assert "TeamDescription" not in openapi_document()["components"]["schemas"]
