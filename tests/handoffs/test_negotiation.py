"""Targets that have a say, and what is left of a transfer that did not happen: its result in the log, and no more."""

from collections.abc import Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from baton import Agent, BaseAgent, RunContext, Runner, handoff, tool
from baton.agents import RunHooks
from baton.context import HistoryEntry
from baton.events import AgentResponded, ControlTransferred, StepCompleted, ToolReturned, decode_log, encode_log
from baton.handoffs import HandoffInputData
from baton.messages import Message, ToolCall, pair_calls_with_results, text_of
from baton.models import ModelRequest
from baton.testing import ScriptedModel, call, say, transcript, transfer_to


class Ticket(BaseModel):
    """What a case is about."""

    subject: str
    urgency: int = 1


@tool
async def look() -> str:
    """Look."""
    return "something seen"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


class Target:
    """Says this about whether it takes a conversation, and keeps what it is asked."""

    def __init__(self, *verdicts: bool | str) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[Any] = []

    def __call__(self, ctx: RunContext[Any], payload: Any) -> bool | str:
        self.asked.append((ctx.agent, payload))
        return self.verdicts.pop(0)

    async def later(self, ctx: RunContext[Any], payload: Any) -> bool | str:
        """The same, in a while."""
        return self(ctx, payload)


def last_text(request: ModelRequest) -> str:
    """What a request ends with."""
    return text_of(request.messages[-1].content)


# --- what a target says


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_target_that_says_why_not_is_not_handed_to(is_async: bool) -> None:
    # H15
    told: list[str] = []

    class Noting(RunHooks):
        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            told.append("hook")

    target = Target("we are closed")
    b = Agent("B", accepts=target.later if is_async else target)
    edge = handoff(b, on_handoff=lambda ctx: told.append("on_handoff"), needs_approval=lambda ctx, given: True)
    model = ScriptedModel([call("transfer_to_b"), "I stay"])
    result = await Runner(Agent("A", model=model, handoffs=[edge]), hooks=Noting()).run("hi")
    # Nobody is asked or told of what does not happen.
    assert (result.status, result.agent, told) == ("completed", "A", [])
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            "A: called transfer_to_b({})",
            'A: step accepts -> "we are closed"',
            "A: transfer_to_b failed -> Not transferred: [B] declined: we are closed",
            'A: said "I stay"',
            "A finished",
            "run completed",
        ]
    )


async def test_a_target_that_just_says_no_is_not_handed_to() -> None:
    # H15
    model = ScriptedModel([call("transfer_to_b"), "I stay"])
    await Runner(Agent("A", model=model, handoffs=[Agent("B", accepts=Target(False))])).run("hi")
    assert last_text(model.requests[1]) == "Not transferred: [B] declined: it does not accept this"


async def test_a_target_is_asked_with_the_checked_input() -> None:
    # H15, H6: and not at all with what does not fit.
    target = Target("too urgent", True)
    edge = handoff(Agent("B", accepts=target), input_type=Ticket)
    wishes = [call("transfer_to_b", subject="rent", urgency=urgency) for urgency in ("high", 9, 1)]
    model = ScriptedModel({"A": wishes, "B": ["hello"]})
    result = await Runner(Agent("A", handoffs=[edge]), model=model).run("hi")
    assert result.agent == "B"
    assert target.asked == [("A", Ticket(subject="rent", urgency=9)), ("A", Ticket(subject="rent"))]


async def test_declining_is_no_mistake_of_the_model() -> None:
    # H15, T19: it costs nothing of the budget for corrections.
    target = Target(*["busy"] * 5, True)
    model = ScriptedModel({"A": [call("transfer_to_b")] * 6, "B": ["at last"]})
    result = await Runner(Agent("A", handoffs=[Agent("B", accepts=target)]), model=model, max_corrections=1).run("hi")
    assert result.output == "at last"


async def test_tools_beside_it_keep_their_results() -> None:
    # H15, DESIGN §4 clauses 1 and 4
    model = ScriptedModel([[call("transfer_to_b"), call("look")], "I stay"])
    a = Agent("A", model=model, tools=[look], handoffs=[Agent("B", accepts=Target("closed"))])
    await Runner(a).run("hi")
    results = [text_of(message.content) for message in model.requests[1].messages[-2:]]
    assert results == ["Not transferred: [B] declined: closed", "something seen"]


async def test_a_target_is_asked_once_about_one_call_whatever_happens_later() -> None:
    # H15, H13, D5
    target = Target("closed", True)
    b = Agent("B", accepts=target, tools=[ask])
    model = ScriptedModel(
        {"A": [call("transfer_to_b"), call("transfer_to_b")], "B": [call("ask", question="?"), "done"]}
    )
    runner = Runner(Agent("A", handoffs=[b]), model=model)
    suspended = await runner.run("hi")
    assert len(target.asked) == 2
    other = Runner(Agent("A", handoffs=[b]), model=model)
    result = await other.resume(other.load_log(decode_log(encode_log(suspended.events))), "yes")
    await other.replay(result.events)
    assert (result.output, len(target.asked)) == ("done", 2)
    assert [event.result for event in result.events if isinstance(event, StepCompleted)] == ["closed", True]


async def test_a_target_that_fails_ends_the_run_which_can_be_resumed() -> None:
    # H13, H15
    tries: list[str] = []

    def fragile(ctx: RunContext[Any], payload: Any) -> bool:
        tries.append("asked")
        if len(tries) == 1:
            raise LookupError("no calendar")
        return True

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["hello"]})
    runner = Runner(Agent("A", handoffs=[Agent("B", accepts=fragile)]), model=model)
    live = runner.stream("hi")
    with pytest.raises(LookupError, match="no calendar"):
        await live._drive()
    assert (await runner.resume(live.run_id)).output == "hello"
    assert [request.agent for request in model.requests] == ["A", "B"]


async def test_a_target_may_use_the_context_and_the_values() -> None:
    # H15, H17
    def accepts(ctx: RunContext[dict[str, bool]], payload: Any) -> bool | str:
        ctx.values.set("asked", ctx.values.get("asked", 0) + 1)
        return ctx.context["is_open"] or "closed"

    model = ScriptedModel([call("transfer_to_b"), "I stay"])
    runner = Runner(Agent("A", model=model, handoffs=[Agent("B", accepts=accepts)]))
    result = await runner.run("hi", context={"is_open": False})
    assert (result.output, result.values) == ("I stay", {"asked": 1})
    assert (await runner.replay(result.events)).values == {"asked": 1}


async def test_an_agent_of_ones_own_has_a_say_too() -> None:
    # H15
    class Shy(BaseAgent):
        name = "Shy"

        def accepts(self, ctx: RunContext[Any], payload: Any) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
            return "not today"

        async def run(self, ctx: Any) -> None:
            raise AssertionError("it declined")

    model = ScriptedModel([call("transfer_to_shy"), "I stay"])
    await Runner(Agent("A", model=model, handoffs=[Shy()])).run("hi")
    assert last_text(model.requests[1]) == "Not transferred: [Shy] declined: not today"


# --- what is left of a transfer that did not happen

REFUSED: dict[str, tuple[list[ToolCall], dict[str, Any]]] = {
    "declined": ([call("transfer_to_b")], {"accepts": Target(*["refused"] * 99)}),
    "off": ([call("transfer_to_b")], {"is_enabled": False}),
    "wrong input": ([call("transfer_to_b", input="x")], {"input_type": int}),
    "nobody": ([transfer_to("B")], {}),
    "lost": ([call("transfer_to_c"), call("transfer_to_b")], {}),
}
SEEN = {"rewritten": True, "verbatim": True, "lineage": True, "answers": False, "none": False}


def team(kind: str, history: Any, transfers: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    """`A` wants to go to `B` in vain, then goes to `C`, which sends it back, and then to `D`."""
    wishes, facts = REFUSED[kind]
    b = Agent("B", accepts=facts.get("accepts"))
    edge = handoff(b, **{name: fact for name, fact in facts.items() if name != "accepts"})
    a = Agent(
        "A",
        tools=[look],
        handoffs=[edge, Agent("C", handoffs=["A"]), Agent("D")],
        sub_agents=[Agent("Child")] if kind == "nobody" else [],
    )
    on_its_way = [] if kind == "lost" else [call("transfer_to_c")]
    model = ScriptedModel(
        {
            "A": [say("Let me see.", call("look"), *wishes), *on_its_way, call("transfer_to_d")],
            "C": [call("transfer_to_a")],
            "D": ["done"],
        }
    )
    return Runner(a, model=model, history=history, show_transfers=transfers), model


@pytest.mark.parametrize("show_transfers", [True, False])
@pytest.mark.parametrize("history", SEEN)
@pytest.mark.parametrize("kind", REFUSED)
async def test_nobody_reads_of_it_later_and_nothing_else_is_lost(kind: str, history: str, show_transfers: bool) -> None:
    # H15: declined and lost transfers, and all others that did not happen; DESIGN §4 clause 4.
    runner, model = team(kind, history, show_transfers)
    result = await runner.run("hi")
    assert result.output == "done"
    own = [request for request in model.requests if request.agent == "A"]
    if kind != "lost":
        # The one who asked for it is told, as long as it has the floor.
        assert last_text(own[1]).startswith("Not transferred")
    later = [request for request in model.requests if request.agent != "A"] + own[-1:]
    assert [request.agent for request in later] == ["C", "D", "A"]
    for request in later:
        read = repr(list(request.messages))
        assert "Not transferred" not in read
        assert "transfer_to_b" not in read
        assert '"B"' not in read
        assert ("something seen" in read) == SEEN[history]
        assert ("Let me see." in read) == SEEN[history]
    for request in model.requests:
        assert pair_calls_with_results(request.messages) == list(request.messages)


@pytest.mark.parametrize("kind", REFUSED)
async def test_the_log_and_the_result_keep_all_of_it(kind: str) -> None:
    # H15, DESIGN §4 clause 4: every call has exactly one result.
    runner, _ = team(kind, "rewritten", True)
    result = await runner.run("hi")
    calls = [
        each.id for event in result.events if isinstance(event, AgentResponded) for each in event.message.tool_calls
    ]
    returned = [event.call_id for event in result.events if isinstance(event, ToolReturned)]
    assert sorted(calls) == sorted(returned)
    assert any(text_of(message.content).startswith("Not transferred") for message in result.messages)
    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == ["C", "A", "D"]


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_filter_is_not_given_it_either(kind: str) -> None:
    # H10, H15
    seen: list[str] = []

    def keep(data: HandoffInputData) -> HandoffInputData:
        seen.append(repr((data.input_history, data.pre_handoff_items, data.new_items)))
        return data

    runner, model = team(kind, "rewritten", True)
    runner = Runner(runner.team.members["A"].agent, model=model, handoff_input_filter=keep)
    assert (await runner.run("hi")).output == "done"
    assert len(seen) == 3
    assert not any("Not transferred" in each or "transfer_to_b" in each for each in seen)
    assert all("something seen" in each for each in seen)


async def test_a_history_of_ones_own_does_not_show_it_either() -> None:
    # H15, T25: the entries are what there is to read.
    def everything(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entry.message for entry in entries]

    runner, model = team("declined", everything, True)
    await runner.run("hi")
    (request,) = [request for request in model.requests if request.agent == "D"]
    assert "transfer_to_b" not in repr(list(request.messages))


async def test_who_asked_in_vain_reads_of_it_until_control_goes_on_also_across_resume() -> None:
    # H15, D5
    b = Agent("B", accepts=Target("closed"))
    model = ScriptedModel([call("transfer_to_b"), call("ask", question="?"), "I stay"])
    runner = Runner(Agent("A", model=model, tools=[ask], handoffs=[b]))
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, "yes")
    assert "[B] declined: closed" in repr(list(model.requests[1].messages))
    assert "[B] declined: closed" in repr(list(model.requests[2].messages))
