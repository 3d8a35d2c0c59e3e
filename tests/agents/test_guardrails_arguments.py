"""Guardrails as arguments of agents and tools."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.agents.guardrail_fakes import RecordingGuardrail, ask, run_to_failure

from batonkit import (
    Agent,
    AgentContext,
    GuardrailVerdict,
    RunContext,
    Runner,
    SetupError,
    guardrail,
    then_transfer,
    tool,
)
from batonkit.agents import with_guardrails
from batonkit.errors import GuardrailTrippedError
from batonkit.log import AgentResponded, Event
from batonkit.messages import Message
from batonkit.models import ModelRequest
from batonkit.runs import Interrupt
from batonkit.testing import ScriptedModel, assert_survives_crashes, call, transcript, transfer_to
from batonkit.tools import with_tool_guardrails


def short(ctx: RunContext, output: Any) -> bool:
    return len(output) < 20


def keys_of(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(type(event).__name__, getattr(event, "key", "")) for event in events]


@pytest.mark.parametrize("parallel", [False, True])
async def test_the_arguments_leave_the_same_log_as_the_wrapper(parallel: bool) -> None:
    def model() -> ScriptedModel:
        return ScriptedModel([call("ask", question="?"), "hi"])

    check = guardrail(RecordingGuardrail("j"), parallel=parallel)
    guarded = Agent("A", tools=[ask], model=model(), input_guardrails=[check], output_guardrails=[short])
    wrapped = with_guardrails(
        Agent("A", tools=[ask], model=model()),
        input_guardrails=[RecordingGuardrail("j")],
        output_guardrails=[short],
        mode="parallel" if parallel else "blocking",
    )
    results: list[Any] = []
    for agent in (guarded, wrapped):
        runner = Runner(agent)
        suspended = await runner.run("go")
        results.append(await runner.resume(suspended.run_id, "yes"))
        await runner.runs.replay(results[-1].events)
    assert keys_of(results[0].events) == keys_of(results[1].events)
    assert results[0].guardrail_results == results[1].guardrail_results
    assert [(said.stage, said.name) for said in results[0].guardrail_results] == [("input", "j"), ("output", "short")]


@pytest.mark.parametrize("parallel", [False, True])
async def test_an_input_guardrail_ends_the_run(parallel: bool) -> None:
    model = ScriptedModel(["hi"])
    check = guardrail(RecordingGuardrail("j", GuardrailVerdict(False, "no")), parallel=parallel)
    error, result = await run_to_failure(Runner(Agent("A", model=model, input_guardrails=[check])))
    assert isinstance(error, GuardrailTrippedError)
    assert (error.guardrail, error.stage, error.reason) == ("j", "input", "no")
    assert len(model.requests) == parallel
    assert not any(isinstance(event, AgentResponded) for event in result.events)


async def test_an_output_guardrail_ends_the_run() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["much longer than allowed"]), output_guardrails=[short]))
    with pytest.raises(GuardrailTrippedError, match="guardrail `short` stopped the output of `A`"):
        await runner.run("go")


async def test_parallel_guardrails_start_after_the_others_have_passed() -> None:
    model_is_called = asyncio.Event()
    order: list[str] = []

    @guardrail(parallel=True)
    async def during(ctx: RunContext, messages: Sequence[Message]) -> None:
        await model_is_called.wait()
        order.append("during")

    def before(ctx: RunContext, messages: Sequence[Message]) -> None:
        order.append("before")

    def answer(request: ModelRequest) -> str:
        order.append("model")
        model_is_called.set()
        return "hi"

    desk = Agent("Desk", model=ScriptedModel([answer]), input_guardrails=[during, before])
    assert (await Runner(desk).run("go")).output == "hi"
    assert order == ["before", "model", "during"]
    stops = RecordingGuardrail("stops", False)
    desk = desk.clone(input_guardrails=[during, stops], model=ScriptedModel([]))
    order.clear()
    error, _ = await run_to_failure(Runner(desk))
    assert (isinstance(error, GuardrailTrippedError), order) == (True, [])


async def test_guardrails_survive_crashes() -> None:
    def runner(store: Any) -> Runner[Any, Any]:
        desk = Agent(
            "Desk",
            tools=[ask],
            model=ScriptedModel([call("ask", question="?"), "hi"]),
            input_guardrails=[RecordingGuardrail("a"), guardrail(RecordingGuardrail("b"), parallel=True)],
            output_guardrails=[short],
        )
        return Runner(desk, store=store)

    report = await assert_survives_crashes(runner, "go", answers="yes")
    assert report.crashes > 5


async def test_guardrails_of_an_agent_inside_then_transfer_are_reported() -> None:
    model = ScriptedModel({"Worker": ["a very long and sloppy answer"], "Boss": ["I see"]})
    worker = Agent("Worker", output_guardrails=[short])
    runner = Runner(
        then_transfer(worker, to="Boss", on_error="report"), extra_agents=[Agent("Boss", description="b")], model=model
    )
    result = await runner.run("go")
    assert result.output == "I see"
    assert "[Worker] failed: GuardrailTrippedError" in str(model.requests[1].messages)


async def test_a_transfer_has_no_output_to_check() -> None:
    check = RecordingGuardrail("j")
    model = ScriptedModel({"A": [transfer_to("B")], "B": ["hi"]})
    desk = Agent("A", sub_agents=[Agent("B", description="b")], output_guardrails=[check])
    assert (await Runner(desk, model=model).run("go")).output == "hi"
    assert check.seen == []


class OwnLoop(Agent):
    """An agent with a loop of its own."""

    async def run(self, ctx: AgentContext[Any]) -> None:
        await ctx.say("hi")


J = RecordingGuardrail("j")
untyped: Any = Agent


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OwnLoop("A", input_guardrails=[J]), r"`A` is an OwnLoop, which overrides `run`.*with_guardrails"),
        (lambda: Agent("A", input_guardrails=[J, J]), "the input of `A` has two guardrails called `j`"),
        (lambda: Agent("A", output_guardrails=[J, J]), "the output of `A` has two guardrails called `j`"),
        (
            lambda: with_guardrails(Agent("A", input_guardrails=[J]), input_guardrails=[J]),
            r"the input of with_guardrails\(`A`\) has two guardrails called `j`",
        ),
        (lambda: untyped("A", input_guardrails=J), "`A` has input_guardrails=.*; give a list of guardrails"),
        (lambda: untyped("A", output_guardrails=[3]), "3 is not a guardrail"),
    ],
)
def test_invalid_guardrails_are_refused(make: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        make()


# Guardrails of tools.


def at_most_100(ctx: RunContext, arguments: dict[str, Any]) -> GuardrailVerdict:
    return GuardrailVerdict(arguments["amount"] <= 100, "too much")


def no_secrets(ctx: RunContext, result: Any) -> bool:
    return "secret" not in str(result.content)


async def test_guardrails_of_a_tool_are_the_same_as_those_of_the_wrapper() -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "secret" if amount == 7 else "paid"

    checks: dict[str, Any] = {"input_guardrails": [at_most_100], "output_guardrails": [no_secrets]}
    steps = [call("pay", amount=500), call("pay", amount=7), call("pay", amount=80), "done"]
    own, wrapped = tool(pay, **checks), with_tool_guardrails(pay, **checks)
    results = [await Runner(Agent("A", tools=[each], model=ScriptedModel(steps))).run("go") for each in (own, wrapped)]
    assert transcript(results[0].events) == transcript(results[1].events)
    assert keys_of(results[0].events) == keys_of(results[1].events)
    assert paid == [7, 80, 7, 80]
    lines = "\n".join(transcript(results[0].events))
    assert "This call of `pay` was not made, because guardrail `at_most_100` did not pass: too much" in lines
    assert "The result of `pay` is withheld" in lines


async def test_a_guarded_tool_with_approval_survives_crashes() -> None:
    def runner(store: Any) -> Runner[Any, Any]:
        @tool(needs_approval=True, effect="once", input_guardrails=[at_most_100], output_guardrails=[no_secrets])
        def pay(amount: int) -> str:
            """Pay."""
            return "paid"

        return Runner(Agent("A", tools=[pay], model=ScriptedModel([call("pay", amount=80), "done"])), store=store)

    await assert_survives_crashes(runner, "go", answers=_answer)


def _answer(interrupt: Interrupt) -> Any:
    return True if interrupt.payload["kind"] == "approval" else {"result": "paid"}


async def test_a_guarded_function_can_still_be_called() -> None:
    @tool(input_guardrails=[at_most_100])
    def pay(amount: int) -> int:
        """Pay."""
        return amount

    assert pay(amount=500) == 500


def test_two_guardrails_of_a_tool_need_different_names() -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    with pytest.raises(SetupError, match="tool `pay` has two guardrails called `at_most_100`"):
        tool(pay, input_guardrails=[at_most_100], output_guardrails=[at_most_100])
    with pytest.raises(SetupError, match="two guardrails called `at_most_100`"):
        with_tool_guardrails(tool(pay, input_guardrails=[at_most_100]), input_guardrails=[at_most_100])
