"""Targets that decline with `accepts`, and refused transfers: later requests do not contain them, the log does."""

from collections.abc import Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from batonkit import Agent, BaseAgent, RunContext, Runner, handoff, tool
from batonkit.agents import RunHooks
from batonkit.handoffs import HandoffInputData
from batonkit.log import (
    AgentResponded,
    ControlTransferred,
    HistoryEntry,
    StepCompleted,
    ToolReturned,
    decode_log,
    encode_log,
)
from batonkit.messages import Message, ToolCall, pair_calls_with_results, text_of
from batonkit.models import ModelRequest
from batonkit.runs import HandoffRules, HistoryOptions
from batonkit.testing import ScriptedModel, call, say, transcript, transfer_to


class Ticket(BaseModel):
    """A support case."""

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


class Accepts:
    """An `accepts` callback that returns these results and records its arguments."""

    def __init__(self, *results: bool | str) -> None:
        self.results = list(results)
        self.calls: list[Any] = []

    def __call__(self, ctx: RunContext[Any], payload: Any) -> bool | str:
        self.calls.append((ctx.agent, payload))
        return self.results.pop(0)

    async def call_later(self, ctx: RunContext[Any], payload: Any) -> bool | str:
        """Return the next result asynchronously."""
        return self(ctx, payload)


def last_text(request: ModelRequest) -> str:
    """Return the text of the last message of a request."""
    return text_of(request.messages[-1].content)


# --- results of accepts


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_target_can_decline_with_a_reason(is_async: bool) -> None:
    recorded: list[str] = []

    class RecordingHooks(RunHooks):
        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            recorded.append("hook")

    accepts = Accepts("we are closed")
    b = Agent("B", accepts=accepts.call_later if is_async else accepts)
    edge = handoff(b, on_handoff=lambda ctx: recorded.append("on_handoff"), needs_approval=lambda ctx, given: True)
    model = ScriptedModel([call("transfer_to_b"), "I stay"])
    result = await Runner(Agent("A", model=model, handoffs=[edge]), hooks=RecordingHooks()).run("hi")
    # No approval is requested, and neither the callback nor the hook is called.
    assert (result.status, result.agent, recorded) == ("completed", "A", [])
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


async def test_a_target_can_decline_without_a_reason() -> None:
    model = ScriptedModel([call("transfer_to_b"), "I stay"])
    await Runner(Agent("A", model=model, handoffs=[Agent("B", accepts=Accepts(False))])).run("hi")
    assert last_text(model.requests[1]) == "Not transferred: [B] declined: it does not accept this"


async def test_accepts_is_called_with_the_validated_input() -> None:
    # It is not called with invalid input.
    accepts = Accepts("too urgent", True)
    edge = handoff(Agent("B", accepts=accepts), input_type=Ticket)
    transfers = [call("transfer_to_b", subject="rent", urgency=urgency) for urgency in ("high", 9, 1)]
    model = ScriptedModel({"A": transfers, "B": ["hello"]})
    result = await Runner(Agent("A", handoffs=[edge]), model=model).run("hi")
    assert result.agent == "B"
    assert accepts.calls == [("A", Ticket(subject="rent", urgency=9)), ("A", Ticket(subject="rent"))]


async def test_declining_does_not_use_the_correction_budget() -> None:
    # It does not count as a correction.
    accepts = Accepts(*["busy"] * 5, True)
    model = ScriptedModel({"A": [call("transfer_to_b")] * 6, "B": ["at last"]})
    result = await Runner(
        Agent("A", handoffs=[Agent("B", accepts=accepts)]), model=model, handoff_rules=HandoffRules(max_corrections=1)
    ).run("hi")
    assert result.output == "at last"


async def test_tools_called_with_a_declined_handoff_keep_their_results() -> None:
    model = ScriptedModel([[call("transfer_to_b"), call("look")], "I stay"])
    a = Agent("A", model=model, tools=[look], handoffs=[Agent("B", accepts=Accepts("closed"))])
    await Runner(a).run("hi")
    results = [text_of(message.content) for message in model.requests[1].messages[-2:]]
    assert results == ["Not transferred: [B] declined: closed", "something seen"]


async def test_accepts_is_called_once_per_call_across_resume_and_replay() -> None:
    accepts = Accepts("closed", True)
    b = Agent("B", accepts=accepts, tools=[ask])
    model = ScriptedModel(
        {"A": [call("transfer_to_b"), call("transfer_to_b")], "B": [call("ask", question="?"), "done"]}
    )
    runner = Runner(Agent("A", handoffs=[b]), model=model)
    suspended = await runner.run("hi")
    assert len(accepts.calls) == 2
    other = Runner(Agent("A", handoffs=[b]), model=model)
    result = await other.resume(await other.runs.load(decode_log(encode_log(suspended.events))), "yes")
    await other.runs.replay(result.events)
    assert (result.output, len(accepts.calls)) == ("done", 2)
    assert [event.result for event in result.events if isinstance(event, StepCompleted)] == ["closed", True]


async def test_a_run_whose_accepts_fails_can_be_resumed() -> None:
    attempts: list[str] = []

    def fail_once(ctx: RunContext[Any], payload: Any) -> bool:
        attempts.append("asked")
        if len(attempts) == 1:
            raise LookupError("no calendar")
        return True

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["hello"]})
    runner = Runner(Agent("A", handoffs=[Agent("B", accepts=fail_once)]), model=model)
    live = runner.stream("hi")
    with pytest.raises(LookupError, match="no calendar"):
        await live._drive()
    assert (await runner.resume(live.run_id)).output == "hello"
    assert [request.agent for request in model.requests] == ["A", "B"]


async def test_accepts_can_use_the_context_and_the_values() -> None:
    def accepts(ctx: RunContext[dict[str, bool]], payload: Any) -> bool | str:
        ctx.values.set("asked", ctx.values.get("asked", 0) + 1)
        return ctx.context["is_open"] or "closed"

    model = ScriptedModel([call("transfer_to_b"), "I stay"])
    runner = Runner(Agent("A", model=model, handoffs=[Agent("B", accepts=accepts)]))
    result = await runner.run("hi", context={"is_open": False})
    assert (result.output, result.values) == ("I stay", {"asked": 1})
    assert (await runner.runs.replay(result.events)).values == {"asked": 1}


async def test_a_custom_agent_can_decline() -> None:
    class DecliningAgent(BaseAgent):
        name = "Declining"

        def accepts(self, ctx: RunContext[Any], payload: Any) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
            return "not today"

        async def run(self, ctx: Any) -> None:
            raise AssertionError("an agent that declined must not run")

    model = ScriptedModel([call("transfer_to_declining"), "I stay"])
    await Runner(Agent("A", model=model, handoffs=[DecliningAgent()])).run("hi")
    assert last_text(model.requests[1]) == "Not transferred: [Declining] declined: not today"


# --- refused transfers in histories

REFUSED: dict[str, tuple[list[ToolCall], dict[str, Any]]] = {
    "declined": ([call("transfer_to_b")], {"accepts": Accepts(*["refused"] * 99)}),
    "disabled": ([call("transfer_to_b")], {"is_enabled": False}),
    "wrong input": ([call("transfer_to_b", input="x")], {"input_type": int}),
    "unknown": ([transfer_to("B")], {}),
    "not chosen": ([call("transfer_to_c"), call("transfer_to_b")], {}),
}
SHOWS_EARLIER_MESSAGES = {"rewritten": True, "verbatim": True, "lineage": True, "answers": False, "none": False}


def make_team(kind: str, history: Any, show_transfers: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    """Create a team: `A` is refused a transfer to `B`, goes to `C`, which transfers back, and then to `D`."""
    calls, options = REFUSED[kind]
    b = Agent("B", accepts=options.get("accepts"))
    edge = handoff(b, **{name: option for name, option in options.items() if name != "accepts"})
    a = Agent(
        "A",
        tools=[look],
        handoffs=[edge, Agent("C", handoffs=["A"]), Agent("D")],
        sub_agents=[Agent("Child")] if kind == "unknown" else [],
    )
    next_calls = [] if kind == "not chosen" else [call("transfer_to_c")]
    model = ScriptedModel(
        {
            "A": [say("Let me see.", call("look"), *calls), *next_calls, call("transfer_to_d")],
            "C": [call("transfer_to_a")],
            "D": ["done"],
        }
    )
    return Runner(a, model=model, history=HistoryOptions(history, show_transfers)), model


@pytest.mark.parametrize("show_transfers", [True, False])
@pytest.mark.parametrize("history", SHOWS_EARLIER_MESSAGES)
@pytest.mark.parametrize("kind", REFUSED)
async def test_later_requests_do_not_contain_the_refused_transfer(
    kind: str, history: str, show_transfers: bool
) -> None:
    # For all reasons to refuse a transfer.
    runner, model = make_team(kind, history, show_transfers)
    result = await runner.run("hi")
    assert result.output == "done"
    requests_of_a = [request for request in model.requests if request.agent == "A"]
    if kind != "not chosen":
        # The agent that asked gets the refusal in its next request.
        assert last_text(requests_of_a[1]).startswith("Not transferred")
    later_requests = [request for request in model.requests if request.agent != "A"] + requests_of_a[-1:]
    assert [request.agent for request in later_requests] == ["C", "D", "A"]
    for request in later_requests:
        messages = repr(list(request.messages))
        assert "Not transferred" not in messages
        assert "transfer_to_b" not in messages
        assert '"B"' not in messages
        assert ("something seen" in messages) == SHOWS_EARLIER_MESSAGES[history]
        assert ("Let me see." in messages) == SHOWS_EARLIER_MESSAGES[history]
    for request in model.requests:
        assert pair_calls_with_results(request.messages) == list(request.messages)


@pytest.mark.parametrize("kind", REFUSED)
async def test_the_log_and_the_result_contain_the_refused_transfer(kind: str) -> None:
    # Every call has exactly one result.
    runner, _ = make_team(kind, "rewritten", True)
    result = await runner.run("hi")
    calls = [
        each.id for event in result.events if isinstance(event, AgentResponded) for each in event.message.tool_calls
    ]
    returned = [event.call_id for event in result.events if isinstance(event, ToolReturned)]
    assert sorted(calls) == sorted(returned)
    assert any(text_of(message.content).startswith("Not transferred") for message in result.messages)
    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == ["C", "A", "D"]


@pytest.mark.parametrize("kind", REFUSED)
async def test_filters_do_not_receive_the_refused_transfer(kind: str) -> None:
    seen: list[str] = []

    def record(data: HandoffInputData) -> HandoffInputData:
        seen.append(repr((data.input_history, data.pre_handoff_items, data.new_items)))
        return data

    runner, model = make_team(kind, "rewritten", True)
    runner = Runner(runner.team.members["A"].agent, model=model, history=HistoryOptions(input_filter=record))
    assert (await runner.run("hi")).output == "done"
    assert len(seen) == 3
    assert not any("Not transferred" in each or "transfer_to_b" in each for each in seen)
    assert all("something seen" in each for each in seen)


async def test_custom_histories_do_not_receive_the_refused_transfer() -> None:
    # The entries do not contain the refused call.
    def show_all(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entry.message for entry in entries]

    runner, model = make_team("declined", show_all, True)
    await runner.run("hi")
    (request,) = [request for request in model.requests if request.agent == "D"]
    assert "transfer_to_b" not in repr(list(request.messages))


async def test_the_agent_that_asked_sees_the_refusal_until_the_next_transfer() -> None:
    b = Agent("B", accepts=Accepts("closed"))
    model = ScriptedModel([call("transfer_to_b"), call("ask", question="?"), "I stay"])
    runner = Runner(Agent("A", model=model, tools=[ask], handoffs=[b]))
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, "yes")
    assert "[B] declined: closed" in repr(list(model.requests[1].messages))
    assert "[B] declined: closed" in repr(list(model.requests[2].messages))
