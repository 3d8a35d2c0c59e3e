"""One test for each extra, for environments with the lowest versions that pyproject.toml allows.

`make test-minimum` runs `test_base` and `test_imports` without extras, `test_<extra>` with each extra, and everything
with all of them; a new extra needs a test here. SDKs are imported where they are used: not every environment has them.
"""

import asyncio
import json
import os
import pkgutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import batonkit
from batonkit import Agent, Runner, SetupError, tool
from batonkit.testing import ScriptedModel, call

# Old versions of dependencies warn about new versions of others.
pytestmark = pytest.mark.filterwarnings("ignore")


@tool
async def look_up(city: str, days: int = 1) -> str:
    """Look up the weather.

    Args:
        city: The city.
        days: The number of days.
    """
    return f"{city}: sunny for {days} days"


SCRIPT: list[Any] = [call("look_up", city="Rome", days=2), "It is sunny."]


def require(module: str) -> None:
    """Skip the test if a module is missing; in the environments of `make test-minimum` none may be."""
    if "BATON_MINIMUM" not in os.environ:
        pytest.importorskip(module)


async def run_with(model: Any, **options: Any) -> None:
    """Run an agent that calls a tool and answers."""
    async with Runner(Agent("A", tools=[look_up]), model=model, **options) as runner:
        result = await runner.run("How is Rome?")
    assert result.output == "It is sunny."
    assert [message.content for message in result.messages if message.__class__.__name__ == "ToolMessage"] == [
        "Rome: sunny for 2 days"
    ]


def team(*steps: Any) -> Agent:
    """Return an agent with a scripted model."""
    return Agent("Desk", description="Helps.", tools=[look_up], model=ScriptedModel(steps or SCRIPT))


@asynccontextmanager
async def post(app: Any, path: str, body: Any) -> AsyncGenerator[Any]:
    """Serve an app, send it a JSON body and yield the response."""
    import aiohttp

    from batonkit.serve import serve_in_background

    async with (
        serve_in_background(app, timeout_graceful_shutdown=1) as url,
        aiohttp.ClientSession() as session,
        session.post(url + path, json=body) as response,
    ):
        assert response.status < 300, await response.text()
        yield response


def test_imports() -> None:
    missing: dict[str, str] = {}
    for module in pkgutil.walk_packages(batonkit.__path__, "batonkit.", onerror=lambda name: None):
        if module.name.endswith("__main__"):
            continue
        try:
            import_module(module.name)
        except SetupError as error:
            missing[module.name] = str(error)  # It names the extra.
        except ImportError as error:
            # Only a package that is not installed may be missing, not a name in an old version of it.
            package = (error.name or "").partition(".")[0]
            if find_spec(package) is not None:
                raise
            missing[module.name] = package
    if os.environ.get("BATON_MINIMUM") == "all":
        assert missing == {}


async def test_base(tmp_path: Path) -> None:
    from click.testing import CliRunner
    from pydantic import BaseModel

    from batonkit import handoff
    from batonkit.cli.main import main
    from batonkit.swarm import Agent as SwarmAgent

    class Reason(BaseModel):
        text: str

    desk = Agent("Desk", handoffs=[handoff(Agent("Refunds", description="Pays back."), input_type=Reason)])
    script = {"Desk": [call("transfer_to_refunds", text="paid twice")], "Refunds": ["Done."]}
    for store in (None, "memory:", tmp_path / "runs.db"):
        await run_with(ScriptedModel(SCRIPT), store=store)
        async with Runner(desk, model=ScriptedModel(script), store=store) as runner:
            assert (await runner.run("Refund me.")).agent == "Refunds"
    assert SwarmAgent().name == "Agent"
    command: Any = main
    for arguments in (["--help"], ["--version"], ["runs", "ls", "--store", str(tmp_path / "runs.db")]):
        result = await asyncio.to_thread(CliRunner().invoke, command, arguments)
        assert result.exit_code == 0, result.output


async def test_openai() -> None:
    require("aiohttp")
    from tests.servers import OpenAIServer

    from batonkit.models.openai import OpenAIModel

    for api in ("chat", "responses"):
        async with OpenAIServer(SCRIPT) as server:
            await run_with(OpenAIModel("gpt-5", api=api, base_url=server.base_url, api_key=server.api_key))


async def test_openai_sdk() -> None:
    require("openai")
    from openai import AsyncOpenAI
    from tests.servers import OpenAIServer

    from batonkit.models.openai import OpenAIModel

    for api in ("chat", "responses"):
        async with (
            OpenAIServer(SCRIPT) as server,
            AsyncOpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=0) as client,
        ):
            await run_with(OpenAIModel("gpt-5", api=api, client=client))


async def test_anthropic() -> None:
    require("anthropic")
    from tests.servers import AnthropicServer

    from batonkit.models.anthropic import AnthropicModel

    async with AnthropicServer(SCRIPT) as server:
        await run_with(AnthropicModel("claude-opus-5-5", api_key=server.api_key, base_url=server.base_url))


async def test_google() -> None:
    require("google.genai")
    from tests.servers import GoogleServer

    from batonkit.models.google import GoogleModel

    async with GoogleServer(SCRIPT) as server:
        await run_with(GoogleModel("gemini-3.8-flash", api_key=server.api_key, base_url=server.base_url))


async def test_litellm() -> None:
    require("litellm")
    from tests.servers import OpenAIServer

    from batonkit.models.litellm import LiteLLMModel

    async with OpenAIServer(SCRIPT) as server:
        await run_with(LiteLLMModel("openai/gpt-test", api_key=server.api_key, base_url=server.base_url))


def test_local(tmp_path: Path) -> None:
    require("xllamacpp")
    from batonkit.errors import WeightsError
    from batonkit.models.local.engine import LlamaDecoder
    from batonkit.models.local.weights import cache_folder

    assert cache_folder()
    # The weights are too large to download here; their parameters are set before the file is read.
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    with pytest.raises(WeightsError, match=r"llama\.cpp cannot load `.*bad\.gguf`"):
        LlamaDecoder(tmp_path / "bad.gguf")


async def test_realtime() -> None:
    require("openai.types.realtime")
    import_module("openai.resources.realtime.realtime")  # Takes seconds, which would count as time to connect.
    from tests.servers import OpenAIRealtimeServer

    from batonkit.log import AgentResponded, ToolReturned
    from batonkit.messages import text_of
    from batonkit.realtime import OpenAIRealtimeModel, RealtimeAgent, RealtimeRunner, RealtimeSettings

    async with OpenAIRealtimeServer(SCRIPT) as server:
        model = OpenAIRealtimeModel(base_url=server.base_url, api_key=server.api_key)
        settings = RealtimeSettings(modality="text")
        runner = RealtimeRunner(RealtimeAgent("A", tools=[look_up]), model=model, settings=settings)
        async with runner.connect() as session:
            await session.send_text("How is Rome?")
            await session.wait_until_idle()
    events = session.result.events
    assert [event.tool_name for event in events if isinstance(event, ToolReturned)] == ["look_up"]
    said = [text_of(event.message.content) for event in events if isinstance(event, AgentResponded)]
    assert said[-1] == "It is sunny."


async def test_voice() -> None:
    # Only the package: importing it needs PortAudio, a library of the system.
    if find_spec("sounddevice") is None:
        require("sounddevice")
        pytest.fail("sounddevice is not installed")
    await test_realtime()


async def drive_with(engine: Any, runner: Runner[Any, Any]) -> None:
    """Submit a run and have a worker drive it."""
    from batonkit.worker import Worker

    run_id = await runner.submit("How is Rome?")
    worker = Worker(runner, engine=engine)
    working = asyncio.create_task(worker.run())
    assert [event async for _, event in runner.runs.watch(run_id)][-1].__class__.__name__ == "RunCompleted"
    worker.stop()
    await working


async def test_worker() -> None:
    require("procrastinate")
    from tests.postgres import PostgresServer

    server = PostgresServer()
    try:
        server.start()
        async with Runner(team(), store=server.url) as runner:
            await drive_with("postgres", runner)
    finally:
        server.remove()


async def test_temporal(tmp_path: Path) -> None:
    require("temporalio")
    from tests.temporal_server import TemporalServer

    from batonkit.worker import TemporalEngine

    server = TemporalServer(tmp_path)
    try:
        server.start()
        async with Runner(team(), store=tmp_path / "runs.db") as runner:
            await drive_with(TemporalEngine(server.address), runner)
    finally:
        server.stop()


async def test_postgres() -> None:
    require("psycopg_pool")
    from tests.postgres import PostgresServer

    server = PostgresServer()
    try:
        server.start()
        async with Runner(team(), store=server.empty_place()) as runner:
            result = await runner.run("How is Rome?", thread="t")
            assert result.output == "It is sunny."
            assert [record.status for record in await runner.thread("t").runs()] == ["completed"]
    finally:
        server.remove()


async def test_otel(tmp_path: Path) -> None:
    require("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from batonkit.otel import OTelObserver

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    async with Runner(team(), store=tmp_path / "runs.db", observers=[OTelObserver(provider)]) as runner:
        await runner.run("How is Rome?")
    assert sorted(span.name for span in kept.get_finished_spans()) == [
        "chat scripted",
        "chat scripted",
        "execute_tool look_up",
        "invoke_agent Desk",
        "invoke_workflow Desk",
    ]
    # Nothing listens there: the exporter is created, and gives up.
    observer = OTelObserver.to("http://127.0.0.1:9", metrics=False)
    observer.close()


async def test_prices(tmp_path: Path) -> None:
    require("genai_prices")
    from batonkit.messages import Usage
    from batonkit.models import GenAIPrices

    plain = GenAIPrices().cost("openai:gpt-4o", Usage(1000, 100, reasoning_tokens=10))
    cached = GenAIPrices().cost("openai:gpt-4o", Usage(1000, 100, cached_tokens=900))
    assert plain is not None
    assert cached is not None
    assert 0 < cached < plain


async def test_mcp() -> None:
    require("mcp")
    from batonkit.mcp import MCPToolset
    from batonkit.serve import mcp_app, mcp_server, serve_in_background

    async def ask(server: Any) -> None:
        model = ScriptedModel([call("desk", request="How is Rome?"), "Thank you."])
        result = await Runner(Agent("A", tools=[MCPToolset(server)]), model=model).run("Ask the desk.")
        assert result.output == "Thank you."
        assert "It is sunny." in str(result.messages)

    await ask(mcp_server(team()))
    async with serve_in_background(mcp_app(team()), timeout_graceful_shutdown=1) as url:
        await ask(f"{url}/mcp")


async def test_serving() -> None:
    require("starlette")
    from batonkit.serve import api_app

    async with post(api_app(Runner(team(), store="memory:")), "/runs?wait=true", {"input": "How is Rome?"}) as response:
        assert (await response.json())["id"]


async def test_agui() -> None:
    require("ag_ui")
    from batonkit.serve import agui_app

    body: dict[str, Any] = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "1", "role": "user", "content": "How is Rome?"}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    async with post(agui_app(Runner(team(), store="memory:")), "/", body) as response:
        lines = (await response.text()).splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
    assert (events[0]["type"], events[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
    assert events[-1]["result"] == "It is sunny."


async def test_a2a() -> None:
    require("a2a")
    from batonkit.a2a import RemoteAgent
    from batonkit.serve import a2a_app, serve_in_background
    from batonkit.testing import transfer_to

    async with serve_in_background(a2a_app(team()), timeout_graceful_shutdown=1) as url:
        remote = await RemoteAgent.discover(url)
        router = Agent("Router", description="Routes.", sub_agents=[remote])
        result = await Runner(router, model=ScriptedModel([transfer_to("Desk")])).run("How is Rome?")
        await remote.close()
    assert (result.output, result.agent) == ("It is sunny.", "Desk")
