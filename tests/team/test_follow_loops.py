"""Limits of transfers, and detection of cycles."""

from itertools import pairwise
from typing import Any

import pytest
from inline_snapshot import snapshot

from batonkit import Agent, Limits, RunContext, Runner, handoff, tool
from batonkit.errors import LimitError, LoopError, TransferError
from batonkit.log import ControlTransferred
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedModel, call, say, transcript, transfer_to


def ping_pong(*, cycle: bool = True, **options: Any) -> tuple[Runner[Any, str], ScriptedModel]:
    """Create a runner of two agents that only transfer to each other."""
    model = ScriptedModel({"A": [transfer_to("B")], "B": [transfer_to("A")], "Helper": ["I take over"]}, cycle=cycle)
    return Runner(Agent("A", sub_agents=[Agent("B")]), model=model, **options), model


async def test_the_third_round_trip_without_progress_ends_the_run() -> None:
    runner, model = ping_pong()
    stream = runner.stream("hi")
    with pytest.raises(LoopError, match="`B` and `A` transferred back and forth 3 times") as caught:
        await stream._drive()
    error = caught.value
    assert (error.source, error.target, error.times) == ("B", "A", 3)
    assert error.path == ("A", "B") * 3
    assert "HandoffRules(loop_fallback=…)" in str(error)
    assert isinstance(error, TransferError)
    assert len(model.requests) == 6
    assert sum(isinstance(event, ControlTransferred) for event in stream.result.events) == 5


@pytest.mark.parametrize("allowed", [1, 2, 5])
async def test_the_number_of_round_trips_is_set_by_idle_cycles(allowed: int) -> None:
    runner, model = ping_pong(limits=Limits(idle_cycles=allowed))
    with pytest.raises(LoopError):
        await runner.run("hi")
    assert len(model.requests) == 2 * allowed


async def test_without_idle_cycles_the_limit_of_transfers_applies() -> None:
    runner, _ = ping_pong(limits=Limits(idle_cycles=None))
    stream = runner.stream("hi")
    with pytest.raises(LimitError, match=r"limit of 32 transfers at .* → B → A; raise it with Limits") as caught:
        await stream._drive()
    assert (caught.value.limit, caught.value.allowed) == ("transfers", 32)
    assert caught.value.path == ("A", "B") * 16 + ("A",)
    assert sum(isinstance(event, ControlTransferred) for event in stream.result.events) == 32


async def test_new_text_is_progress() -> None:
    steps = [say(f"thought {number}", transfer_to("B")) for number in range(8)]
    model = ScriptedModel({"A": [*steps, "done"], "B": [transfer_to("A")] * 8})
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert result.output == "done"


async def test_repeated_text_is_not_progress() -> None:
    model = ScriptedModel(
        {"A": [say("over to you", transfer_to("B"))], "B": [say("no, over to you", transfer_to("A"))]}, cycle=True
    )
    with pytest.raises(LoopError):
        await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")


async def test_a_new_tool_result_is_progress() -> None:
    count: list[int] = []

    @tool
    async def measure() -> str:
        count.append(1)
        return f"measured {len(count)}"

    model = ScriptedModel({"A": [*[[call("measure"), transfer_to("B")]] * 8, "done"], "B": [transfer_to("A")] * 8})
    result = await Runner(Agent("A", tools=[measure], sub_agents=[Agent("B")]), model=model).run("hi")
    assert result.output == "done"


async def test_a_repeated_tool_result_is_not_progress() -> None:
    @tool
    async def measure() -> str:
        return "always the same"

    model = ScriptedModel({"A": [[call("measure"), transfer_to("B")]], "B": [transfer_to("A")]}, cycle=True)
    with pytest.raises(LoopError):
        await Runner(Agent("A", tools=[measure], sub_agents=[Agent("B")]), model=model).run("hi")


async def test_an_answered_interrupt_is_progress() -> None:
    # The answer is the result of the tool.
    @tool
    async def ask(ctx: RunContext) -> str:
        return str(await ctx.interrupt("?"))

    model = ScriptedModel({"A": [*[[call("ask"), transfer_to("B")]] * 5, "done"], "B": [transfer_to("A")] * 5})
    runner = Runner(Agent("A", tools=[ask], sub_agents=[Agent("B")]), model=model)
    result = await runner.run("hi")
    for number in range(5):
        result = await runner.resume(result.run_id, f"answer {number}")
    assert result.output == "done"


async def test_a_transfer_to_a_third_agent_resets_the_count() -> None:
    # Only consecutive rounds count.
    to_b, to_a, to_c = transfer_to("B"), transfer_to("A"), transfer_to("C")
    model = ScriptedModel({"A": [to_b, to_b, to_c, to_b, to_b, "done"], "B": [to_a] * 4, "C": [to_a]})
    children = [Agent("B"), Agent("C")]
    assert (await Runner(Agent("A", sub_agents=children), model=model).run("hi")).output == "done"


def ring(
    size: int, *, steps: dict[str, list[Any]] | None = None, **options: Any
) -> tuple[Runner[Any, str], ScriptedModel]:
    """Create a runner in which each agent transfers to the next one, and the last to the first."""
    names = [chr(ord("A") + number) for number in range(size)]
    script: dict[str, Any] = {
        name: [call(f"transfer_to_{successor.lower()}")]
        for name, successor in zip(names, [*names[1:], "A"], strict=True)
    }
    model = ScriptedModel({**script, "Helper": ["I take over"], **(steps or {})}, cycle=True)
    agents = [Agent(name, handoffs=[successor]) for name, successor in zip(names, [*names[1:], "A"], strict=True)]
    return Runner(agents[0], model=model, extra_agents=[*agents[1:], Agent("Helper")], **options), model


@pytest.mark.parametrize("size", [3, 4, 7])
async def test_a_cycle_of_any_length_ends_the_run(size: int) -> None:
    # A → B → C → A … ran into the limit of transfers.
    runner, model = ring(size)
    with pytest.raises(LoopError, match=r"control went round `A` → `B` → .*`A` 3 times without progress") as caught:
        await runner.run("hi")
    names = [chr(ord("A") + number) for number in range(size)]
    assert caught.value.cycle == (*names, "A")
    assert caught.value.path == (*names * 3,)
    assert (caught.value.source, caught.value.target, caught.value.times) == (names[-1], "A", 3)
    assert len(model.requests) == 3 * size


async def test_a_cycle_that_contains_an_agent_twice_is_detected() -> None:
    # A → B → A → C → A …
    to_b, to_c = call("transfer_to_b"), call("transfer_to_c")
    model = ScriptedModel({"A": [to_b, to_c], "B": [call("transfer_to_a")], "C": [call("transfer_to_a")]}, cycle=True)
    team = Agent("A", handoffs=[Agent("B", handoffs=["A"]), Agent("C", handoffs=["A"])])
    with pytest.raises(LoopError) as caught:
        await Runner(team, model=model).run("hi")
    assert caught.value.cycle == ("A", "B", "A", "C", "A")
    assert len(model.requests) == 12


async def test_a_cycle_that_begins_after_other_transfers_is_detected() -> None:
    # Only the last transfers count.
    model = ScriptedModel(
        {name: [call(f"transfer_to_{to}")] for name, to in zip("XABC", "abca", strict=True)}, cycle=True
    )
    agents = [Agent(name, handoffs=[to]) for name, to in zip("XABC", "ABCA", strict=True)]
    with pytest.raises(LoopError) as caught:
        await Runner(agents[0], model=model, extra_agents=agents[1:]).run("hi")
    assert caught.value.cycle == ("A", "B", "C", "A")
    assert caught.value.path == ("X", *"ABC" * 3)


async def test_progress_in_a_long_cycle_resets_the_count() -> None:
    # `B` makes progress in its first two activations; three rounds without progress follow.
    to_c = call("transfer_to_c")
    steps = {"B": [say("one", to_c), say("two", to_c), *[to_c] * 20]}
    runner, model = ring(3, steps=steps)
    with pytest.raises(LoopError):
        await runner.run("hi")
    # A, B with its first text, C, A; from B's second text on there are nine calls.
    assert len(model.requests) == 4 + 9


async def test_a_long_cycle_with_progress_in_every_round_does_not_end_the_run() -> None:
    to_c = call("transfer_to_c")
    steps = {"B": [*[say(f"thought {number}", to_c) for number in range(40)], "done"]}
    runner, _ = ring(3, steps=steps, limits=Limits(transfers=None, model_calls=None))
    assert (await runner.run("hi")).output == "done"


async def test_a_long_cycle_is_handed_to_the_loop_fallback() -> None:
    runner, _ = ring(3, handoff_rules=HandoffRules(loop_fallback="Helper"))
    result = await runner.run("hi")
    assert (result.agent, result.output) == ("Helper", "I take over")
    assert [event.reason for event in result.events if isinstance(event, ControlTransferred)] == [*[""] * 8, "loop"]


async def test_different_orders_of_the_same_agents_are_not_a_cycle() -> None:
    # A → B → C → A → C → B → A …, no two consecutive rounds are equal.
    order = "ABCACBABACABCBACAB"
    script: dict[str, list[Any]] = {name: [] for name in "ABC"}
    for source, target in pairwise(order):
        script[source].append(call(f"transfer_to_{target.lower()}"))
    script[order[-1]].append("done")
    agents = [Agent(name, handoffs=[*"ABC".replace(name, "")]) for name in "ABC"]
    result = await Runner(agents[0], model=ScriptedModel(script), extra_agents=agents[1:]).run("hi")
    assert result.output == "done"


async def test_a_failed_transfer_is_not_progress() -> None:
    # The same error is returned every time.
    model = ScriptedModel({"A": [transfer_to("Unknown"), transfer_to("B")], "B": [transfer_to("A")]}, cycle=True)
    with pytest.raises(LoopError):
        await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")


async def test_a_loop_is_handed_to_the_loop_fallback() -> None:
    runner, _ = ping_pong(handoff_rules=HandoffRules(loop_fallback="Helper"), extra_agents=[Agent("Helper")])
    result = await runner.run("hi")
    assert (result.agent, result.output) == ("Helper", "I take over")
    assert transcript(result.events)[-6:] == snapshot(
        [
            "B → Helper (loop)",
            "B finished",
            "Helper started",
            'Helper: said "I take over"',
            "Helper finished",
            "run completed",
        ]
    )


async def test_too_many_transfers_are_handed_to_the_loop_fallback() -> None:
    # The fallback is for both limits.
    limits = Limits(transfers=4, idle_cycles=None)
    runner, _ = ping_pong(
        handoff_rules=HandoffRules(loop_fallback="Helper"), extra_agents=[Agent("Helper")], limits=limits
    )
    result = await runner.run("hi")
    assert (result.agent, result.output) == ("Helper", "I take over")
    assert [event.reason for event in result.events if isinstance(event, ControlTransferred)] == [
        "",
        "",
        "",
        "",
        "loop",
    ]


async def test_the_loop_fallback_is_used_once() -> None:
    # A fallback that transfers back into the loop ends the run.
    model = ScriptedModel(
        {"A": [transfer_to("B")], "B": [transfer_to("A")], "Helper": [call("transfer_to_a")]}, cycle=True
    )
    helper = Agent("Helper", handoffs=["A"])
    runner = Runner(
        Agent("A", sub_agents=[Agent("B")]),
        model=model,
        handoff_rules=HandoffRules(loop_fallback="Helper"),
        extra_agents=[helper],
    )
    with pytest.raises(LoopError):
        await runner.run("hi")
    assert [request.agent for request in model.requests].count("Helper") == 1


async def test_a_loop_of_returns_to_the_caller_is_detected() -> None:
    # Returning control counts as a transfer.
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["the same answer"]}, cycle=True)
    runner = Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to="caller")]), model=model)
    with pytest.raises(LoopError):
        await runner.run("hi")


async def test_control_does_not_return_to_the_caller_after_the_loop_fallback() -> None:
    # The transfer to B did not happen, so A does not wait for it.
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("transfer_to_a")], "Helper": ["over"]}, cycle=True)
    b = Agent("B", handoffs=[handoff("A", return_to="caller")])
    a = Agent("A", handoffs=[handoff(b, return_to="caller")])
    result = await Runner(
        a, model=model, handoff_rules=HandoffRules(loop_fallback="Helper"), extra_agents=[Agent("Helper")]
    ).run("hi")
    assert (result.agent, result.output) == ("Helper", "over")


async def test_transfers_before_a_resume_count_towards_the_limit() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        return str(await ctx.interrupt("?"))

    model = ScriptedModel(
        {"A": [transfer_to("B"), transfer_to("B")], "B": [[call("ask"), transfer_to("A")], transfer_to("A")]}
    )
    runner = Runner(Agent("A", sub_agents=[Agent("B", tools=[ask])]), model=model, limits=Limits(transfers=3))
    suspended = await runner.run("hi")
    with pytest.raises(LimitError) as caught:
        await runner.resume(suspended.run_id, "yes")
    assert caught.value.path == ("A", "B", "A", "B")


async def test_a_run_stopped_by_a_limit_can_be_resumed_with_a_higher_one() -> None:
    model = ScriptedModel({"A": [transfer_to("B"), "done"], "B": [transfer_to("A")]})
    runner = Runner(Agent("A", sub_agents=[Agent("B")]), model=model, limits=Limits(transfers=1))
    stream = runner.stream("hi")
    with pytest.raises(LimitError):
        await stream._drive()
    result = await runner.resume(stream.run_id, limits=Limits(transfers=2))
    assert result.output == "done"
    model.assert_done()
