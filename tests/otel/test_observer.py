"""Spans built by the real SDK while a run is driven, or exported from its log."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind
from tests.otel.spans import Traced, facts, id_of, linked, noted, trace_of

from batonkit import (
    Agent,
    AgentContext,
    Approval,
    RunHooks,
    Runner,
    SetupError,
    Transfer,
    agent,
    handoff,
    then_transfer,
    tool,
)
from batonkit.agents import MultipleTransfers
from batonkit.errors import ModelError, TransferError
from batonkit.log import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    Event,
    Origin,
    RunCompleted,
    RunStarted,
    TextDelta,
    ToolReturned,
    decode_log,
    encode_log,
)
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import Usage
from batonkit.otel import OTelObserver
from batonkit.runs import HandoffRules
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call, say, transfer_to
from batonkit.workflows import ParallelAgent, SequentialAgent


@tool
async def look_up(city: str) -> str:
    """Look up."""
    return f"sunny in {city}"


@tool
async def break_down() -> str:
    """Break."""
    raise ValueError("the secret is 42")


@tool(needs_approval=True)
async def pay(euro: int) -> str:
    """Pay."""
    return f"{euro} paid"


def office(traced: Traced, script: Any, *, content: bool = False, **options: Any) -> Runner[Any, Any]:
    """`A` has tools, and hands off to B and C."""
    edges = [handoff(Agent(name)) for name in "BC"]
    a = Agent("A", tools=[look_up, break_down, pay], handoffs=edges)
    stream = options.pop("stream", False)
    readers = [OTelObserver(traced.provider, content=content)]
    return Runner(a, model=ScriptedModel(script, stream=stream), observers=readers, **options)


async def test_a_run_has_an_activation_and_that_has_model_calls() -> None:
    traced = Traced()
    usage = Usage(input_tokens=7, output_tokens=3, cached_tokens=2)
    result = await office(traced, [say("Hello.", usage=usage)]).run("Hi", run_id="r1")
    assert traced.tree() == snapshot(["invoke_workflow A", "  invoke_agent A", "    chat scripted"])
    run, activation, model = traced.spans
    assert facts(run) == snapshot(
        {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": "A",
            "gen_ai.conversation.id": "r1",
            "openinference.span.kind": "CHAIN",
            "baton.run.id": "r1",
            "baton.run.status": "completed",
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 3,
            "gen_ai.usage.cache_read.input_tokens": 2,
        }
    )
    assert facts(activation) == snapshot(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "A",
            "gen_ai.agent.id": "A",
            "gen_ai.agent.version": "d7da405d6bd2",
            "gen_ai.conversation.id": "r1",
            "gen_ai.provider.name": "scripted",
            "gen_ai.request.model": "scripted",
            "baton.activation.id": "1",
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 3,
            "gen_ai.usage.cache_read.input_tokens": 2,
        }
    )
    assert facts(model) == snapshot(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "scripted",
            "gen_ai.request.model": "scripted",
            "gen_ai.response.model": "scripted",
            "gen_ai.agent.name": "A",
            "gen_ai.conversation.id": "r1",
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 3,
            "gen_ai.usage.cache_read.input_tokens": 2,
        }
    )
    assert model.kind is SpanKind.CLIENT
    at = {type(event): int(event.timestamp * 1e9) for event in result.events}
    assert (run.start_time, run.end_time) == (at[RunStarted], at[RunCompleted])
    assert activation.end_time == at[AgentFinished]
    times = [run.start_time, activation.start_time, at[AgentStarted], model.start_time, model.end_time]
    times.append(at[AgentResponded])
    assert times == sorted(times, key=lambda time: time or 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_call_has_the_id_of_its_response(stream: bool) -> None:
    live, later = Traced(), Traced()
    first = replace(say("", call("look_up", city="Rome")), id="resp_1")
    runner = office(live, [first, "It is sunny."], stream=stream)
    result = await runner.run("Hi")
    assert [e.response_id for e in result.events if isinstance(e, AgentResponded)] == ["resp_1", ""]
    assert (await runner.runs.replay(result.events)).events == result.events
    OTelObserver(later.provider).export(decode_log(encode_log(result.events)))
    for traced in (live, later):
        chats = [span for span in traced.spans if span.name == "chat scripted"]
        assert [facts(span).get("gen_ai.response.id") for span in chats] == ["resp_1", None]


async def test_tool_calls_of_one_response_are_siblings() -> None:
    traced = Traced()
    both = [call("look_up", city="Rome"), call("look_up", city="Oslo")]
    result = await office(traced, [both, "Sunny."]).run("Hi")
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    chat scripted",
            "    execute_tool look_up",
            "    execute_tool look_up",
            "    chat scripted",
        ]
    )
    said = next(event for event in result.events if isinstance(event, AgentResponded))
    ended = {event.call_id: int(event.timestamp * 1e9) for event in result.events if isinstance(event, ToolReturned)}
    tools = [span for span in traced.spans if span.name == "execute_tool look_up"]
    assert {facts(span)["gen_ai.tool.call.id"]: span.end_time for span in tools} == ended
    assert min(span.start_time or 0 for span in tools) >= int(said.timestamp * 1e9)
    # The second model call begins when the last of the results is there.
    assert (traced.spans[-1].start_time or 0) >= max(ended.values())


async def test_handoff_is_a_span_of_its_source() -> None:
    traced = Traced()
    await office(traced, {"A": [call("transfer_to_b")], "B": ["Done."]}).run("Hi", thread="t1")
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    chat scripted",
            "    handoff A to B",
            "  invoke_agent B",
            "    chat scripted",
        ]
    )
    assert facts(traced.named("handoff A to B")) == snapshot(
        {
            "gen_ai.conversation.id": "t1",
            "gen_ai.agent.name": "A",
            "openinference.span.kind": "CHAIN",
            "baton.handoff.source": "A",
            "baton.handoff.requested": ("B",),
            "baton.handoff.target": "B",
            "baton.handoff.call.id": "call_A_1",
        }
    )


@pytest.mark.parametrize(("policy", "target"), [("first", "B"), ("last", "C")])
async def test_a_handoff_is_marked_with_all_that_were_requested(policy: MultipleTransfers, target: str) -> None:
    traced = Traced()
    asked = [call("transfer_to_b"), call("look_up", city="Rome"), call("transfer_to_c")]
    await office(traced, {"A": [asked], target: ["Done."]}, handoff_rules=HandoffRules(multiple_transfers=policy)).run(
        "Hi"
    )
    (span,) = [span for span in traced.spans if span.name.startswith("handoff")]
    assert facts(span)["baton.handoff.requested"] == ("B", "C")
    assert facts(span)["baton.handoff.target"] == target
    assert traced.tree().count("    execute_tool look_up") == 1


async def test_handoffs_that_exclude_each_other_are_a_handoff_that_failed() -> None:
    traced = Traced()
    rules = HandoffRules(multiple_transfers="error")
    runner = office(traced, [[call("transfer_to_c"), call("transfer_to_b")]], content=True, handoff_rules=rules)
    with pytest.raises(TransferError):
        await runner.run("Hi", thread="t1")
    assert traced.tree() == snapshot(
        ["invoke_workflow A !", "  invoke_agent A !", "    chat scripted", "    handoff A !"]
    )
    assert facts(traced.named("handoff A")) == snapshot(
        {
            "gen_ai.conversation.id": "t1",
            "gen_ai.agent.name": "A",
            "openinference.span.kind": "CHAIN",
            "baton.handoff.source": "A",
            "baton.handoff.requested": ("C", "B"),
            "error.type": "not_followed",
        }
    )
    assert facts(traced.named("invoke_workflow A"))["error.type"] == "TransferError"
    ((name, exception),) = noted(traced.named("invoke_workflow A"))
    assert (name, exception["exception.type"]) == ("exception", "TransferError")
    assert "asked for several transfers at once" in exception["exception.message"]


async def test_functions_that_return_agents_and_the_one_transfer_tool_count_as_requests() -> None:
    d = Agent("D")

    def to_d() -> Agent:
        """Go to D."""
        return d

    traced = Traced()
    a = Agent("A", tools=[to_d], sub_agents=[Agent("E")])
    model = ScriptedModel({"A": [[call("to_d"), transfer_to("E"), transfer_to("Nobody")]], "D": ["Done."]})
    await Runner(a, model=model, observers=[OTelObserver(traced.provider)]).run("Hi")
    assert facts(traced.named("handoff A to D"))["baton.handoff.requested"] == ("D", "E")


async def test_declined_handoff_has_a_span() -> None:
    traced = Traced()
    b = Agent("B", accepts=lambda ctx, payload: "it is closed")
    model = ScriptedModel({"A": [call("transfer_to_b"), "Then I do it."]})
    await Runner(Agent("A", handoffs=[b]), model=model, observers=[OTelObserver(traced.provider)]).run("Hi")
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    chat scripted",
            "    handoff A !",
            "    chat scripted",
        ]
    )


async def test_transfers_of_code_are_handoffs_too() -> None:
    @agent("Doorman", handoffs=["Host"])
    async def doorman(ctx: AgentContext[Any]) -> Transfer:
        await ctx.step("look", lambda: "nobody there")
        return Transfer("Host")

    traced = Traced()
    host = then_transfer(Agent("Host"), to="Cook")
    model = ScriptedModel(["Welcome.", "Here."])
    team = Agent("Cook"), host
    await Runner(doorman, extra_agents=team, model=model, observers=[OTelObserver(traced.provider)]).run("Hi")
    assert traced.tree() == snapshot(
        [
            "invoke_workflow Doorman",
            "  invoke_agent Doorman",
            "    handoff Doorman to Host",
            "  invoke_agent Host",
            "    chat scripted",
            "    handoff Host to Cook",
            "  invoke_agent Cook",
            "    chat scripted",
        ]
    )
    assert noted(traced.named("invoke_agent Doorman")) == [("step", {"baton.step.name": "look"})]
    assert facts(traced.named("handoff Doorman to Host"))["baton.handoff.requested"] == ("Host",)


async def test_failed_tool_is_an_error_but_not_the_run() -> None:
    traced = Traced()
    await office(traced, [call("break_down"), "It broke."]).run("Hi")
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    chat scripted",
            "    execute_tool break_down !",
            "    chat scripted",
        ]
    )
    assert facts(traced.named("execute_tool break_down"))["error.type"] == "tool_error"


async def test_run_error_is_on_the_run_and_the_active_agent() -> None:
    traced = Traced()
    with pytest.raises(Exception, match="no connection"):
        await office(traced, {"A": [call("transfer_to_b")], "B": [OSError("no connection")]}, content=True).run("Hi")
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A !",
            "  invoke_agent A",
            "    chat scripted",
            "    handoff A to B",
            "  invoke_agent B !",
            "    chat scripted !",
        ]
    )
    assert facts(traced.named("invoke_agent B"))["error.type"] == "ModelError"
    # A failed model call has a span, with the exception of the model.
    failed = traced.spans[-1]
    assert (facts(failed)["error.type"], failed.status.description) == ("OSError", "no connection")
    assert "no connection" in (traced.named("invoke_workflow A").status.description or "")


async def test_resumed_run_has_a_new_trace_linked_to_the_earlier() -> None:
    traced = Traced()
    asked = [call("look_up", city="Rome"), call("pay", euro=5)]
    runner = office(traced, {"A": [asked, call("transfer_to_b")], "B": ["Done."]})
    stopped = await runner.run("Hi")
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    chat scripted",
            "    execute_tool look_up",
            "    execute_tool pay",
        ]
    )
    first = traced.named("invoke_workflow A")
    assert facts(first)["baton.run.status"] == "suspended"
    (interrupt,) = stopped.interrupts
    question = {"baton.interrupt.id": interrupt.id, "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "call_A_2"}
    assert noted(traced.named("invoke_agent A")) == [
        ("step", {"baton.step.name": "needs_approval"}),
        ("interrupt", question),
    ]
    traced.forget()
    result = await runner.resume(stopped.run_id, True)
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    execute_tool pay",
            "    chat scripted",
            "    handoff A to B",
            "  invoke_agent B",
            "    chat scripted",
        ]
    )
    second = traced.named("invoke_workflow A")
    assert linked(second) == [id_of(first)]
    assert trace_of(second) != trace_of(first)
    assert noted(second) == [("answer", {"baton.interrupt.id": interrupt.id})]
    resumed = next(event for event in result.events if event.key.startswith("resumed"))
    assert min(span.start_time or 0 for span in traced.spans) == int(resumed.timestamp * 1e9)


async def test_requests_before_a_stop_are_kept() -> None:
    # The loser has its result before a person is asked about the other.
    traced = Traced()
    edges = [handoff(Agent("B"), needs_approval=True), handoff(Agent("C"))]
    model = ScriptedModel({"A": [[call("transfer_to_b"), call("transfer_to_c")]], "B": ["Done."]})
    runner = Runner(Agent("A", handoffs=edges), model=model, observers=[OTelObserver(traced.provider)])
    stopped = await runner.run("Hi")
    assert not any(span.name.startswith("handoff") for span in traced.spans)
    await runner.resume(stopped.run_id, True)
    assert facts(traced.named("handoff A to B"))["baton.handoff.requested"] == ("B", "C")


async def test_repeated_failure_is_not_a_second_handoff() -> None:
    traced = Traced()
    runner = office(
        traced, [[call("transfer_to_c"), call("transfer_to_b")]], handoff_rules=HandoffRules(multiple_transfers="error")
    )
    with pytest.raises(TransferError):
        await runner.run("Hi", run_id="r1")
    traced.forget()
    with pytest.raises(TransferError):
        await runner.resume("r1")
    assert traced.tree() == ["invoke_workflow A !", "  invoke_agent A !"]


async def test_streaming_gives_the_same_spans_and_time_to_first_chunk() -> None:
    traced = Traced()
    script = {"A": [say("I look.", call("look_up", city="Rome")), call("transfer_to_b")], "B": ["It is sunny."]}
    runner = office(traced, script, stream=True)
    async with runner.stream("Hi") as run:
        heard = [event async for event in run]
    assert [event for event in heard if isinstance(event, Event)] == list(run.result.events)
    assert "".join(event.text for event in heard if isinstance(event, TextDelta)) == "I look.It is sunny."
    models = [span for span in traced.spans if span.name == "chat scripted"]
    assert len(models) == 3
    for span in models:
        whole = ((span.end_time or 0) - (span.start_time or 0)) / 1e9
        assert 0 <= facts(span)["gen_ai.response.time_to_first_chunk"] <= whole


async def test_a_run_that_is_cancelled_ends_its_spans() -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    traced = Traced()
    model = ScriptedModel([call("wait")])
    async with Runner(Agent("A", tools=[wait]), model=model, observers=[OTelObserver(traced.provider)]).stream(
        "Hi"
    ) as run:
        await begun.wait()
        await run.cancel()
    assert traced.tree() == snapshot(
        ["invoke_workflow A", "  invoke_agent A", "    chat scripted", "    execute_tool wait"]
    )
    assert facts(traced.named("invoke_workflow A"))["baton.run.status"] == "cancelled"


async def test_run_is_a_child_of_the_current_span_and_parent_of_tool_spans() -> None:
    traced = Traced()
    tracer = traced.provider.get_tracer("test")

    @tool
    async def fetch() -> str:
        """Fetch."""
        with tracer.start_as_current_span("GET /"):
            return "fetched"

    model = ScriptedModel([[call("fetch"), call("fetch")], "Done."])
    runner = Runner(Agent("A", tools=[fetch]), model=model, observers=[OTelObserver(traced.provider)])
    with tracer.start_as_current_span("request"):
        before = trace.get_current_span()
        await runner.run("Hi")
        assert trace.get_current_span() is before
    assert traced.named("invoke_workflow A").parent == traced.named("request").context
    inside = [span for span in traced.spans if span.name == "GET /"]
    tools = [span.context for span in traced.spans if span.name == "execute_tool fetch"]
    assert [span.parent for span in inside] == tools


async def test_content_is_included_only_on_request() -> None:
    quiet, shown = Traced(), Traced()
    for traced, content in ((quiet, False), (shown, True)):
        asked = say("secret words", call("look_up", city="secret city"), call("break_down"))
        runner = office(traced, {"A": [asked, call("pay", euro=4711), "Done."]}, content=content)
        stopped = await runner.run("secret question")
        await runner.resume(stopped.run_id, Approval(approved=False, reason="secret reason"))
    words = str([[facts(span), noted(span), span.status.description] for span in quiet.spans])
    assert "secret" not in words
    assert "4711" not in words
    words = str([[facts(span), noted(span)] for span in shown.spans])
    for each in ("secret words", "sunny in secret city", "secret question", "4711", "secret is 42", "secret reason"):
        assert each in words


async def test_a_log_exports_the_same_spans() -> None:
    live, later = Traced(), Traced()
    asked = [say("", call("look_up", city="Rome"), usage=Usage(5, 2)), call("break_down"), call("pay", euro=5)]
    runner = office(live, {"A": [*asked, [call("transfer_to_b"), call("transfer_to_c")]], "B": ["Done."]})
    stopped = await runner.run("Hi")
    result = await runner.resume(stopped.run_id, True)
    OTelObserver(later.provider).export(decode_log(encode_log(result.events)))
    # The log has no event of a call that was started and then waited for an answer.
    suspended = [line for line in live.tree() if "execute_tool pay" in line]
    assert suspended == ["    execute_tool pay"] * 2
    expected = live.tree()
    expected.remove(suspended[0])
    assert later.tree() == expected
    for name in ("invoke_workflow A", "invoke_agent A", "handoff A to B", "execute_tool look_up"):
        shown, exported = [
            [(facts(span), noted(span)) for span in each.spans if span.name == name] for each in (live, later)
        ]
        # Only the code knows the provider, and the description of a tool.
        known = ("gen_ai.provider.name", "gen_ai.request.model", "gen_ai.tool.description")
        shown = [({n: v for n, v in found.items() if n not in known}, notes) for found, notes in shown]
        assert exported == shown
    first, second = [span for span in later.spans if span.name == "invoke_workflow A"]
    driven = [span for span in live.spans if span.name == "invoke_workflow A"]
    times = [[(span.start_time, span.end_time) for span in each] for each in (driven, (first, second))]
    assert times[0] == times[1]
    assert linked(second) == [id_of(first)]


async def test_a_log_that_was_broken_off_is_exported_as_far_as_it_goes() -> None:
    result = await office(Traced(), {"A": [call("transfer_to_b")], "B": ["Done."]}).run("Hi")
    whole = [*result.events]
    for length in range(1, len(whole)):
        traced = Traced()
        OTelObserver(traced.provider).export(whole[:length])
        assert traced.tree()[0] == "invoke_workflow A"
        assert traced.spans[0].end_time == int(whole[length - 1].timestamp * 1e9)


@pytest.mark.parametrize("events", [True, False])
async def test_an_agent_that_is_called_as_a_tool_is_below_the_call(events: bool) -> None:
    # Events that are not streamed are traced as well.
    traced = Traced()
    expert = Agent("Expert", description="Knows.", tools=[look_up], handoffs=[Agent("Other", description="Helps.")])
    script = {
        "A": [call("expert", request="Where is it sunny?"), "In Rome."],
        "Expert": [call("look_up", city="Rome"), call("transfer_to_other")],
        "Other": ["Rome."],
    }
    a = Agent("A", tools=[expert.as_tool(stream_events=events)])
    result = await Runner(a, model=ScriptedModel(script), observers=[OTelObserver(traced.provider)]).run("Hi")
    assert result.output == "In Rome."
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    chat scripted",
            "    execute_tool expert",
            "      invoke_agent Expert",
            "        chat scripted",
            "        execute_tool look_up",
            "        chat scripted",
            "        handoff Expert to Other",
            "      invoke_agent Other",
            "        chat scripted",
            "    chat scripted",
        ]
    )


async def test_a_question_inside_an_agent_as_tool_is_taken_up_below_the_same_call() -> None:
    traced = Traced()
    cashier = Agent("Cashier", description="Pays.", tools=[pay])
    script = {"A": [call("cashier", request="Pay 5."), "Done."], "Cashier": [call("pay", euro=5), "Paid."]}
    runner = Runner(
        Agent("A", tools=[cashier.as_tool()]), model=ScriptedModel(script), observers=[OTelObserver(traced.provider)]
    )
    stopped = await runner.run("Hi")
    assert [name for name, _ in noted(traced.named("invoke_agent Cashier"))] == ["step", "interrupt"]
    traced.forget()
    await runner.resume(stopped.run_id, True)
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    execute_tool cashier",
            "      invoke_agent Cashier",
            "        execute_tool pay",
            "        chat scripted",
            "    chat scripted",
        ]
    )


async def test_an_agent_that_fails_inside_a_tool_call_is_marked_as_unfinished() -> None:
    traced = Traced()
    expert = Agent("Expert", description="Knows.")
    script = {"A": [call("expert", request="?"), "It failed."], "Expert": [OSError("no connection")]}
    runner = Runner(
        Agent("A", tools=[expert.as_tool()]), model=ScriptedModel(script), observers=[OTelObserver(traced.provider)]
    )
    await runner.run("Hi")
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    chat scripted",
            "    execute_tool expert !",
            "      invoke_agent Expert !",
            "        chat scripted !",
            "    chat scripted",
        ]
    )
    assert facts(traced.named("invoke_agent Expert"))["baton.unfinished"] is True


async def test_steps_and_branches_of_workflows_are_below_them() -> None:
    traced = Traced()
    both = ParallelAgent("Both", sub_agents=[Agent("Left"), Agent("Right")])
    team = SequentialAgent("Line", sub_agents=[both, Agent("Last")])
    model = ScriptedModel({name: [f"{name} is done"] for name in ("Left", "Right", "Last")})
    await Runner(team, model=model, observers=[OTelObserver(traced.provider)]).run("Hi")
    below = {span.name: span.parent for span in traced.spans}
    assert below["invoke_agent Left"] == below["invoke_agent Right"] == traced.named("invoke_agent Both").context
    assert below["invoke_agent Both"] == below["invoke_agent Last"] == traced.named("invoke_agent Line").context
    assert below["invoke_agent Line"] == traced.named("invoke_workflow Line").context


async def test_stored_run_is_traced_by_its_worker() -> None:
    traced, store = Traced(), MemoryStore()
    runner = office(traced, {"A": [call("transfer_to_b")], "B": ["Done."]}, store=store)
    run_id = await runner.submit("Hi", thread="t1")
    assert traced.spans == []
    assert (await runner.runs.drive(run_id)).status == "completed"
    assert traced.tree() == snapshot(
        [
            "invoke_workflow A",
            "  invoke_agent A",
            "    chat scripted",
            "    handoff A to B",
            "  invoke_agent B",
            "    chat scripted",
        ]
    )
    assert facts(traced.named("invoke_workflow A"))["baton.run.id"] == run_id
    assert {facts(span).get("gen_ai.conversation.id", "t1") for span in traced.spans} == {"t1"}


@pytest.mark.parametrize("place", ["no store", "memory", "sqlite", "thread"])
async def test_spans_of_tools_are_inside_the_run_with_every_store(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    traced = Traced()
    tracer = traced.provider.get_tracer("test")

    @tool(needs_approval=True)
    async def fetch() -> str:
        """Fetch."""
        with tracer.start_as_current_span("GET /"):
            return "fetched"

    stores: dict[str, Any] = {"memory": MemoryStore(), "sqlite": tmp_path / "runs.db"}
    thread: Any = {"thread": "t"} if place == "thread" else {}
    model = ScriptedModel([call("fetch"), [call("fetch"), call("fetch")], "Done."])
    agent = Agent("A", tools=[fetch])
    async with Runner(agent, model=model, store=stores.get(place), observers=[OTelObserver(traced.provider)]) as runner:
        with tracer.start_as_current_span("request"):
            before = trace.get_current_span()
            result, inside = await runner.run("Hi", **thread), []
            assert trace.get_current_span() is before
            while result.interrupts:
                traced.forget()
                result = await runner.resume(result.run_id, {asked.id: True for asked in result.interrupts})
                assert trace.get_current_span() is before
                assert traced.named("invoke_workflow A").parent == before.get_span_context()
                inside = [span for span in traced.spans if span.name == "GET /"]
                tools = [span.context for span in traced.spans if span.name == "execute_tool fetch"]
                assert [span.parent for span in inside] == tools[: len(inside)]
    assert len(inside) == 2
    assert "opentelemetry" not in " ".join(record.name for record in caplog.records)


async def test_spans_of_tools_are_inside_a_run_that_was_submitted(caplog: pytest.LogCaptureFixture) -> None:
    # The first event of such a drive can come from any task.
    traced = Traced()
    tracer = traced.provider.get_tracer("test")

    @tool
    async def fetch() -> str:
        """Fetch."""
        run = trace.get_current_span()
        assert run.is_recording()
        run.set_attribute("city", "Rome")
        run.add_event("fetch", {"page": 1})
        with tracer.start_as_current_span("GET /"):
            return "fetched"

    model = ScriptedModel({name: [[call("fetch"), call("fetch")], "Done."] for name in ("Left", "Right")})
    team = ParallelAgent("Both", sub_agents=[Agent("Left", tools=[fetch]), Agent("Right", tools=[fetch])])
    runner = Runner(team, model=model, store=MemoryStore(), observers=[OTelObserver(traced.provider)])
    run_id = await runner.submit("Hi")
    assert (await runner.runs.drive(run_id)).status == "completed"
    tools = [span for span in traced.spans if span.name == "execute_tool fetch"]
    parents = [span.parent for span in traced.spans if span.name == "GET /"]
    assert sorted(parent.span_id for parent in parents if parent is not None) == sorted(map(id_of, tools))
    assert [facts(span)["city"] for span in tools] == ["Rome"] * 4
    assert [noted(span) for span in tools] == [[("fetch", {"page": 1})]] * 4
    assert not trace.get_current_span().get_span_context().is_valid
    assert "opentelemetry" not in " ".join(record.name for record in caplog.records)


async def test_span_of_a_suspended_run_is_current_in_its_interrupt_hooks(caplog: pytest.LogCaptureFixture) -> None:
    traced = Traced()
    current: list[int] = []

    class Hooks(RunHooks):
        async def on_interrupt(self, ctx: Any, interrupt: Any) -> None:
            current.append(trace.get_current_span().get_span_context().span_id)

    for store in (None, MemoryStore()):
        await office(traced, [call("pay", euro=5)], store=store, hooks=Hooks()).run("Hi")
    assert current == [id_of(span) for span in traced.spans if span.name == "invoke_workflow A"]
    assert "opentelemetry" not in " ".join(record.name for record in caplog.records)


async def test_unsampled_run_has_no_spans() -> None:
    traced = Traced(ALWAYS_OFF)
    result = await office(traced, {"A": [call("transfer_to_b")], "B": ["Done."]}).run("Hi")
    assert result.output == "Done."
    assert traced.spans == []


def test_events_of_a_run_without_a_trace_are_ignored() -> None:
    traced = Traced()
    with OTelObserver(traced.provider).observe("r1", []) as hear:
        hear(RunStarted("run", RUN_ORIGIN, 1.0, "r1", "A"))
        hear(AgentStarted("1/start", Origin("1", "A"), 2.0))
    assert traced.spans == []
    assert not trace.get_current_span().get_span_context().is_valid


async def test_runs_at_the_same_time_keep_their_spans_apart() -> None:
    traced = Traced()
    a = Agent("A", handoffs=[Agent("B")])
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["Done."]}, cycle=True)
    runner = Runner(a, model=model, observers=[OTelObserver(traced.provider)])
    await asyncio.gather(*(runner.run("Hi") for _ in range(5)))
    tops = [span for span in traced.spans if span.name == "invoke_workflow A"]
    assert [top.parent for top in tops] == [None] * 5
    for top in tops:
        below = [span for span in traced.spans if span.parent is not None and span.parent.span_id == id_of(top)]
        assert [span.name for span in below] == ["invoke_agent A", "invoke_agent B"]


def test_missing_opentelemetry_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(SetupError, match=r"pip install 'batonkit\[otel\]'"):
        OTelObserver()


@pytest.mark.parametrize("include_content", [False, True])
async def test_tasks_are_events_of_the_activations(include_content: bool) -> None:
    traced = Traced()
    model = ScriptedModel({"A": [call("transfer_to_b"), "done"], "B": [call("finish_task", result="secret")]})
    desk = Agent("A", handoffs=[handoff(Agent("B"), return_to="caller", until="finished")])
    observer = OTelObserver(tracer_provider=traced.provider, content=include_content)
    await Runner(desk, model=model, observers=[observer]).run("hi")
    first = next(span for span in traced.spans if span.name == "invoke_agent A")
    task = {"baton.task.agent": "B", "baton.task.caller": "A", "gen_ai.tool.call.id": "call_A_1"}
    assert noted(first) == [("task opened", task)]
    ended = {**task, "baton.task.outcome": "finished"}
    assert noted(traced.named("invoke_agent B")) == [
        ("task ended", {**ended, "baton.task.result": "secret"} if include_content else ended)
    ]


async def test_a_run_of_a_worker_has_its_input_its_owner_and_a_link_to_the_submitter() -> None:
    traced, store = Traced(), MemoryStore()
    script = {"A": [call("pay", euro=5), "Done."]}
    submitter = office(traced, script, store=store).clone(observers=[])
    worker = office(traced, script, content=True, store=store)
    with traced.provider.get_tracer("app").start_as_current_span("POST /messages") as request:
        run_id = await submitter.submit("Pay five.", owner="ada")
    suspended = await worker.runs.drive(run_id)
    first = traced.named("invoke_workflow A")
    assert linked(first) == [request.get_span_context().span_id]
    assert facts(first)["input.value"] == "Pay five."
    assert facts(first)["user.id"] == "ada"
    traced.forget()
    await worker.runs.answer(run_id, {suspended.interrupts[0].id: True})
    await worker.runs.drive(run_id)
    assert "input.value" not in facts(traced.named("invoke_workflow A"))


async def test_runs_and_handoffs_are_no_tools_for_openinference() -> None:
    traced = Traced()
    await office(traced, {"A": [call("transfer_to_b")], "B": ["Done."]}).run("Hi")
    for name in ("invoke_workflow A", "handoff A to B"):
        found = facts(traced.named(name))
        assert found["openinference.span.kind"] == "CHAIN"
        assert not [key for key in found if key.startswith("gen_ai.tool.")]


@pytest.mark.parametrize("content", [False, True])
async def test_the_message_of_an_exception_is_content(content: bool) -> None:
    traced = Traced()
    failing = office(traced, [ValueError("the card is 4111")], content=content)
    with pytest.raises(ModelError):
        await failing.run("Hi")
    shown = str([(span.status.description, noted(span), facts(span)) for span in traced.spans])
    assert ("4111" in shown) is content
    assert "ModelError" in shown
