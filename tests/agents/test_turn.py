"""The handoff contract: how the calls in one model response are executed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot

from batonkit import Agent, AgentContext, RunContext, Runner, RunResult, agent, handoff, tool
from batonkit.agents import MultipleTransfers
from batonkit.errors import TransferError, UnknownToolError
from batonkit.log import AgentResponded, ControlTransferred, Exit, InterruptRaised, ToolReturned
from batonkit.messages import AssistantMessage, Message, ToolCall, ToolMessage, text_of
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedModel, call, say, transcript, transfer_to
from batonkit.tools import ToolResult


@tool
async def note(text: str) -> str:
    """Write something down."""
    return f"noted {text}"


@tool(return_directly=True)
async def direct(text: str) -> str:
    """Answer with this text."""
    return f"direct {text}"


@tool(needs_approval=True)
async def pay(euro: int) -> str:
    """Pay."""
    return f"paid {euro}"


NESTED = "[" * 1_000_000 + "]" * 1_000_000
"""JSON that is nested too deeply to be decoded, also for Python 3.14, which has no limit but the size of the stack."""


def make_runner(*steps: Any, **options: Any) -> tuple[Runner[Any, str], ScriptedModel]:
    """Create a runner of agent `A`, which follows these steps and can transfer to `B` and `C`."""
    model = ScriptedModel({"A": steps, "B": ["B is here"], "C": ["C is here"]})
    children = [Agent("B", description="b"), Agent("C", description="c")]
    options.setdefault("tools", [note, direct, pay])
    rules = {name: options.pop(name) for name in ("multiple_transfers", "max_corrections") if name in options}
    agent = Agent("A", sub_agents=children, **options)
    return Runner(agent, model=model, handoff_rules=HandoffRules(**rules)), model


def tool_results(result: RunResult[Any]) -> list[tuple[str, str, bool]]:
    """Return the tool, text and error flag of every tool result."""
    events = [event for event in result.events if isinstance(event, ToolReturned)]
    return [(event.tool_name, text_of(event.content), event.is_error) for event in events]


def assert_every_call_has_one_result(result: RunResult[Any]) -> None:
    """Check the precedence: transfer, exit, return-directly result, text."""
    call_ids = [
        each.id for event in result.events if isinstance(event, AgentResponded) for each in event.message.tool_calls
    ]
    result_ids = [event.call_id for event in result.events if isinstance(event, ToolReturned)]
    assert sorted(call_ids) == sorted(result_ids)
    assert_calls_and_results_are_paired(result.messages)


def assert_calls_and_results_are_paired(messages: Sequence[Message]) -> None:
    """Check that the results of each response follow it directly, in the order of its calls."""
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert expected
            assert expected.pop(0) == message.tool_call_id
        else:
            assert not expected
            expected = [each.id for each in message.tool_calls] if isinstance(message, AssistantMessage) else []
    assert not expected


# --- return_directly


async def test_the_result_of_a_return_directly_tool_is_the_output() -> None:
    runner, model = make_runner(call("direct", text="x"))
    result = await runner.run("hi")
    assert (result.output, result.agent) == ("direct x", "A")
    assert len(model.requests) == 1
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            'A: called direct({"text":"x"})',
            "A: direct -> direct x (final)",
            'A: said "direct x"',
            "A finished",
            "run completed",
        ]
    )


async def test_the_other_tools_finish_before_a_direct_result_ends_the_turn() -> None:
    finished: list[str] = []
    answered = asyncio.Event()

    @tool(return_directly=True)
    async def quick() -> str:
        answered.set()
        return "quick"

    @tool
    async def slow() -> str:
        await answered.wait()
        await asyncio.sleep(0)
        finished.append("slow")
        return "slow"

    runner, _ = make_runner([call("slow"), call("quick"), call("slow")], tools=[quick, slow])
    result = await runner.run("hi")
    assert result.output == "quick"
    assert finished == ["slow", "slow"]
    assert_every_call_has_one_result(result)


async def test_the_last_direct_result_in_call_order_is_the_output() -> None:
    # The order of the calls counts, not the order in which they finish.
    second_done = asyncio.Event()

    @tool(return_directly=True)
    async def first() -> str:
        await second_done.wait()
        return "first"

    @tool(return_directly=True)
    async def second() -> str:
        second_done.set()
        return "second"

    runner, _ = make_runner([call("first"), call("note", text="x"), call("second")], tools=[first, second, note])
    result = await runner.run("hi")
    assert [name for name, _, _ in tool_results(result)].index("second") < [
        name for name, _, _ in tool_results(result)
    ].index("first")
    assert result.output == "second"


async def test_a_tool_result_can_be_final() -> None:
    @tool
    async def decide(final: bool) -> ToolResult:
        return ToolResult("settled", is_final=final)

    runner, _ = make_runner(call("decide", final=False), call("decide", final=True), tools=[decide])
    assert (await runner.run("hi")).output == "settled"


async def test_the_error_of_a_direct_tool_is_returned_to_the_model() -> None:
    @tool(return_directly=True)
    async def failing() -> str:
        raise OSError("broken")

    runner, model = make_runner(call("failing"), "sorry", tools=[failing])
    assert (await runner.run("hi")).output == "sorry"
    assert len(model.requests) == 2


async def test_a_direct_result_is_parsed_as_the_output_type() -> None:
    @tool(return_directly=True)
    async def count() -> int:
        """Count."""
        return 7

    runner = Runner(Agent("A", model=ScriptedModel([call("count")]), tools=[count], output_type=int))
    assert (await runner.run("hi")).output + 1 == 8


async def test_a_direct_result_is_stored_under_the_output_key() -> None:
    runner, _ = make_runner(call("direct", text="x"), output_key="answer")
    assert (await runner.run("hi")).values == {"answer": "direct x"}


# --- exit


async def test_exit_ends_the_run_with_its_result() -> None:
    runner, model = make_runner([call("note", text="x"), call("exit", final_result="that is all")], exit_tool=True)
    result = await runner.run("hi")
    assert (result.output, result.status) == ("that is all", "completed")
    assert len(model.requests) == 1
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            'A: called note({"text":"x"}) + exit({"final_result":"that is all"})',
            "A: note -> noted x",
            "A: exit -> The task is ended. (final)",
            'A: said "that is all"',
            "A finished",
            "run completed",
        ]
    )


async def test_the_exit_tool_is_offered_only_with_exit_tool() -> None:
    runner, model = make_runner("hello", exit_tool=True)
    await runner.run("hi")
    spec = next(spec for spec in model.requests[0].tools if spec.name == "exit")
    assert spec.parameters["required"] == ["final_result"]
    assert spec.parameters["additionalProperties"] is False
    runner_without_exit, model_without_exit = make_runner(call("exit", final_result="x"), "hello")
    result = await runner_without_exit.run("hi")
    assert "exit" not in [spec.name for spec in model_without_exit.requests[0].tools]
    assert tool_results(result)[0][2]


async def test_exit_ends_the_run_despite_return_to_caller() -> None:
    last = Agent("C", exit_tool=True)
    middle = Agent("B", handoffs=[handoff(last, return_to="caller")])
    model = ScriptedModel(
        {"A": [call("transfer_to_b")], "B": [call("transfer_to_c")], "C": [call("exit", final_result="bye")]}
    )
    result = await Runner(Agent("A", handoffs=[handoff(middle, return_to="caller")]), model=model).run("hi")
    assert (result.output, result.agent) == ("bye", "C")
    model.assert_done()


async def test_a_custom_agent_can_exit_with_or_without_a_result() -> None:
    @agent()
    async def without_result(ctx: AgentContext) -> Exit:
        await ctx.say("last message")
        return Exit()

    @agent()
    async def with_result(ctx: AgentContext) -> Exit:
        await ctx.say("ignored")
        return Exit("the result")

    assert (await Runner(without_result).run("hi")).output == "last message"
    assert (await Runner(with_result).run("hi")).output == "the result"


@pytest.mark.parametrize("arguments", ["{}", f'{{"final_result": "done", "more": {NESTED}}}'], ids=["{}", "nested"])
async def test_invalid_arguments_of_exit_are_returned_to_the_model(arguments: str) -> None:
    wrong = AssistantMessage(tool_calls=(ToolCall("x", "exit", arguments),))
    runner, _ = make_runner(wrong, call("exit", final_result="done"), exit_tool=True)
    result = await runner.run("hi")
    assert result.output == "done"
    assert tool_results(result)[0] == ("exit", 'Not ended: arguments must be {"final_result": "…"}.', True)


# --- unknown tools


async def test_a_call_of_an_unknown_tool_returns_the_known_tools() -> None:
    runner, model = make_runner(call("nope"), "sorry", exit_tool=True)
    result = await runner.run("hi")
    assert tool_results(result) == [
        (
            "nope",
            "There is no tool `nope`; the tools are: `note`, `direct`, `pay`, `exit`, `transfer_to_agent`.",
            True,
        )
    ]
    assert result.output == "sorry"
    assert_calls_and_results_are_paired(model.requests[1].messages)


async def test_repeated_calls_of_unknown_tools_raise_an_error() -> None:
    # They count as failed corrections.
    runner, model = make_runner(*[call("nope")] * 9, tools=[note])
    with pytest.raises(UnknownToolError, match="keeps calling `nope`; its tools are: `note`") as caught:
        await runner.run("hi")
    assert (caught.value.agent, caught.value.tool) == ("A", "nope")
    assert caught.value.available == ("note", "transfer_to_agent")
    assert len(model.requests) == 3


# --- mixtures


async def test_ordinary_calls_run_before_the_transfer_in_any_order() -> None:
    for calls in (
        [transfer_to("B"), call("note", text="x"), call("note", text="y")],
        [call("note", text="x"), transfer_to("B"), call("note", text="y")],
        [call("note", text="x"), call("note", text="y"), transfer_to("B")],
    ):
        runner, _ = make_runner(calls)
        result = await runner.run("hi")
        assert (result.agent, result.output) == ("B", "B is here")
        assert [text for name, text, _ in tool_results(result) if name == "note"] == ["noted x", "noted y"]
        # The result of the transfer is the last event, but the history has the order of the calls.
        assert tool_results(result)[-1] == ("transfer_to_agent", "successfully transferred to agent [B]", False)
        assert_every_call_has_one_result(result)


async def test_the_first_of_several_transfers_is_followed() -> None:
    runner, _ = make_runner([transfer_to("B"), transfer_to("C")])
    result = await runner.run("hi")
    assert result.agent == "B"
    assert sum(isinstance(event, ControlTransferred) for event in result.events) == 1
    refusal = "Not transferred to [C]: only one transfer is followed per response, and that is the one to [B]."
    assert ("transfer_to_agent", refusal, True) in tool_results(result)
    assert_every_call_has_one_result(result)


async def test_the_last_of_several_transfers_is_followed_with_the_policy_last() -> None:
    runner, _ = make_runner([transfer_to("B"), call("note", text="x"), transfer_to("C")], multiple_transfers="last")
    result = await runner.run("hi")
    assert result.agent == "C"
    refusal = "Not transferred to [B]: only one transfer is followed per response, and that is the one to [C]."
    assert ("transfer_to_agent", refusal, True) in tool_results(result)
    assert_every_call_has_one_result(result)


async def test_several_transfers_raise_an_error_with_the_policy_error() -> None:
    runner, _ = make_runner([transfer_to("B"), call("note", text="x"), transfer_to("C")], multiple_transfers="error")
    stream = runner.stream("hi")
    with pytest.raises(TransferError, match="`A` asked for several transfers at once: `B`, `C`") as caught:
        await stream._drive()
    assert (caught.value.source, caught.value.reachable) == ("A", ("B", "C"))
    reason = "only one transfer is followed per response, and several were asked for at once."
    assert tool_results(stream.result) == [
        ("note", "noted x", False),
        ("transfer_to_agent", f"Not transferred to [B]: {reason}", True),
        ("transfer_to_agent", f"Not transferred to [C]: {reason}", True),
    ]


async def test_a_transfer_takes_precedence_over_text() -> None:
    runner, _ = make_runner(say("My answer is 42.", transfer_to("B")), output_key="answer")
    result = await runner.run("hi")
    assert (result.agent, result.output, result.values) == ("B", "B is here", {})


async def test_a_transfer_takes_precedence_over_an_exit() -> None:
    runner, _ = make_runner([call("exit", final_result="bye"), transfer_to("B")], exit_tool=True)
    result = await runner.run("hi")
    assert (result.agent, result.output) == ("B", "B is here")
    assert ("exit", "Not ended: a transfer to [B] was asked for in the same response.", True) in tool_results(result)
    assert_every_call_has_one_result(result)


async def test_a_transfer_takes_precedence_over_a_direct_result() -> None:
    runner, _ = make_runner([call("direct", text="x"), transfer_to("B")], output_key="answer")
    result = await runner.run("hi")
    assert (result.agent, result.output, result.values) == ("B", "B is here", {})
    assert_every_call_has_one_result(result)


async def test_an_exit_takes_precedence_over_a_direct_result() -> None:
    runner, _ = make_runner([call("exit", final_result="bye"), call("direct", text="x")], exit_tool=True)
    result = await runner.run("hi")
    assert result.output == "bye"
    assert_every_call_has_one_result(result)


async def test_a_transfer_takes_precedence_over_invalid_output() -> None:
    # Text in a response with a transfer is not the output and is not validated.
    model = ScriptedModel({"A": [say("not a number", transfer_to("B"))], "B": ["B is here"]})
    result = await Runner(Agent("A", output_type=int, sub_agents=[Agent("B")]), model=model).run("hi")
    assert result.agent == "B"


async def test_an_unknown_tool_does_not_stop_a_valid_transfer() -> None:
    runner, _ = make_runner([call("nope"), transfer_to("B")])
    result = await runner.run("hi")
    assert result.agent == "B"
    assert [(name, is_error) for name, _, is_error in tool_results(result)] == [
        ("nope", True),
        ("transfer_to_agent", False),
    ]
    assert_every_call_has_one_result(result)


async def test_a_valid_transfer_is_followed_despite_an_invalid_one() -> None:
    runner, _ = make_runner([transfer_to("Unknown"), transfer_to("C")])
    result = await runner.run("hi")
    assert result.agent == "C"
    assert_every_call_has_one_result(result)


async def test_a_failing_tool_does_not_stop_a_transfer() -> None:
    @tool
    async def failing() -> str:
        raise OSError("broken")

    runner, _ = make_runner([call("failing"), transfer_to("B")], tools=[failing])
    result = await runner.run("hi")
    assert result.agent == "B"
    assert tool_results(result)[0] == ("failing", "tool `failing` failed: OSError: broken", True)


async def test_all_kinds_of_calls_in_one_response() -> None:
    # Text, tools, an unknown tool, two transfers, an exit and a direct result in one response.
    runner, model = make_runner(
        say(
            "Let me see.",
            transfer_to("Unknown"),
            call("direct", text="d"),
            call("exit", final_result="bye"),
            transfer_to("C"),
            call("nope"),
            transfer_to("B"),
            call("note", text="n"),
        ),
        exit_tool=True,
    )
    result = await runner.run("hi")
    assert_every_call_has_one_result(result)
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            'A: said "Let me see." + transfer_to_agent({"agent_name":"Unknown"}) + direct({"text":"d"}) + exit({"final_result":"bye"}) + transfer_to_agent({"agent_name":"C"}) + nope({}) + transfer_to_agent({"agent_name":"B"}) + note({"text":"n"})',  # noqa: E501
            "A: transfer_to_agent failed -> Not transferred: there is no `Unknown`; you can transfer to: `B`, `C`.",
            "A: nope failed -> There is no tool `nope`; the tools are: `note`, `direct`, `pay`, `exit`, `transfer_to_agent`.",  # noqa: E501
            "A: direct -> direct d (final)",
            "A: note -> noted n",
            "A: transfer_to_agent failed -> Not transferred to [B]: only one transfer is followed per response, and that is the one to [C].",  # noqa: E501
            "A: exit failed -> Not ended: a transfer to [C] was asked for in the same response.",
            "A: transfer_to_agent -> successfully transferred to agent [C]",
            "A → C",
            "A finished",
            "C started",
            'C: said "C is here"',
            "C finished",
            "run completed",
        ]
    )
    # C does not read the transfers that did not happen.
    read = "\n".join(text_of(message.content) for message in model.requests[-1].messages)
    assert "Unknown" not in read
    assert "[B]" not in read


async def test_an_approval_is_answered_before_a_transfer_and_both_happen_once() -> None:
    runner, model = make_runner([transfer_to("B"), call("pay", euro=5)])
    suspended = await runner.run("hi")
    assert suspended.status == "suspended"
    assert suspended.agent == "A"
    assert tool_results(suspended) == []
    (question,) = suspended.interrupts
    assert question.payload == {"kind": "approval", "tool": "pay", "arguments": {"euro": 5}}
    result = await runner.resume(suspended.run_id, True)
    assert (result.agent, result.output) == ("B", "B is here")
    assert tool_results(result) == [
        ("pay", "paid 5", False),
        ("transfer_to_agent", "successfully transferred to agent [B]", False),
    ]
    assert sum(isinstance(event, InterruptRaised) for event in result.events) == 1
    assert sum(isinstance(event, ControlTransferred) for event in result.events) == 1
    assert len([request for request in model.requests if request.agent == "A"]) == 1


async def test_a_rejected_approval_does_not_stop_the_transfer() -> None:
    runner, _ = make_runner([call("pay", euro=5), transfer_to("B")])
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, False)
    assert result.agent == "B"
    assert tool_results(result)[0][2]
    assert "was not approved" in tool_results(result)[0][1]


async def test_an_approval_is_answered_before_an_exit_or_a_direct_result() -> None:
    for last in (call("exit", final_result="bye"), call("direct", text="bye")):
        runner, _ = make_runner([last, call("pay", euro=5)], exit_tool=True)
        suspended = await runner.run("hi")
        assert suspended.status == "suspended"
        result = await runner.resume(suspended.run_id, True)
        assert result.output in ("bye", "direct bye")
        assert_every_call_has_one_result(result)


# --- unknown targets


async def test_a_transfer_to_an_unknown_agent_returns_the_reachable_agents() -> None:
    runner, model = make_runner(transfer_to("Kitchen"), transfer_to("C"))
    result = await runner.run("hi")
    assert result.agent == "C"
    refusal = "Not transferred: there is no `Kitchen`; you can transfer to: `B`, `C`."
    assert tool_results(result)[0] == ("transfer_to_agent", refusal, True)
    assert_calls_and_results_are_paired(model.requests[1].messages)


@pytest.mark.parametrize(
    "arguments", ["", "{}", "not json", '{"agent_name": 7}', "null", '["B"]', f'{{"more": {NESTED}}}']
)
async def test_invalid_arguments_of_a_transfer_return_the_expected_form(arguments: str) -> None:
    invalid = AssistantMessage(tool_calls=(ToolCall("x", "transfer_to_agent", arguments),))
    runner, _ = make_runner(invalid, transfer_to("B"))
    result = await runner.run("hi")
    assert result.agent == "B"
    refusal = 'Not transferred: arguments must be {"agent_name": "…"}; you can transfer to: `B`, `C`.'
    assert tool_results(result)[0] == ("transfer_to_agent", refusal, True)


@pytest.mark.parametrize("corrections", [0, 1, 2, 3])
async def test_too_many_failed_corrections_raise_a_transfer_error(corrections: int) -> None:
    runner, model = make_runner(*[transfer_to("Kitchen")] * 9, max_corrections=corrections)
    stream = runner.stream("hi")
    with pytest.raises(TransferError, match=r"`A` cannot transfer to `Kitchen`; it can reach: `B`, `C`\.") as caught:
        await stream._drive()
    assert (caught.value.source, caught.value.target, caught.value.reachable) == ("A", "Kitchen", ("B", "C"))
    # The first attempt is not a correction.
    assert len(model.requests) == corrections + 1
    assert_every_call_has_one_result(stream.result)


async def test_two_corrections_are_allowed_by_default() -> None:
    runner, model = make_runner(*[transfer_to("Kitchen")] * 9)
    with pytest.raises(TransferError):
        await runner.run("hi")
    assert len(model.requests) == 3


async def test_failed_corrections_are_counted_for_the_whole_activation() -> None:
    # A valid response in between does not reset the count.
    steps = [transfer_to("K"), transfer_to("K"), call("note", text="x"), transfer_to("K"), transfer_to("K"), "never"]
    runner, model = make_runner(*steps)
    with pytest.raises(TransferError):
        await runner.run("hi")
    assert model.remaining == 3  # "never", and the steps of B and C


async def test_a_corrected_mistake_does_not_count() -> None:
    steps = [step for _ in range(5) for step in (transfer_to("K"), call("note", text="x"))]
    runner, _ = make_runner(*steps, "done")
    assert (await runner.run("hi")).output == "done"


async def test_failed_corrections_before_a_resume_count() -> None:
    runner, model = make_runner(transfer_to("K"), [transfer_to("K"), call("pay", euro=1)], transfer_to("K"), "never")
    suspended = await runner.run("hi")
    with pytest.raises(TransferError):
        await runner.resume(suspended.run_id, True)
    assert [request.agent for request in model.requests] == ["A"] * 3


async def test_each_activation_has_its_own_corrections() -> None:
    model = ScriptedModel(
        {"A": [transfer_to("K"), transfer_to("K"), transfer_to("B")], "B": [transfer_to("K"), transfer_to("K"), "done"]}
    )
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert result.output == "done"


# --- functions that return an agent


async def test_a_function_that_returns_an_agent_is_a_transfer() -> None:
    sales = Agent("Sales")

    def to_sales() -> Agent:
        """Transfer to sales."""
        return sales

    model = ScriptedModel({"A": [[call("to_sales"), call("note", text="x")]], "Sales": ["hello"]})
    result = await Runner(Agent("A", tools=[to_sales, note]), model=model).run("hi")
    assert result.agent == "Sales"
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            'A: called to_sales({}) + note({"text":"x"})',
            "A: note -> noted x",
            'A: step to_sales -> {"target":"Sales","content":"{\\"assistant\\":\\"Sales\\"}"}',
            'A: to_sales -> {"assistant":"Sales"}',
            "A → Sales",
            "A finished",
            "Sales started",
            'Sales: said "hello"',
            "Sales finished",
            "run completed",
        ]
    )


async def test_multiple_transfers_also_applies_to_functions_that_return_agents() -> None:
    # The order of the calls decides.
    sales = Agent("Sales")

    def to_sales() -> Agent:
        return sales

    policies: list[tuple[MultipleTransfers, str]] = [("first", "Sales"), ("last", "B")]
    for policy, target in policies:
        model = ScriptedModel({"A": [[call("to_sales"), transfer_to("B")]], "B": ["x"], "Sales": ["x"]})
        a = Agent("A", tools=[to_sales], sub_agents=[Agent("B")])
        result = await Runner(a, model=model, handoff_rules=HandoffRules(multiple_transfers=policy)).run("hi")
        assert result.agent == target
        assert_every_call_has_one_result(result)


async def test_a_tool_result_can_name_the_target_of_a_transfer() -> None:
    @tool
    async def route(ctx: RunContext) -> ToolResult:
        return ToolResult("going", transfer_to="B")

    runner, _ = make_runner(call("route"), tools=[route])
    result = await runner.run("hi")
    assert result.agent == "B"
    assert tool_results(result) == [("route", "going", False)]
