"""`make interop-phoenix`: a run of a support desk in Phoenix, read back through its API; not part of `make test`.

Phoenix and Playwright are installed in an environment of their own, whose folder is the first argument. With a second
argument, a picture of the trace is written to that file; it needs Chromium.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from tests import leftovers
from tests.ports import free_port

from batonkit import Agent, Runner, handoff, tool
from batonkit.messages import Usage
from batonkit.models import ModelPrice, PriceTable
from batonkit.otel import OTelObserver
from batonkit.testing import ScriptedModel, call, say

START_SECONDS = 300.0
THREAD = "customer-42"
QUESTIONS = ("I was charged twice for order A-17.", "Thank you! When will the money arrive?")
ANSWERS = ("I have refunded 40 EUR for order A-17.", "Within three days.")


@tool
async def find_order(order: str) -> str:
    """Find an order."""
    return f"{order}: charged twice, 40 EUR each"


@tool
async def refund(order: str, euro: float) -> str:
    """Pay money back."""
    return f"{euro:.2f} EUR paid back for {order}"


def make_runner(observer: OTelObserver) -> Runner[Any, Any]:
    """Return the runner of a support desk with two agents."""
    refunds = Agent("Refunds", description="Pays money back.", tools=[refund])
    desk = Agent("Desk", instructions="You help customers.", tools=[find_order], handoffs=[handoff(refunds)])
    model = ScriptedModel(
        {
            "Desk": [
                say("", call("find_order", order="A-17"), usage=Usage(212, 17, cached_tokens=128)),
                say("", call("transfer_to_refunds"), usage=Usage(260, 12, cached_tokens=128)),
            ],
            "Refunds": [
                say("", call("refund", order="A-17", euro=40), usage=Usage(301, 21)),
                say(ANSWERS[0], usage=Usage(340, 24)),
                say(ANSWERS[1], usage=Usage(390, 9)),
            ],
        },
        name="openai:gpt-4.1",
    )
    prices = PriceTable({"openai:gpt-4.1": ModelPrice(input=2, output=8, cached_input=0.5)})
    return Runner(desk, model=model, observers=[observer], store="memory:", prices=prices)


@asynccontextmanager
async def phoenix(environment: Path) -> AsyncGenerator[str]:
    """Start Phoenix on loopback with an empty database, and yield its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    leftovers.guard()
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_WORKING_DIR": folder,
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        }
        with (Path(folder) / "phoenix.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                environment / "bin" / "phoenix", "serve", env=os.environ | settings, stdout=log, stderr=log
            )
            try:
                async with asyncio.timeout(START_SECONDS), httpx.AsyncClient() as client:
                    while not await _is_ready(client, f"{url}/healthz"):
                        if process.returncode is not None:
                            raise RuntimeError((Path(folder) / "phoenix.log").read_text())
                        await asyncio.sleep(0.2)
                yield url
            finally:
                process.terminate()
                await process.wait()


async def _is_ready(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).is_success
    except httpx.TransportError:
        return False


async def graphql(client: httpx.AsyncClient, query: str) -> Any:
    """Send a GraphQL query and return its data."""
    answer = (await client.post("/graphql", json={"query": query})).raise_for_status().json()
    assert "errors" not in answer, answer
    return answer["data"]


SPANS = """{ projects { edges { node { name
  spans(first: 100) { edges { node {
    name spanKind tokenCountPrompt tokenCountCompletion cumulativeTokenCountTotal
    input { value } output { value } attributes context { spanId traceId } parentId
    costSummary { total { cost } }
  } } }
  sessions(first: 10) { edges { node { sessionId numTraces tokenUsage { total } costSummary { total { cost } }
    firstInput { value } lastOutput { value } } } }
} } } }"""


async def stored(client: httpx.AsyncClient, spans: int) -> Any:
    """Wait until Phoenix has stored all spans and computed their costs, and return its project."""
    while True:
        data = await graphql(client, SPANS)
        for project in [edge["node"] for edge in data["projects"]["edges"]]:
            found = [edge["node"] for edge in project["spans"]["edges"]]
            chats = [span for span in found if span["name"] == "chat gpt-4.1"]
            if len(found) == spans and all(span["costSummary"]["total"]["cost"] for span in chats):
                return project
        await asyncio.sleep(0.2)


def check(project: Any, cost: float) -> None:
    """Check that Phoenix shows agents, inputs and outputs, tokens and this cost, and one session for the thread."""
    spans = [edge["node"] for edge in project["spans"]["edges"]]
    named: dict[str, list[Any]] = {}
    for span in spans:
        named.setdefault(span["name"], []).append(span)
    assert {"invoke_agent Desk", "invoke_agent Refunds"} <= named.keys(), named.keys()
    assert {span["spanKind"] for span in named["invoke_agent Refunds"]} == {"agent"}
    assert {span["spanKind"] for span in named["chat gpt-4.1"]} == {"llm"}
    assert {span["spanKind"] for name in ("find_order", "refund") for span in named[f"execute_tool {name}"]} == {"tool"}
    runs = named["invoke_workflow Desk"]
    shown = {(run["input"]["value"], run["output"]["value"]) for run in runs}
    assert shown == set(zip(QUESTIONS, ANSWERS, strict=True)), shown
    tokens = sorted((span["tokenCountPrompt"], span["tokenCountCompletion"]) for span in named["chat gpt-4.1"])
    assert tokens == [(212, 17), (260, 12), (301, 21), (340, 24), (390, 9)], tokens
    assert all(span["costSummary"]["total"]["cost"] > 0 for span in named["chat gpt-4.1"])
    assert '"customer-42"' in named["chat gpt-4.1"][0]["attributes"]
    (session,) = [edge["node"] for edge in project["sessions"]["edges"]]
    assert (session["sessionId"], session["numTraces"]) == (THREAD, 2), session
    assert session["firstInput"]["value"] == QUESTIONS[0], session
    assert session["lastOutput"]["value"] == ANSWERS[1], session
    assert session["tokenUsage"]["total"] == sum(map(sum, tokens)), session
    # Phoenix has the same prices, also that of cached tokens.
    assert abs(session["costSummary"]["total"]["cost"] - cost) < 1e-9, (session, cost)


SCREENSHOT = """
import sys
from playwright.sync_api import sync_playwright

url, path = sys.argv[1:]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1500, "height": 820})
    page.goto(url)
    page.get_by_text("invoke_agent Refunds").first.wait_for(timeout=120_000)
    page.get_by_text("chat gpt-4.1").nth(2).click()
    page.wait_for_timeout(3000)
    page.screenshot(path=path)
    browser.close()
"""


async def main(environment: Path, picture: str | None) -> None:
    """Run two messages of one thread against Phoenix, and check what it shows."""
    async with phoenix(environment) as url:
        observer = OTelObserver.to(url, service_name="support-desk", metrics=False, content=True)
        runner, cost = make_runner(observer), 0.0
        for question, answer in zip(QUESTIONS, ANSWERS, strict=True):
            result = await runner.run(question, thread=THREAD)
            assert result.output == answer
            cost += result.usage.total.cost
        await asyncio.to_thread(observer.close)
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=url) as client:
            project = await stored(client, spans=13)
            check(project, cost)
            projects = await graphql(client, "{ projects { edges { node { id name } } } }")
        if picture is not None:
            ids = {edge["node"]["name"]: edge["node"]["id"] for edge in projects["projects"]["edges"]}
            spans = [edge["node"] for edge in project["spans"]["edges"]]
            trace = next(span["context"]["traceId"] for span in spans if span["name"] == "execute_tool refund")
            address = f"{url}/projects/{ids[project['name']]}/traces/{trace}"
            python = environment / "bin" / "python"
            await asyncio.to_thread(subprocess.run, [python, "-c", SCREENSHOT, address, picture], check=True)
    sys.stdout.write("Phoenix shows the agents, inputs, outputs, tokens, costs and the session of the thread\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
