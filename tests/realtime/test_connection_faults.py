"""R8, R9: one conversation with a tool and a change of the floor; at each event that is sent, something goes wrong."""

from collections import Counter
from collections.abc import Callable

from tests.realtime.backends import OverTheWire, nothing_left
from tests.realtime.listener import WRITTEN, listening_to, make_runner
from tests.servers.realtime import CutConnection, Fault, RepeatEvent, SwapEvents

from baton import RunContext, tool
from baton.events import AgentResponded
from baton.messages import ToolMessage
from baton.models import ModelRequest
from baton.realtime import RealtimeAgent, RealtimeSettings, realtime_handoff
from baton.testing import call
from baton.testing.scripted import Plain


def as_desk(request: ModelRequest) -> Plain:
    """Look it up, then hand over; whatever is known of that already is not wanted again."""
    is_done = any(isinstance(message, ToolMessage) for message in request.messages)
    return call("transfer_to_billing") if is_done else call("look_up")


class Case:
    """A desk, and how often what it has effects on was done."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

        @tool
        async def look_up() -> str:
            """Look it up."""
            self.done["look_up"] += 1
            return "found"

        async def note(ctx: RunContext) -> None:
            self.done["on_handoff"] += 1

        billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
        self.desk = RealtimeAgent(
            "Desk",
            instructions="Desk: be kind.",
            tools=[look_up],
            handoffs=[realtime_handoff(billing, on_handoff=note)],
        )


async def held(backend: OverTheWire, settings: RealtimeSettings, *faults: Fault) -> Case:
    """The whole conversation, with these faults; it comes to the same end in any case."""
    case = Case()
    model = await backend.plays({"Desk": [as_desk] * 9, "Billing": ["All is well."] * 9})
    backend.server.plan(*faults)
    try:
        async with listening_to(
            make_runner(case.desk, model, settings=settings, reconnect_delay=0.0).connect()
        ) as heard:
            await heard.session.send_text("Is all well?")
            await heard.until(
                AgentResponded, where=lambda said: said.text == "All is well." and said.stop_reason == "completed"
            )
            await heard.session.wait_until_idle()
            assert heard.session.active_agent == "Billing"
        assert heard.failure is None
        assert case.done == {"look_up": 1, "on_handoff": 1}
        assert heard.transfers == [("Desk", "Billing")]
        assert [name for name, _ in heard.results] == ["look_up", "transfer_to_billing"]
        assert backend.settings()[0] == "Billing: be kind."
        roles = [role for role, _ in backend.told()]
        assert roles[:5] == ["user", "call", "result", "call", "result"]
        assert set(roles[5:]) == {"assistant"}
        assert backend.complaints == []
    finally:
        await backend.close()
    assert await nothing_left() == set()
    return case


async def test_a_cut_after_any_event_of_a_text_conversation() -> None:
    """R9."""
    await _everywhere(WRITTEN, CutConnection)


async def test_a_cut_after_any_event_of_a_spoken_conversation() -> None:
    """R9."""
    await _everywhere(RealtimeSettings(), CutConnection)


async def test_any_event_may_come_twice() -> None:
    """R8: each time as if it were another."""
    await _everywhere(WRITTEN, lambda kind, nth: RepeatEvent(kind, nth, new_id=True))


async def test_any_two_events_may_change_places() -> None:
    """R4, R8: also the one that says that settings are in force, and the beginning of a response."""
    await _everywhere(WRITTEN, SwapEvents, besides="response.done")


async def _everywhere(settings: RealtimeSettings, fault_at: Callable[[str, int], Fault], *, besides: str = "") -> None:
    """The conversation, each time with one thing going wrong, at the next place."""
    undisturbed = OverTheWire()
    await held(undisturbed, settings)
    seen: Counter[str] = Counter()
    faults: list[Fault] = []
    for recorded in undisturbed.at(0).sent:
        seen[recorded.type] += 1
        # Whoever cannot even begin has no conversation; that is another matter.
        is_opening = (recorded.type, seen[recorded.type]) in (("session.created", 1), ("session.updated", 1))
        if not is_opening and recorded.type != besides:
            faults.append(fault_at(recorded.type, seen[recorded.type]))
    assert len(faults) > 30
    for fault in faults:
        try:
            await held(OverTheWire(), settings, fault)
        except BaseException as error:
            error.add_note(f"with {fault}")
            raise
