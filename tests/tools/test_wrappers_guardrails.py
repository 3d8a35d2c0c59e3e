"""Guardrails around tools: before a call nothing has happened, after it nothing gets out; each is asked once."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.tools.conftest import MakeContext

from batonkit import (
    Agent,
    Approval,
    GuardrailVerdict,
    RunContext,
    Runner,
    RunResult,
    SetupError,
    ToolError,
    guardrail,
    tool,
)
from batonkit.errors import (
    GuardrailFailedError,
    GuardrailTrippedError,
    NotEncodableError,
    OpenInterruptError,
    ToolFailedError,
)
from batonkit.log import StepCompleted, ToolReturned
from batonkit.log.codec import decode_log, encode_log
from batonkit.messages import Image, ToolCall, ToolSpec, text_of
from batonkit.middleware import NextToolCall, tool_middleware
from batonkit.runs import GuardrailResult
from batonkit.testing import ScriptedModel, call, transcript
from batonkit.tools import ToolResult, with_tool_guardrails
from batonkit.tools.base_tool import unwrap_tool
from batonkit.tools.wrappers import ApprovalTool


class Till:
    """A tool function with a memory."""

    def __init__(self) -> None:
        self.paid: list[float] = []

    def pay(self, amount: float, to: str = "Ada") -> str:
        """Pay."""
        self.paid.append(amount)
        return f"paid {amount:g} to {to}"


def at_most_100(ctx: RunContext[Any], arguments: dict[str, Any]) -> GuardrailVerdict:
    return GuardrailVerdict(arguments["amount"] <= 100, "too much")


def without_secrets(ctx: RunContext[Any], result: ToolResult) -> GuardrailVerdict:
    return GuardrailVerdict("secret" not in str(result.content), "it has a secret in it")


def says(ruling: Any, name: str = "judge") -> Any:
    """A guardrail that always says the same."""
    return guardrail(lambda ctx, given: ruling, name=name)


class Foreign:
    """A tool that is not made of a function."""

    def __init__(self, outcome: ToolResult | Exception) -> None:
        self.outcome = outcome
        self.calls: list[str] = []

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("foreign", "f", {"type": "object"})

    async def call(self, ctx: RunContext[Any], arguments: str) -> ToolResult:
        self.calls.append(arguments)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def results_of(result: RunResult[Any]) -> list[tuple[Any, bool]]:
    """Return the contents and error flags of the tool results."""
    return [(event.content, event.is_error) for event in result.events if isinstance(event, ToolReturned)]


# Before.


async def test_before_a_no_the_tool_has_not_run_and_the_model_is_told() -> None:
    till = Till()
    model = ScriptedModel([[call("pay", amount=500), call("pay", amount=80)], "done"])
    runner = Runner(Agent("Clerk", tools=[with_tool_guardrails(till.pay, input_guardrails=[at_most_100])], model=model))
    result = await runner.run("go")
    assert till.paid == [80]
    refused = "This call of `pay` was not made, because guardrail `at_most_100` did not pass: too much"
    assert sorted(results_of(result)) == [(refused, True), ("paid 80 to Ada", False)]
    assert sorted(result.guardrail_results, key=lambda said: said.verdict.passed) == [
        GuardrailResult("at_most_100", "tool", "Clerk", GuardrailVerdict(False, "too much")),
        GuardrailResult("at_most_100", "tool", "Clerk", GuardrailVerdict(True, "too much")),
    ]
    await runner.runs.replay(result.events)


async def test_before_raise_ends_the_run_with_nothing_done_for_good() -> None:
    till, asked = Till(), list[float]()

    def judge(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool:
        asked.append(arguments["amount"])
        return False

    model = ScriptedModel([call("pay", amount=500)])
    runner = Runner(
        Agent("Clerk", tools=[with_tool_guardrails(till.pay, input_guardrails=[judge], on_trip="raise")], model=model)
    )
    live = runner.stream("go")
    with pytest.raises(GuardrailTrippedError) as caught:
        await live._drive()
    error = caught.value
    assert (error.guardrail, error.agent, error.stage, error.tool) == ("judge", "Clerk", "tool", "pay")
    assert str(error) == "guardrail `judge` stopped a call of `pay` by `Clerk`"
    assert (live.result.status, live.result.guardrail_results) == (
        "failed",
        (GuardrailResult("judge", "tool", "Clerk", GuardrailVerdict(False)),),
    )
    with pytest.raises(GuardrailTrippedError):
        await runner.resume(live.run_id)
    assert (till.paid, asked) == ([], [500])


async def test_before_sees_the_arguments_as_the_function_will_get_them(ctx: RunContext[Any]) -> None:
    seen: list[dict[str, Any]] = []

    async def judge(ctx: RunContext[Any], arguments: dict[str, Any]) -> None:
        seen.append(arguments)
        assert ctx.tool_call is not None
        assert ctx.tool_call.id == "c"

    guarded = with_tool_guardrails(Till().pay, input_guardrails=[judge])
    assert (await guarded.call(ctx, '{"amount": "7"}')).content == "paid 7 to Ada"
    assert seen == [{"amount": 7.0, "to": "Ada"}]


async def test_arguments_that_do_not_fit_are_not_judged(make_context: MakeContext) -> None:
    function = with_tool_guardrails(till_pay := Till().pay, input_guardrails=[says(False)])
    assert callable(till_pay)
    outcome = await function.call(make_context(), '{"amount": "much"}')
    assert outcome.is_error
    assert "amount" in str(outcome.content)
    foreign = Foreign(ToolResult("x"))
    guarded = with_tool_guardrails(foreign, input_guardrails=[says(True)])
    for arguments in ("{", "[1]"):
        outcome = await guarded.call(make_context(), arguments)
        assert outcome.is_error
        assert "arguments of `foreign`" in str(outcome.content)
    # What cannot be judged is not let through either.
    assert foreign.calls == []
    assert (await guarded.call(make_context(), "")).content == "x"


async def test_several_are_asked_at_once_and_all_are_heard(ctx: RunContext[Any]) -> None:
    both = asyncio.Barrier(2)

    async def first(ctx: RunContext[Any], arguments: dict[str, Any]) -> GuardrailVerdict:
        await both.wait()
        return GuardrailVerdict(False, "one")

    async def second(ctx: RunContext[Any], arguments: dict[str, Any]) -> GuardrailVerdict:
        await both.wait()
        return GuardrailVerdict(False, "two")

    outcome = await with_tool_guardrails(Till().pay, input_guardrails=[first, second]).call(ctx, '{"amount": 1}')
    assert str(outcome.content).endswith("guardrail `first` did not pass: one")
    assert sorted(event.name for event in ctx._run.log.events if isinstance(event, StepCompleted)) == [
        "guardrail:tool:first",
        "guardrail:tool:second",
    ]


# Approval.


@pytest.mark.parametrize("passes", [True, False])
async def test_a_person_is_not_asked_for_what_a_guardrail_refuses(passes: bool) -> None:
    till, asked = Till(), list[float]()

    def judge(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool:
        asked.append(arguments["amount"])
        return passes

    pay = with_tool_guardrails(
        tool(till.pay, needs_approval=True), input_guardrails=[judge], output_guardrails=[without_secrets]
    )
    model = ScriptedModel([call("pay", amount=5), "done"])
    runner = Runner(Agent("Clerk", tools=[pay], model=model))
    result = await runner.run("go")
    if not passes:
        assert (result.status, till.paid) == ("completed", [])
        return
    assert (result.status, till.paid) == ("suspended", [])
    result = await runner.resume(result.run_id, Approval(True, arguments={"amount": 4}))
    assert (result.output, till.paid, asked) == ("done", [4], [5, 4])
    await runner.runs.replay(result.events)
    assert asked == [5, 4]


def guard_in_decorator(till: Till) -> Any:
    return tool(till.pay, needs_approval=True, input_guardrails=[at_most_100])


def guard_with_result_guardrail(till: Till) -> Any:
    return tool(till.pay, needs_approval=True, input_guardrails=[at_most_100], output_guardrails=[without_secrets])


def guard_around_tool(till: Till) -> Any:
    return with_tool_guardrails(tool(till.pay, needs_approval=True, effect="once"), input_guardrails=[at_most_100])


def guard_around_guard(till: Till) -> Any:
    inside = tool(till.pay, needs_approval=True, input_guardrails=[says(True)])
    return with_tool_guardrails(inside, input_guardrails=[at_most_100])


def guard_inside_approval(till: Till) -> Any:
    return ApprovalTool(with_tool_guardrails(till.pay, input_guardrails=[at_most_100]))


GUARDED = [
    guard_in_decorator,
    guard_with_result_guardrail,
    guard_around_tool,
    guard_around_guard,
    guard_inside_approval,
]


@pytest.mark.parametrize("make", GUARDED)
@pytest.mark.parametrize(
    "answer", [Approval(True, arguments={"amount": 500}), {"approved": True, "arguments": {"amount": 500}}]
)
async def test_arguments_that_a_person_changed_are_checked_like_those_of_the_model(make: Any, answer: Any) -> None:
    till = Till()
    runner = Runner(Agent("Clerk", tools=[make(till)], model=ScriptedModel([call("pay", amount=50), "done"])))
    asked = await runner.run("go")
    result = await runner.resume(asked.run_id, answer)
    assert (result.output, till.paid) == ("done", [])
    ((told, is_error),) = results_of(result)
    assert is_error
    assert told.endswith("This call of `pay` was not made, because guardrail `at_most_100` did not pass: too much")
    assert [said.name for said in result.guardrail_results if not said.verdict.passed] == ["at_most_100"]
    assert (await runner.runs.replay(result.events)).output == "done"


@pytest.mark.parametrize("make", GUARDED)
async def test_changed_arguments_that_pass_the_guardrail_are_executed(make: Any) -> None:
    till = Till()
    runner = Runner(Agent("Clerk", tools=[make(till)], model=ScriptedModel([call("pay", amount=50), "done"])))
    asked = await runner.run("go")
    result = await runner.resume(asked.run_id, Approval(True, arguments={"amount": 99}))
    assert (result.output, till.paid) == ("done", [99])
    assert (await runner.runs.replay(result.events)).output == "done"
    assert till.paid == [99]


async def test_the_model_reads_that_a_person_changed_the_arguments() -> None:
    model = ScriptedModel([call("pay", amount=50), "done"])
    runner = Runner(Agent("Clerk", tools=[guard_in_decorator(Till())], model=model))
    asked = await runner.run("go")
    await runner.resume(asked.run_id, Approval(True, arguments={"amount": 500}))
    told = (
        'The person who approved this call changed its arguments to {"amount": 500}.\nThis call of `pay` was not made'
    )
    assert text_of(model.requests[-1].messages[-1].content).startswith(told)


async def test_a_refused_change_can_end_the_run_and_a_resume_does_not_pass_it() -> None:
    till = Till()
    pay = with_tool_guardrails(tool(till.pay, needs_approval=True), input_guardrails=[at_most_100], on_trip="raise")
    runner = Runner(Agent("Clerk", tools=[pay], model=ScriptedModel([call("pay", amount=50), "done"])))
    asked = await runner.run("go")
    with pytest.raises(GuardrailTrippedError, match="guardrail `at_most_100` stopped a call of `pay` by `Clerk`"):
        await runner.resume(asked.run_id, Approval(True, arguments={"amount": 500}))
    with pytest.raises(GuardrailTrippedError):
        await runner.resume(asked.run_id)
    assert till.paid == []


async def test_each_change_of_a_call_that_is_approved_twice_is_checked() -> None:
    till, seen = Till(), list[float]()

    def judge(ctx: RunContext[Any], arguments: dict[str, Any]) -> None:
        seen.append(arguments["amount"])

    twice = ApprovalTool(tool(till.pay, needs_approval=True))
    guarded = with_tool_guardrails(twice, input_guardrails=[judge])
    runner = Runner(Agent("Clerk", tools=[guarded], model=ScriptedModel([call("pay", amount=1), "done"])))
    result = await runner.run("go")
    for amount in (2, 3):
        result = await runner.resume(result.run_id, Approval(True, arguments={"amount": amount}))
    assert (result.output, till.paid, seen) == ("done", [3], [1, 2, 3])
    await runner.runs.replay(result.events)
    assert seen == [1, 2, 3]


async def test_a_crash_at_any_time_after_the_answer_neither_checks_nor_pays_twice() -> None:
    till, seen = Till(), list[float]()

    def judge(ctx: RunContext[Any], arguments: dict[str, Any]) -> None:
        seen.append(arguments["amount"])

    def team(*steps: Any) -> Runner[Any, Any]:
        pay = tool(till.pay, needs_approval=True, input_guardrails=[judge])
        return Runner(Agent("Clerk", tools=[pay], model=ScriptedModel(steps)))

    runner = team(call("pay", amount=1), "done")
    asked = await runner.run("go")
    events = (await runner.resume(asked.run_id, Approval(True, arguments={"amount": 2}))).events
    keys = [event.key for event in events]
    paid, judged = keys.index("1/m1.0"), keys.index("1/m1.0/edited1/guardrail:tool:judge")
    for end in range(keys.index("1/m1.0/ask1!") + 1, paid + 2):
        till.paid.clear()
        seen.clear()
        other = team("done")
        result = await other.resume(await other.runs.load(decode_log(encode_log(events[:end]))))
        assert result.output == "done"
        assert till.paid == ([2] if end <= paid else [])
        assert seen == ([2] if end <= judged else [])


async def test_a_guardrail_may_ask_about_changed_arguments_and_write_values() -> None:
    till = Till()

    async def ask(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool:
        ctx.values.set("checked", [*ctx.values.get("checked", []), arguments["amount"]])
        return bool(await ctx.interrupt(f"really {arguments['amount']:g}?"))

    pay = tool(till.pay, needs_approval=True, input_guardrails=[ask])
    runner = Runner(Agent("Clerk", tools=[pay], model=ScriptedModel([call("pay", amount=1), "done"])))
    result = await runner.run("go")
    for answer in (True, Approval(True, arguments={"amount": 2}), True):
        result = await runner.resume(result.run_id, answer)
    assert (result.output, till.paid, result.values) == ("done", [2], {"checked": [1, 2]})
    assert (await runner.runs.replay(result.events)).values == result.values


async def test_the_context_has_the_call_that_is_executed() -> None:
    seen: list[str] = []

    def note(ctx: RunContext[Any], arguments: dict[str, Any]) -> None:
        assert ctx.tool_call is not None
        seen.append(ctx.tool_call.arguments)

    @tool(needs_approval=True, input_guardrails=[note])
    async def pay(ctx: RunContext, amount: int) -> str:
        """Pay."""
        note(ctx, {})
        return "paid"

    runner = Runner(Agent("Clerk", tools=[pay], model=ScriptedModel([call("pay", amount=1), "done"])))
    asked = await runner.run("go")
    await runner.resume(asked.run_id, Approval(True, arguments={"amount": 2}))
    assert seen == ['{"amount":1}', '{"amount": 2}', '{"amount": 2}']


async def test_arguments_that_middleware_changes_are_checked() -> None:
    till = Till()

    @tool_middleware
    async def raise_amount(ctx: RunContext, given: ToolCall, next: NextToolCall) -> ToolResult:
        await next(given)
        return await next(replace(given, arguments='{"amount": 500}'))

    pay = tool(till.pay, input_guardrails=[at_most_100])
    model = ScriptedModel([call("pay", amount=50), "done"])
    runner = Runner(Agent("Clerk", tools=[pay], model=model, middleware=[raise_amount]))
    result = await runner.run("go")
    assert till.paid == [50]
    assert "did not pass: too much" in results_of(result)[0][0]
    await runner.runs.replay(result.events)


# After.


async def test_after_a_no_the_result_is_withheld_and_the_run_goes_on() -> None:
    looked: list[str] = []

    def look_up(name: str) -> str:
        """Look up."""
        looked.append(name)
        return f"secret of {name}" if name == "Ada" else f"age of {name}"

    model = ScriptedModel([call("look_up", name="Ada"), call("look_up", name="Bob"), "done"])
    runner = Runner(
        Agent("Clerk", tools=[with_tool_guardrails(look_up, output_guardrails=[without_secrets])], model=model)
    )
    result = await runner.run("go")
    withheld = "The result of `look_up` is withheld, because guardrail `without_secrets` did not pass"
    assert results_of(result) == [(f"{withheld}: it has a secret in it", True), ("age of Bob", False)]
    assert "secret of Ada" not in str(model.requests)
    assert [said.verdict.passed for said in result.guardrail_results] == [False, True]
    await runner.runs.replay(result.events)
    assert looked == ["Ada", "Bob"]


async def test_after_raise_ends_the_run_and_a_resume_does_not_run_the_tool_again() -> None:
    till = Till()
    pay = with_tool_guardrails(till.pay, output_guardrails=[says(GuardrailVerdict(False, "no"))], on_trip="raise")
    runner = Runner(Agent("Clerk", tools=[pay], model=ScriptedModel([call("pay", amount=5)])))
    live = runner.stream("go")
    with pytest.raises(GuardrailTrippedError, match="guardrail `judge` stopped a call of `pay` by `Clerk`: no"):
        await live._drive()
    with pytest.raises(GuardrailTrippedError):
        await runner.resume(live.run_id)
    assert till.paid == [5]


async def test_after_a_verdict_is_about_the_result_that_was_judged() -> None:
    # The process ends between the verdict and the record of the call: the tool is not called again for another result.
    till = Till()

    def team() -> Runner[Any, Any]:
        pay = with_tool_guardrails(till.pay, output_guardrails=[says(True)])
        return Runner(Agent("Clerk", tools=[pay], model=ScriptedModel({"Clerk": ["done"]})))

    model = ScriptedModel([call("pay", amount=5), "done"])
    first = Runner(Agent("Clerk", tools=[with_tool_guardrails(till.pay, output_guardrails=[says(True)])], model=model))
    events = (await first.run("go")).events
    judged = next(place for place, event in enumerate(events) if event.key.endswith("guardrail:tool:judge"))
    other = team()
    run_id = await other.runs.load(decode_log(encode_log(events[: judged + 1])))
    result = await other.resume(run_id)
    assert (result.output, results_of(result), till.paid) == ("done", [("paid 5 to Ada", False)], [5])


async def test_after_a_question_of_a_guardrail_the_tool_does_not_run_again() -> None:
    till = Till()

    async def asks(ctx: RunContext[Any], result: ToolResult) -> bool:
        return bool(await ctx.interrupt(f"show {result.content}?"))

    pay = with_tool_guardrails(tool(till.pay, needs_approval=True), output_guardrails=[asks])
    runner = Runner(Agent("Clerk", tools=[pay], model=ScriptedModel([call("pay", amount=5), "done"])))
    result = await runner.run("go")
    result = await runner.resume(result.run_id, True)
    assert [each.payload for each in result.interrupts] == ["show paid 5 to Ada?"]
    result = await runner.resume(result.run_id, True)
    assert (result.output, till.paid) == ("done", [5])
    await runner.runs.replay(result.events)


async def test_after_errors_are_judged_too(make_context: MakeContext) -> None:
    def fails() -> str:
        """Fail."""
        raise OSError("the secret is 7")

    for inner in (fails, Foreign(OSError("the secret is 7")), Foreign(ToolError("the secret is 7"))):
        outcome = await with_tool_guardrails(inner, output_guardrails=[without_secrets]).call(make_context(), "{}")
        assert outcome.is_error
        assert "is withheld" in str(outcome.content)
    with pytest.raises(ToolFailedError):
        await with_tool_guardrails(tool(fails, on_error="raise"), output_guardrails=[says(True)]).call(
            make_context(), "{}"
        )


async def test_after_everything_in_a_result_comes_through(make_context: MakeContext) -> None:
    seen: list[ToolResult] = []

    def judge(ctx: RunContext[Any], result: ToolResult) -> None:
        seen.append(result)

    whole = ToolResult((Image(data=b"\x00\xff", media_type="image/png"),), is_final=True, values={"a": [1]})
    ctx = make_context()
    assert await with_tool_guardrails(Foreign(whole), output_guardrails=[judge]).call(ctx, "{}") == whole
    # And the same when it comes from the log.
    again = make_context(decode_log(encode_log(ctx._run.log.events)))
    assert (
        await with_tool_guardrails(Foreign(OSError("not again")), output_guardrails=[judge]).call(again, "{}") == whole
    )
    assert seen == [whole]
    with pytest.raises(NotEncodableError, match="the result of `foreign`"):
        await with_tool_guardrails(Foreign(ToolResult(values={"a": object()})), output_guardrails=[judge]).call(
            make_context(), "{}"
        )


async def test_values_that_the_tool_and_its_guardrails_wrote_are_kept() -> None:
    async def count(ctx: RunContext) -> str:
        """Count."""
        ctx.values.set("tool", ctx.values["before"] + 1)
        ctx.values.delete("old")
        return "counted"

    async def before(ctx: RunContext[Any], arguments: dict[str, Any]) -> None:
        ctx.values.set("before", ctx.values.get("before", 0) + 1)

    async def after(ctx: RunContext[Any], result: ToolResult) -> Any:
        ctx.values.set("after", ctx.values["tool"] + 1)
        return await ctx.interrupt("?")

    guarded = with_tool_guardrails(count, input_guardrails=[before], output_guardrails=[after])
    runner = Runner(Agent("Clerk", tools=[guarded], model=ScriptedModel([call("count"), "done"])))
    result = await runner.run("go", values={"old": 1})
    # Whether the call is not yet recorded as a whole, or is, nothing is lost.
    result = await runner.resume(result.run_id, True)
    assert result.values == {"before": 1, "tool": 2, "after": 3}
    assert (await runner.runs.replay(result.events)).values == result.values


# Transfers.


@pytest.mark.parametrize("passes", [True, False])
async def test_after_a_function_that_returns_an_agent(passes: bool) -> None:
    weather = Agent("Weather", description="w", model=ScriptedModel(["sunny"]))
    given: list[Any] = []

    def judge(ctx: RunContext[Any], result: ToolResult) -> bool:
        given.append(result.transfer_to)
        return passes

    def to_weather() -> Agent:
        return weather

    desk = Agent(
        "Desk",
        tools=[with_tool_guardrails(to_weather, output_guardrails=[judge])],
        model=ScriptedModel([call("to_weather"), "no"]),
    )
    assert desk._referenced_agents() == (weather,)
    runner = Runner(desk)
    result = await runner.run("go")
    assert (result.output, given) == ("sunny" if passes else "no", ["Weather"])
    assert (await runner.runs.replay(result.events)).output == result.output


async def test_an_output_guardrail_accepts_a_transfer_to_an_undeclared_agent() -> None:
    def to_newcomer() -> Agent:
        return Agent("Newcomer", description="n", model=ScriptedModel(["here I am"]))

    model = ScriptedModel([call("to_newcomer")])
    desk = Agent("Desk", tools=[with_tool_guardrails(to_newcomer, output_guardrails=[says(True)])], model=model)
    assert (await Runner(desk).run("go")).output == "here I am"


async def test_before_a_no_prevents_the_transfer_of_a_function() -> None:
    weather = Agent("Weather", description="w", model=ScriptedModel(["sunny"]))

    def to_weather() -> Agent:
        return weather

    for passes, output in ((True, "sunny"), (False, "no")):
        model = ScriptedModel([call("to_weather"), "no"])
        desk = Agent("Desk", tools=[with_tool_guardrails(to_weather, input_guardrails=[says(passes)])], model=model)
        assert (await Runner(desk).run("go")).output == output


# What goes wrong in a guardrail.


@pytest.mark.parametrize("where", ["input_guardrails", "output_guardrails"])
async def test_a_guardrail_that_raises_ends_the_run_and_is_named(where: str) -> None:
    cause, till = OSError("no line"), Till()

    async def broken(ctx: RunContext[Any], given: Any) -> bool:
        raise cause

    checks: dict[str, Any] = {where: [broken]}
    model = ScriptedModel([call("pay", amount=5)])
    runner = Runner(Agent("Clerk", tools=[with_tool_guardrails(till.pay, **checks)], model=model))
    with pytest.raises(GuardrailFailedError) as caught:
        await runner.run("go")
    told = "guardrail `broken` could not check a tool call by `Clerk`: it raised OSError: no line"
    assert str(caught.value) == told
    assert caught.value.__cause__ is cause
    assert till.paid == ([] if where == "input_guardrails" else [5])


@pytest.mark.parametrize(
    ("ruling", "kind"), [("no", SetupError), (GuardrailVerdict(True, info=object()), NotEncodableError)]
)
async def test_an_invalid_verdict_ends_the_run(ruling: Any, kind: type[Exception], ctx: RunContext[Any]) -> None:
    with pytest.raises(kind, match="guardrail `judge`"):
        await with_tool_guardrails(Till().pay, input_guardrails=[says(ruling)]).call(ctx, '{"amount": 1}')


# How it is put together.


def test_it_is_a_tool_around_a_tool() -> None:
    pay = tool(Till().pay, needs_approval=True)
    guarded = with_tool_guardrails(
        with_tool_guardrails(pay, input_guardrails=[at_most_100]), output_guardrails=[without_secrets]
    )
    assert unwrap_tool(guarded) is pay
    assert guarded.spec == pay.spec
    assert repr(guarded) == "GuardedTool(GuardedTool(FunctionTool('pay')))"


async def test_a_tool_without_guardrails_leaves_the_same_log() -> None:
    def run_of(pay: Any) -> Runner[Any, Any]:
        return Runner(Agent("Clerk", tools=[pay], model=ScriptedModel([call("pay", amount=1), "done"])))

    plain, guarded = await run_of(Till().pay).run("go"), await run_of(with_tool_guardrails(Till().pay)).run("go")
    assert transcript(plain.events) == transcript(guarded.events)


untyped: Any = with_tool_guardrails


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: untyped(3), r"with_tool_guardrails\(3\) has nothing to guard; give a tool or a function"),
        (lambda: untyped(Till().pay, on_trip="ask"), r"has on_trip='ask'; use \"return\" or \"raise\""),
        (
            lambda: untyped(Till().pay, input_guardrails=at_most_100),
            r"has input_guardrails=.*; give a list of guardrails",
        ),
        (
            lambda: untyped(Till().pay, input_guardrails=[says(1)], output_guardrails=[says(1)]),
            "has two guardrails called `judge`",
        ),
        (
            lambda: untyped(untyped(Till().pay, input_guardrails=[says(1)]), input_guardrails=[says(1)]),
            "has two guardrails called `judge` \\(those inside a wrapper count too\\)",
        ),
    ],
)
def test_mistakes_are_named_at_once(make: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        make()


async def test_a_guardrail_that_swallows_its_suspension_gives_no_verdict() -> None:
    async def careless(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool:
        try:
            return await ctx.interrupt("may it?")
        except BaseException:  # noqa: BLE001 - the mistake under test
            return True

    till = Till()
    guarded = with_tool_guardrails(till.pay, input_guardrails=[careless])
    runner = Runner(Agent("A", model=ScriptedModel([call("pay", amount=1), "done"]), tools=[guarded]))
    with pytest.raises(OpenInterruptError, match="guardrail `careless` continued while its question"):
        await runner.run("hi")
    assert till.paid == []


async def test_a_verdict_closes_the_question_of_another_guardrail() -> None:
    # The call is refused whatever the answer is, and the run goes on.
    async def ask(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool:
        return await ctx.interrupt("may it?")

    guarded = with_tool_guardrails(Till().pay, input_guardrails=[ask, at_most_100])
    runner = Runner(Agent("A", model=ScriptedModel([call("pay", amount=101), "done"]), tools=[guarded]))
    assert (await runner.run("hi")).output == "done"
