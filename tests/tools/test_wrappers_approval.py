"""Asking a person first."""

import asyncio
from collections.abc import Callable, Mapping
from time import time
from typing import Any

import msgspec
import pytest
from tests.loop_clock import FrozenLoopClock

from batonkit import Agent, LoopAgent, Runner
from batonkit.context import RunContext
from batonkit.context.run_context import SuspendRun
from batonkit.errors import AnswerError, SetupError
from batonkit.log import Event, InterruptAnswered, InterruptRaised, ToolReturned, decode_log, encode_log
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import ToolCall, ToolSpec, text_of
from batonkit.testing import ScriptedModel, call, transfer_to
from batonkit.tools import Approval, ToolResult, tool
from batonkit.tools.base_tool import unwrap_tool
from batonkit.tools.wrappers import APPROVED_FOR_GOOD, ApprovalTool, parse_approval

Ctx = RunContext[Any]
MakeContext = Callable[..., Ctx]
PAY = '{"amount": 120}'


@tool(needs_approval=True)
async def pay(amount: int, to: str = "Ada") -> str:
    """Pay a person."""
    return f"paid {amount} to {to}"


def answered(events: list[Event], answers: Mapping[str, Any] | Any) -> list[Event]:
    """The log as a store gives it back, with an answer to every open question, or to those named."""
    log = decode_log(encode_log(events))
    for asked in [event for event in log if isinstance(event, InterruptRaised)]:
        if isinstance(answers, dict) and asked.key in answers:
            log.append(InterruptAnswered(f"{asked.key}!", RUN_ORIGIN, time(), asked.key, answers[asked.key]))
        elif not isinstance(answers, dict) or "approved" in answers:
            log.append(InterruptAnswered(f"{asked.key}!", RUN_ORIGIN, time(), asked.key, msgspec.to_builtins(answers)))
    return decode_log(encode_log(log))


async def asked_by(ctx: Ctx, made: Any, arguments: str) -> InterruptRaised:
    with pytest.raises(SuspendRun):
        await made.call(ctx, arguments)
    asked = ctx._run.log.events[-1]
    assert isinstance(asked, InterruptRaised)
    return asked


async def test_it_asks_and_does_nothing(ctx: Ctx) -> None:
    asked = await asked_by(ctx, pay, PAY)
    assert asked.payload == {"kind": "approval", "tool": "pay", "arguments": {"amount": 120}}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (True, ToolResult("paid 120 to Ada")),
        (Approval(True), ToolResult("paid 120 to Ada")),
        (
            {"approved": True, "arguments": {"amount": 5, "to": "Eve"}},
            ToolResult("paid 5 to Eve", edited_arguments='{"amount": 5, "to": "Eve"}'),
        ),
        (
            Approval(True, arguments={"amount": 5}),
            ToolResult("paid 5 to Ada", edited_arguments='{"amount": 5}'),
        ),
        (
            False,
            ToolResult(
                "This call of `pay` was not approved. Do not call it again with the same arguments.", is_error=True
            ),
        ),
        (
            Approval(False, reason="over budget"),
            ToolResult("This call of `pay` was not approved: over budget", is_error=True),
        ),
    ],
)
async def test_the_answer_decides(answer: Any, outcome: ToolResult, ctx: Ctx, make_context: MakeContext) -> None:
    await asked_by(ctx, pay, PAY)
    assert await pay.call(make_context(answered(ctx._run.log.events, answer)), PAY) == outcome


async def test_arguments_a_person_got_wrong_are_not_blamed_on_the_model(ctx: Ctx, make_context: MakeContext) -> None:
    await asked_by(ctx, pay, PAY)
    edited = Approval(True, arguments={"amount": "much"})
    outcome = await pay.call(make_context(answered(ctx._run.log.events, edited)), PAY)
    assert outcome.is_error
    assert outcome.edited_arguments == '{"amount": "much"}'
    assert "`amount`: Input should be a valid integer" in text_of(outcome.content)


async def test_invalid_arguments_need_no_approval(ctx: Ctx) -> None:
    outcome = await pay.call(ctx, '{"amount": "much"}')
    assert outcome.is_error
    assert "`amount`: Input should be a valid integer" in text_of(outcome.content)
    assert ctx._run.log.events == []


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_can_decide_whether_to_ask(is_async: bool, make_context: MakeContext) -> None:
    def is_much(ctx: Ctx, arguments: dict[str, Any]) -> bool:
        # What it is given is validated and has the defaults.
        return arguments["amount"] > 100 or arguments["to"] != "Ada"

    async def is_much_later(ctx: Ctx, arguments: dict[str, Any]) -> bool:
        return is_much(ctx, arguments)

    careful = tool(pay.function, needs_approval=is_much_later if is_async else is_much)
    assert await careful.call(make_context(), '{"amount": "99"}') == ToolResult("paid 99 to Ada")
    await asked_by(make_context(), careful, '{"amount": "101"}')
    await asked_by(make_context(), careful, '{"amount": 1, "to": "Eve"}')


async def test_a_rejection_holds_even_if_the_function_changes_its_mind(ctx: Ctx, make_context: MakeContext) -> None:
    verdicts = [True, False]
    fickle = tool(pay.function, needs_approval=lambda ctx, arguments: verdicts.pop(0))
    await asked_by(ctx, fickle, PAY)
    outcome = await fickle.call(make_context(answered(ctx._run.log.events, False)), PAY)
    assert outcome.is_error


async def test_always_is_for_this_tool_and_the_rest_of_the_run(ctx: Ctx, make_context: MakeContext) -> None:
    await asked_by(ctx, pay, PAY)
    resumed = make_context(answered(ctx._run.log.events, Approval(True, always=True)))
    assert await pay.call(resumed, PAY) == ToolResult("paid 120 to Ada")
    # The changes are recorded with the result.
    changes = resumed.values._take_changes()
    assert changes is not None
    assert changes.written == {APPROVED_FOR_GOOD + '["A","pay"]': resumed.run_id}
    later = make_context(run=resumed._run, scope="1/m2.0")
    assert await pay.call(later, PAY) == ToolResult("paid 120 to Ada")
    other = tool(pay.function, name="pay_twice", needs_approval=True)
    await asked_by(make_context(run=resumed._run, scope="1/m2.1"), other, PAY)


ALWAYS = Approval(True, always=True)


async def test_always_is_for_the_agent_that_asked() -> None:
    # Approving one agent's `pay` approved another agent's tool of that name.
    @tool(name="pay", needs_approval=True)
    async def pay_anyone(amount: int) -> str:
        return f"sent {amount}"

    pay_1, pay_2 = call("pay", amount=1), call("pay", amount=2)
    model = ScriptedModel({"Clerk": [pay_1, pay_2, transfer_to("Stranger")], "Stranger": [pay_1, "done"]})
    team = Agent("Clerk", tools=[pay], sub_agents=[Agent("Stranger", tools=[pay_anyone])])
    runner = Runner(team, model=model)
    asked = await runner.run("hi")
    again = await runner.resume(asked.run_id, ALWAYS)
    assert [interrupt.agent for interrupt in again.interrupts] == ["Stranger"]
    assert (await runner.resume(again.run_id, True)).output == "done"


async def test_always_is_for_the_place_of_a_nested_agent() -> None:
    # The same agent inside another one is asked about again, but each call of it by the same agent is not.
    model = ScriptedModel(
        {
            "Boss": [call("payer", request="1"), call("payer", request="2"), transfer_to("Deputy")],
            "Deputy": [call("payer", request="3"), "done"],
            "Payer": [call("pay", amount=1), "paid", call("pay", amount=2), "paid", call("pay", amount=3), "paid"],
        }
    )
    payer = Agent("Payer", tools=[pay])
    deputy = Agent("Deputy", tools=[payer.as_tool()])
    runner = Runner(Agent("Boss", tools=[payer.as_tool()], sub_agents=[deputy]), model=model)
    asked = await runner.run("hi")
    again = await runner.resume(asked.run_id, ALWAYS)
    assert [interrupt.path for interrupt in again.interrupts] == [("Boss", "Deputy", "Payer")]
    assert (await runner.resume(again.run_id, True)).output == "done"


async def test_always_lasts_through_the_rounds_of_a_workflow() -> None:
    # The place is made of agents, not of their activations.
    model = ScriptedModel({"First": ["ready"], "Payer": [call("pay", amount=1), "paid"]}, cycle=True)
    steps = [Agent("First"), Agent("Payer", tools=[pay])]
    runner = Runner(LoopAgent("Rounds", sub_agents=steps, max_iterations=3), model=model)
    asked = await runner.run("hi")
    done = await runner.resume(asked.run_id, ALWAYS)
    assert done.status == "completed"
    assert list(done.values) == [APPROVED_FOR_GOOD + '["Rounds","Payer","pay"]']


async def test_always_does_not_answer_a_question_already_asked(ctx: Ctx, make_context: MakeContext) -> None:
    # Partial answers; the rest stays open, also when both calls are of one tool and one turn.
    first = await asked_by(ctx, pay, PAY)
    await asked_by(make_context(run=ctx._run, scope="1/m1.1"), pay, PAY)
    log = answered(ctx._run.log.events, {first.key: {"approved": True, "always": True}})
    resumed = make_context(log)
    assert not (await pay.call(resumed, PAY)).is_error
    with pytest.raises(SuspendRun):
        await pay.call(make_context(run=resumed._run, scope="1/m1.1"), PAY)


async def test_the_time_before_the_tool_runs_does_not_count(ctx: Ctx) -> None:
    clock = FrozenLoopClock()

    async def ask_the_boss(ctx: Ctx, arguments: dict[str, Any]) -> bool:
        clock.advance(60)
        for _ in range(3):
            await asyncio.sleep(0)
        return True

    careful = tool(pay.function, needs_approval=ask_the_boss, timeout=60)
    await asked_by(ctx, careful, PAY)


async def test_a_tool_can_ask_more_after_it_was_approved(ctx: Ctx, make_context: MakeContext) -> None:
    @tool(needs_approval=True)
    async def book(ctx: Ctx) -> str:
        return f"seat {await ctx.interrupt('which seat?')}"

    await asked_by(ctx, book, "")
    resumed = make_context(answered(ctx._run.log.events, True))
    second = await asked_by(resumed, book, " ")
    assert second.payload == "which seat?"
    whole = make_context(answered(resumed._run.log.events, {second.key: "12A"}))
    assert await book.call(whole, "") == ToolResult("seat 12A")


@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        1,
        None,
        {},
        {"approved": "yes"},
        {"approved": True, "resaon": "typo"},
        {"approved": True, "arguments": []},
    ],
)
def test_other_answers_are_refused_with_what_would_work(answer: Any) -> None:
    with pytest.raises(
        AnswerError, match=r"does not approve or reject a call.*True or False, Approval\(…\), or a dict"
    ):
        parse_approval(answer)


def test_a_rejection_for_good_is_refused() -> None:
    with pytest.raises(AnswerError, match="leave it out of a rejection"):
        parse_approval({"approved": False, "always": True})


def test_answers_of_every_form_mean_the_same() -> None:
    whole = Approval(True, reason="fine", arguments={"a": 1}, always=True)
    assert parse_approval(whole) is whole
    assert parse_approval(msgspec.to_builtins(whole)) == whole
    assert parse_approval(True) == Approval(True)
    assert parse_approval(False) == Approval(False)


def test_a_wish_for_approval_that_means_nothing_is_found_at_once() -> None:
    with pytest.raises(SetupError, match=r"tool\('pay'\) has needs_approval='yes'; use True, False or a function"):
        tool(pay.function, needs_approval="yes")  # pyright: ignore[reportCallIssue, reportArgumentType]


class Remote:
    """A tool that cannot check its arguments."""

    spec = ToolSpec("remote")

    async def call(self, ctx: Ctx, arguments: str) -> ToolResult:
        return ToolResult(arguments)


async def test_any_tool_can_be_approved(ctx: Ctx, make_context: MakeContext) -> None:
    remote = Remote()
    careful = ApprovalTool(remote)
    assert unwrap_tool(careful) is remote
    assert careful.spec is remote.spec
    asked = await asked_by(ctx, careful, '{"a": 1}')
    assert asked.payload["arguments"] == {"a": 1}
    for answer, outcome in (
        (True, ToolResult('{"a": 1}')),
        (Approval(True, arguments={"a": 2}), ToolResult('{"a": 2}', edited_arguments='{"a": 2}')),
    ):
        assert await careful.call(make_context(answered(ctx._run.log.events, answer)), '{"a": 1}') == outcome


@pytest.mark.parametrize(("arguments", "told"), [("{", "are not JSON"), ("[]", "must be one JSON object")])
async def test_arguments_that_are_not_an_object_need_no_approval(arguments: str, told: str, ctx: Ctx) -> None:
    outcome = await ApprovalTool(Remote()).call(ctx, arguments)
    assert outcome.is_error
    assert told in text_of(outcome.content)


async def test_a_wrapper_outside_knows_the_function_inside(ctx: Ctx) -> None:
    outcome = await ApprovalTool(tool(pay.function)).call(ctx, '{"amount": "much"}')
    assert "`amount`: Input should be a valid integer" in text_of(outcome.content)


@pytest.mark.parametrize("amount", ["NaN", "-Infinity"])
async def test_arguments_that_no_question_can_show_go_back_to_the_model(amount: str) -> None:
    # The run ended with NotEncodableError.
    @tool(needs_approval=True)
    async def send(amount: float) -> str:
        return f"sent {amount:g}"

    model = ScriptedModel([ToolCall("c1", "send", f'{{"amount": {amount}}}'), call("send", amount=2), "done"])
    runner = Runner(Agent("A", model=model, tools=[send]))
    asked = await runner.run("hi")
    returned = next(event for event in asked.events if isinstance(event, ToolReturned))
    assert returned.is_error
    assert "The arguments of `send` do not fit: JSON has neither NaN nor Infinity" in text_of(returned.content)
    assert [question.payload["arguments"] for question in asked.interrupts] == [{"amount": 2}]
    assert (await runner.resume(asked.run_id, True)).output == "done"
