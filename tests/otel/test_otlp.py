"""Spans and metrics as an OTLP receiver gets them from the real exporter."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.otel.receiver import exporting

from batonkit import Agent, Middleware, RunContext, RunHooks, Runner, tool
from batonkit.errors import RunConflictError, SetupError
from batonkit.messages import AssistantMessage, ToolCall, Usage
from batonkit.models import ModelSettings
from batonkit.otel import OTelObserver
from batonkit.otel.metrics import DURATION_BUCKETS, FIRST_CHUNK_BUCKETS, TOKEN_BUCKETS
from batonkit.otel.stores import MeasuredStore
from batonkit.stores import MemoryStore
from batonkit.stores.parts import innermost_store
from batonkit.testing import ScriptedModel, call, say
from batonkit.version import __version__
from batonkit.worker import Worker
from batonkit.workflows import ParallelAgent

CURRENT: list[OTelObserver] = []
"""The observer of the running test, last."""


@tool
async def look_up(city: str) -> str:
    """Look up the weather."""
    with own_span("http"):
        return f"sunny in {city}"


@tool(needs_approval=True)
async def pay(euro: int) -> str:
    """Pay."""
    return f"{euro} paid"


def own_span(name: str) -> Any:
    """Open a span of user code with the provider of the run's span."""
    provider = CURRENT[-1]._own_providers[0]
    return provider.get_tracer("own").start_as_current_span(name)


@pytest.fixture
def no_otel_errors(caplog: pytest.LogCaptureFixture) -> Any:
    """Fail if OpenTelemetry logs a failure, such as "Failed to detach context"."""
    yield
    assert [record.message for record in caplog.records if record.name.startswith("opentelemetry")] == []


pytestmark = pytest.mark.usefixtures("no_otel_errors")


async def test_a_plain_run_has_the_attributes_of_the_conventions() -> None:
    with exporting(headers={"x-key": "k1"}, service_name="desk") as (received, observer):
        CURRENT.append(observer)
        agent = Agent(
            "Desk",
            description="Answers.",
            tools=[look_up],
            model_settings=ModelSettings(temperature=0.5, max_tokens=100),
        )
        first = say("", call("look_up", city="Rome"), usage=Usage(10, 5, cost=0.25))
        model = ScriptedModel([first, say("Sunny.", usage=Usage(20, 3, cost=0.5))], name="openai:gpt-5")
        result = await Runner(agent, model=model, observers=[observer]).run("Weather?", thread="t1")
        observer.flush()
        assert received.tree() == snapshot(
            [
                "invoke_workflow Desk",
                "  invoke_agent Desk",
                "    chat gpt-5",
                "    execute_tool look_up",
                "      http",
                "    chat gpt-5",
            ]
        )
        spans = [span for span in received.spans if span.name != "http"]
        assert {span.scope for span in spans} == {("baton", __version__, "https://opentelemetry.io/schemas/1.44.0")}
        assert {span.service for span in spans} == {"desk"}
        assert {span.attributes["gen_ai.conversation.id"] for span in spans} == {"t1"}
        assert {headers["x-key"] for headers in received.headers} == {"k1"}
        chat = received.all("chat gpt-5")[0].attributes
        assert chat == snapshot(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.conversation.id": "t1",
                "gen_ai.agent.name": "Desk",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-5",
                "gen_ai.request.temperature": 0.5,
                "gen_ai.request.max_tokens": 100,
                "gen_ai.response.model": "gpt-5",
                "gen_ai.usage.input_tokens": 10,
                "gen_ai.usage.output_tokens": 5,
                "baton.usage.cost": 0.25,
            }
        )
        for name in ("invoke_agent Desk", "invoke_workflow Desk"):
            sums = received.named(name).attributes
            shown = (sums["gen_ai.usage.input_tokens"], sums["gen_ai.usage.output_tokens"], sums["baton.usage.cost"])
            assert shown == (30, 8, 0.75)
        desk = received.named("invoke_agent Desk").attributes
        assert (desk["gen_ai.agent.description"], desk["gen_ai.provider.name"]) == ("Answers.", "openai")
        assert len(desk["gen_ai.agent.version"]) == 12
        assert received.named("invoke_workflow Desk").attributes["baton.run.id"] == result.run_id


async def test_handoffs_are_spans_of_their_source() -> None:
    with exporting() as (received, observer):
        desk = Agent("Desk", handoffs=[Agent("Billing", description="Bills."), Agent("Refunds", description="Pays.")])
        asked = [call("transfer_to_refunds"), call("transfer_to_billing")]
        model = ScriptedModel({"Desk": [asked], "Refunds": ["Paid."]})
        await Runner(desk, model=model, observers=[observer]).run("Money!")
        observer.flush()
        assert received.tree() == snapshot(
            [
                "invoke_workflow Desk",
                "  invoke_agent Desk",
                "    chat scripted",
                "    handoff Desk to Refunds",
                "  invoke_agent Refunds",
                "    chat scripted",
            ]
        )
        handed = received.named("handoff Desk to Refunds").attributes
        assert handed["baton.handoff.requested"] == ["Refunds", "Billing"]
        point = received.point("baton.handoff.count", source="Desk", target="Refunds")
        assert (point.sum, point.attributes["outcome"]) == (1, "followed")


async def test_a_later_run_of_a_thread_has_the_root_of_the_team() -> None:
    # It starts with the active agent, but it is a run of the same team.
    with exporting() as (received, observer):
        desk = Agent("Desk", handoffs=[Agent("Refunds", description="Pays.")])
        model = ScriptedModel({"Desk": [call("transfer_to_refunds")], "Refunds": ["Paid.", "Soon."]})
        runner = Runner(desk, model=model, observers=[observer])
        await runner.run("Money!", thread="t1")
        await runner.run("When?", thread="t1")
        observer.flush()
        assert received.tree()[6:] == ["invoke_workflow Desk", "  invoke_agent Refunds", "    chat scripted"]
        assert {span.attributes["gen_ai.conversation.id"] for span in received.spans} == {"t1"}
        ids = {span.attributes["gen_ai.agent.id"] for span in received.all("invoke_agent Refunds")}
        assert ids == {"Desk/Refunds"}


async def test_parallel_branches_and_agents_as_tools_keep_their_spans_apart() -> None:
    with exporting() as (received, observer):
        CURRENT.append(observer)
        expert = Agent("Expert", description="Knows.", tools=[look_up])
        left = Agent("Left", tools=[expert.as_tool()])
        team = ParallelAgent("Both", sub_agents=[left, Agent("Right", tools=[look_up])])
        model = ScriptedModel(
            {
                "Left": [call("expert", request="Rome?"), "left"],
                "Expert": [say("", call("look_up", city="Rome"), usage=Usage(4, 2)), say("Sunny.", usage=Usage(6, 1))],
                "Right": [[call("look_up", city="Oslo"), call("look_up", city="Bern")], "right"],
            }
        )
        await Runner(team, model=model, observers=[observer]).run("Hi")
        observer.flush()
        parents = {span.id: span.name for span in received.spans}
        below = sorted((span.name, parents.get(span.parent, "")) for span in received.spans)
        assert below == snapshot(
            [
                ("chat scripted", "invoke_agent Expert"),
                ("chat scripted", "invoke_agent Expert"),
                ("chat scripted", "invoke_agent Left"),
                ("chat scripted", "invoke_agent Left"),
                ("chat scripted", "invoke_agent Right"),
                ("chat scripted", "invoke_agent Right"),
                ("execute_tool expert", "invoke_agent Left"),
                ("execute_tool look_up", "invoke_agent Expert"),
                ("execute_tool look_up", "invoke_agent Right"),
                ("execute_tool look_up", "invoke_agent Right"),
                ("http", "execute_tool look_up"),
                ("http", "execute_tool look_up"),
                ("http", "execute_tool look_up"),
                ("invoke_agent Both", "invoke_workflow Both"),
                ("invoke_agent Expert", "execute_tool expert"),
                ("invoke_agent Left", "invoke_agent Both"),
                ("invoke_agent Right", "invoke_agent Both"),
                ("invoke_workflow Both", ""),
            ]
        )
        assert len({span.trace for span in received.spans}) == 1
        for name in ("Expert", "Left", "Both"):
            assert received.named(f"invoke_agent {name}").attributes["gen_ai.usage.input_tokens"] == 10
        assert "gen_ai.usage.input_tokens" not in received.named("invoke_agent Right").attributes


async def test_spans_of_hooks_and_middleware_are_inside_the_agent_or_the_tool() -> None:
    class Hooks(RunHooks):
        async def on_agent_start(self, ctx: Any, agent: Any) -> None:
            with own_span("hook start"):
                pass

        async def on_agent_end(self, ctx: Any, agent: Any, output: Any) -> None:
            with own_span("hook end"):
                pass

        async def on_run_end(self, ctx: Any, agent: Any, output: Any) -> None:
            with own_span("hook run"):
                pass

    class Around(Middleware[Any]):
        async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
            with own_span("around model"):
                return await next(request)

        async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
            with own_span("around tool"):
                return await next(call)

        async def activation(self, ctx: Any, next: Any) -> Any:
            with own_span("around agent"):
                return await next()

    with exporting() as (received, observer):
        CURRENT.append(observer)
        model = ScriptedModel([call("look_up", city="Rome"), "Sunny."])
        runner = Runner(
            Agent("A", tools=[look_up]), model=model, observers=[observer], hooks=Hooks(), middleware=[Around()]
        )
        await runner.run("Hi")
        observer.flush()
        assert received.tree() == snapshot(
            [
                "invoke_workflow A",
                "  invoke_agent A",
                "    hook start",
                "    around agent",
                "      around model",
                "        chat scripted",
                "      execute_tool look_up",
                "        around tool",
                "          http",
                "      around model",
                "        chat scripted",
                "    hook end",
                "  hook run",
            ]
        )


async def test_failures_and_cancellations_are_on_the_spans_they_stopped() -> None:
    with exporting() as (received, observer):
        broken = Runner(Agent("A"), model=ScriptedModel([OSError("no network")]), observers=[observer])
        with pytest.raises(Exception, match="no network"):
            await broken.run("Hi")
        observer.flush()
        assert received.tree() == ["invoke_workflow A !", "  invoke_agent A !", "    chat scripted !"]
        assert received.named("chat scripted").attributes["error.type"] == "OSError"
        assert received.named("invoke_agent A").attributes["error.type"] == "ModelError"
        point = received.point("gen_ai.client.operation.duration", error__type="OSError")
        assert point.count == 1
        received.spans.clear()

        started = asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            started.set()
            await asyncio.Event().wait()
            return ""

        slow = Runner(Agent("B", tools=[wait]), model=ScriptedModel([call("wait")]), observers=[observer])
        async with slow.stream("Hi") as run:
            await started.wait()
            await run.cancel()
        observer.flush()
        assert received.tree() == snapshot(
            ["invoke_workflow B", "  invoke_agent B", "    chat scripted", "    execute_tool wait"]
        )
        assert received.named("invoke_workflow B").attributes["baton.run.status"] == "cancelled"
        assert received.point("baton.runs.active").sum == 0


async def test_content_is_recorded_on_request_and_redacted() -> None:
    def redact(name: str, value: Any) -> Any:
        if name == "gen_ai.tool.call.result":
            return None
        text = str(value)
        return text.replace("4711", "####") if "4711" in text else value

    model_script = [call("look_up", city="4711 Street"), "Sunny in 4711."]
    for content in (True, False):
        with exporting(content=content, redact=redact) as (received, observer):
            CURRENT.append(observer)
            agent = Agent("A", instructions="Be kind.", tools=[look_up])
            await Runner(agent, model=ScriptedModel([*model_script]), observers=[observer]).run("My code is 4711.")
            observer.flush()
            words = str([[span.attributes, span.events] for span in received.spans])
            assert "4711" not in words
            assert ("Be kind." in words, "####" in words, "look_up" in words) == (content, content, True)
            chat = received.all("chat scripted")[0].attributes
            names = ("gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions")
            assert [name in chat for name in (*names, "gen_ai.output.messages")] == [content] * 4
            called = received.named("execute_tool look_up").attributes
            assert ("gen_ai.tool.call.arguments" in called, "gen_ai.tool.call.result" in called) == (content, False)
            run = received.named("invoke_workflow A").attributes
            assert [run.get(name) for name in ("input.value", "output.value")] == (
                ["My code is ####.", "Sunny in ####."] if content else [None, None]
            )


async def test_messages_have_the_format_of_the_conventions() -> None:
    with exporting(content=True) as (received, observer):
        CURRENT.append(observer)
        agent = Agent("A", instructions="Be kind.", tools=[look_up])
        script = [say("One moment.", call("look_up", city="Rome")), "Sunny."]
        await Runner(agent, model=ScriptedModel(script), observers=[observer]).run("Rome?")
        observer.flush()
        chat = received.all("chat scripted")[1].attributes
        assert chat["gen_ai.input.messages"] == snapshot(
            '[{"role":"user","parts":[{"type":"text","content":"Rome?"}]},'
            '{"role":"assistant","parts":[{"type":"text","content":"One moment."},'
            '{"type":"tool_call","id":"call_1","name":"look_up","arguments":{"city":"Rome"}}]},'
            '{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":"sunny in Rome"}]}]'
        )
        assert chat["gen_ai.output.messages"] == snapshot(
            '[{"role":"assistant","parts":[{"type":"text","content":"Sunny."}],"finish_reason":"stop"}]'
        )
        assert chat["gen_ai.system_instructions"] == '[{"type":"text","content":"Be kind."}]'
        assert received.named("execute_tool look_up").attributes["gen_ai.tool.call.arguments"] == '{"city":"Rome"}'


async def test_content_follows_the_standard_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("true", True), ("SPAN_ONLY", True), ("false", False), ("event_only", False)):
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
        with exporting() as (received, observer):
            await Runner(Agent("A"), model=ScriptedModel(["Hello."]), observers=[observer]).run("secret")
            observer.flush()
            assert ("input.value" in received.named("invoke_workflow A").attributes) is expected


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"name": "\ud800"}'])
async def test_arguments_that_cannot_be_decoded_or_encoded_do_not_end_the_run(arguments: str) -> None:
    @tool
    def greet(name: str) -> str:
        """Greet."""
        return f"hello {name}"

    request = AssistantMessage("", (ToolCall("1", "greet", arguments),))
    with exporting(content=True) as (_, observer):
        model = ScriptedModel([request, "done"])
        result = await Runner(Agent("A", tools=[greet]), model=model, observers=[observer]).run("hi")
        assert result.output == "done"


async def test_a_redaction_that_fails_records_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def redact(name: str, value: Any) -> Any:
        raise ValueError("broken")

    with exporting(content=True, redact=redact) as (received, observer):
        result = await Runner(Agent("A"), model=ScriptedModel(["Hello."]), observers=[observer]).run("secret")
        assert result.output == "Hello."
        observer.flush()
        assert "secret" not in str([span.attributes for span in received.spans])
    assert "redact failed for `input.value`" in caplog.text


async def test_metrics_have_the_buckets_of_the_conventions() -> None:
    with exporting() as (received, observer):
        CURRENT.append(observer)
        script = [say("", call("look_up", city="Rome"), usage=Usage(10, 5)), say("Sunny.", usage=Usage(20, 3))]
        runner = Runner(
            Agent("A", tools=[look_up, pay]),
            model=ScriptedModel([*script, call("pay", euro=5), "Paid."], stream=True),
            observers=[observer],
        )
        async with runner.stream("Hi") as run:
            assert [event async for event in run]
        stopped = await runner.run("Pay")
        observer.flush()
        duration = received.point("gen_ai.client.operation.duration")
        assert (duration.count, duration.bounds) == (3, list(DURATION_BUCKETS))
        assert duration.attributes == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "scripted",
            "gen_ai.request.model": "scripted",
            "gen_ai.response.model": "scripted",
        }
        tokens = {
            kind: received.point("gen_ai.client.token.usage", gen_ai__token__type=kind) for kind in ("input", "output")
        }
        assert {kind: point.sum for kind, point in tokens.items()} == {"input": 30, "output": 8}
        assert tokens["input"].bounds == list(TOKEN_BUCKETS)
        first = received.point("gen_ai.client.operation.time_to_first_chunk")
        assert (first.count, first.bounds) == (2, list(FIRST_CHUNK_BUCKETS))
        assert received.point("baton.agent.duration", gen_ai__agent__name="A").count == 2
        assert received.point("baton.workflow.duration", gen_ai__workflow__name="A").count == 2
        assert received.point("baton.tool.duration", gen_ai__tool__name="look_up").count == 1
        assert received.point("baton.interrupts.open").sum == 1
        await runner.resume(stopped.run_id, True)
        observer.flush()
        assert received.point("baton.interrupts.open").sum == 0
        assert received.point("baton.runs.active").sum == 0


async def test_calls_of_the_store_and_lost_leases_are_measured() -> None:
    now = [1000.0]
    store = MemoryStore(clock=lambda: now[0])

    @tool
    async def take_over(ctx: RunContext[Any]) -> str:
        """Let another worker take the run over, as if this process had been suspended."""
        now[0] += 3600
        await store.acquire(ctx.run_id, "other", ttl=60)
        return "taken"

    with exporting() as (received, observer):
        model = ScriptedModel([call("take_over"), "Hi"])
        runner = Runner(Agent("A", tools=[take_over]), model=model, store=store, observers=[observer])
        measured = runner._require_store("test")
        assert (repr(measured), type(measured)) == ("MeasuredStore(MemoryStore())", MeasuredStore)
        assert not isinstance(measured, MemoryStore)
        assert innermost_store(measured) is store
        with pytest.raises(RunConflictError):
            await runner.run("Hi")
        observer.flush()
        created = received.point("baton.store.operation.duration", operation="create", store="MemoryStore")
        assert (created.count, created.bounds) == (1, list(DURATION_BUCKETS))
        failed = received.point("baton.store.operation.duration", operation="append", error__type="RunConflictError")
        assert failed.count == 1
        assert received.point("baton.lease.lost", operation="append", store="MemoryStore").sum == 1


def test_workers_on_a_measured_store_use_the_engine_of_the_store_inside() -> None:
    observer = OTelObserver()
    runner = Runner(Agent("A"), store="postgresql://baton@localhost/runs", observers=[observer])
    assert Worker(runner).engine.name == "postgres"


async def test_a_submitted_run_is_linked_to_the_span_that_submitted_it(tmp_path: Path) -> None:
    with exporting() as (received, observer):
        CURRENT.append(observer)
        async with Runner(
            Agent("A"), model=ScriptedModel(["Hello."]), store=tmp_path / "runs.db", observers=[observer]
        ) as runner:
            with own_span("request"):
                run_id = await runner.submit("Hi")
            assert (await runner.runs.drive(run_id)).status == "completed"
        observer.flush()
        request = received.named("request")
        assert received.named("invoke_workflow A").links == [(request.trace, request.id)]


def test_an_address_that_is_no_url_is_refused() -> None:
    for url in ("localhost:4318", "http://[localhost:4318"):
        with pytest.raises(SetupError, match=r"is not the URL of an OTLP receiver, such as http://localhost:4318"):
            OTelObserver.to(url)


def test_a_runner_takes_one_tracing_observer() -> None:
    with pytest.raises(SetupError, match="several span processors"):
        Runner(Agent("A"), observers=[OTelObserver(), OTelObserver()])
