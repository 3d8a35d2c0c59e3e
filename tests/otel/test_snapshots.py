"""Traces of runs that continue from a snapshot (performance B3)."""

from collections.abc import Sequence
from typing import Any

from tests.laws.snapshots import EverySnapshot, SnapshotStore, take_often
from tests.otel.spans import Traced, facts, linked, noted
from tests.runner.test_snapshots import CountingStore, Working, make_runner, start

from baton import Agent, Runner, handoff, tool
from baton.errors import BatonError
from baton.events import AgentResponded, Event
from baton.otel import OTelObserver
from baton.stores import Store
from baton.testing import ScriptedModel, call


@tool(in_thread=False)
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} was shipped"


# The transfer to Archive is disabled, so that it is refused.
SCRIPT: list[Any] = [
    call("look_up", order="A1"),
    call("transfer_to_archive"),
    call("look_up", order="A2"),
    [call("transfer_to_archive"), call("look_up", order="A3")],
    call("transfer_to_refunds"),
    call("look_up", order="A4"),
    RuntimeError("the provider is down"),
    call("look_up", order="A5"),
    "Refunded.",
]


def make_desk(store: Store, traced: Traced, past: Sequence[Event] = ()) -> Runner[Any, Any]:
    archive = Agent("Archive", description="Keeps old orders.")
    refunds = Agent("Refunds", description="Refunds orders.", tools=[look_up])
    triage = Agent("Triage", tools=[look_up], handoffs=[refunds, handoff(archive, is_enabled=False)])
    taken = sum(isinstance(event, AgentResponded) for event in past)
    script = SCRIPT if not past else [step for step in SCRIPT if not isinstance(step, Exception)][taken:]
    observer = OTelObserver(traced.provider)
    return take_often(Runner(triage, model=ScriptedModel(script), store=store, observers=[observer]))


def describe(traced: Traced) -> list[object]:
    spans = [(span.name, facts(span), noted(span), linked(span)) for span in traced.spans]
    return [traced.tree(), *spans]


async def test_a_trace_is_the_same_with_and_without_snapshots() -> None:
    # B3: also links to the last drive, and transfers that were refused before the process died.
    store, traced = SnapshotStore(), Traced()
    with EverySnapshot():
        desk = make_desk(store, traced)
        try:
            await desk.run("Refund all of them.", run_id="r")
        except BatonError:
            await desk.resume("r")
        events = await desk.events("r")
        assert len(store.taken["r"]) > 5
        for length in range(2, len(events)):
            found: list[list[object]] = []
            for uses_snapshot in (False, True):
                copy, traced = await store.cut("r", length, uses_snapshot=uses_snapshot), Traced()
                result = await make_desk(copy, traced, events[:length]).resume("r")
                assert result.output == "Refunded."
                found.append(describe(traced))
            assert found[0] == found[1], f"after {length} events, the last being {events[length - 1]}"


async def test_a_traced_run_reads_no_more_than_the_events_after_its_snapshot() -> None:
    # B3
    store, traced = CountingStore(), Traced()
    await start(store)
    store.starts.clear()
    runner = make_runner(Working(0, answer="ready"), store, observers=[OTelObserver(traced.provider)])
    result = await runner.resume("r")
    assert store.whole == 0
    assert 0 not in store.starts
    assert traced.tree() == ["invoke_workflow Worker", "  invoke_agent Worker", "    chat working"]
    assert result._run.log.head_count > 0
