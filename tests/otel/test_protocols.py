"""Traces across A2A, MCP and realtime sessions, as an OTLP receiver gets them (observability O1)."""

from typing import Any

import httpx
import pytest
from inline_snapshot import snapshot
from tests.mcp.servers import free_port
from tests.mcp.servers import served as mcp_served
from tests.otel.receiver import Receiver, exporting
from tests.realtime.backends import ScriptedBackend
from tests.realtime.recorder import record_session
from tests.serving.a2a.clients import served

from baton import Agent, Runner, tool
from baton.a2a import RemoteAgent
from baton.events import AgentResponded, ToolReturned
from baton.mcp import MCPToolset
from baton.otel import OTelObserver
from baton.realtime import RealtimeAgent, RealtimeRunner, RealtimeSettings
from baton.runner import BackgroundRunner
from baton.serving import api_app, mcp_app
from baton.serving.a2a import a2a_app
from baton.stores import MemoryStore
from baton.testing import ScriptedModel, call, transfer_to


@pytest.fixture(autouse=True)
def no_otel_errors(caplog: pytest.LogCaptureFixture) -> Any:
    """Fail if OpenTelemetry logs a failure, such as "Failed to detach context"."""
    yield
    assert [record.message for record in caplog.records if record.name.startswith("opentelemetry")] == []


def flushed(received: Receiver, observer: OTelObserver) -> list[str]:
    """Return the tree of what was received."""
    observer.flush()
    return received.tree()


async def test_a_remote_agent_continues_the_trace_of_its_caller() -> None:
    # A2A out and in.
    with exporting() as (received, observer):
        weather = Agent("Weather", description="Knows the weather.")
        there = Runner(weather, model=ScriptedModel(["Sunny."]), observers=[observer], store=MemoryStore())
        async with served(a2a_app(there)) as url:
            remote = await RemoteAgent.discover(url)
            router = Agent("Router", description="Routes.", sub_agents=[remote])
            here = Runner(router, model=ScriptedModel([transfer_to("Weather")]), observers=[observer])
            assert (await here.run("How is Rome?")).output == "Sunny."
            await remote.close()
        assert flushed(received, observer) == snapshot(
            [
                "invoke_workflow Router",
                "  invoke_agent Router",
                "    chat scripted",
                "    handoff Router to Weather",
                "  invoke_agent Weather",
                "    invoke_workflow Weather",
                "      invoke_agent Weather",
                "        chat scripted",
            ]
        )
        assert len({span.trace for span in received.spans}) == 1


async def test_a_run_continues_the_trace_of_an_http_client() -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with exporting() as (received, observer):
        runner = Runner(Agent("A"), model=ScriptedModel(["Hello."]), observers=[observer], store=MemoryStore())
        app = api_app(runner, allow_anonymous=True)
        async with served(app) as url, httpx.AsyncClient() as client:
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
        async with mcp_served(mcp_app(there), free_port()) as url:
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
    await backend.close()


async def test_background_runs_are_inside_the_span_that_started_them() -> None:
    # O1
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
