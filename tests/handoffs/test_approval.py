"""Handoffs that a person must approve; recorded steps are not repeated after the answer."""

from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from batonkit import Agent, Approval, RunContext, Runner, RunResult, handoff, tool
from batonkit.agents import RunHooks
from batonkit.errors import AnswerError
from batonkit.log import AgentResponded, ControlTransferred, InterruptRaised, ToolReturned, decode_log, encode_log
from batonkit.messages import text_of
from batonkit.runs import HandoffRules, Interrupt
from batonkit.testing import ScriptedModel, call, say, transcript


class Ticket(BaseModel):
    """A support case."""

    subject: str
    urgency: int = 1


class Recorder(list[Any]):
    """An `on_handoff` callback that records its input, or its name if there is none."""

    def __call__(self, ctx: RunContext[Any], *given: Any) -> None:
        self.append(given[0] if given else "on_handoff")


class Scenario:
    """A team in which `A` plays these steps and can hand off to `B` or `C`; `calls` records executed tools."""

    def __init__(self, *steps: Any, multiple_transfers: Any = "first", hooks: Any = None, **edge: Any) -> None:
        self.calls: list[str] = []

        @tool
        async def file(name: str) -> str:
            """File something."""
            self.calls.append(f"file {name}")
            return f"filed {name}"

        @tool(needs_approval=True)
        async def pay(euro: int) -> str:
            """Pay."""
            self.calls.append(f"pay {euro}")
            return f"paid {euro}"

        self.model = ScriptedModel({"A": steps, "B": ["B is done"], "C": ["C is done"]})
        edge.setdefault("needs_approval", True)
        edges = [handoff(Agent("B"), **edge), Agent("C")]
        a = Agent("A", tools=[file, pay], handoffs=edges)
        self.runner = Runner(
            a, model=self.model, handoff_rules=HandoffRules(multiple_transfers=multiple_transfers), hooks=hooks
        )

    async def resume_log(self, result: RunResult[Any], answers: Any) -> RunResult[Any]:
        """Resume a run of another scenario from its encoded log."""
        run_id = await self.runner.runs.load(decode_log(encode_log(result.events)))
        return await self.runner.resume(run_id, answers)


def request_texts(scenario: Scenario, index: int) -> list[str]:
    """Return the texts of the messages in a request."""
    return [text_of(message.content) for message in scenario.model.requests[index].messages]


async def test_a_handoff_waits_for_approval_and_then_happens_once() -> None:
    scenario = Scenario(call("transfer_to_b", subject="rent"), input_type=Ticket)
    suspended = await scenario.runner.run("hi")
    assert (suspended.status, suspended.agent) == ("suspended", "A")
    (question,) = suspended.interrupts
    assert (question.agent, question.path) == ("A", ("A",))
    assert question.payload == {"kind": "approval", "handoff": "B", "input": {"subject": "rent", "urgency": 1}}
    assert question.tool_call is not None
    assert question.tool_call.name == "transfer_to_b"
    result = await scenario.runner.resume(suspended.run_id, True)
    assert (result.agent, result.output) == ("B", "B is done")
    assert [request.agent for request in scenario.model.requests] == ["A", "B"]
    assert len([event for event in result.events if isinstance(event, ControlTransferred)]) == 1


async def test_on_handoff_is_called_after_the_approval() -> None:
    recorded = Recorder()
    scenario = Scenario(call("transfer_to_b"), on_handoff=recorded)
    suspended = await scenario.runner.run("hi")
    assert recorded == []
    await scenario.runner.resume(suspended.run_id, True)
    assert recorded == ["on_handoff"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (False, "Not transferred to [B]: it was not approved"),
        ({"approved": False, "reason": "B is ill"}, "Not transferred to [B]: B is ill"),
        (Approval(False, reason="B is ill"), "Not transferred to [B]: B is ill"),
    ],
)
async def test_the_model_gets_the_reason_of_a_rejection(answer: Any, expected: str) -> None:
    recorded = Recorder()
    scenario = Scenario(call("transfer_to_b"), "I stay", on_handoff=recorded)
    suspended = await scenario.runner.run("hi")
    result = await scenario.runner.resume(suspended.run_id, answer)
    assert (result.agent, result.output, recorded) == ("A", "I stay", [])
    assert request_texts(scenario, 1)[-1] == expected
    assert not any(isinstance(event, ControlTransferred) for event in result.events)


async def test_a_rejected_handoff_is_visible_only_in_the_next_request() -> None:
    # Neither other agents nor the agent itself see it after the next transfer.
    model = ScriptedModel(
        {
            "A": [say("Let me try.", call("transfer_to_b")), say("Then C.", call("transfer_to_c")), "done"],
            "C": [call("transfer_to_a")],
        }
    )
    a = Agent("A", handoffs=[handoff(Agent("B"), needs_approval=True), Agent("C", handoffs=["A"])])
    runner = Runner(a, model=model)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, {"approved": False, "reason": "B is ill"})

    def messages_of(index: int) -> str:
        return repr(list(model.requests[index].messages))

    assert "B is ill" in messages_of(1)
    for index in (2, 3):
        assert "transfer_to_b" not in messages_of(index)
        assert "B is ill" not in messages_of(index)
        assert "Let me try." in messages_of(index)
    assert "B is ill" in "".join(text_of(message.content) for message in result.messages)
    (returned,) = [
        each for each in result.events if isinstance(each, ToolReturned) and each.tool_name == "transfer_to_b"
    ]
    assert returned.is_error


async def test_tools_called_with_the_handoff_run_once() -> None:
    scenario = Scenario([call("transfer_to_b"), call("file", name="x"), call("transfer_to_c")])
    suspended = await scenario.runner.run("hi")
    assert transcript(suspended.events)[2:-1] == snapshot(
        [
            'A: called transfer_to_b({}) + file({"name":"x"}) + transfer_to_c({})',
            "A: file -> filed x",
            "A: transfer_to_c failed -> Not transferred to [C]: only one transfer is followed per response, and that is the one to [B].",  # noqa: E501
            'A: asked {"kind":"approval","handoff":"B","input":null} about transfer_to_b({})',
        ]
    )
    result = await scenario.runner.resume(suspended.run_id, True)
    assert (result.agent, scenario.calls) == ("B", ["file x"])
    assert "For context: [A] `file` tool returned result: filed x." in request_texts(scenario, 1)


async def test_approvals_of_a_tool_and_a_handoff_can_be_answered_in_other_processes() -> None:
    # Every step runs once.
    recorded = Recorder()

    def make_scenario(*steps: Any) -> Scenario:
        scenario = Scenario(*steps, input_type=Ticket, on_handoff=recorded)
        scenario.calls = recorded
        return scenario

    transfer = call("transfer_to_b", subject="rent")
    first = await make_scenario([transfer, call("pay", euro=5), call("file", name="x")]).runner.run("hi")
    assert [question.payload["kind"] for question in first.interrupts] == ["approval"]
    assert first.interrupts[0].payload["tool"] == "pay"
    assert recorded == ["file x"]

    second = await make_scenario().resume_log(first, {first.interrupts[0].id: Approval(True, arguments={"euro": 4})})
    assert [question.payload["handoff"] for question in second.interrupts] == ["B"]
    assert recorded == ["file x", "pay 4"]

    last = make_scenario()
    third = await last.resume_log(second, {second.interrupts[0].id: True})
    assert (third.status, third.output, recorded) == (
        "completed",
        "B is done",
        ["file x", "pay 4", Ticket(subject="rent")],
    )
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
            'A: pay({"euro": 4}) -> paid 4',
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


# --- when approval is requested


async def test_invalid_input_is_refused_before_approval_is_requested() -> None:
    scenario = Scenario(call("transfer_to_b", subject=7), call("transfer_to_b", subject="rent"), input_type=Ticket)
    suspended = await scenario.runner.run("hi")
    assert len([event for event in suspended.events if isinstance(event, InterruptRaised)]) == 1
    assert len(scenario.model.requests) == 2


@pytest.mark.parametrize("policy", ["first", "last"])
async def test_no_approval_is_requested_for_a_handoff_that_is_not_followed(policy: str) -> None:
    calls = [call("transfer_to_c"), call("transfer_to_b")]
    scenario = Scenario(calls if policy == "first" else calls[::-1], multiple_transfers=policy)
    result = await scenario.runner.run("hi")
    assert (result.status, result.agent) == ("completed", "C")


async def test_no_approval_is_requested_for_a_disabled_handoff() -> None:
    scenario = Scenario(call("transfer_to_b"), "I stay", is_enabled=False)
    assert (await scenario.runner.run("hi")).output == "I stay"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_needs_approval_function_is_called_once_with_the_input(is_async: bool) -> None:
    # Its first result applies.
    asked: list[Any] = []

    def is_urgent(ctx: RunContext[Any], given: Ticket) -> bool:
        asked.append((ctx.agent, given))
        return given.urgency > 3 and len(asked) == 1

    async def is_urgent_later(ctx: RunContext[Any], given: Ticket) -> bool:
        return is_urgent(ctx, given)

    predicate = is_urgent_later if is_async else is_urgent
    urgent = call("transfer_to_b", subject="x", urgency=4)
    scenario = Scenario(urgent, "I stay", input_type=Ticket, needs_approval=predicate)
    suspended = await scenario.runner.run("hi")
    assert asked == [("A", Ticket(subject="x", urgency=4))]
    unanswered = await scenario.runner.resume(suspended.run_id)
    assert (unanswered.status, len(asked)) == ("suspended", 1)
    assert (await scenario.runner.resume(suspended.run_id, False)).output == "I stay"
    assert len(asked) == 1

    not_urgent = Scenario(call("transfer_to_b", subject="x", urgency=1), input_type=Ticket, needs_approval=predicate)
    assert (await not_urgent.runner.run("hi")).agent == "B"


async def test_an_approval_can_change_the_input() -> None:
    recorded = Recorder()
    scenario = Scenario(call("transfer_to_b", subject="rent"), input_type=Ticket, on_handoff=recorded)
    suspended = await scenario.runner.run("hi")
    result = await scenario.runner.resume(suspended.run_id, Approval(True, arguments={"subject": "heating"}))
    assert recorded == [Ticket(subject="heating")]
    (transferred,) = [event for event in result.events if isinstance(event, ControlTransferred)]
    assert transferred.payload == {"subject": "heating", "urgency": 1}


async def test_input_changed_by_an_approval_is_validated() -> None:
    recorded = Recorder()
    scenario = Scenario(call("transfer_to_b", subject="rent"), "I stay", input_type=Ticket, on_handoff=recorded)
    suspended = await scenario.runner.run("hi")
    result = await scenario.runner.resume(suspended.run_id, Approval(True, arguments={"subject": 7}))
    assert (result.agent, recorded) == ("A", [])
    assert "subject: Input should be a valid string" in request_texts(scenario, 1)[-1]


async def test_the_target_can_decline_input_that_an_approval_changed() -> None:
    seen: list[str] = []

    def accepts(ctx: RunContext[Any], ticket: Ticket) -> bool | str:
        seen.append(ticket.subject)
        return ticket.subject == "rent" or "only rent"

    recorded = Recorder()
    model = ScriptedModel({"A": [call("transfer_to_b", subject="rent"), "I stay"], "B": ["B is here"]})
    edge = handoff(Agent("B", accepts=accepts), needs_approval=True, input_type=Ticket, on_handoff=recorded)
    runner = Runner(Agent("A", handoffs=[edge]), model=model)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, Approval(True, arguments={"subject": "heating"}))
    assert (result.output, recorded, seen) == ("I stay", [], ["rent", "heating"])
    assert text_of(model.requests[-1].messages[-1].content) == "Not transferred: [B] declined: only rent"
    assert (await runner.runs.replay(result.events)).output == "I stay"
    assert seen == ["rent", "heating"]


@pytest.mark.parametrize("answer", ["yes", 1, {"approve": True}, {"approved": "yes"}])
async def test_an_invalid_answer_is_refused_and_changes_nothing(answer: Any) -> None:
    scenario = Scenario(call("transfer_to_b"))
    suspended = await scenario.runner.run("hi")
    with pytest.raises(AnswerError):
        await scenario.runner.resume(suspended.run_id, answer)
    assert (await scenario.runner.resume(suspended.run_id, True)).agent == "B"


async def test_hooks_are_called_once_for_the_interrupt() -> None:
    recorded: list[Any] = []

    class RecordingHooks(RunHooks):
        def on_interrupt(self, ctx: RunContext[Any], interrupt: Interrupt) -> None:
            recorded.append(interrupt.payload["handoff"])

        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            recorded.append((from_agent.name, to_agent.name))

    scenario = Scenario(call("transfer_to_b"), hooks=RecordingHooks())
    suspended = await scenario.runner.run("hi")
    unanswered = await scenario.runner.resume(suspended.run_id)
    assert (unanswered.status, recorded) == ("suspended", ["B"])
    await scenario.runner.resume(suspended.run_id, True)
    assert recorded == ["B", ("A", "B")]


async def test_a_resumed_run_is_streamed_with_the_agent_of_every_event() -> None:
    scenario = Scenario(call("transfer_to_b"))
    suspended = await scenario.runner.run("hi")
    async with scenario.runner.stream_resume(suspended.run_id, True) as live:
        agents = [(type(event).__name__, event.agent) async for event in live]
    assert agents == snapshot(
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


async def test_a_run_whose_needs_approval_function_fails_can_be_resumed() -> None:
    attempts: list[str] = []

    def fail_once(ctx: RunContext[Any], given: Any) -> bool:
        attempts.append("asked")
        if len(attempts) == 1:
            raise LookupError("no rules")
        return False

    scenario = Scenario([call("file", name="x"), call("transfer_to_b")], needs_approval=fail_once)
    live = scenario.runner.stream("hi")
    with pytest.raises(LookupError, match="no rules"):
        await live._drive()
    result = await scenario.runner.resume(live.run_id)
    assert (result.agent, scenario.calls) == ("B", ["file x"])
    assert len([event for event in result.events if isinstance(event, AgentResponded)]) == 2


# --- other interrupts of the same handoff


async def test_a_handoff_can_be_rejected_after_accepts_has_interrupted() -> None:
    # An answer applies to one interrupt only.
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


async def test_a_handoff_can_be_rejected_after_needs_approval_has_interrupted() -> None:
    async def ask_first(ctx: RunContext[Any], payload: Any) -> bool:
        return await ctx.interrupt("must it be approved?")

    scenario = Scenario(call("transfer_to_b"), "I stay", needs_approval=ask_first)
    await scenario.runner.run("hi", run_id="r")
    second = await scenario.runner.resume("r", True)
    assert [question.payload["kind"] for question in second.interrupts] == ["approval"]
    assert (await scenario.runner.resume("r", False)).output == "I stay"
