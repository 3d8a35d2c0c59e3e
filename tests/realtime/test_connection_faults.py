"""One session with a tool and a transfer, run once for each event with a fault at that event."""

from collections import Counter
from collections.abc import Callable

from tests.realtime.backends import WebSocketBackend, unfinished_tasks
from tests.realtime.recorder import TEXT_ONLY, make_runner, record_session
from tests.servers.realtime import CutConnection, Fault, RepeatEvent, SwapEvents

from batonkit import RunContext, tool
from batonkit.log import AgentResponded
from batonkit.messages import ToolMessage
from batonkit.models import ModelRequest
from batonkit.realtime import RealtimeAgent, RealtimeSettings, realtime_handoff
from batonkit.testing import call
from batonkit.testing.scripted import Plain


def respond_as_desk(request: ModelRequest) -> Plain:
    """Call the tool, then hand off once the tool's result is known."""
    is_done = any(isinstance(message, ToolMessage) for message in request.messages)
    return call("transfer_to_billing") if is_done else call("look_up")


class CountingTeam:
    """A team that counts the executions of its tool and its callback."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

        @tool
        async def look_up() -> str:
            """Look it up."""
            self.counts["look_up"] += 1
            return "found"

        async def count_handoff(ctx: RunContext) -> None:
            self.counts["on_handoff"] += 1

        billing = RealtimeAgent("Billing", description="Settles invoices.", instructions="Billing: be kind.")
        self.desk = RealtimeAgent(
            "Desk",
            instructions="Desk: be kind.",
            tools=[look_up],
            handoffs=[realtime_handoff(billing, on_handoff=count_handoff)],
        )


async def run_session(backend: WebSocketBackend, settings: RealtimeSettings, *faults: Fault) -> CountingTeam:
    """Run the session with these faults and check that it ends as without them."""
    team = CountingTeam()
    model = await backend.start({"Desk": [respond_as_desk] * 9, "Billing": ["All is well."] * 9})
    backend.server.plan(*faults)
    try:
        async with record_session(
            make_runner(team.desk, model, settings=settings, reconnect_delay=0.0).connect()
        ) as recorder:
            await recorder.session.send_text("Is all well?")
            await recorder.wait_for(
                AgentResponded,
                where=lambda response: response.text == "All is well." and response.stop_reason == "completed",
            )
            await recorder.session.wait_until_idle()
            assert recorder.session.active_agent == "Billing"
        assert recorder.failure is None
        assert team.counts == {"look_up": 1, "on_handoff": 1}
        assert recorder.transfers == [("Desk", "Billing")]
        assert [name for name, _ in recorder.tool_results] == ["look_up", "transfer_to_billing"]
        assert backend.settings()[0] == "Billing: be kind."
        roles = [role for role, _ in backend.items()]
        assert roles[:5] == ["user", "call", "result", "call", "result"]
        assert set(roles[5:]) == {"assistant"}
        assert backend.complaints == []
    finally:
        await backend.close()
    assert await unfinished_tasks() == set()
    return team


async def test_a_connection_lost_after_any_event_of_a_text_session() -> None:
    await _check_every_event(TEXT_ONLY, CutConnection)


async def test_a_connection_lost_after_any_event_of_an_audio_session() -> None:
    await _check_every_event(RealtimeSettings(), CutConnection)


async def test_any_event_can_be_repeated() -> None:
    # Each time with a new id.
    await _check_every_event(TEXT_ONLY, lambda kind, nth: RepeatEvent(kind, nth, new_id=True))


async def test_any_two_events_can_be_swapped() -> None:
    # Including the confirmation of settings and the start of a response.
    await _check_every_event(TEXT_ONLY, SwapEvents, except_for="response.done")


async def _check_every_event(
    settings: RealtimeSettings, make_fault: Callable[[str, int], Fault], *, except_for: str = ""
) -> None:
    """Run the session once per event that the server sends, with a fault at that event."""
    without_faults = WebSocketBackend()
    await run_session(without_faults, settings)
    counts: Counter[str] = Counter()
    faults: list[Fault] = []
    for recorded in without_faults.connection(0).sent:
        counts[recorded.type] += 1
        # A fault before the session is configured fails the opening of the session; that is tested elsewhere.
        is_opening = (recorded.type, counts[recorded.type]) in (("session.created", 1), ("session.updated", 1))
        if not is_opening and recorded.type != except_for:
            faults.append(make_fault(recorded.type, counts[recorded.type]))
    assert len(faults) > 30
    for fault in faults:
        try:
            await run_session(WebSocketBackend(), settings, fault)
        except BaseException as error:
            error.add_note(f"with {fault}")
            raise
