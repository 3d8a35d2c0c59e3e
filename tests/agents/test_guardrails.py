"""Guardrails around agents: what they see, when they are asked, what a no prevents, and that each is asked once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from tests.agents.judges import Hanging, Judge, ask, failure_of

from baton import (
    Agent,
    AgentContext,
    Exit,
    GuardrailVerdict,
    RunContext,
    Runner,
    RunResult,
    SetupError,
    Transfer,
    agent,
    guardrail,
    handoff,
    then_transfer,
)
from baton.agents import AgentHooks, with_guardrails
from baton.errors import GuardrailFailedError, GuardrailTrippedError, NotEncodableError, ReplayMismatchError
from baton.events import AgentResponded, BreakLoop, ControlTransferred, StepCompleted, ToolReturned
from baton.events.codec import decode_log, encode_log
from baton.messages import Message, ToolMessage, text_of
from baton.models import ModelRequest
from baton.runner import GuardrailResult
from baton.testing import ScriptedModel, call, transcript, transfer_to

MODES = pytest.mark.parametrize("mode", ["blocking", "parallel"])


# What a guardrail may be, and what it may say.


@MODES
async def test_a_run_that_passes_is_as_it_would_be_without_and_has_the_verdicts(mode: Any) -> None:
    model = ScriptedModel([call("add", a=1), "done"])
    added: list[int] = []

    def add(a: int) -> str:
        """Add."""
        added.append(a)
        return "added"

    def short(ctx: RunContext[Any], output: str) -> GuardrailVerdict:
        return GuardrailVerdict(len(output) < 9, info={"length": len(output)})

    judge = Judge("polite")
    runner = Runner(
        with_guardrails(Agent("Desk", tools=[add]), input_guardrails=[judge], output_guardrails=[short], mode=mode),
        model=model,
    )
    result = await runner.run("go")
    assert (result.output, added) == ("done", [1])
    assert transcript(result.events) == [
        'run of Desk started with "go"',
        "Desk started",
        'Desk: step guardrail:input:polite -> {"passed":true}',
        'Desk: called add({"a":1})',
        "Desk: add -> added",
        'Desk: said "done"',
        'Desk: step guardrail:output:short -> {"passed":true,"info":{"length":4}}',
        "Desk finished",
        "run completed",
    ]
    assert result.guardrail_results == (
        GuardrailResult("polite", "input", "Desk", GuardrailVerdict(True)),
        GuardrailResult("short", "output", "Desk", GuardrailVerdict(True, info={"length": 4})),
    )
    # It reads what the agent reads, and only once: later turns of the activation are not its business.
    assert [[text_of(message.content) for message in messages] for messages in judge.seen] == [["go"]]
    assert len(model.requests) == 2
    replayed = await runner.replay(result.events)
    assert (replayed.output, len(judge.seen)) == ("done", 1)


@MODES
@pytest.mark.parametrize("ruling", [True, None, GuardrailVerdict(True), GuardrailVerdict(True, "fine")])
async def test_what_lets_pass(ruling: Any, mode: Any) -> None:
    desk = with_guardrails(Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[Judge("j", ruling)], mode=mode)
    assert (await Runner(desk).run("go")).output == "hi"


@MODES
@pytest.mark.parametrize("ruling", [False, GuardrailVerdict(False), GuardrailVerdict(False, "rude", {"words": ["x"]})])
async def test_what_stops(ruling: Any, mode: Any) -> None:
    desk = with_guardrails(Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[Judge("j", ruling)], mode=mode)
    error, result = await failure_of(Runner(desk))
    assert isinstance(error, GuardrailTrippedError)
    verdict = GuardrailVerdict(False) if ruling is False else ruling
    assert (error.guardrail, error.agent, error.stage, error.tool) == ("j", "Desk", "input", "")
    assert (error.reason, error.verdict) == (verdict.reason, verdict)
    assert str(error) == "guardrail `j` stopped the input of `Desk`" + (": rude" if verdict.reason else "")
    assert (result.status, result.error) == ("failed", error)
    assert result.guardrail_results == (GuardrailResult("j", "input", "Desk", verdict),)
    assert not [event for event in result.events if isinstance(event, AgentResponded)]


async def test_functions_sync_and_async_and_objects_and_names() -> None:
    def plain(ctx: RunContext, messages: Sequence[Message]) -> bool:
        return True

    async def slow(ctx: RunContext, messages: Sequence[Message]) -> None:
        await asyncio.sleep(0)

    @guardrail
    def decorated(ctx: RunContext, messages: Sequence[Message]) -> bool:
        return True

    @guardrail(name="a name of its own: with colon / slash")
    async def renamed(ctx: RunContext, messages: Sequence[Message]) -> bool:
        return ctx.agent == "Desk"

    class Polite:
        def __call__(self, ctx: RunContext, messages: Sequence[Message]) -> bool:
            return True

    by_lambda = guardrail(lambda ctx, messages: True, name="by lambda")
    assert decorated(None, ()) is True  # pyright: ignore[reportArgumentType]
    checks = [plain, slow, decorated, renamed, Polite(), Judge("judge"), by_lambda]
    result = await Runner(with_guardrails(Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=checks)).run(
        "go"
    )
    names = [said.name for said in result.guardrail_results]
    own = "a name of its own: with colon / slash"
    assert sorted(names) == sorted(["plain", "slow", "decorated", own, "Polite", "judge", "by lambda"])


async def test_a_step_of_the_application_with_such_a_name_is_no_verdict() -> None:
    @agent("Desk")
    async def desk(ctx: AgentContext) -> None:
        await ctx.step("guardrail:input:mine", lambda: {"passed": False})

    assert (await Runner(desk).run("go")).guardrail_results == ()


# When the input is judged.


async def test_blocking_asks_before_the_agent_does_anything() -> None:
    done: list[str] = []

    def instructions(ctx: AgentContext[Any]) -> str:
        done.append("instructions")
        return ""

    model = ScriptedModel(["hi"])
    desk = with_guardrails(Agent("Desk", instructions=instructions, model=model), input_guardrails=[Judge("j", False)])
    await failure_of(Runner(desk))
    assert (done, model.requests) == ([], [])


@MODES
async def test_cancelling_closes_guardrails_and_model(mode: Any) -> None:
    model, is_asked, is_closed = Hanging(), asyncio.Event(), asyncio.Event()

    async def judge(ctx: RunContext, messages: Sequence[Message]) -> bool:
        try:
            is_asked.set()
            await asyncio.Event().wait()
        finally:
            is_closed.set()
        return True

    async with Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[judge], mode=mode)).stream(
        "go"
    ) as run:
        await is_asked.wait()
        if mode == "parallel":
            await model.is_asked.wait()
        await run.cancel()
        assert is_closed.is_set()
        assert model.is_closed.is_set() == (mode == "parallel")
    assert run.result.status == "cancelled"
    assert run.result.guardrail_results == ()


# Several at once.


@MODES
async def test_several_are_asked_at_once(mode: Any) -> None:
    everybody = asyncio.Barrier(3)

    def meeting(name: str) -> Any:
        async def judge(ctx: RunContext, messages: Sequence[Message]) -> bool:
            await everybody.wait()
            return True

        return guardrail(judge, name=name)

    checks = [meeting("a"), meeting("b"), meeting("c")]
    result = await Runner(
        with_guardrails(Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=checks, mode=mode)
    ).run("go")
    assert sorted(said.name for said in result.guardrail_results) == ["a", "b", "c"]


@MODES
async def test_all_are_heard_and_the_first_in_the_list_counts_not_the_fastest(mode: Any) -> None:
    second_is_done = asyncio.Event()

    async def first(ctx: RunContext, messages: Sequence[Message]) -> GuardrailVerdict:
        await second_is_done.wait()
        return GuardrailVerdict(False, "first")

    def second(ctx: RunContext, messages: Sequence[Message]) -> GuardrailVerdict:
        second_is_done.set()
        return GuardrailVerdict(False, "second")

    desk = with_guardrails(
        Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[first, second, Judge("third")], mode=mode
    )
    error, result = await failure_of(runner := Runner(desk))
    assert isinstance(error, GuardrailTrippedError)
    assert error.reason == "first"
    assert [said.name for said in result.guardrail_results] == ["second", "third", "first"]
    again = Runner(desk).load_log(result.events)
    assert again == result.run_id
    with pytest.raises(GuardrailTrippedError, match="first"):
        await runner.resume(result.run_id)


@MODES
async def test_a_no_counts_more_than_an_error_or_a_question(mode: Any) -> None:
    async def asks(ctx: RunContext, messages: Sequence[Message]) -> Any:
        return await ctx.interrupt("?")

    checks = [Judge("broken", OSError("x")), asks, Judge("strict", False)]
    error, _ = await failure_of(
        Runner(with_guardrails(Agent("D", model=ScriptedModel(["hi"])), input_guardrails=checks, mode=mode))
    )
    assert isinstance(error, GuardrailTrippedError)
    error, _ = await failure_of(
        Runner(with_guardrails(Agent("D", model=ScriptedModel(["hi"])), input_guardrails=checks[:2], mode=mode))
    )
    assert isinstance(error, GuardrailFailedError)


# What goes wrong in a guardrail.


@MODES
@pytest.mark.parametrize("stage", ["input", "output"])
async def test_a_guardrail_that_raises_ends_the_run_and_is_named(mode: Any, stage: str) -> None:
    cause = OSError("no line")
    judge, steady = Judge("broken", cause, True), Judge("steady")
    checks: dict[str, Any] = {f"{stage}_guardrails": [judge, steady]}
    runner = Runner(with_guardrails(Agent("Desk", model=ScriptedModel(["hi", "hi"])), mode=mode, **checks))
    error, result = await failure_of(runner)
    assert isinstance(error, GuardrailFailedError)
    assert str(error) == f"guardrail `broken` could not check the {stage} of `Desk`: it raised OSError: no line"
    assert (error.guardrail, error.agent, error.stage) == ("broken", "Desk", stage)
    if (mode, stage) != ("parallel", "input"):
        assert error.__cause__ is cause
    # A resumed run asks again whoever said nothing, and nobody else.
    result = await runner.resume(result.run_id)
    assert (result.output, len(judge.seen), len(steady.seen)) == ("hi", 2, 1)


@MODES
async def test_info_must_be_what_json_can_hold(mode: Any) -> None:
    desk = with_guardrails(
        Agent("D", model=ScriptedModel(["hi"])),
        input_guardrails=[Judge("j", GuardrailVerdict(True, info=object()))],
        mode=mode,
    )
    error, result = await failure_of(Runner(desk))
    assert isinstance(error, NotEncodableError)
    assert "the info in the verdict of guardrail `j` is an object" in str(error)
    assert result.guardrail_results == ()


async def test_info_is_the_same_at_once_and_after_a_resume() -> None:
    class Found(BaseModel):
        words: tuple[str, ...]

    judge = Judge("j", GuardrailVerdict(False, "rude", Found(words=("x",))))
    runner = Runner(with_guardrails(Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[judge]))
    error, result = await failure_of(runner)
    assert isinstance(error, GuardrailTrippedError)
    assert error.verdict.info == {"words": ["x"]}
    assert result.guardrail_results[0].verdict == error.verdict


@pytest.mark.parametrize("ruling", ["no", 0, GuardrailVerdict("no"), GuardrailVerdict(True, None)])  # pyright: ignore[reportArgumentType]
async def test_what_is_no_verdict_is_refused(ruling: Any) -> None:
    error, _ = await failure_of(
        Runner(with_guardrails(Agent("D", model=ScriptedModel(["hi"])), input_guardrails=[Judge("j", ruling)]))
    )
    assert isinstance(error, SetupError)
    assert str(error).startswith(f"guardrail `j` returned {ruling!r}; return GuardrailVerdict(…), True or None to pass")


# Once, over every resume.


@MODES
async def test_a_no_is_final_for_every_resume(mode: Any) -> None:
    judge, unheard = Judge("j", GuardrailVerdict(False, "no"), True), Judge("unheard")
    model = ScriptedModel(["hi"] * 3)
    runner = Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[unheard, judge], mode=mode))
    error, result = await failure_of(runner)
    asked = len(model.requests)
    with pytest.raises(GuardrailTrippedError, match="no"):
        await runner.resume(result.run_id)
    # Also in another process, and if the process ended before everybody was heard.
    told = [event for event in decode_log(encode_log(result.events)) if "unheard" not in event.key]
    other = Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[unheard, judge], mode=mode))
    other.load_log(told)
    with pytest.raises(GuardrailTrippedError) as caught:
        await other.resume(result.run_id)
    assert isinstance(error, GuardrailTrippedError)
    assert (str(caught.value), caught.value.verdict) == (str(error), error.verdict)
    assert (len(judge.seen), len(unheard.seen), len(model.requests)) == (1, 1, asked)
    with pytest.raises(GuardrailTrippedError):
        await runner.replay(result.events)


@MODES
async def test_an_interrupt_inside_passes_through_and_nothing_is_judged_twice(mode: Any) -> None:
    before, after = Judge("before", GuardrailVerdict(True, info=1), False), Judge("after")
    model = ScriptedModel([call("ask", question="sure?"), "done"])
    runner = Runner(
        with_guardrails(
            Agent("Desk", model=model, tools=[ask]), input_guardrails=[before], output_guardrails=[after], mode=mode
        )
    )
    result = await runner.run("go")
    assert (result.status, [each.payload for each in result.interrupts]) == ("suspended", ["sure?"])
    assert [said.name for said in result.guardrail_results] == ["before"]
    result = await runner.resume(result.run_id, "yes")
    assert (result.output, len(before.seen), after.seen) == ("done", 1, ["done"])
    assert [said.verdict for said in result.guardrail_results] == [
        GuardrailVerdict(True, info=1),
        GuardrailVerdict(True),
    ]
    await runner.replay(result.events)
    assert (len(before.seen), len(after.seen)) == (1, 1)


@MODES
async def test_guardrails_may_ask_people_each_for_itself(mode: Any) -> None:
    def asking(name: str) -> Any:
        async def judge(ctx: RunContext, messages: Sequence[Message]) -> Any:
            await ctx.step("look", lambda: name)
            return await ctx.interrupt(name)

        return guardrail(judge, name=name)

    def answer(request: ModelRequest) -> Any:
        return "done" if isinstance(request.messages[-1], ToolMessage) else call("ask", question="third")

    desk = with_guardrails(Agent("Desk", tools=[ask]), input_guardrails=[asking("first"), asking("second")], mode=mode)
    runner = Runner(desk, model=ScriptedModel([answer], cycle=True))
    result = await runner.run("go")
    first, second = result.interrupts
    assert [first.payload, second.payload] == ["first", "second"]
    result = await runner.resume(result.run_id, {first.id: True})
    assert [each.payload for each in result.interrupts] == ["second"]
    # An answer to one is never taken for an answer to the other, whoever is no longer asked.
    result = await runner.resume(result.run_id, {second.id: True})
    assert [each.payload for each in result.interrupts] == ["third"]
    result = await runner.resume(result.run_id, "yes")
    assert (result.output, [said.name for said in result.guardrail_results]) == ("done", ["first", "second"])
    await runner.replay(result.events)


@MODES
async def test_values_a_guardrail_writes_are_recorded_with_its_verdict(mode: Any) -> None:
    async def judge(ctx: RunContext, messages: Sequence[Message]) -> bool:
        ctx.values.set("mood", "calm")
        return True

    model = ScriptedModel([call("ask", question="?"), "done"])
    runner = Runner(with_guardrails(Agent("Desk", model=model, tools=[ask]), input_guardrails=[judge], mode=mode))
    result = await runner.run("go")
    (judged,) = [event for event in result.events if isinstance(event, StepCompleted)]
    assert judged.value_changes is not None
    assert judged.value_changes.written == {"mood": "calm"}
    other = Runner(with_guardrails(Agent("Desk", model=model, tools=[ask]), input_guardrails=[judge], mode=mode))
    other.load_log(decode_log(encode_log(result.events)))
    assert (await other.resume(result.run_id, "yes")).values == {"mood": "calm"}


async def test_a_replay_refuses_before_it_asks() -> None:
    result = await Runner(Agent("Desk", model=ScriptedModel(["hi"]))).run("go")
    judge = Judge("new")
    with pytest.raises(ReplayMismatchError):
        await Runner(with_guardrails(Agent("Desk"), input_guardrails=[judge]), model=ScriptedModel([])).replay(
            result.events
        )
    assert judge.seen == []


# Output.


class City(BaseModel):
    name: str


@MODES
async def test_output_guardrails_see_the_valid_output(mode: Any) -> None:
    judge = Judge("known", GuardrailVerdict(False, "nobody knows it"))
    model = ScriptedModel(["not json", '{"name":"Atlantis"}'])
    runner = Runner(with_guardrails(Agent("Desk", output_type=City, model=model), output_guardrails=[judge], mode=mode))
    error, result = await failure_of(runner)
    assert judge.seen == [City(name="Atlantis")]
    assert str(error) == "guardrail `known` stopped the output of `Desk`: nobody knows it"
    assert result.status == "failed"
    assert [(said.stage, said.verdict.passed) for said in result.guardrail_results] == [("output", False)]
    with pytest.raises(GuardrailTrippedError):
        await runner.resume(result.run_id)
    assert len(judge.seen) == 1


async def test_output_guardrails_see_what_an_exit_gives() -> None:
    judge = Judge("j")
    inner = Agent("Desk", exit_tool=True, model=ScriptedModel([call("exit", final_result="bye")]))
    assert (await Runner(with_guardrails(inner, output_guardrails=[judge])).run("go")).output == "bye"
    assert judge.seen == ["bye"]
    judge = Judge("j", False)
    inner = inner.clone(model=ScriptedModel([call("exit", final_result="bye")]))
    assert isinstance(
        (await failure_of(Runner(with_guardrails(inner, output_guardrails=[judge]))))[0], GuardrailTrippedError
    )


@pytest.mark.parametrize(
    ("action", "said", "judged"),
    [
        (None, "text", ["text"]),
        (Exit(), "text", ["text"]),
        (Exit("result"), "text", ["result"]),
        (BreakLoop(), "text", ["text"]),
        (None, None, []),
        (Transfer("Other"), "text", []),
    ],
)
async def test_output_guardrails_of_an_agent_of_your_own(action: Any, said: Any, judged: list[str]) -> None:
    @agent("Desk", handoffs=["Other"])
    async def desk(ctx: AgentContext) -> Any:
        if said is not None:
            await ctx.say(said)
        return action

    judge = Judge("j")
    others = [Agent("Other", description="o", model=ScriptedModel(["theirs"]))]
    await Runner(with_guardrails(desk, output_guardrails=[judge]), extra_agents=others).run("go")
    assert judge.seen == judged


# Among other agents.


async def test_it_keeps_what_the_agent_is() -> None:
    class Noting(AgentHooks):
        def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
            started.append(agent.name)

    started: list[str] = []
    child = Agent("Child", description="c")
    expert = Agent("Expert", description="e")
    hooks = Noting()
    inner = Agent(
        "Desk",
        description="knows",
        tools=[ask],
        sub_agents=[child],
        handoffs=[handoff(expert, tool_name_override="to_expert")],
        disallow_transfer_to_parent=True,
        history="none",
        accepts=lambda ctx, payload: "closed today",
        hooks=hooks,
    )
    desk = with_guardrails(inner, input_guardrails=[Judge("i")])
    assert (desk.name, desk.description, desk.history, desk.hooks) == ("Desk", "knows", "none", hooks)
    assert (desk.sub_agents, desk._edges(), desk._tool_specs()) == (
        inner.sub_agents,
        inner._edges(),
        inner._tool_specs(),
    )
    assert (desk.disallow_transfer_to_parent, desk.accepts, desk._referenced_agents()) == (True, inner.accepts, ())
    assert repr(desk) == "GuardedAgent('Desk')"
    model = ScriptedModel({"Front": [call("transfer_to_desk"), "alone then"]})
    result = await Runner(Agent("Front", handoffs=[desk]), model=model).run("go")
    assert "Front: transfer_to_desk failed -> Not transferred: [Desk] declined: closed today" in transcript(
        result.events
    )
    assert started == []
    open_desk = with_guardrails(inner.clone(accepts=None), input_guardrails=[judge := Judge("i")], mode="parallel")
    model = ScriptedModel({"Front": [call("transfer_to_desk")], "Desk": [call("to_expert")], "Expert": ["solved"]})
    runner = Runner(Agent("Front", handoffs=[open_desk]), model=model)
    result = await runner.run("go")
    assert (result.output, result.agent, started) == ("solved", "Expert", ["Desk"])
    # history="none": it judges what the agent reads, not more.
    assert [list(messages) for messages in judge.seen] == [list(model.requests[1].messages)]
    assert [spec.name for spec in model.requests[1].tools] == ["ask", "transfer_to_agent", "to_expert"]
    await runner.replay(result.events)


async def test_functions_may_still_return_agents() -> None:
    weather = Agent("Weather", description="w", model=ScriptedModel(["sunny"]))

    def to_weather() -> Agent:
        return weather

    desk = with_guardrails(
        Agent("Desk", tools=[to_weather], model=ScriptedModel([call("to_weather")])), input_guardrails=[Judge("j")]
    )
    assert desk._referenced_agents() == (weather,)
    assert (await Runner(desk).run("go")).output == "sunny"


@MODES
async def test_every_time_it_gets_the_floor_it_is_judged_anew(mode: Any) -> None:
    judge = Judge("j", True, GuardrailVerdict(False, "once is enough"))
    other = Agent("Other", description="o", model=ScriptedModel([transfer_to("Desk")]))
    inner = Agent("Desk", sub_agents=[other], model=ScriptedModel([transfer_to("Other"), "again"]))
    error, result = await failure_of(Runner(with_guardrails(inner, input_guardrails=[judge], mode=mode)))
    assert "once is enough" in str(error)
    assert [said.verdict.passed for said in result.guardrail_results] == [True, False]
    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == ["Other", "Desk"]


@MODES
async def test_with_then_transfer_inside_and_outside(mode: Any) -> None:
    def team(model: ScriptedModel, wrapped: Callable[[Agent[Any, Any]], Any]) -> Runner[Any, Any]:
        return Runner(wrapped(Agent("Worker")), extra_agents=[Agent("Boss", description="b")], model=model)

    model = ScriptedModel({"Worker": ["work"], "Boss": ["well done"]})
    runner = team(
        model,
        lambda worker: with_guardrails(then_transfer(worker, to="Boss"), input_guardrails=[Judge("j")], mode=mode),
    )
    result = await runner.run("go")
    assert (result.output, [said.agent for said in result.guardrail_results]) == ("well done", ["Worker"])
    await runner.replay(result.events)

    judge = Judge("j", GuardrailVerdict(False, "sloppy"))
    model = ScriptedModel({"Worker": ["work"], "Boss": ["who did that?"]})
    runner = team(
        model,
        lambda worker: then_transfer(
            with_guardrails(worker, output_guardrails=[judge], mode=mode), to="Boss", on_error="report"
        ),
    )
    result = await runner.run("go")
    read = [text_of(message.content) for message in model.requests[1].messages]
    assert read == snapshot(
        [
            "go",
            "[Worker] failed: GuardrailTrippedError: guardrail `j` stopped the output of `Worker`: sloppy",
            'For context: [Worker] called tool: `transfer_to_agent` with arguments: {"agent_name":"Boss"}.',
            "For context: [Worker] `transfer_to_agent` tool returned result: successfully transferred to agent [Boss].",
        ]
    )
    await runner.replay(result.events)
    with pytest.raises(SetupError, match=r"then_transfer\(with_guardrails\(…\), to=…\)"):
        with_guardrails(then_transfer(Agent("Worker"), to="Boss"), output_guardrails=[judge])


async def test_two_runs_at_once_do_not_share_anything() -> None:
    both = asyncio.Barrier(2)

    async def judge(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await both.wait()
        return text_of(messages[-1].content) == "good"

    runner = Runner(
        with_guardrails(Agent("Desk", model=ScriptedModel(["hi"] * 2)), input_guardrails=[judge], mode="parallel")
    )
    ended = await asyncio.gather(runner.run("good"), runner.run("bad"), return_exceptions=True)
    assert isinstance(ended[0], RunResult)
    assert isinstance(ended[1], GuardrailTrippedError)


# How it is put together.


untyped: Any = with_guardrails
untyped_guardrail: Any = guardrail


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: untyped("Desk"), r"with_guardrails\('Desk'\) has nothing to guard; give an agent"),
        (
            lambda: untyped(Agent("D"), mode="later"),
            r"with_guardrails\(`D`\) has mode='later'; use \"blocking\" or \"parallel\"",
        ),
        (
            lambda: untyped(Agent("D"), input_guardrails=Judge("j")),
            r"with_guardrails\(`D`\) has input_guardrails=.*; give a list of guardrails",
        ),
        (lambda: untyped(Agent("D"), output_guardrails=[3]), r"3 is not a guardrail; give a function"),
        (lambda: untyped(Agent("D"), output_guardrails=[Judge]), r"is not a guardrail; give a function"),
        (
            lambda: with_guardrails(Agent("D"), input_guardrails=[lambda ctx, given: True]),
            r"has no name .* use guardrail\(…, name=…\)",
        ),
        (lambda: untyped_guardrail(len, name="one"), "guardrail `one` must take two arguments"),
        (
            lambda: untyped(Agent("D"), input_guardrails=[Judge("j"), Judge("j")]),
            r"the input of with_guardrails\(`D`\) has two guardrails called `j`",
        ),
        (
            lambda: untyped(
                then_transfer(untyped(Agent("D"), input_guardrails=[Judge("j")]), to="E"), input_guardrails=[Judge("j")]
            ),
            r"the input of with_guardrails\(`D`\) has two guardrails called `j`",
        ),
    ],
)
def test_mistakes_are_named_at_once(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        make()


async def test_the_same_name_at_different_stages_is_fine() -> None:
    judge = Judge("j")
    result = await Runner(
        with_guardrails(Agent("D", model=ScriptedModel(["hi"])), input_guardrails=[judge], output_guardrails=[judge])
    ).run("go")
    assert [(said.name, said.stage) for said in result.guardrail_results] == [("j", "input"), ("j", "output")]


async def test_without_guardrails_it_is_the_agent() -> None:
    result = await Runner(with_guardrails(Agent("D", model=ScriptedModel(["hi"])), mode="parallel")).run("go")
    plain = await Runner(Agent("D", model=ScriptedModel(["hi"]))).run("go")
    assert transcript(result.events) == transcript(plain.events)
    assert not [event for event in result.events if isinstance(event, ToolReturned | StepCompleted)]
