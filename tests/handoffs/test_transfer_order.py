"""The order of steps in a transfer, and that failures and crashes repeat none of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from batonkit import Agent, ModelError, RunContext, Runner, RunResult, handoff, tool
from batonkit.agents import AgentHooks, RunHooks
from batonkit.handoffs import HandoffInputData
from batonkit.log import AgentResponded, Event, StepCompleted, ToolReturned, decode_log, encode_log
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedModel, call, transcript


class Ticket(BaseModel):
    """A support case."""

    subject: str


class CallbackError(Exception):
    """An error in a callback of the application."""


class Scenario(RunHooks):
    """A transfer with all callbacks; it records each call and the last line of the log at that time.

    The callback named `broken` fails on its first call.
    """

    def __init__(
        self, *, responses: Sequence[AgentResponded] = (), broken: str = "", needs_approval: bool = False
    ) -> None:
        self.calls: list[tuple[str, str]] = []
        self._broken = broken
        self._needs_approval = needs_approval
        steps: dict[str, list[Any]] = {
            "A": [[call("transfer_to_b", subject="rent"), call("look"), call("transfer_to_c")]],
            "B": [self._answer] * 2,
        }
        for each in responses:
            del steps[each.agent][0]
        self.model = ScriptedModel(steps)
        self.runner = Runner(self._team(), model=self.model, hooks=self)

    @property
    def counts(self) -> Counter[str]:
        """The number of calls by name."""
        return Counter(name for name, _ in self.calls)

    async def run_to_completion(self, resumed: str | None = None) -> RunResult[Any]:
        """Run the team, or resume a run, and answer interrupts until the run is completed."""
        live = self.runner.stream("hi") if resumed is None else self.runner.stream_resume(resumed)
        for _ in range(4):
            await live._drive()
            if live.result.status == "completed":
                return live.result
            live = self.runner.stream_resume(live.run_id, {each.id: True for each in live.result.interrupts})
        raise AssertionError("the run does not complete")

    def record(self, name: str, ctx: RunContext[Any]) -> None:
        """Record a call, and fail if it is the broken one."""
        self.calls.append((name, transcript(ctx._run.log.events)[-1]))
        if name == self._broken:
            self._broken = ""
            raise CallbackError(name)

    def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        self.record("hook of run", ctx)

    def on_agent_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        if agent.name == "A":
            self.record("end of source", ctx)

    async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
        if agent.name == "B":
            self.record("start of target", ctx)

    def _answer(self, request: ModelRequest) -> Any:
        self.calls.append(("target", ""))
        if self._broken == "target":
            self._broken = ""
            raise CallbackError("target")
        return "done"

    def _team(self) -> Agent:
        @tool
        async def look(ctx: RunContext) -> str:
            """Look."""
            self.record("tool", ctx)
            return "seen"

        async def accepts(ctx: RunContext[Any], payload: Any) -> bool:
            self.record("accepts", ctx)
            return True

        def needs_approval(ctx: RunContext[Any], input: Any) -> bool:
            self.record("needs_approval", ctx)
            return self._needs_approval

        async def on_handoff(ctx: RunContext[Any], input: Ticket) -> None:
            self.record("on_handoff", ctx)

        def input_filter(data: HandoffInputData) -> HandoffInputData:
            assert data.run_context is not None
            self.record("filter", data.run_context)
            return data

        edge = handoff(
            Agent("B", accepts=accepts, hooks=RecordingAgentHooks(self, "target")),
            input_type=Ticket,
            on_handoff=on_handoff,
            needs_approval=needs_approval,
            input_filter=input_filter,
        )
        return Agent("A", tools=[look], handoffs=[edge, Agent("C")], hooks=RecordingAgentHooks(self, "source"))


class RecordingAgentHooks(AgentHooks):
    """Hooks of one agent that record calls in the scenario."""

    def __init__(self, scenario: Scenario, role: str) -> None:
        self._scenario = scenario
        self._role = role

    async def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
        self._scenario.record(f"hook of {self._role}", ctx)


def steps_of(events: Iterable[Event]) -> list[str]:
    """Return the transcript without failures, suspensions and resumes."""
    return [line for line in transcript(events) if not line.startswith(("run failed", "run resumed", "run suspended"))]


async def test_the_order_of_a_transfer() -> None:
    # Results of other calls → input validation → on_handoff → result message → hooks → filter → target.
    scenario = Scenario()
    result = await scenario.run_to_completion()
    refused = "A: transfer_to_c failed -> Not transferred to [C]: only one transfer is followed per response, and that is the one to [B]."  # noqa: E501
    assert transcript(result.events) == [
        'run of A started with "hi"',
        "A started",
        'A: called transfer_to_b({"subject":"rent"}) + look({}) + transfer_to_c({})',
        "A: look -> seen",
        refused,
        "A: step accepts -> true",
        "A: step needs_approval -> false",
        "A: step on_handoff -> null",
        'A: transfer_to_b -> {"assistant":"B"}',
        'A → B with {"subject":"rent"}',
        "A finished",
        "B started",
        'B: said "done"',
        "B finished",
        "run completed",
    ]
    assert scenario.calls == snapshot(
        [
            ("tool", 'A: called transfer_to_b({"subject":"rent"}) + look({}) + transfer_to_c({})'),
            (
                "accepts",
                "A: transfer_to_c failed -> Not transferred to [C]: only one transfer is followed per response, and that is the one to [B].",  # noqa: E501
            ),
            ("needs_approval", "A: step accepts -> true"),
            ("on_handoff", "A: step needs_approval -> false"),
            ("hook of run", 'A → B with {"subject":"rent"}'),
            ("hook of source", 'A → B with {"subject":"rent"}'),
            ("hook of target", 'A → B with {"subject":"rent"}'),
            ("end of source", 'A → B with {"subject":"rent"}'),
            ("filter", "A finished"),
            ("start of target", "A finished"),
            ("target", ""),
        ]
    )


async def test_input_is_validated_after_the_other_calls_and_before_the_callbacks() -> None:
    called: list[str] = []

    def record(ctx: RunContext[Any], input: Any) -> bool:
        called.append("called")
        return True

    edge = handoff(Agent("B", accepts=record), input_type=Ticket, needs_approval=record, on_handoff=record)
    model = ScriptedModel([[call("transfer_to_b", subject=7), call("transfer_to_c")], "I stay"])
    result = await Runner(Agent("A", model=model, handoffs=[edge, Agent("C")])).run("hi")
    assert called == []
    returned = [event.tool_name for event in result.events if isinstance(event, ToolReturned)]
    assert returned == ["transfer_to_c", "transfer_to_b"]


HOOKS = ("hook of run", "hook of source", "hook of target")


@pytest.mark.parametrize(
    "broken",
    [
        "accepts",
        "needs_approval",
        "on_handoff",
        *HOOKS,
        "end of source",
        "filter",
        "start of target",
        "target",
    ],
)
async def test_a_failure_in_any_callback_repeats_no_recorded_step(broken: str) -> None:
    complete, scenario = Scenario(), Scenario(broken=broken)
    expected = await complete.run_to_completion()
    live = scenario.runner.stream("hi")
    with pytest.raises((CallbackError, ModelError), match=broken):
        await live._drive()
    recorded = list(live.result.events)
    result = await scenario.run_to_completion(live.run_id)
    assert list(result.events[: len(recorded)]) == recorded
    assert steps_of(result.events) == steps_of(expected.events)
    # The filter is not an effect: it is called each time the target's history is built.
    repeated = {name for name, count in scenario.counts.items() if count > 1} - {"filter"}
    concurrent = set(HOOKS) if broken in HOOKS else set[str]()
    assert repeated - concurrent == {broken} - {"filter"} - concurrent
    assert set(scenario.counts) == set(complete.counts)


def is_recorded(name: str, events: Sequence[Event]) -> bool:
    """Check that the log has the outcome of a call."""
    match name:
        case "tool":
            return any(isinstance(event, ToolReturned) and event.tool_name == "look" for event in events)
        case "accepts" | "needs_approval" | "on_handoff":
            return any(isinstance(event, StepCompleted) and event.name == name for event in events)
        case "start of target":
            return any(event.key == "2/hook:start" for event in events)
        case "end of source":
            return any(event.key == "1/hook:end" for event in events)
        case "target":
            return any(isinstance(event, AgentResponded) and event.agent == "B" for event in events)
        case _:
            return any(event.key == "1/hook:handoff" for event in events)


@pytest.mark.parametrize("needs_approval", [True, False])
async def test_a_crash_after_any_event_repeats_no_recorded_step(needs_approval: bool) -> None:
    # In another process, after every event.
    complete = Scenario(needs_approval=needs_approval)
    expected = await complete.run_to_completion()
    assert (expected.output, len(expected.events) > 14) == ("done", True)
    for length in range(1, len(expected.events)):
        recorded = decode_log(encode_log(expected.events[:length]))
        resumed = Scenario(
            responses=[event for event in recorded if isinstance(event, AgentResponded)], needs_approval=needs_approval
        )
        result = await resumed.run_to_completion(await resumed.runner.runs.load(recorded))
        assert steps_of(result.events) == steps_of(expected.events)
        for name in set(complete.counts) - {"filter"}:
            assert resumed.counts[name] == (not is_recorded(name, recorded)), (length, name)


async def test_a_replay_calls_nothing() -> None:
    scenario = Scenario(needs_approval=True)
    result = await scenario.run_to_completion()
    before = Counter(scenario.counts)
    replayed = await scenario.runner.runs.replay(result.events)
    assert steps_of(replayed.events) == steps_of(result.events)
    assert scenario.counts == before


async def test_on_handoff_is_called_for_every_transfer() -> None:
    # Once per transfer, not once per edge.
    called: list[tuple[str, ...]] = []

    def record(ctx: RunContext[Any]) -> None:
        called.append(ctx.path)

    b = Agent("B", handoffs=[handoff("A", on_handoff=record)])
    model = ScriptedModel(
        {"A": [call("transfer_to_b"), call("transfer_to_b"), "done"], "B": [call("transfer_to_a")] * 2}
    )
    await Runner(Agent("A", handoffs=[handoff(b, on_handoff=record)]), model=model).run("hi")
    assert called == [("A",), ("A", "B"), ("A", "B", "A"), ("A", "B", "A", "B")]
