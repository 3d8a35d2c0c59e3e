"""Traces across A2A, MCP and realtime sessions, as an OTLP receiver gets them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard
from inline_snapshot import snapshot
from tests.mcp.servers import served as mcp_served
from tests.otel.receiver import Receiver, exporting
from tests.realtime.backends import ScriptedBackend
from tests.realtime.recorder import record_session
from tests.serve.a2a.clients import served
from tests.sockets import http_client

from batonkit import Agent, Runner, tool
from batonkit.a2a import RemoteAgent
from batonkit.errors import RemoteError
from batonkit.log import AgentResponded, ToolReturned
from batonkit.mcp import MCPToolset
from batonkit.messages import Usage
from batonkit.models import ModelPrice, PriceTable
from batonkit.otel import OTelObserver
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings
from batonkit.runs import BackgroundRunner
from batonkit.serve import api_app, mcp_app
from batonkit.serve.a2a import a2a_app
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel, call, say, transfer_to


@pytest.fixture(autouse=True)
def no_otel_errors(caplog: pytest.LogCaptureFixture) -> Any:
    """Fail if OpenTelemetry logs a failure, such as "Failed to detach context"."""
    yield
    assert [record.message for record in caplog.records if record.name.startswith("opentelemetry")] == []


def flushed(received: Receiver, observer: OTelObserver) -> list[str]:
    """Return the tree of what was received."""
    observer.flush()
    return received.tree()


@asynccontextmanager
async def served_over_grpc(runner: Runner[Any, Any]) -> AsyncGenerator[AgentCard]:
    """Serve a runner over gRPC only; yield its card."""
    server, app = grpc.aio.server(), a2a_app(runner)
    app.add_to_grpc(server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    card = AgentCard(name="Weather", capabilities=AgentCapabilities(streaming=True))
    card.supported_interfaces.add(url=address, protocol_binding="GRPC", protocol_version="1.0")
    try:
        yield card
    finally:
        await server.stop(0)
        await app.close()


@asynccontextmanager
async def remote_agent(runner: Runner[Any, Any], binding: str) -> AsyncGenerator[RemoteAgent]:
    """Serve a runner with a binding of A2A, and connect to it."""
    if binding == "grpc":
        async with served_over_grpc(runner) as card:
            remote = RemoteAgent(card, description="Knows the weather.")
            yield remote
            await remote.close()
        return
    async with served(a2a_app(runner)) as url:
        remote = await RemoteAgent.discover(url)
        yield remote
        await remote.close()


@pytest.mark.parametrize("binding", ["http", "grpc"])
async def test_a_remote_agent_continues_the_trace_of_its_caller(binding: str) -> None:
    # A2A out and in. Each side has an observer of its own, as two processes would.
    with exporting() as (received, observer), exporting() as (received_there, observer_there):
        weather = Agent("Weather", description="Knows the weather.")
        model = ScriptedModel([say("Sunny.", usage=Usage(7, 2))])
        there = Runner(weather, model=model, observers=[observer_there], store=MemoryStore())
        async with remote_agent(there, binding) as remote:
            router = Agent("Router", description="Routes.", sub_agents=[remote])
            here = Runner(router, model=ScriptedModel([transfer_to("Weather")]), observers=[observer])
            assert (await here.run("How is Rome?", thread="t1")).output == "Sunny."
        assert flushed(received, observer) == snapshot(
            [
                "invoke_workflow Router",
                "  invoke_agent Router",
                "    chat scripted",
                "    handoff Router to Weather",
                "  invoke_agent Weather",
            ]
        )
        assert flushed(received_there, observer_there) == snapshot(
            ["invoke_workflow Weather", "  invoke_agent Weather", "    chat scripted"]
        )
        asked, answered = received.named("invoke_agent Weather"), received_there.named("invoke_workflow Weather")
        assert (answered.trace, answered.parent) == (asked.trace, asked.id)
        assert len({span.trace for span in (*received.spans, *received_there.spans)}) == 1
        assert {span.attributes["gen_ai.conversation.id"] for span in received.spans} == {"t1"}
        # Each side measures its own calls.
        assert received.point("gen_ai.client.operation.duration").count == 1
        assert received_there.point("gen_ai.client.token.usage", gen_ai__token__type="input").sum == 7


@pytest.mark.parametrize("binding", ["http", "grpc"])
async def test_a_remote_agent_that_fails_is_an_error_on_both_sides(binding: str) -> None:
    # The error of the service is on its own spans; the caller's agent failed with what A2A says of it.
    with exporting(content=True) as (received, observer):
        weather = Agent("Weather", description="Knows the weather.")
        model = ScriptedModel([OSError("no satellite")])
        there = Runner(weather, model=model, observers=[observer], store=MemoryStore())
        async with remote_agent(there, binding) as remote:
            with pytest.raises(RemoteError):
                await Runner(remote, observers=[observer]).run("How is Rome?")
        assert flushed(received, observer) == snapshot(
            [
                "invoke_workflow Weather !",
                "  invoke_agent Weather !",
                "    invoke_workflow Weather !",
                "      invoke_agent Weather !",
                "        chat scripted !",
            ]
        )
        run, run_there = received.all("invoke_workflow Weather")
        assert (run.attributes["error.type"], run_there.attributes["error.type"]) == ("RemoteError", "ModelError")
        assert run.attributes["input.value"] == run_there.attributes["input.value"] == "How is Rome?"


async def test_a_run_continues_the_trace_of_an_http_client() -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with exporting() as (received, observer):
        runner = Runner(Agent("A"), model=ScriptedModel(["Hello."]), observers=[observer], store=MemoryStore())
        app = api_app(runner, allow_anonymous=True)
        async with served(app) as url, http_client() as client:
            headers = {"traceparent": f"00-{trace}-{parent}-01"}
            response = await client.post(f"{url}/runs", json={"input": "Hi"}, headers=headers)
            run_id = response.json()["id"]
            events = await client.get(f"{url}/runs/{run_id}/events")
            # The trace context is internal.
            assert trace not in events.text
        observer.flush()
        run = received.named("invoke_workflow A")
        assert (run.trace, run.parent) == (trace, parent)


async def test_calls_of_mcp_tools_carry_the_trace_to_the_server() -> None:
    with exporting() as (received, observer):
        there = Runner(Agent("Desk", description="Helps."), model=ScriptedModel(["Done."]), observers=[observer])
        async with mcp_served(mcp_app(there)) as url:
            boss = Agent("Boss", tools=[MCPToolset(url)])
            model = ScriptedModel([call("desk", request="Pay."), "Fine."])
            assert (await Runner(boss, model=model, observers=[observer]).run("Hi")).output == "Fine."
        assert flushed(received, observer) == snapshot(
            [
                "invoke_workflow Boss",
                "  invoke_agent Boss",
                "    chat scripted",
                "    execute_tool desk",
                "      invoke_workflow Desk",
                "        invoke_agent Desk",
                "          chat scripted",
                "    chat scripted",
            ]
        )


async def test_a_realtime_session_has_the_same_spans() -> None:
    backend = ScriptedBackend()
    with exporting() as (received, observer):

        @tool
        async def look_up() -> str:
            """Look it up."""
            with observer._own_providers[0].get_tracer("own").start_as_current_span("http"):
                return "found"

        billing = RealtimeAgent("Billing", description="Bills.", instructions="Be kind.")
        desk = RealtimeAgent("Desk", instructions="Be kind.", tools=[look_up], handoffs=[billing])
        script = {"Desk": [call("look_up"), call("transfer_to_billing")], "Billing": ["It is paid."]}
        model = await backend.start(script)
        settings = RealtimeSettings(modality="text")
        runner = RealtimeRunner(desk, model=model, settings=settings, observers=[observer])
        async with record_session(runner.connect()) as recorder:
            await recorder.session.send_text("My invoice?")
            await recorder.wait_for(ToolReturned)
            await recorder.wait_for(AgentResponded, where=lambda response: response.text == "It is paid.")
        assert flushed(received, observer) == snapshot(
            [
                "invoke_workflow Desk",
                "  invoke_agent Desk",
                "    chat scripted-realtime",
                "    execute_tool look_up",
                "      http",
                "    chat scripted-realtime",
                "    handoff Desk to Billing",
                "  invoke_agent Billing",
                "    chat scripted-realtime",
            ]
        )
        chats = [span.attributes for span in received.spans if span.name.startswith("chat")]
        assert all(chat["gen_ai.conversation.id"] for chat in chats)
        assert len({chat["gen_ai.response.id"] for chat in chats}) == 3
    await backend.close()


@pytest.mark.parametrize("content", [True, False])
async def test_a_realtime_session_has_content_and_metrics_as_configured(content: bool) -> None:
    def redact(name: str, value: Any) -> Any:
        return str(value).replace("4711", "####")

    price = ModelPrice(input=4, output=16)
    steps = {
        "Desk": [say("Invoice 4711?", call("transfer_to_billing"), usage=Usage(100, 20))],
        "Billing": [say("4711 is paid.", usage=Usage(50, 10))],
    }
    with exporting(content=content, redact=redact) as (received, observer):
        desk = RealtimeAgent("Desk", handoffs=[RealtimeAgent("Billing", description="Bills.")])
        model = ScriptedRealtimeModel(steps, name="openai:gpt-realtime")
        settings, prices = RealtimeSettings(modality="text"), PriceTable({"openai:gpt-realtime": price})
        runner = RealtimeRunner(desk, model=model, settings=settings, observers=[observer], prices=prices)
        async with record_session(runner.connect(thread="t1")) as recorder:
            await recorder.session.send_text("My invoice?")
            await recorder.wait_for(AgentResponded, where=lambda response: response.text == "4711 is paid.")
        observer.flush()
        assert {span.attributes["gen_ai.conversation.id"] for span in received.spans} == {"t1"}
        chat = received.all("chat gpt-realtime")[-1].attributes
        shown = ("gen_ai.provider.name", "gen_ai.agent.name", "gen_ai.usage.input_tokens", "baton.usage.cost")
        assert [chat[name] for name in shown] == ["openai", "Billing", 50, price.cost(Usage(50, 10))]
        words = str([[span.attributes, span.events] for span in received.spans])
        assert ("#### is paid." in words, "4711" in words) == (content, False)
        run = received.named("invoke_workflow Desk").attributes
        assert (run["gen_ai.usage.output_tokens"], run["baton.run.status"]) == (30, "completed")
        assert received.point("gen_ai.client.operation.duration").count == 2
        assert received.point("gen_ai.client.token.usage", gen_ai__token__type="output").sum == 30
        assert received.point("baton.handoff.count", source="Desk", target="Billing", outcome="followed").sum == 1
        assert received.point("baton.agent.duration", gen_ai__agent__name="Billing").count == 1
        assert received.point("baton.runs.active").sum == 0


async def test_background_runs_are_inside_the_span_that_started_them() -> None:
    with exporting() as (received, observer):
        runner = Runner(Agent("A"), model=ScriptedModel(["Hello."]), observers=[observer], store=MemoryStore())
        background = BackgroundRunner(runner)
        with observer._own_providers[0].get_tracer("own").start_as_current_span("request"):
            run_id = await background.start("Hi")
        assert [event async for event in background.subscribe(run_id)]
        await background.drain()
        assert flushed(received, observer) == [
            "request",
            "  invoke_workflow A",
            "    invoke_agent A",
            "      chat scripted",
        ]
