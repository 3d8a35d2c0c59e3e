"""Limits of transfers, and agents that go round in circles."""

from typing import Any

import pytest
from inline_snapshot import snapshot

from baton import Agent, Limits, RunContext, Runner, handoff, tool
from baton.errors import LimitError, LoopError, TransferError
from baton.events import ControlTransferred
from baton.testing import ScriptedModel, call, say, transcript, transfer_to


def ping_pong(*, cycle: bool = True, **facts: Any) -> tuple[Runner[Any, str], ScriptedModel]:
    """`A` and `B` do nothing but transfer to each other."""
    model = ScriptedModel({"A": [transfer_to("B")], "B": [transfer_to("A")], "Helper": ["I take over"]}, cycle=cycle)
    return Runner(Agent("A", sub_agents=[Agent("B")]), model=model, **facts), model


async def test_the_third_round_trip_without_news_ends_the_run() -> None:
    # T20
    runner, model = ping_pong()
    live = runner.stream("hi")
    with pytest.raises(LoopError, match="`B` and `A` transferred back and forth 3 times") as caught:
        await live._drive()
    error = caught.value
    assert (error.source, error.target, error.times) == ("B", "A", 3)
    assert error.path == ("A", "B") * 3
    assert "Runner(loop_fallback=…)" in str(error)
    assert isinstance(error, TransferError)
    assert len(model.requests) == 6
    assert sum(isinstance(event, ControlTransferred) for event in live.result.events) == 5


@pytest.mark.parametrize("allowed", [1, 2, 5])
async def test_how_many_round_trips_may_be_chosen(allowed: int) -> None:
    # T20
    runner, model = ping_pong(limits=Limits(idle_cycles=allowed))
    with pytest.raises(LoopError):
        await runner.run("hi")
    assert len(model.requests) == 2 * allowed


async def test_without_a_limit_of_round_trips_the_limit_of_transfers_remains() -> None:
    # T20
    runner, _ = ping_pong(limits=Limits(idle_cycles=None))
    live = runner.stream("hi")
    with pytest.raises(LimitError, match=r"limit of 32 transfers at .* → B → A; raise it with Limits") as caught:
        await live._drive()
    assert (caught.value.limit, caught.value.allowed) == ("transfers", 32)
    assert caught.value.path == ("A", "B") * 16 + ("A",)
    assert sum(isinstance(event, ControlTransferred) for event in live.result.events) == 32


async def test_new_text_in_between_is_news() -> None:
    # T20
    steps = [say(f"thought {number}", transfer_to("B")) for number in range(8)]
    model = ScriptedModel({"A": [*steps, "done"], "B": [transfer_to("A")] * 8})
    result = await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")
    assert result.output == "done"


async def test_the_same_text_again_is_no_news() -> None:
    # T20
    model = ScriptedModel(
        {"A": [say("over to you", transfer_to("B"))], "B": [say("no, over to you", transfer_to("A"))]}, cycle=True
    )
    with pytest.raises(LoopError):
        await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")


async def test_a_new_tool_result_in_between_is_news() -> None:
    # T20
    count: list[int] = []

    @tool
    async def measure() -> str:
        count.append(1)
        return f"measured {len(count)}"

    model = ScriptedModel({"A": [*[[call("measure"), transfer_to("B")]] * 8, "done"], "B": [transfer_to("A")] * 8})
    result = await Runner(Agent("A", tools=[measure], sub_agents=[Agent("B")]), model=model).run("hi")
    assert result.output == "done"


async def test_the_same_tool_result_again_is_no_news() -> None:
    # T20
    @tool
    async def measure() -> str:
        return "always the same"

    model = ScriptedModel({"A": [[call("measure"), transfer_to("B")]], "B": [transfer_to("A")]}, cycle=True)
    with pytest.raises(LoopError):
        await Runner(Agent("A", tools=[measure], sub_agents=[Agent("B")]), model=model).run("hi")


async def test_what_the_user_answers_in_between_is_news() -> None:
    # T20: the answer comes in as the result of the tool that asked.
    @tool
    async def ask(ctx: RunContext) -> str:
        return str(await ctx.interrupt("?"))

    model = ScriptedModel({"A": [*[[call("ask"), transfer_to("B")]] * 5, "done"], "B": [transfer_to("A")] * 5})
    runner = Runner(Agent("A", tools=[ask], sub_agents=[Agent("B")]), model=model)
    result = await runner.run("hi")
    for number in range(5):
        result = await runner.resume(result.run_id, f"answer {number}")
    assert result.output == "done"


async def test_a_third_agent_in_between_starts_the_count_anew() -> None:
    # T20: the detector is about a pair.
    to_b, to_a, to_c = transfer_to("B"), transfer_to("A"), transfer_to("C")
    model = ScriptedModel({"A": [to_b, to_b, to_c, to_b, to_b, "done"], "B": [to_a] * 4, "C": [to_a]})
    children = [Agent("B"), Agent("C")]
    assert (await Runner(Agent("A", sub_agents=children), model=model).run("hi")).output == "done"


async def test_a_failed_transfer_in_between_is_no_news() -> None:
    # T20: that there is no such agent is told every time.
    model = ScriptedModel({"A": [transfer_to("Nobody"), transfer_to("B")], "B": [transfer_to("A")]}, cycle=True)
    with pytest.raises(LoopError):
        await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("hi")


async def test_a_loop_may_go_to_somebody_who_takes_over() -> None:
    # T20
    runner, _ = ping_pong(loop_fallback="Helper", extra_agents=[Agent("Helper")])
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


async def test_too_many_transfers_may_go_to_somebody_who_takes_over() -> None:
    # T20: both limits go there.
    limits = Limits(transfers=4, idle_cycles=None)
    runner, _ = ping_pong(loop_fallback="Helper", extra_agents=[Agent("Helper")], limits=limits)
    result = await runner.run("hi")
    assert (result.agent, result.output) == ("Helper", "I take over")
    assert [event.reason for event in result.events if isinstance(event, ControlTransferred)] == [
        "",
        "",
        "",
        "",
        "loop",
    ]


async def test_who_takes_over_is_not_asked_twice() -> None:
    # T20: a rescue that leads back into the loop ends it after all.
    model = ScriptedModel(
        {"A": [transfer_to("B")], "B": [transfer_to("A")], "Helper": [call("transfer_to_a")]}, cycle=True
    )
    helper = Agent("Helper", handoffs=["A"])
    runner = Runner(Agent("A", sub_agents=[Agent("B")]), model=model, loop_fallback="Helper", extra_agents=[helper])
    with pytest.raises(LoopError):
        await runner.run("hi")
    assert [request.agent for request in model.requests].count("Helper") == 1


async def test_a_loop_of_callbacks_is_noticed_too() -> None:
    # T20, T21: control that goes back by itself counts like a transfer.
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["the same answer"]}, cycle=True)
    runner = Runner(Agent("A", handoffs=[handoff(Agent("B"), return_to="caller")]), model=model)
    with pytest.raises(LoopError):
        await runner.run("hi")


async def test_nobody_is_called_back_after_somebody_took_over() -> None:
    # T20, T21: B never got the floor, so A does not wait for it.
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("transfer_to_a")], "Helper": ["over"]}, cycle=True)
    b = Agent("B", handoffs=[handoff("A", return_to="caller")])
    a = Agent("A", handoffs=[handoff(b, return_to="caller")])
    result = await Runner(a, model=model, loop_fallback="Helper", extra_agents=[Agent("Helper")]).run("hi")
    assert (result.agent, result.output) == ("Helper", "over")


async def test_limits_hold_across_resume() -> None:
    # T20: what was used before a resume counts.
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


async def test_a_run_stopped_by_a_limit_goes_on_with_a_higher_one() -> None:
    # T20, DESIGN §1
    model = ScriptedModel({"A": [transfer_to("B"), "done"], "B": [transfer_to("A")]})
    runner = Runner(Agent("A", sub_agents=[Agent("B")]), model=model, limits=Limits(transfers=1))
    live = runner.stream("hi")
    with pytest.raises(LimitError):
        await live._drive()
    result = await runner.resume(live.run_id, limits=Limits(transfers=2))
    assert result.output == "done"
    model.assert_done()
