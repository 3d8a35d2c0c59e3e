"""Approval of transfers that code decides: agents of your own, middleware and functions that return an agent."""

from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import (
    Agent,
    AgentContext,
    Approval,
    BaseAgent,
    Handoff,
    Middleware,
    RunContext,
    Runner,
    SequentialAgent,
    Transfer,
    agent,
    handoff,
    tool,
)
from batonkit.errors import AnswerError, TransferError
from batonkit.log import ControlTransferred, InterruptAnswered, InterruptRaised, ToolReturned
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call


class Ticket(BaseModel):
    """A typed input."""

    subject: str


def speaker(name: str = "B") -> Agent:
    """An agent that answers at once."""
    return Agent(name, model=ScriptedModel([f"{name} is here"] * 9))


def deciding(edge: Handoff[Any, Any], payload: Any = None) -> BaseAgent[Any, Any]:
    """An agent whose code transfers to B."""

    @agent("A", handoffs=[edge])
    async def a(ctx: AgentContext) -> Transfer:
        return Transfer("B", payload=payload)

    return a


def payloads(events: Any) -> list[Any]:
    """Return the payloads of the transfers."""
    return [event.payload for event in events if isinstance(event, ControlTransferred)]


@pytest.mark.parametrize("stored", [False, True])
async def test_a_transfer_that_code_returns_waits_for_approval(stored: bool) -> None:
    store = MemoryStore() if stored else None
    team = deciding(handoff(speaker(), needs_approval=True))
    suspended = await Runner(team, store=store).run("hi", run_id="r")
    assert [question.payload for question in suspended.interrupts] == [
        {"kind": "approval", "handoff": "B", "input": None}
    ]
    assert payloads(suspended.events) == []
    runner = Runner(team, store=store)
    if store is None:
        await runner.runs.load(suspended.events)
    result = await runner.resume("r", Approval(True))
    assert (result.agent, result.output) == ("B", "B is here")
    assert len([event for event in result.events if isinstance(event, InterruptRaised)]) == 1
    assert (await runner.runs.replay("r")).output == "B is here"


async def test_a_transfer_of_code_that_is_not_approved_fails_and_is_not_made() -> None:
    runner = Runner(deciding(handoff(speaker(), needs_approval=True)))
    suspended = await runner.run("hi")
    with pytest.raises(TransferError, match="from `A` to `B` was not approved: not today"):
        await runner.resume(suspended.run_id, Approval(False, reason="not today"))
    assert payloads(await runner.runs.events(suspended.run_id)) == []


async def test_a_function_decides_whether_code_needs_approval() -> None:
    def is_long(ctx: RunContext, ticket: Ticket) -> bool:
        return len(ticket.subject) > 3

    for subject, status in (("abc", "completed"), ("abcd", "suspended")):
        edge = handoff(speaker(), input_type=Ticket, needs_approval=is_long)
        result = await Runner(deciding(edge, {"subject": subject})).run("hi")
        assert result.status == status


async def test_without_the_input_that_the_function_decides_about_a_person_is_asked() -> None:
    def never(ctx: RunContext, ticket: Ticket) -> bool:
        return ticket.subject == ""

    assert (await Runner(deciding(handoff(speaker(), input_type=Ticket, needs_approval=never))).run("hi")).interrupts


async def test_a_payload_that_does_not_fit_is_refused_before_anyone_is_asked() -> None:
    team = deciding(handoff(speaker(), input_type=Ticket, needs_approval=True), {"topic": "rent"})
    with pytest.raises(TransferError, match="has a payload that does not fit: subject: Field required"):
        await Runner(team).run("hi")


async def test_a_person_may_change_the_input_that_code_gives() -> None:
    team = deciding(handoff(speaker(), input_type=Ticket, needs_approval=True), {"subject": "rent"})
    runner = Runner(team)
    suspended = await runner.run("hi")
    again = await runner.resume(suspended.run_id, Approval(True, arguments={"subject": 3}))
    assert "subject" in again.interrupts[0].payload["problem"]
    result = await runner.resume(suspended.run_id, Approval(True, arguments={"subject": "food"}))
    assert payloads(result.events) == [{"subject": "food"}]


async def test_a_person_may_change_a_payload_without_a_type() -> None:
    runner = Runner(deciding(handoff(speaker(), needs_approval=True), {"x": 1}))
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, Approval(True, arguments={"x": 2}))
    assert payloads(result.events) == [{"x": 2}]


@pytest.mark.parametrize("by_code", [False, True])
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Approval(True, arguments={"x": 1}), "the transfer to `B` has no input that `arguments` could replace"),
        ({"approved": True, "arguments": {}}, "the transfer to `B` has no input"),
        (Approval(True, always=True), "the transfer to `B` is approved each time"),
        ("yes", "does not approve or reject"),
    ],
)
async def test_an_approval_with_what_a_handoff_does_not_have_is_refused(
    by_code: bool, answer: Any, problem: str
) -> None:
    edge = handoff(speaker(), needs_approval=True)
    model = ScriptedModel([call("transfer_to_b")])
    runner = Runner(deciding(edge) if by_code else Agent("A", model=model, handoffs=[edge]), store=MemoryStore())
    suspended = await runner.run("hi", run_id="r")
    with pytest.raises(AnswerError, match=problem):
        await runner.resume("r", answer)
    assert tuple(await runner.runs.events("r")) == tuple(suspended.events)
    assert (await runner.resume("r", True)).agent == "B"


@pytest.mark.parametrize("approved", [True, False])
async def test_a_function_that_returns_an_agent_waits_for_the_approval_of_the_handoff(approved: bool) -> None:
    b = speaker()

    @tool
    def to_b() -> Agent:
        """Go to B."""
        return b

    model = ScriptedModel([call("to_b"), "I stay"])
    team = Agent("A", model=model, tools=[to_b], handoffs=[handoff(b, needs_approval=True)])
    runner = Runner(team)
    suspended = await runner.run("hi")
    assert suspended.interrupts[0].payload == {"kind": "approval", "handoff": "B", "input": None}
    result = await runner.resume(suspended.run_id, Approval(approved, reason="" if approved else "not today"))
    assert result.output == ("B is here" if approved else "I stay")
    if not approved:
        texts = [event.content for event in result.events if isinstance(event, ToolReturned)]
        assert texts == ["Not transferred to [B]: not today"]


async def test_a_workflow_that_transfers_waits_for_approval() -> None:
    class Routed(SequentialAgent):
        async def run(self, ctx: AgentContext) -> Any:
            return await super().run(ctx) or Transfer("B")

    steps = [Agent("Step", model=ScriptedModel(["done", "done"]))]
    workflow = Routed("A", sub_agents=steps, handoffs=[handoff(speaker(), needs_approval=True)])
    runner = Runner(workflow)
    suspended = await runner.run("hi")
    assert suspended.interrupts[0].payload["handoff"] == "B"
    assert (await runner.resume(suspended.run_id, True)).agent == "B"


async def test_middleware_cannot_follow_an_edge_without_its_approval() -> None:
    class Send(Middleware):
        async def activation(self, ctx: Any, next: Any) -> Any:
            await next()
            # The name of the tool makes it no transfer of the model's.
            return Transfer("B", via="transfer_to_b")

    edge = handoff(speaker(), needs_approval=True)
    a = Agent("A", model=ScriptedModel(["hello"]), handoffs=[edge], middleware=[Send()])
    assert (await Runner(a).run("hi")).interrupts


async def test_a_transfer_of_the_model_is_approved_once() -> None:
    a = Agent("A", model=ScriptedModel([call("transfer_to_b")]), handoffs=[handoff(speaker(), needs_approval=True)])
    runner = Runner(a)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, True)
    assert len([event for event in result.events if isinstance(event, InterruptAnswered)]) == 1


async def test_a_fork_asks_again_before_code_transfers() -> None:
    runner = Runner(deciding(handoff(speaker(), needs_approval=True)), store=MemoryStore())
    await runner.run("hi", run_id="r")
    result = await runner.resume("r", True)
    answered = next(n for n, event in enumerate(result.events, 1) if isinstance(event, InterruptAnswered))
    forked = await runner.runs.fork("r", at=answered)
    assert (await runner.resume(forked)).status == "suspended"
