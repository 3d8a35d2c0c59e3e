"""Handoffs that a person must approve: the run waits, and what was done before is not done again."""

from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from baton import Agent, Approval, RunContext, Runner, RunResult, handoff, tool
from baton.agents import RunHooks
from baton.errors import AnswerError
from baton.events import AgentResponded, ControlTransferred, InterruptRaised, ToolReturned, decode_log, encode_log
from baton.messages import text_of
from baton.runner import Interrupt
from baton.testing import ScriptedModel, call, say, transcript


class Ticket(BaseModel):
    """What a case is about."""

    subject: str
    urgency: int = 1


class Keeper(list[Any]):
    """A callback that keeps the input it is given, or that it was called."""

    def __call__(self, ctx: RunContext[Any], *given: Any) -> None:
        self.append(given[0] if given else "on_handoff")


class Office:
    """`A` plays these steps and can hand over to `B` along one edge, or to `C`; it keeps what was done."""

    def __init__(self, *steps: Any, multiple_transfers: Any = "first", hooks: Any = None, **edge: Any) -> None:
        self.done: list[str] = []

        @tool
        async def file(name: str) -> str:
            """File something."""
            self.done.append(f"file {name}")
            return f"filed {name}"

        @tool(needs_approval=True)
        async def pay(euro: int) -> str:
            """Pay."""
            self.done.append(f"pay {euro}")
            return f"paid {euro}"

        self.model = ScriptedModel({"A": steps, "B": ["B is done"], "C": ["C is done"]})
        edge.setdefault("needs_approval", True)
        edges = [handoff(Agent("B"), **edge), Agent("C")]
        a = Agent("A", tools=[file, pay], handoffs=edges)
        self.runner = Runner(a, model=self.model, multiple_transfers=multiple_transfers, hooks=hooks)

    async def takes_over(self, result: RunResult[Any], answers: Any) -> RunResult[Any]:
        """Go on with a run of another office, from its log as it was stored."""
        run_id = self.runner.load_log(decode_log(encode_log(result.events)))
        return await self.runner.resume(run_id, answers)


def texts(office: Office, index: int) -> list[str]:
    """What a request reads."""
    return [text_of(message.content) for message in office.model.requests[index].messages]


async def test_it_waits_and_then_happens_once() -> None:
    # H14, H13
    office = Office(call("transfer_to_b", subject="rent"), input_type=Ticket)
    suspended = await office.runner.run("hi")
    assert (suspended.status, suspended.agent) == ("suspended", "A")
    (question,) = suspended.interrupts
    assert (question.agent, question.path) == ("A", ("A",))
    assert question.payload == {"kind": "approval", "handoff": "B", "input": {"subject": "rent", "urgency": 1}}
    assert question.tool_call is not None
    assert question.tool_call.name == "transfer_to_b"
    result = await office.runner.resume(suspended.run_id, True)
    assert (result.agent, result.output) == ("B", "B is done")
    assert [request.agent for request in office.model.requests] == ["A", "B"]
    assert len([event for event in result.events if isinstance(event, ControlTransferred)]) == 1


async def test_the_callback_comes_after_the_approval() -> None:
    # H13, H14
    done = Keeper()
    office = Office(call("transfer_to_b"), on_handoff=done)
    suspended = await office.runner.run("hi")
    assert done == []
    await office.runner.resume(suspended.run_id, True)
    assert done == ["on_handoff"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (False, "Not transferred to [B]: it was not approved"),
        ({"approved": False, "reason": "B is ill"}, "Not transferred to [B]: B is ill"),
        (Approval(False, reason="B is ill"), "Not transferred to [B]: B is ill"),
    ],
)
async def test_when_rejected_the_model_is_told_with_the_reason(answer: Any, told: str) -> None:
    # H14
    done = Keeper()
    office = Office(call("transfer_to_b"), "I stay", on_handoff=done)
    suspended = await office.runner.run("hi")
    result = await office.runner.resume(suspended.run_id, answer)
    assert (result.agent, result.output, done) == ("A", "I stay", [])
    assert texts(office, 1)[-1] == told
    assert not any(isinstance(event, ControlTransferred) for event in result.events)


async def test_a_rejected_handoff_is_answered_and_then_gone() -> None:
    # H14, H15: for the agent itself when it has the floor again, and for everybody else.
    model = ScriptedModel(
        {
            "A": [say("Let me try.", call("transfer_to_b")), say("Then so.", call("transfer_to_c")), "done"],
            "C": [call("transfer_to_a")],
        }
    )
    a = Agent("A", handoffs=[handoff(Agent("B"), needs_approval=True), Agent("C", handoffs=["A"])])
    runner = Runner(a, model=model)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, {"approved": False, "reason": "B is ill"})

    def read(index: int) -> str:
        return repr(list(model.requests[index].messages))

    assert "B is ill" in read(1)
    for index in (2, 3):
        assert "transfer_to_b" not in read(index)
        assert "B is ill" not in read(index)
        assert "Let me try." in read(index)
    assert "B is ill" in "".join(text_of(message.content) for message in result.messages)
    (returned,) = [
        each for each in result.events if isinstance(each, ToolReturned) and each.tool_name == "transfer_to_b"
    ]
    assert returned.is_error


async def test_tools_beside_it_run_once_and_keep_their_results() -> None:
    # H14, DESIGN §4 clauses 1 and 4
    office = Office([call("transfer_to_b"), call("file", name="x"), call("transfer_to_c")])
    suspended = await office.runner.run("hi")
    assert transcript(suspended.events)[2:-1] == snapshot(
        [
            'A: called transfer_to_b({}) + file({"name":"x"}) + transfer_to_c({})',
            "A: file -> filed x",
            "A: transfer_to_c failed -> Not transferred to [C]: only one transfer is followed per response, and that is the one to [B].",  # noqa: E501
            'A: asked {"kind":"approval","handoff":"B","input":null} about transfer_to_b({})',
        ]
    )
    result = await office.runner.resume(suspended.run_id, True)
    assert (result.agent, office.done) == ("B", ["file x"])
    assert "For context: [A] `file` tool returned result: filed x." in texts(office, 1)


async def test_an_approval_of_a_tool_and_one_of_a_handoff_survive_being_stored() -> None:
    # H14, D2, D5, DESIGN §4 clause 3: one after the other, each in another process, and everything once.
    done = Keeper()

    def office(*steps: Any) -> Office:
        made = Office(*steps, input_type=Ticket, on_handoff=done)
        made.done = done
        return made

    wish = call("transfer_to_b", subject="rent")
    first = await office([wish, call("pay", euro=5), call("file", name="x")]).runner.run("hi")
    assert [question.payload["kind"] for question in first.interrupts] == ["approval"]
    assert first.interrupts[0].payload["tool"] == "pay"
    assert done == ["file x"]

    second = await office().takes_over(first, {first.interrupts[0].id: Approval(True, arguments={"euro": 4})})
    assert [question.payload["handoff"] for question in second.interrupts] == ["B"]
    assert done == ["file x", "pay 4"]

    last = office()
    third = await last.takes_over(second, {second.interrupts[0].id: True})
    assert (third.status, third.output, done) == ("completed", "B is done", ["file x", "pay 4", Ticket(subject="rent")])
    assert [request.agent for request in last.model.requests] == ["B"]
    assert transcript(third.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            'A: called transfer_to_b({"subject":"rent"}) + pay({"euro":5}) + file({"name":"x"})',
            "A: step needs_approval -> true",
            'A: asked {"kind":"approval","tool":"pay","arguments":{"euro":5}} about pay({"euro":5})',
            "A: file -> filed x",
            "run suspended with 1 open question",
            "run resumed",
            'A: got the answer {"approved":true,"arguments":{"euro":4}}',
            "A: pay -> paid 4",
            'A: asked {"kind":"approval","handoff":"B","input":{"subject":"rent","urgency":1}} about transfer_to_b({"subject":"rent"})',  # noqa: E501
            "run suspended with 1 open question",
            "run resumed",
            'A: got the answer {"approved":true}',
            "A: step on_handoff -> null",
            'A: transfer_to_b -> {"assistant":"B"}',
            'A → B with {"subject":"rent","urgency":1}',
            "A finished",
            "B started",
            'B: said "B is done"',
            "B finished",
            "run completed",
        ]
    )


# --- who is asked, and when


async def test_nobody_is_asked_about_input_that_does_not_fit() -> None:
    # H6, H14
    office = Office(call("transfer_to_b", subject=7), call("transfer_to_b", subject="rent"), input_type=Ticket)
    suspended = await office.runner.run("hi")
    assert len([event for event in suspended.events if isinstance(event, InterruptRaised)]) == 1
    assert len(office.model.requests) == 2


@pytest.mark.parametrize("policy", ["first", "last"])
async def test_nobody_is_asked_about_a_handoff_that_lost(policy: str) -> None:
    # H8, H14
    calls = [call("transfer_to_c"), call("transfer_to_b")]
    office = Office(calls if policy == "first" else calls[::-1], multiple_transfers=policy)
    result = await office.runner.run("hi")
    assert (result.status, result.agent) == ("completed", "C")


async def test_nobody_is_asked_about_an_edge_that_is_off() -> None:
    # H7, H14
    office = Office(call("transfer_to_b"), "I stay", is_enabled=False)
    assert (await office.runner.run("hi")).output == "I stay"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_predicate_decides_once_with_the_input(is_async: bool) -> None:
    # H14, D5: what it said when the question was asked stands.
    asked: list[Any] = []

    def is_urgent(ctx: RunContext[Any], given: Ticket) -> bool:
        asked.append((ctx.agent, given))
        return given.urgency > 3 and len(asked) == 1

    async def is_urgent_later(ctx: RunContext[Any], given: Ticket) -> bool:
        return is_urgent(ctx, given)

    predicate = is_urgent_later if is_async else is_urgent
    urgent = call("transfer_to_b", subject="x", urgency=4)
    office = Office(urgent, "I stay", input_type=Ticket, needs_approval=predicate)
    suspended = await office.runner.run("hi")
    assert asked == [("A", Ticket(subject="x", urgency=4))]
    again = await office.runner.resume(suspended.run_id)
    assert (again.status, len(asked)) == ("suspended", 1)
    assert (await office.runner.resume(suspended.run_id, False)).output == "I stay"
    assert len(asked) == 1

    calm = Office(call("transfer_to_b", subject="x", urgency=1), input_type=Ticket, needs_approval=predicate)
    assert (await calm.runner.run("hi")).agent == "B"


async def test_a_person_may_change_the_input() -> None:
    # H14, D2
    done = Keeper()
    office = Office(call("transfer_to_b", subject="rent"), input_type=Ticket, on_handoff=done)
    suspended = await office.runner.run("hi")
    result = await office.runner.resume(suspended.run_id, Approval(True, arguments={"subject": "heating"}))
    assert done == [Ticket(subject="heating")]
    (transferred,) = [event for event in result.events if isinstance(event, ControlTransferred)]
    assert transferred.payload == {"subject": "heating", "urgency": 1}


async def test_what_a_person_changes_must_fit_too() -> None:
    # H6, H14
    done = Keeper()
    office = Office(call("transfer_to_b", subject="rent"), "I stay", input_type=Ticket, on_handoff=done)
    suspended = await office.runner.run("hi")
    result = await office.runner.resume(suspended.run_id, Approval(True, arguments={"subject": 7}))
    assert (result.agent, done) == ("A", [])
    assert "subject: Input should be a valid string" in texts(office, 1)[-1]


@pytest.mark.parametrize("answer", ["yes", 1, {"approve": True}, {"approved": "yes"}])
async def test_an_answer_that_is_none_changes_nothing(answer: Any) -> None:
    # H14, D4
    office = Office(call("transfer_to_b"))
    suspended = await office.runner.run("hi")
    with pytest.raises(AnswerError):
        await office.runner.resume(suspended.run_id, answer)
    assert (await office.runner.resume(suspended.run_id, True)).agent == "B"


async def test_hooks_are_told_of_the_question_once() -> None:
    # H12, H14
    told: list[Any] = []

    class Noting(RunHooks):
        def on_interrupt(self, ctx: RunContext[Any], interrupt: Interrupt) -> None:
            told.append(interrupt.payload["handoff"])

        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            told.append((from_agent.name, to_agent.name))

    office = Office(call("transfer_to_b"), hooks=Noting())
    suspended = await office.runner.run("hi")
    again = await office.runner.resume(suspended.run_id)
    assert (again.status, told) == ("suspended", ["B"])
    await office.runner.resume(suspended.run_id, True)
    assert told == ["B", ("A", "B")]


async def test_the_rest_is_streamed_and_every_event_has_its_sender() -> None:
    # H14, T22, T28
    office = Office(call("transfer_to_b"))
    suspended = await office.runner.run("hi")
    async with office.runner.stream_resume(suspended.run_id, True) as live:
        senders = [(type(event).__name__, event.agent) async for event in live]
    assert senders == snapshot(
        [
            ("RunResumed", ""),
            ("InterruptAnswered", "A"),
            ("ToolReturned", "A"),
            ("ControlTransferred", "A"),
            ("AgentFinished", "A"),
            ("AgentStarted", "B"),
            ("AgentResponded", "B"),
            ("AgentFinished", "B"),
            ("RunCompleted", ""),
        ]
    )


async def test_a_predicate_that_fails_ends_the_run_which_can_be_resumed() -> None:
    # H13, H14
    tries: list[str] = []

    def fragile(ctx: RunContext[Any], given: Any) -> bool:
        tries.append("asked")
        if len(tries) == 1:
            raise LookupError("no rules")
        return False

    office = Office([call("file", name="x"), call("transfer_to_b")], needs_approval=fragile)
    live = office.runner.stream("hi")
    with pytest.raises(LookupError, match="no rules"):
        await live._drive()
    result = await office.runner.resume(live.run_id)
    assert (result.agent, office.done) == ("B", ["file x"])
    assert len([event for event in result.events if isinstance(event, AgentResponded)]) == 2


# --- questions beside the approval


async def test_a_rejection_counts_also_if_the_target_had_a_question() -> None:
    # H14, H15, D1: the answer to one question is not the answer to another.
    async def accepts(ctx: RunContext[Any], payload: Any) -> bool:
        return await ctx.interrupt("is B there?")

    model = ScriptedModel({"A": [call("transfer_to_b"), "I stay"], "B": ["B is here"]})
    edge = handoff(Agent("B", accepts=accepts), needs_approval=True)
    runner = Runner(Agent("A", handoffs=[edge]), model=model)
    first = await runner.run("hi", run_id="r")
    assert [question.payload for question in first.interrupts] == ["is B there?"]
    second = await runner.resume("r", True)
    assert [question.payload["kind"] for question in second.interrupts] == ["approval"]
    result = await runner.resume("r", {"approved": False, "reason": "no"})
    assert result.output == "I stay"


async def test_a_rejection_counts_also_if_the_predicate_had_a_question() -> None:
    # H14, D1
    async def on_demand(ctx: RunContext[Any], payload: Any) -> bool:
        return await ctx.interrupt("must it be approved?")

    office = Office(call("transfer_to_b"), "I stay", needs_approval=on_demand)
    await office.runner.run("hi", run_id="r")
    second = await office.runner.resume("r", True)
    assert [question.payload["kind"] for question in second.interrupts] == ["approval"]
    assert (await office.runner.resume("r", False)).output == "I stay"
