"""Cancellation, now or after the turn, by any runner: nothing keeps running, and all runs can be resumed."""

import asyncio
from contextlib import suppress
from typing import Any, Literal

import pytest
from tests.runs.recording_store import RecordingStore, get_record, load_events
from tests.unfinished import list_unfinished, recover
from tests.waiting import until

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    SetupError,
    agent,
    tool,
)
from batonkit.errors import RunConflictError, RunError, RunNotFoundError
from batonkit.log import AgentResponded, TextDelta, ToolReturned
from batonkit.testing import ScriptedModel, ScriptedStream, call, transcript, transfer_to


@pytest.fixture(autouse=True)
def frequent_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew leases every few milliseconds, although they last for long."""
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 0.005)


class WaitingTools:
    """Tools that wait for `go`, with the agents that wait and those whose wait has ended."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.ended: list[str] = []
        self.go = asyncio.Event()

    def tool(self) -> Any:
        @tool
        async def wait(ctx: RunContext) -> str:
            """Wait."""
            self.waiting.append(ctx.agent)
            try:
                await self.go.wait()
            finally:
                self.ended.append(ctx.agent)
            return "waited"

        return wait

    async def wait_for(self, count: int) -> None:
        while len(self.waiting) < count:
            await asyncio.sleep(0)


def team(kind: str, waiting_tools: WaitingTools) -> tuple[Any, dict[str, list[Any]], int]:
    """Create an agent, its scripted responses, and the number of tools that wait at the same time."""
    tools = [waiting_tools.tool()]
    if kind == "tools":
        return Agent("A", tools=tools), {"A": [[call("wait"), call("wait")], "done"]}, 2
    if kind == "branches":
        branches = [Agent(name, description=name, tools=tools) for name in "ABC"]
        return ParallelAgent("All", sub_agents=branches), {name: [call("wait"), "done"] for name in "ABC"}, 3
    if kind == "nested":
        inner = Agent("Inner", description="i", tools=tools)
        middle = Agent("Middle", description="m", tools=[inner.as_tool()])
        steps = {
            "A": [call("middle", request="go"), "done"],
            "Middle": [call("inner", request="go"), "middle done"],
            "Inner": [call("wait"), "inner done"],
        }
        return Agent("A", tools=[middle.as_tool()]), steps, 1
    inner = Agent("B", description="b", tools=tools)
    return Agent("A", sub_agents=[inner]), {"A": [transfer_to("B")], "B": [call("wait"), "done"]}, 1


def no_other_task_is_running() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


async def turns_of_the_loop(count: int) -> None:
    """Let other tasks do what they can do meanwhile."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("kind", ["tools", "branches", "nested", "transfers"])
async def test_cancel_now_stops_a_run_at_any_point(kind: str, is_stored: bool) -> None:
    waiting_tools, store = WaitingTools(), RecordingStore()
    agent, steps, waiters = team(kind, waiting_tools)
    model = ScriptedModel(steps)
    runner = Runner(agent, model=model, store=store if is_stored else None)
    async with runner.stream("hi", run_id="r") as live:
        await waiting_tools.wait_for(waiters)
        request_count = len(model.requests)
        await live.cancel()
        assert no_other_task_is_running()
    assert live.result.status == "cancelled"
    assert len(waiting_tools.ended) == waiters
    waiting_tools.go.set()
    result = await runner.resume("r")
    assert result.status == "completed"
    # Recorded responses were not requested again.
    assert len(model.requests) > request_count
    assert model.remaining == 0
    if is_stored:
        assert tuple(await load_events(store, "r")) == result.events


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("kind", ["tools", "branches", "nested", "transfers"])
async def test_cancel_after_turn_stops_a_run_at_any_point(kind: str, is_stored: bool) -> None:
    waiting_tools, store = WaitingTools(), RecordingStore()
    agent, steps, waiters = team(kind, waiting_tools)
    model = ScriptedModel(steps)
    runner = Runner(agent, model=model, store=store if is_stored else None)
    async with runner.stream("hi", run_id="r") as live:
        await waiting_tools.wait_for(waiters)
        request_count = len(model.requests)
        await live.cancel("after_turn")
        waiting_tools.go.set()
        _ = [event async for event in live]
    assert (live.result.status, len(model.requests)) == ("cancelled", request_count)
    assert waiting_tools.ended == waiting_tools.waiting
    assert no_other_task_is_running()
    result = await runner.resume("r")
    assert (result.status, model.remaining) == ("completed", 0)
    assert len(waiting_tools.waiting) == waiters, "a tool of a completed turn ran again"


async def test_a_cancelled_model_response_is_requested_again() -> None:
    store = RecordingStore()
    model = ScriptedModel([ScriptedStream("half an ", asyncio.Event()), "a whole answer"])
    runner = Runner(Agent("A", model=model), store=store)
    async with runner.stream("hi", run_id="r") as live:
        async for event in live:
            if isinstance(event, TextDelta):
                await live.cancel()
    assert (await get_record(store, "r")).status == "cancelled"
    assert (await runner.resume("r")).output == "a whole answer"


async def test_a_cancelled_caller_leaves_a_run_that_another_runner_can_resume() -> None:
    waiting_tools, store = WaitingTools(), RecordingStore()
    agent, steps, _ = team("nested", waiting_tools)
    running = asyncio.create_task(Runner(agent, model=ScriptedModel(steps), store=store).run("hi", run_id="r"))
    await waiting_tools.wait_for(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    record = await get_record(store, "r")
    assert (record.status, record.lease_until) == ("cancelled", 0.0)
    waiting_tools.go.set()
    rest = {"A": ["done"], "Middle": ["middle done"], "Inner": ["inner done"]}
    assert (await Runner(agent, model=ScriptedModel(rest), store=store).resume("r")).output == "done"


# --- by other runners


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("is_custom", [False, True])
async def test_cancel_after_turn_at_a_handoff_call_stops_before_the_next_agent(
    is_stored: bool, is_custom: bool
) -> None:
    # The next agent had been started, and finished its turn.
    @agent("B", description="b")
    async def custom(ctx: AgentContext) -> None:
        await ctx.say("done")

    target = custom if is_custom else Agent("B", description="b")
    model = ScriptedModel({"A": [transfer_to("B")], "B": ["done"]})
    runner = Runner(Agent("A", sub_agents=[target]), model=model, store=RecordingStore() if is_stored else None)
    async with runner.stream("hi", run_id="r") as live:
        async for event in live:
            if isinstance(event, AgentResponded) and event.tool_calls:
                await live.cancel("after_turn")
    assert live.result.status == "cancelled"
    assert {event.agent for event in live.result.events} == {"", "A"}
    assert transcript(live.result.events)[-3:] == ["A → B", "A finished", "run cancelled"]
    assert (await runner.resume("r")).output == "done"


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("turns", [1, 50])
async def test_cancel_after_turn_of_a_slow_reader_stops_before_the_next_agent(is_stored: bool, turns: int) -> None:
    # A reader that awaited anything between two events came too late.
    model = ScriptedModel({"A": [transfer_to("B")], "B": [transfer_to("C")], "C": ["done"]})
    team = Agent("A", sub_agents=[Agent("B", description="b", sub_agents=[Agent("C", description="c")])])
    runner = Runner(team, model=model, store=RecordingStore() if is_stored else None)
    async with runner.stream("hi", run_id="r") as live:
        async for event in live:
            await turns_of_the_loop(turns)
            if isinstance(event, AgentResponded) and event.agent == "B":
                await turns_of_the_loop(10 * turns)
                await live.cancel("after_turn")
    assert live.result.status == "cancelled"
    assert {event.agent for event in live.result.events} == {"", "A", "B"}
    assert transcript(live.result.events)[-3:] == ["B → C", "B finished", "run cancelled"]
    assert len(model.requests) == 2
    assert (await runner.resume("r")).output == "done"


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("effect", ["read", "idempotent"])
@pytest.mark.parametrize("turns", [0, 50])
async def test_cancel_after_turn_at_a_tool_result_prevents_the_next_model_call(
    is_stored: bool, effect: Any, turns: int
) -> None:
    ran: list[int] = []

    @tool(effect=effect)
    async def count(number: int) -> int:
        """Count."""
        ran.append(number)
        return number

    model = ScriptedModel([[call("count", number=1), call("count", number=2)], call("count", number=3), "done"])
    runner = Runner(Agent("A", tools=[count]), model=model, store=RecordingStore() if is_stored else None)
    async with runner.stream("hi", run_id="r") as live:
        async for event in live:
            if isinstance(event, ToolReturned):
                await turns_of_the_loop(turns)
                await live.cancel("after_turn")
    assert (live.result.status, sorted(ran), len(model.requests)) == ("cancelled", [1, 2], 1)
    assert (await runner.resume("r")).output == "done"
    assert sorted(ran) == [1, 2, 3]


async def test_cancel_after_turn_of_a_slow_reader_stops_before_the_next_step() -> None:
    # The steps of a workflow are agents too.
    steps = [Agent(name, description=name, model=ScriptedModel([name])) for name in ("a", "b")]
    runner = Runner(SequentialAgent("S", sub_agents=steps))
    async with runner.stream("hi") as live:
        async for event in live:
            await turns_of_the_loop(50)
            if isinstance(event, AgentResponded):
                await live.cancel("after_turn")
    assert (live.result.status, {event.agent for event in live.result.events}) == ("cancelled", {"", "S", "a"})


async def test_a_run_waits_for_its_reader_only_while_there_is_one() -> None:
    model = ScriptedModel({"A": [transfer_to("B")] * 3, "B": ["done"] * 3})
    runner = Runner(Agent("A", sub_agents=[Agent("B", description="b")]), model=model)
    async with asyncio.timeout(60):
        async with runner.stream("hi") as unread:
            await unread.wait()
        async with runner.stream("hi") as left:
            async for _ in left:
                break
            await left.wait()
        async with runner.stream("hi") as waits:
            async for _ in waits:
                await waits.wait()
    assert [live.result.output for live in (unread, left, waits)] == ["done"] * 3


@pytest.mark.parametrize("when", ["now", "after_turn"])
async def test_a_cancelled_run_starts_no_further_step(when: Literal["now", "after_turn"]) -> None:
    # Agents written in Python do not look at the request themselves.
    started: list[str] = []

    def step(name: str) -> BaseAgent[Any, Any]:
        @agent(name, description=name)
        async def run(ctx: AgentContext) -> None:
            started.append(name)
            with suppress(asyncio.CancelledError):
                await live.cancel("after_turn") if when == "after_turn" else live._stop_on_request("now")

        return run

    runner = Runner(SequentialAgent("S", sub_agents=[step("a"), step("b")]))
    async with runner.stream("hi") as live:
        async for _ in live:
            pass
    assert (started, live.result.status) == (["a"], "cancelled")


@pytest.mark.parametrize("when", ["now", "after_turn"])
async def test_a_run_is_cancelled_by_another_runner(when: Literal["now", "after_turn"]) -> None:
    waiting_tools, store = WaitingTools(), RecordingStore()
    agent, steps, waiters = team("branches", waiting_tools)
    first_runner = Runner(agent, model=ScriptedModel(steps), store=store)
    running = asyncio.create_task(first_runner.run("hi", run_id="r"))
    await waiting_tools.wait_for(waiters)
    assert await Runner(agent, store=store).runs.cancel("r", when) == "running"
    if when == "after_turn":
        before = store.calls.count("renew")
        await until(lambda: store.calls.count("renew") >= before + 2)
        assert not running.done()
        waiting_tools.go.set()
    result = await running
    assert (result.status, running.cancelling()) == ("cancelled", 0)
    assert (await get_record(store, "r")).status == "cancelled"
    assert no_other_task_is_running()
    waiting_tools.go.set()
    assert (await first_runner.resume("r")).status == "completed"


@pytest.mark.parametrize("when", ["now", "after_response", "after_turn"])
async def test_a_run_that_is_driven_here_does_not_wait_for_a_renewal_to_be_cancelled(
    when: Literal["now", "after_response", "after_turn"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonkit.runs.stored.journal._MAX_RENEW_INTERVAL", 3600.0)
    waiting_tools = WaitingTools()
    agent, steps, _ = team("handoff", waiting_tools)
    store = RecordingStore()
    store.lease_seconds = 36_000.0
    runner = Runner(agent, model=ScriptedModel(steps), store=store)
    running = asyncio.create_task(runner.run("hi", run_id="r"))
    await waiting_tools.wait_for(1)
    assert await runner.runs.cancel("r", when) == "running"
    if when != "now":
        waiting_tools.go.set()
    assert (await running).status == "cancelled"
    assert "renew" not in store.calls


async def test_a_stream_ends_when_another_runner_cancels_its_run() -> None:
    waiting_tools, store = WaitingTools(), RecordingStore()
    agent, steps, waiters = team("tools", waiting_tools)
    first_runner = Runner(agent, model=ScriptedModel(steps), store=store)
    async with first_runner.stream("hi", run_id="r") as live:
        await waiting_tools.wait_for(waiters)
        await Runner(agent, store=store).runs.cancel("r")
        received = [event async for event in live]
    assert transcript(received)[-1] == "run cancelled"
    assert live.result.status == "cancelled"


async def test_a_run_without_a_driver_is_cancelled_immediately() -> None:
    store = RecordingStore()

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    runner = Runner(Agent("A", model=ScriptedModel([call("pay"), "done"]), tools=[pay]), store=store)
    await runner.run("hi", run_id="waits")
    await runner.submit("hi", run_id="submitted")
    assert [await runner.runs.cancel("waits"), await runner.runs.cancel("submitted")] == ["cancelled", "cancelled"]
    assert await list_unfinished(runner) == []
    assert transcript(await load_events(store, "waits"))[-1] == "run cancelled"
    # Cancelling is idempotent, and completed runs do not change.
    assert await runner.runs.cancel("waits") == "cancelled"
    assert (await runner.resume("waits", True)).output == "done"
    assert await runner.runs.cancel("waits") == "completed"
    with pytest.raises(RunError, match="completed"):
        await runner.resume("waits")
    with pytest.raises(RunNotFoundError):
        await runner.runs.cancel("unknown")


async def test_a_cancel_request_survives_the_death_of_the_driver() -> None:
    store = RecordingStore()
    waiting_tools = WaitingTools()
    agent, steps, waiters = team("tools", waiting_tools)
    await Runner(agent, store=store).submit("hi", run_id="r")
    lease = await store.acquire("r", "about to die", ttl=60)
    other = Runner(agent, model=ScriptedModel(steps), store=store)
    assert await other.runs.cancel("r") == "running"
    await store.renew([lease], ttl=0)
    assert await recover(other) == {"r": "cancelled"}
    assert waiting_tools.waiting == []
    assert waiters == 2


async def test_a_cancel_request_is_not_lost_while_the_driver_releases_the_lease() -> None:
    # The lease is held, but the run has stopped, so no driver would read the request.
    store = RecordingStore()

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("?"))

    runner = Runner(Agent("A", model=ScriptedModel([call("ask"), "done"]), tools=[ask]), store=store)
    await runner.run("hi", run_id="r")
    lease = await store.acquire("r", "another worker", ttl=60)
    cancelling = asyncio.create_task(runner.runs.cancel("r"))
    await asyncio.sleep(0)
    await store.release(lease)
    assert await cancelling == "cancelled"


async def test_cancel_accepts_only_now_and_after_turn() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["x"])), store=RecordingStore())
    wrong: Any = "soon"
    with pytest.raises(SetupError, match="soon"):
        await runner.runs.cancel("r", wrong)


async def test_a_cancelled_run_can_be_resumed_by_another_runner() -> None:
    waiting_tools, store = WaitingTools(), RecordingStore()
    agent, steps, waiters = team("tools", waiting_tools)
    runner = Runner(agent, model=ScriptedModel(steps), store=store)
    async with runner.stream("hi", run_id="r") as live:
        await waiting_tools.wait_for(waiters)
        await live.cancel()
    resuming = asyncio.create_task(runner.resume("r"))
    await waiting_tools.wait_for(2 * waiters)
    with pytest.raises(RunConflictError):
        await Runner(agent, store=store).resume("r")
    waiting_tools.go.set()
    assert (await resuming).status == "completed"
