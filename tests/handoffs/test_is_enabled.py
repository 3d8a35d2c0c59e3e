"""Conditional handoffs: `is_enabled` is evaluated every turn; disabled handoffs are hidden and refused."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, AgentContext, RunContext, RunError, Runner, SetupError, handoff, tool
from batonkit.agents import RunHooks
from batonkit.errors import TransferError
from batonkit.log import AgentResponded, ControlTransferred, decode_log, encode_log
from batonkit.messages import text_of
from batonkit.models import ModelRequest
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedModel, call, say, transcript


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


@tool
async def wait() -> str:
    """Take a turn."""
    return "waited"


def offered_handoffs(request: ModelRequest) -> list[str]:
    """Return the handoff tools that a request offers."""
    return [spec.name for spec in request.tools if spec.name.startswith("transfer_to_")]


async def answer_later(answer: bool) -> bool:
    """Return the answer after other tasks have run."""
    await asyncio.sleep(0)
    return answer


DISABLED: dict[str, Any] = {
    "a bool": False,
    "a function": lambda ctx, source: False,  # pyright: ignore[reportUnknownLambdaType]
    "a coroutine": lambda ctx, source: answer_later(False),  # pyright: ignore[reportUnknownLambdaType]
    "a false value": 0,
}


@pytest.mark.parametrize("kind", DISABLED)
@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_disabled_handoff_is_hidden_and_refused(kind: str, is_alone: bool) -> None:
    called: list[str] = []
    edge = handoff(Agent("B"), is_enabled=DISABLED[kind], on_handoff=lambda ctx: called.append("on_handoff"))
    transfer = call("transfer_to_b")
    model = ScriptedModel([transfer if is_alone else [call("wait"), transfer], "I stay"])
    result = await Runner(Agent("A", model=model, tools=[wait], handoffs=[edge, Agent("C")])).run("hi")
    assert [offered_handoffs(request) for request in model.requests] == [["transfer_to_c"], ["transfer_to_c"]]
    assert (result.agent, result.output, called) == ("A", "I stay", [])
    text = text_of(model.requests[1].messages[-1].content)
    assert text == "Not transferred: [B] is not available now; you can transfer to: `C`."


async def test_an_enabled_handoff_is_followed_if_a_disabled_one_is_called_too() -> None:
    # A disabled handoff does not count as a second transfer.
    model = ScriptedModel({"A": [[call("transfer_to_b"), call("transfer_to_c")]], "C": ["hello"]})
    edges = [handoff(Agent("B"), is_enabled=False), Agent("C")]
    result = await Runner(
        Agent("A", handoffs=edges), model=model, handoff_rules=HandoffRules(multiple_transfers="error")
    ).run("hi")
    assert result.agent == "C"
    assert "available" not in "".join(text_of(message.content) for message in model.requests[1].messages)


async def test_repeated_calls_of_a_disabled_handoff_raise_a_transfer_error() -> None:
    model = ScriptedModel([call("transfer_to_b")], cycle=True)
    runner = Runner(
        Agent("A", model=model, handoffs=[handoff(Agent("B"), is_enabled=False)]),
        handoff_rules=HandoffRules(max_corrections=1),
    )
    with pytest.raises(TransferError) as caught:
        await runner.run("hi")
    assert (caught.value.source, caught.value.target) == ("A", "B")
    assert len(model.requests) == 2


async def test_conditions_are_evaluated_every_turn() -> None:
    asked: list[tuple[str, str, str]] = []

    def when_greeted(ctx: RunContext[str], source: Any) -> bool:
        asked.append((ctx.agent, source.name, ctx.context))
        return ctx.values.get("is_greeted", False)

    @tool
    async def greet(ctx: RunContext) -> str:
        """Greet."""
        ctx.values.set("is_greeted", True)
        return "hello"

    model = ScriptedModel({"A": [call("wait"), call("greet"), call("transfer_to_b")], "B": ["done"]})
    a = Agent("A", tools=[wait, greet], handoffs=[handoff(Agent("B"), is_enabled=when_greeted)])
    result = await Runner(a, model=model).run("hi", context="mine")
    assert [offered_handoffs(request) for request in model.requests] == [[], [], ["transfer_to_b"], []]
    assert asked == [("A", "A", "mine")] * 3
    assert result.agent == "B"


async def test_conditions_are_evaluated_concurrently() -> None:
    # The barrier opens only if all conditions run at the same time.
    barrier = asyncio.Barrier(3)

    def make_condition(answer: bool) -> Callable[[RunContext[Any], Any], Any]:
        async def condition(ctx: RunContext[Any], source: Any) -> bool:
            await barrier.wait()
            return answer

        return condition

    edges = [handoff(Agent(name), is_enabled=make_condition(name != "C")) for name in "BCD"]
    model = ScriptedModel([call("wait"), "done"])
    await Runner(Agent("A", model=model, tools=[wait], handoffs=edges)).run("hi")
    assert [offered_handoffs(request) for request in model.requests] == [["transfer_to_b", "transfer_to_d"]] * 2


async def test_conditions_are_evaluated_after_hooks_and_instructions() -> None:
    order: list[str] = []

    class RecordingHooks(RunHooks):
        def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
            order.append("hook")

    def instructions(ctx: AgentContext[Any]) -> str:
        order.append("instructions")
        ctx.values.set("is_prepared", True)
        return "Be good."

    def when_prepared(ctx: RunContext[Any], source: Any) -> bool:
        order.append("condition")
        return ctx.values["is_prepared"]

    def answer(request: ModelRequest) -> str:
        order.append("model")
        return "done"

    edge = handoff(Agent("B"), is_enabled=when_prepared)
    model = ScriptedModel([answer])
    await Runner(Agent("A", model=model, instructions=instructions, handoffs=[edge]), hooks=RecordingHooks()).run("hi")
    assert order == ["hook", "instructions", "condition", "model"]
    assert offered_handoffs(model.requests[0]) == ["transfer_to_b"]


async def test_values_set_by_a_condition_are_recorded_with_the_turn() -> None:
    def counting(ctx: RunContext[Any], source: Any) -> bool:
        ctx.values.set("asked", ctx.values.get("asked", 0) + 1)
        return True

    model = ScriptedModel([call("ask", question="?"), "done"])
    a = Agent("A", model=model, tools=[ask], handoffs=[handoff(Agent("B"), is_enabled=counting)])
    runner = Runner(a)
    suspended = await runner.run("hi")
    assert suspended.values == {"asked": 1}
    result = await runner.resume(suspended.run_id, "yes")
    assert result.values == {"asked": 2}
    assert (await runner.runs.replay(result.events)).values == {"asked": 2}


# --- conditions that raise


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_condition_that_raises_fails_the_run_and_cancels_the_other_conditions(is_async: bool) -> None:
    # The other conditions are cancelled and awaited.
    ended: list[str] = []
    is_waiting, is_broken = asyncio.Event(), True

    async def wait_forever(ctx: RunContext[Any], source: Any) -> bool:
        if not is_broken:
            return True
        is_waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cancelled")
        return True

    def fail(ctx: RunContext[Any], source: Any) -> bool:
        if is_broken:
            raise LookupError("no such tier")
        return True

    async def fail_later(ctx: RunContext[Any], source: Any) -> bool:
        await is_waiting.wait()
        return fail(ctx, source)

    edges = [
        handoff(Agent("B"), is_enabled=wait_forever),
        handoff(Agent("C"), is_enabled=fail_later if is_async else fail),
    ]
    model = ScriptedModel({"A": [call("transfer_to_c")], "C": ["done"]})
    runner = Runner(Agent("A", handoffs=edges), model=model)
    live = runner.stream("hi")
    with pytest.raises(RunError, match="the handoff from `A` to `C` raised LookupError: no such tier") as caught:
        await live._drive()
    assert isinstance(caught.value.__cause__, LookupError)
    assert ended == ["cancelled"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert model.requests == []
    is_broken = False
    assert (await runner.resume(live.run_id)).output == "done"


async def test_a_baton_error_in_a_condition_names_the_handoff() -> None:
    def set_invalid_value(ctx: RunContext[Any], source: Any) -> bool:
        ctx.values.set("when", object())
        return True

    runner = Runner(
        Agent("A", model=ScriptedModel(["never"]), handoffs=[handoff(Agent("B"), is_enabled=set_invalid_value)])
    )
    with pytest.raises(RunError, match="from `A` to `B`"):
        await runner.run("hi")


# --- resume and replay


@pytest.mark.parametrize("was_on", [True, False])
async def test_a_resumed_turn_uses_the_recorded_conditions(was_on: bool) -> None:
    # The call is checked against the handoffs that the model was offered, also in another process.
    def team(is_on: bool, *, must_not_evaluate: bool = False) -> Agent:
        def condition(ctx: RunContext[Any], source: Any) -> bool:
            assert not must_not_evaluate
            return is_on

        return Agent("A", tools=[ask], handoffs=[handoff(Agent("B"), is_enabled=condition)])

    steps = [[call("ask", question="?"), call("transfer_to_b")], "I stay"]
    model = ScriptedModel({"A": steps, "B": ["B is here"]})
    suspended = await Runner(team(was_on), model=model).run("hi")
    (response,) = [event for event in suspended.events if isinstance(event, AgentResponded)]
    assert response.disabled_handoffs == (() if was_on else ("transfer_to_b",))

    other = Runner(team(not was_on), model=model)
    result = await other.resume(await other.runs.load(decode_log(encode_log(suspended.events))), "yes")
    assert result.output == ("B is here" if was_on else "I stay")
    assert len([event for event in result.events if isinstance(event, ControlTransferred)]) == was_on

    replayed = await Runner(team(not was_on, must_not_evaluate=True), model=model).runs.replay(result.events)
    assert replayed.output == result.output
    assert transcript(replayed.events) == transcript(result.events)


async def test_a_condition_can_interrupt() -> None:
    # An interrupt is possible anywhere, and its id depends on its place.
    async def ask_person(ctx: RunContext[Any], source: Any) -> bool:
        return await ctx.interrupt(f"is it on in turn {len(model.requests) + 1}?")

    model = ScriptedModel({"A": [call("wait"), call("transfer_to_b")], "B": ["hello"]})
    a = Agent("A", tools=[wait], handoffs=[handoff(Agent("B"), is_enabled=ask_person)])
    runner = Runner(a, model=model)
    result = await runner.run("hi", run_id="r")
    for payload, answer in (("is it on in turn 1?", False), ("is it on in turn 2?", True)):
        assert [question.payload for question in result.interrupts] == [payload]
        result = await runner.resume("r", answer)
    assert [offered_handoffs(request) for request in model.requests[:2]] == [[], ["transfer_to_b"]]
    assert result.agent == "B"


async def test_a_step_in_a_condition_runs_once_per_turn() -> None:
    # The condition is not evaluated again for a recorded turn, and the log stays valid.
    looked_up: list[str] = []

    async def is_premium(ctx: RunContext[Any], source: Any) -> bool:
        return await ctx.step("tier", lambda: looked_up.append("tier") or "premium") == "premium"

    model = ScriptedModel([call("ask", question="?"), "done"])
    a = Agent("A", model=model, tools=[ask], handoffs=[handoff(Agent("B"), is_enabled=is_premium)])
    runner = Runner(a)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, "yes")
    assert len(looked_up) == 2
    await runner.runs.replay(result.events)
    assert len(looked_up) == 2


# --- handoffs with the same tool name


class Case(BaseModel):
    """The input of one of two handoffs with the same tool name."""

    subject: str


def is_open(ctx: RunContext[Any], agent: Any) -> bool:
    return bool(ctx.values.get("open"))


def is_closed(ctx: RunContext[Any], agent: Any) -> bool:
    return not ctx.values.get("open")


@pytest.mark.parametrize("is_day", [True, False])
async def test_handoffs_that_exclude_each_other_may_share_a_name(is_day: bool) -> None:
    # The team was refused.
    seen: list[Any] = []
    day = handoff(Agent("Day"), tool_name_override="transfer_to_desk", is_enabled=is_open)
    night = handoff(
        Agent("Night"),
        tool_name_override="transfer_to_desk",
        is_enabled=is_closed,
        input_type=Case,
        on_handoff=lambda ctx, case: seen.append(case.subject),
    )
    arguments = {} if is_day else {"subject": "lamp"}
    model = ScriptedModel({"A": [call("transfer_to_desk", **arguments)], "Day": ["good day"], "Night": ["good night"]})
    runner = Runner(Agent("A", handoffs=[day, night]), model=model)
    result = await runner.run("hi", values={"open": is_day})
    assert result.output == ("good day" if is_day else "good night")
    (spec,) = model.requests[0].tools
    assert ("subject" in spec.parameters["properties"]) is not is_day
    assert seen == ([] if is_day else ["lamp"])
    response = next(event for event in result.events if isinstance(event, AgentResponded))
    assert response.disabled_handoffs == (("transfer_to_desk#2",) if is_day else ("transfer_to_desk",))
    assert (await runner.runs.replay(result.events)).output == result.output


@pytest.mark.parametrize("is_day", [True, False])
async def test_handoffs_to_the_same_agent_may_share_a_name(is_day: bool) -> None:
    # The options of the enabled handoff apply.
    target = Agent("B")
    edges = [handoff(target, is_enabled=is_open, history="none"), handoff(target, is_enabled=is_closed)]
    model = ScriptedModel({"A": [say("I know", call("transfer_to_b"))], "B": ["done"]})
    await Runner(Agent("A", handoffs=edges), model=model).run("hi", values={"open": is_day})
    assert len(model.requests[1].messages) == (1 if is_day else 3)


async def test_a_disabled_handoff_may_have_the_name_of_another() -> None:
    off, on = (
        handoff(Agent("Old"), tool_name_override="go", is_enabled=False),
        handoff(Agent("New"), tool_name_override="go"),
    )
    model = ScriptedModel({"A": [call("go")], "New": ["new"]})
    result = await Runner(Agent("A", handoffs=[off, on]), model=model).run("hi")
    assert (result.agent, result.output) == ("New", "new")


async def test_handoffs_with_the_same_name_must_not_be_enabled_together() -> None:
    edges = [handoff(Agent(name), tool_name_override="go", is_enabled=lambda ctx, agent: True) for name in "BC"]
    runner = Runner(Agent("A", handoffs=edges), model=ScriptedModel(["never asked"]))
    with pytest.raises(
        SetupError, match=r"`A` has two handoffs enabled at once that are called `go`: to `B` and to `C`"
    ):
        await runner.run("hi")


def test_handoffs_that_are_always_enabled_must_not_share_a_name() -> None:
    edges = [handoff(Agent(name), tool_name_override="go") for name in "BC"]
    with pytest.raises(SetupError, match="`A` has two tools called `go`"):
        Runner(Agent("A", handoffs=edges))


async def test_a_call_is_refused_if_all_handoffs_with_its_name_are_disabled() -> None:
    edges = [handoff(Agent(name), tool_name_override="go", is_enabled=False) for name in "BC"]
    model = ScriptedModel([call("go"), "done"])
    result = await Runner(Agent("A", handoffs=edges), model=model).run("hi")
    assert model.requests[0].tools == ()
    assert result.output == "done"
