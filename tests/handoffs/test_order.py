"""What happens in which order when control is handed over, and that nothing of it happens twice."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from baton import Agent, ModelError, RunContext, Runner, RunResult, handoff, tool
from baton.agents import AgentHooks, RunHooks
from baton.events import AgentResponded, Event, StepCompleted, ToolReturned, decode_log, encode_log
from baton.handoffs import HandoffInputData
from baton.models import ModelRequest
from baton.testing import ScriptedModel, call, transcript


class Ticket(BaseModel):
    """What a case is about."""

    subject: str


class Broken(Exception):
    """Something of the application does not work."""


class Stage(RunHooks):
    """A handover with everything that can be had of one. It notes what is called and what the log ends with then.

    What is named `broken` fails the first time.
    """

    def __init__(self, *, said: Sequence[AgentResponded] = (), broken: str = "", needs_approval: bool = False) -> None:
        self.notes: list[tuple[str, str]] = []
        self._broken = broken
        self._needs_approval = needs_approval
        steps: dict[str, list[Any]] = {
            "A": [[call("transfer_to_b", subject="rent"), call("look"), call("transfer_to_c")]],
            "B": [self._answer] * 2,
        }
        for each in said:
            del steps[each.agent][0]
        self.model = ScriptedModel(steps)
        self.runner = Runner(self._team(), model=self.model, hooks=self)

    @property
    def counts(self) -> Counter[str]:
        """How often each was called."""
        return Counter(name for name, _ in self.notes)

    async def finish(self, recorded: Iterable[Event] = ()) -> RunResult[Any]:
        """Drive a run to its end, from the beginning or from what is recorded of it, with every answer."""
        events = list(recorded)
        live = self.runner.stream_resume(self.runner.load_log(events)) if events else self.runner.stream("hi")
        for _ in range(4):
            await live._drive()
            if live.result.status == "completed":
                return live.result
            live = self.runner.stream_resume(live.run_id, {each.id: True for each in live.result.interrupts})
        raise AssertionError("it never ends")

    def note(self, name: str, ctx: RunContext[Any]) -> None:
        """Note that this is called; fail if it is broken."""
        self.notes.append((name, transcript(ctx._run.log.events)[-1]))
        if name == self._broken:
            self._broken = ""
            raise Broken(name)

    def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        self.note("hook of run", ctx)

    def on_agent_end(self, ctx: RunContext[Any], agent: Any, output: Any) -> None:
        if agent.name == "A":
            self.note("end of source", ctx)

    async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
        if agent.name == "B":
            self.note("start of target", ctx)

    def _answer(self, request: ModelRequest) -> Any:
        self.notes.append(("target", ""))
        if self._broken == "target":
            self._broken = ""
            raise Broken("target")
        return "done"

    def _team(self) -> Agent:
        @tool
        async def look(ctx: RunContext) -> str:
            """Look."""
            self.note("tool", ctx)
            return "seen"

        async def accepts(ctx: RunContext[Any], payload: Any) -> bool:
            self.note("accepts", ctx)
            return True

        def needs_approval(ctx: RunContext[Any], given: Any) -> bool:
            self.note("needs_approval", ctx)
            return self._needs_approval

        async def on_handoff(ctx: RunContext[Any], given: Ticket) -> None:
            self.note("on_handoff", ctx)

        def input_filter(data: HandoffInputData) -> HandoffInputData:
            assert data.run_context is not None
            self.note("filter", data.run_context)
            return data

        edge = handoff(
            Agent("B", accepts=accepts, hooks=Own(self, "target")),
            input_type=Ticket,
            on_handoff=on_handoff,
            needs_approval=needs_approval,
            input_filter=input_filter,
        )
        return Agent("A", tools=[look], handoffs=[edge, Agent("C")], hooks=Own(self, "source"))


class Own(AgentHooks):
    """The hooks of one agent."""

    def __init__(self, stage: Stage, whose: str) -> None:
        self._stage = stage
        self._whose = whose

    async def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
        self._stage.note(f"hook of {self._whose}", ctx)


def happened(events: Iterable[Event]) -> list[str]:
    """What happened, without where it stopped and went on."""
    return [line for line in transcript(events) if not line.startswith(("run failed", "run resumed", "run suspended"))]


async def test_the_order_within_the_step() -> None:
    # H13: losers' results → input validation → on_handoff → result message → hooks → filter → target.
    stage = Stage()
    result = await stage.finish()
    lost = "A: transfer_to_c failed -> Not transferred to [C]: only one transfer is followed per response, and that is the one to [B]."  # noqa: E501
    assert transcript(result.events) == [
        'run of A started with "hi"',
        "A started",
        'A: called transfer_to_b({"subject":"rent"}) + look({}) + transfer_to_c({})',
        "A: look -> seen",
        lost,
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
    assert stage.notes == snapshot(
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


async def test_input_is_checked_after_the_losers_are_told_and_before_anybody_is_called() -> None:
    # H13
    called: list[str] = []

    def note(ctx: RunContext[Any], given: Any) -> bool:
        called.append("called")
        return True

    edge = handoff(Agent("B", accepts=note), input_type=Ticket, needs_approval=note, on_handoff=note)
    model = ScriptedModel([[call("transfer_to_b", subject=7), call("transfer_to_c")], "I stay"])
    result = await Runner(Agent("A", model=model, handoffs=[edge, Agent("C")])).run("hi")
    assert called == []
    told = [event.tool_name for event in result.events if isinstance(event, ToolReturned)]
    assert told == ["transfer_to_c", "transfer_to_b"]


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
async def test_a_failure_anywhere_leaves_a_log_from_which_nothing_is_repeated(broken: str) -> None:
    # H12, H13, D5
    whole, stage = Stage(), Stage(broken=broken)
    wanted = await whole.finish()
    live = stage.runner.stream("hi")
    with pytest.raises((Broken, ModelError), match=broken):
        await live._drive()
    before = list(live.result.events)
    result = await stage.finish(before)
    assert list(result.events[: len(before)]) == before
    assert happened(result.events) == happened(wanted.events)
    # The filter is no effect: it is asked again whenever the target's view is made again.
    repeated = {name for name, count in stage.counts.items() if count > 1} - {"filter"}
    at_once = set(HOOKS) if broken in HOOKS else set[str]()
    assert repeated - at_once == {broken} - {"filter"} - at_once
    assert set(stage.counts) == set(whole.counts)


def is_recorded(name: str, events: Sequence[Event]) -> bool:
    """Whether the log has what came of this."""
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
async def test_a_crash_anywhere_leaves_a_log_from_which_nothing_is_repeated(needs_approval: bool) -> None:
    # H13, D5, DESIGN §4 clause 6: in another process, after every event.
    whole = Stage(needs_approval=needs_approval)
    wanted = await whole.finish()
    assert (wanted.output, len(wanted.events) > 14) == ("done", True)
    for length in range(1, len(wanted.events)):
        recorded = decode_log(encode_log(wanted.events[:length]))
        after = Stage(
            said=[event for event in recorded if isinstance(event, AgentResponded)], needs_approval=needs_approval
        )
        result = await after.finish(recorded)
        assert happened(result.events) == happened(wanted.events)
        for name in set(whole.counts) - {"filter"}:
            assert after.counts[name] == (not is_recorded(name, recorded)), (length, name)


async def test_a_finished_run_is_replayed_without_calling_anybody() -> None:
    # H12, D5
    stage = Stage(needs_approval=True)
    result = await stage.finish()
    before = stage.counts
    replayed = await stage.runner.replay(result.events)
    assert happened(replayed.events) == happened(result.events)
    assert stage.counts - before == Counter({"filter": 1})


async def test_every_transfer_has_its_own_callback() -> None:
    # H5, DESIGN §4 clause 6: once per transfer, not once per edge.
    called: list[tuple[str, ...]] = []

    def note(ctx: RunContext[Any]) -> None:
        called.append(ctx.path)

    b = Agent("B", handoffs=[handoff("A", on_handoff=note)])
    model = ScriptedModel(
        {"A": [call("transfer_to_b"), call("transfer_to_b"), "done"], "B": [call("transfer_to_a")] * 2}
    )
    await Runner(Agent("A", handoffs=[handoff(b, on_handoff=note)]), model=model).run("hi")
    assert called == [("A",), ("A", "B"), ("A", "B", "A"), ("A", "B", "A", "B")]
