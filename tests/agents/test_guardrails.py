"""Guardrails around agents: what they check, when they run, how a negative verdict ends a run, and replay."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from tests.agents.guardrail_fakes import HangingModel, RecordingGuardrail, ask, run_to_failure

from batonkit import (
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
from batonkit.agents import AgentHooks, with_guardrails
from batonkit.errors import GuardrailFailedError, GuardrailTrippedError, NotEncodableError, ReplayMismatchError
from batonkit.log import AgentResponded, BreakLoop, ControlTransferred, StepCompleted, ToolReturned
from batonkit.log.codec import decode_log, encode_log
from batonkit.messages import Message, ToolMessage, text_of
from batonkit.models import ModelRequest
from batonkit.runs import GuardrailResult
from batonkit.testing import ScriptedModel, call, transcript, transfer_to

MODES = pytest.mark.parametrize("mode", ["blocking", "parallel"])


# Kinds of guardrails and verdicts.


@MODES
async def test_a_passing_guardrail_changes_nothing_and_its_verdict_is_in_the_result(mode: Any) -> None:
    model = ScriptedModel([call("add", a=1), "done"])
    added: list[int] = []

    def add(a: int) -> str:
        """Add."""
        added.append(a)
        return "added"

    def short(ctx: RunContext[Any], output: str) -> GuardrailVerdict:
        return GuardrailVerdict(len(output) < 9, info={"length": len(output)})

    check = RecordingGuardrail("polite")
    runner = Runner(
        with_guardrails(Agent("Desk", tools=[add]), input_guardrails=[check], output_guardrails=[short], mode=mode),
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
    # It checks the messages that the agent reads, once per activation and not in every turn.
    assert [[text_of(message.content) for message in messages] for messages in check.seen] == [["go"]]
    assert len(model.requests) == 2
    replayed = await runner.runs.replay(result.events)
    assert (replayed.output, len(check.seen)) == ("done", 1)


@MODES
@pytest.mark.parametrize("returned", [True, None, GuardrailVerdict(True), GuardrailVerdict(True, "fine")])
async def test_an_input_with_a_positive_verdict_passes(returned: Any, mode: Any) -> None:
    desk = with_guardrails(
        Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[RecordingGuardrail("j", returned)], mode=mode
    )
    assert (await Runner(desk).run("go")).output == "hi"


@MODES
@pytest.mark.parametrize(
    "returned", [False, GuardrailVerdict(False), GuardrailVerdict(False, "rude", {"words": ["x"]})]
)
async def test_an_input_with_a_negative_verdict_ends_the_run(returned: Any, mode: Any) -> None:
    desk = with_guardrails(
        Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[RecordingGuardrail("j", returned)], mode=mode
    )
    error, result = await run_to_failure(Runner(desk))
    assert isinstance(error, GuardrailTrippedError)
    verdict = GuardrailVerdict(False) if returned is False else returned
    assert (error.guardrail, error.agent, error.stage, error.tool) == ("j", "Desk", "input", "")
    assert (error.reason, error.verdict) == (verdict.reason, verdict)
    assert str(error) == "guardrail `j` stopped the input of `Desk`" + (": rude" if verdict.reason else "")
    assert (result.status, result.error) == ("failed", error)
    assert result.guardrail_results == (GuardrailResult("j", "input", "Desk", verdict),)
    assert not [event for event in result.events if isinstance(event, AgentResponded)]


async def test_functions_coroutines_and_objects_are_guardrails_and_have_names() -> None:
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
    checks = [plain, slow, decorated, renamed, Polite(), RecordingGuardrail("recording"), by_lambda]
    result = await Runner(with_guardrails(Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=checks)).run(
        "go"
    )
    names = [said.name for said in result.guardrail_results]
    own = "a name of its own: with colon / slash"
    assert sorted(names) == sorted(["plain", "slow", "decorated", own, "Polite", "recording", "by lambda"])


async def test_an_application_step_with_the_name_of_a_guardrail_is_not_a_verdict() -> None:
    @agent("Desk")
    async def desk(ctx: AgentContext) -> None:
        await ctx.step("guardrail:input:mine", lambda: {"passed": False})

    assert (await Runner(desk).run("go")).guardrail_results == ()


# Timing of input guardrails.


async def test_blocking_guardrails_run_before_the_agent_starts() -> None:
    done: list[str] = []

    def instructions(ctx: AgentContext[Any]) -> str:
        done.append("instructions")
        return ""

    model = ScriptedModel(["hi"])
    desk = with_guardrails(
        Agent("Desk", instructions=instructions, model=model), input_guardrails=[RecordingGuardrail("j", False)]
    )
    await run_to_failure(Runner(desk))
    assert (done, model.requests) == ([], [])


@MODES
async def test_cancelling_closes_the_guardrails_and_the_model(mode: Any) -> None:
    model, is_called, is_closed = HangingModel(), asyncio.Event(), asyncio.Event()

    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        try:
            is_called.set()
            await asyncio.Event().wait()
        finally:
            is_closed.set()
        return True

    async with Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[check], mode=mode)).stream(
        "go"
    ) as run:
        await is_called.wait()
        if mode == "parallel":
            await model.is_called.wait()
        await run.cancel()
        assert is_closed.is_set()
        assert model.is_closed.is_set() == (mode == "parallel")
    assert run.result.status == "cancelled"
    assert run.result.guardrail_results == ()


# Several guardrails.


@MODES
async def test_several_guardrails_run_concurrently(mode: Any) -> None:
    barrier = asyncio.Barrier(3)

    def wait_for_the_others(name: str) -> Any:
        async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
            await barrier.wait()
            return True

        return guardrail(check, name=name)

    checks = [wait_for_the_others("a"), wait_for_the_others("b"), wait_for_the_others("c")]
    result = await Runner(
        with_guardrails(Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=checks, mode=mode)
    ).run("go")
    assert sorted(said.name for said in result.guardrail_results) == ["a", "b", "c"]


@MODES
async def test_all_guardrails_finish_and_the_first_in_the_list_decides(mode: Any) -> None:
    second_is_done = asyncio.Event()

    async def first(ctx: RunContext, messages: Sequence[Message]) -> GuardrailVerdict:
        await second_is_done.wait()
        return GuardrailVerdict(False, "first")

    def second(ctx: RunContext, messages: Sequence[Message]) -> GuardrailVerdict:
        second_is_done.set()
        return GuardrailVerdict(False, "second")

    desk = with_guardrails(
        Agent("Desk", model=ScriptedModel(["hi"])),
        input_guardrails=[first, second, RecordingGuardrail("third")],
        mode=mode,
    )
    error, result = await run_to_failure(runner := Runner(desk))
    assert isinstance(error, GuardrailTrippedError)
    assert error.reason == "first"
    assert [said.name for said in result.guardrail_results] == ["second", "third", "first"]
    again = await Runner(desk).runs.load(result.events)
    assert again == result.run_id
    with pytest.raises(GuardrailTrippedError, match="first"):
        await runner.resume(result.run_id)


@MODES
async def test_a_negative_verdict_takes_precedence_over_errors_and_interrupts(mode: Any) -> None:
    async def asks(ctx: RunContext, messages: Sequence[Message]) -> Any:
        return await ctx.interrupt("?")

    checks = [RecordingGuardrail("broken", OSError("x")), asks, RecordingGuardrail("strict", False)]
    error, _ = await run_to_failure(
        Runner(with_guardrails(Agent("D", model=ScriptedModel(["hi"])), input_guardrails=checks, mode=mode))
    )
    assert isinstance(error, GuardrailTrippedError)
    error, _ = await run_to_failure(
        Runner(with_guardrails(Agent("D", model=ScriptedModel(["hi"])), input_guardrails=checks[:2], mode=mode))
    )
    assert isinstance(error, GuardrailFailedError)


# Errors in guardrails.


@MODES
@pytest.mark.parametrize("stage", ["input", "output"])
async def test_a_guardrail_that_raises_ends_the_run_with_an_error_that_names_it(mode: Any, stage: str) -> None:
    cause = OSError("no line")
    check, passing = RecordingGuardrail("broken", cause, True), RecordingGuardrail("steady")
    checks: dict[str, Any] = {f"{stage}_guardrails": [check, passing]}
    runner = Runner(with_guardrails(Agent("Desk", model=ScriptedModel(["hi", "hi"])), mode=mode, **checks))
    error, result = await run_to_failure(runner)
    assert isinstance(error, GuardrailFailedError)
    assert str(error) == f"guardrail `broken` could not check the {stage} of `Desk`: it raised OSError: no line"
    assert (error.guardrail, error.agent, error.stage) == ("broken", "Desk", stage)
    if (mode, stage) != ("parallel", "input"):
        assert error.__cause__ is cause
    # A resumed run calls only guardrails without a recorded verdict.
    result = await runner.resume(result.run_id)
    assert (result.output, len(check.seen), len(passing.seen)) == ("hi", 2, 1)


@MODES
async def test_the_info_of_a_verdict_must_be_encodable_as_json(mode: Any) -> None:
    desk = with_guardrails(
        Agent("D", model=ScriptedModel(["hi"])),
        input_guardrails=[RecordingGuardrail("j", GuardrailVerdict(True, info=object()))],
        mode=mode,
    )
    error, result = await run_to_failure(Runner(desk))
    assert isinstance(error, NotEncodableError)
    assert "the info in the verdict of guardrail `j` is an object" in str(error)
    assert result.guardrail_results == ()


async def test_the_info_in_the_error_is_the_recorded_json() -> None:
    class Found(BaseModel):
        words: tuple[str, ...]

    check = RecordingGuardrail("j", GuardrailVerdict(False, "rude", Found(words=("x",))))
    runner = Runner(with_guardrails(Agent("Desk", model=ScriptedModel(["hi"])), input_guardrails=[check]))
    error, result = await run_to_failure(runner)
    assert isinstance(error, GuardrailTrippedError)
    assert error.verdict.info == {"words": ["x"]}
    assert result.guardrail_results[0].verdict == error.verdict


@pytest.mark.parametrize("returned", ["no", 0, GuardrailVerdict("no"), GuardrailVerdict(True, None)])  # pyright: ignore[reportArgumentType]
async def test_an_invalid_verdict_is_refused(returned: Any) -> None:
    error, _ = await run_to_failure(
        Runner(
            with_guardrails(
                Agent("D", model=ScriptedModel(["hi"])), input_guardrails=[RecordingGuardrail("j", returned)]
            )
        )
    )
    assert isinstance(error, SetupError)
    assert str(error).startswith(
        f"guardrail `j` returned {returned!r}; return GuardrailVerdict(…), True or None to pass"
    )


# Resume and replay.


@MODES
async def test_a_negative_verdict_is_final_after_a_resume(mode: Any) -> None:
    check, unrecorded = RecordingGuardrail("j", GuardrailVerdict(False, "no"), True), RecordingGuardrail("unrecorded")
    model = ScriptedModel(["hi"] * 3)
    runner = Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[unrecorded, check], mode=mode))
    error, result = await run_to_failure(runner)
    asked = len(model.requests)
    with pytest.raises(GuardrailTrippedError, match="no"):
        await runner.resume(result.run_id)
    # Also in another process, and if the first one died before all verdicts were recorded.
    shortened = [event for event in decode_log(encode_log(result.events)) if "unrecorded" not in event.key]
    other = Runner(with_guardrails(Agent("Desk", model=model), input_guardrails=[unrecorded, check], mode=mode))
    await other.runs.load(shortened)
    with pytest.raises(GuardrailTrippedError) as caught:
        await other.resume(result.run_id)
    assert isinstance(error, GuardrailTrippedError)
    assert (str(caught.value), caught.value.verdict) == (str(error), error.verdict)
    assert (len(check.seen), len(unrecorded.seen), len(model.requests)) == (1, 1, asked)
    with pytest.raises(GuardrailTrippedError):
        await runner.runs.replay(result.events)


@MODES
async def test_guardrails_do_not_run_again_after_an_interrupt_of_the_agent(mode: Any) -> None:
    before, after = RecordingGuardrail("before", GuardrailVerdict(True, info=1), False), RecordingGuardrail("after")
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
    await runner.runs.replay(result.events)
    assert (len(before.seen), len(after.seen)) == (1, 1)


@MODES
async def test_each_guardrail_can_interrupt_with_its_own_question(mode: Any) -> None:
    def asking_guardrail(name: str) -> Any:
        async def check(ctx: RunContext, messages: Sequence[Message]) -> Any:
            await ctx.step("look", lambda: name)
            return await ctx.interrupt(name)

        return guardrail(check, name=name)

    def answer(request: ModelRequest) -> Any:
        return "done" if isinstance(request.messages[-1], ToolMessage) else call("ask", question="third")

    desk = with_guardrails(
        Agent("Desk", tools=[ask]), input_guardrails=[asking_guardrail("first"), asking_guardrail("second")], mode=mode
    )
    runner = Runner(desk, model=ScriptedModel([answer], cycle=True))
    result = await runner.run("go")
    first, second = result.interrupts
    assert [first.payload, second.payload] == ["first", "second"]
    result = await runner.resume(result.run_id, {first.id: True})
    assert [each.payload for each in result.interrupts] == ["second"]
    # An answer to one question is never used for the other, even after the first guardrail is done.
    result = await runner.resume(result.run_id, {second.id: True})
    assert [each.payload for each in result.interrupts] == ["third"]
    result = await runner.resume(result.run_id, "yes")
    assert (result.output, [said.name for said in result.guardrail_results]) == ("done", ["first", "second"])
    await runner.runs.replay(result.events)


@MODES
async def test_values_a_guardrail_writes_are_recorded_with_its_verdict(mode: Any) -> None:
    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        ctx.values.set("mood", "calm")
        return True

    model = ScriptedModel([call("ask", question="?"), "done"])
    runner = Runner(with_guardrails(Agent("Desk", model=model, tools=[ask]), input_guardrails=[check], mode=mode))
    result = await runner.run("go")
    (recorded,) = [event for event in result.events if isinstance(event, StepCompleted)]
    assert recorded.value_changes is not None
    assert recorded.value_changes.written == {"mood": "calm"}
    other = Runner(with_guardrails(Agent("Desk", model=model, tools=[ask]), input_guardrails=[check], mode=mode))
    await other.runs.load(decode_log(encode_log(result.events)))
    assert (await other.resume(result.run_id, "yes")).values == {"mood": "calm"}


async def test_a_replay_without_a_recorded_verdict_does_not_call_the_guardrail() -> None:
    result = await Runner(Agent("Desk", model=ScriptedModel(["hi"]))).run("go")
    check = RecordingGuardrail("new")
    with pytest.raises(ReplayMismatchError):
        await Runner(with_guardrails(Agent("Desk"), input_guardrails=[check]), model=ScriptedModel([])).runs.replay(
            result.events
        )
    assert check.seen == []


# Output guardrails.


class City(BaseModel):
    name: str


@MODES
async def test_output_guardrails_check_the_validated_output(mode: Any) -> None:
    check = RecordingGuardrail("known", GuardrailVerdict(False, "unknown city"))
    model = ScriptedModel(["not json", '{"name":"Atlantis"}'])
    runner = Runner(with_guardrails(Agent("Desk", output_type=City, model=model), output_guardrails=[check], mode=mode))
    error, result = await run_to_failure(runner)
    assert check.seen == [City(name="Atlantis")]
    assert str(error) == "guardrail `known` stopped the output of `Desk`: unknown city"
    assert result.status == "failed"
    assert [(said.stage, said.verdict.passed) for said in result.guardrail_results] == [("output", False)]
    with pytest.raises(GuardrailTrippedError):
        await runner.resume(result.run_id)
    assert len(check.seen) == 1


async def test_output_guardrails_check_the_result_of_an_exit() -> None:
    check = RecordingGuardrail("j")
    inner = Agent("Desk", exit_tool=True, model=ScriptedModel([call("exit", final_result="bye")]))
    assert (await Runner(with_guardrails(inner, output_guardrails=[check])).run("go")).output == "bye"
    assert check.seen == ["bye"]
    check = RecordingGuardrail("j", False)
    inner = inner.clone(model=ScriptedModel([call("exit", final_result="bye")]))
    assert isinstance(
        (await run_to_failure(Runner(with_guardrails(inner, output_guardrails=[check]))))[0], GuardrailTrippedError
    )


@pytest.mark.parametrize(
    ("action", "said", "checked"),
    [
        (None, "text", ["text"]),
        (Exit(), "text", ["text"]),
        (Exit("result"), "text", ["result"]),
        (BreakLoop(), "text", ["text"]),
        (None, None, []),
        (Transfer("Other"), "text", []),
    ],
)
async def test_output_guardrails_check_the_output_of_a_function_agent(
    action: Any, said: Any, checked: list[str]
) -> None:
    @agent("Desk", handoffs=["Other"])
    async def desk(ctx: AgentContext) -> Any:
        if said is not None:
            await ctx.say(said)
        return action

    check = RecordingGuardrail("j")
    others = [Agent("Other", description="o", model=ScriptedModel(["theirs"]))]
    await Runner(with_guardrails(desk, output_guardrails=[check]), extra_agents=others).run("go")
    assert check.seen == checked


# Wrapped agents in a team.


async def test_a_guarded_agent_keeps_the_settings_of_the_agent() -> None:
    class RecordingHooks(AgentHooks):
        def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
            started.append(agent.name)

    started: list[str] = []
    child = Agent("Child", description="c")
    expert = Agent("Expert", description="e")
    hooks = RecordingHooks()
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
    desk = with_guardrails(inner, input_guardrails=[RecordingGuardrail("i")])
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
    open_desk = with_guardrails(
        inner.clone(accepts=None), input_guardrails=[check := RecordingGuardrail("i")], mode="parallel"
    )
    model = ScriptedModel({"Front": [call("transfer_to_desk")], "Desk": [call("to_expert")], "Expert": ["solved"]})
    runner = Runner(Agent("Front", handoffs=[open_desk]), model=model)
    result = await runner.run("go")
    assert (result.output, result.agent, started) == ("solved", "Expert", ["Desk"])
    # history="none": it checks only the messages that the agent reads.
    assert [list(messages) for messages in check.seen] == [list(model.requests[1].messages)]
    assert [spec.name for spec in model.requests[1].tools] == ["ask", "transfer_to_agent", "to_expert"]
    await runner.runs.replay(result.events)


async def test_functions_of_a_guarded_agent_can_return_agents() -> None:
    weather = Agent("Weather", description="w", model=ScriptedModel(["sunny"]))

    def to_weather() -> Agent:
        return weather

    desk = with_guardrails(
        Agent("Desk", tools=[to_weather], model=ScriptedModel([call("to_weather")])),
        input_guardrails=[RecordingGuardrail("j")],
    )
    assert desk._referenced_agents() == (weather,)
    assert (await Runner(desk).run("go")).output == "sunny"


@MODES
async def test_guardrails_run_in_every_activation(mode: Any) -> None:
    check = RecordingGuardrail("j", True, GuardrailVerdict(False, "once is enough"))
    other = Agent("Other", description="o", model=ScriptedModel([transfer_to("Desk")]))
    inner = Agent("Desk", sub_agents=[other], model=ScriptedModel([transfer_to("Other"), "again"]))
    error, result = await run_to_failure(Runner(with_guardrails(inner, input_guardrails=[check], mode=mode)))
    assert "once is enough" in str(error)
    assert [said.verdict.passed for said in result.guardrail_results] == [True, False]
    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == ["Other", "Desk"]


@MODES
async def test_guardrails_combine_with_then_transfer_on_both_sides(mode: Any) -> None:
    def make_runner(model: ScriptedModel, wrap: Callable[[Agent[Any, Any]], Any]) -> Runner[Any, Any]:
        return Runner(wrap(Agent("Worker")), extra_agents=[Agent("Boss", description="b")], model=model)

    model = ScriptedModel({"Worker": ["work"], "Boss": ["well done"]})
    runner = make_runner(
        model,
        lambda worker: with_guardrails(
            then_transfer(worker, to="Boss"), input_guardrails=[RecordingGuardrail("j")], mode=mode
        ),
    )
    result = await runner.run("go")
    assert (result.output, [said.agent for said in result.guardrail_results]) == ("well done", ["Worker"])
    await runner.runs.replay(result.events)

    check = RecordingGuardrail("j", GuardrailVerdict(False, "sloppy"))
    model = ScriptedModel({"Worker": ["work"], "Boss": ["who did that?"]})
    runner = make_runner(
        model,
        lambda worker: then_transfer(
            with_guardrails(worker, output_guardrails=[check], mode=mode), to="Boss", on_error="report"
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
    await runner.runs.replay(result.events)
    with pytest.raises(SetupError, match=r"then_transfer\(with_guardrails\(…\), to=…\)"):
        with_guardrails(then_transfer(Agent("Worker"), to="Boss"), output_guardrails=[check])


async def test_concurrent_runs_share_no_verdicts() -> None:
    both = asyncio.Barrier(2)

    async def check(ctx: RunContext, messages: Sequence[Message]) -> bool:
        await both.wait()
        return text_of(messages[-1].content) == "good"

    runner = Runner(
        with_guardrails(Agent("Desk", model=ScriptedModel(["hi"] * 2)), input_guardrails=[check], mode="parallel")
    )
    outcomes = await asyncio.gather(runner.run("good"), runner.run("bad"), return_exceptions=True)
    assert isinstance(outcomes[0], RunResult)
    assert isinstance(outcomes[1], GuardrailTrippedError)


# Construction.


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
            lambda: untyped(Agent("D"), input_guardrails=RecordingGuardrail("j")),
            r"with_guardrails\(`D`\) has input_guardrails=.*; give a list of guardrails",
        ),
        (lambda: untyped(Agent("D"), output_guardrails=[3]), r"3 is not a guardrail; give a function"),
        (lambda: untyped(Agent("D"), output_guardrails=[RecordingGuardrail]), r"is not a guardrail; give a function"),
        (
            lambda: with_guardrails(Agent("D"), input_guardrails=[lambda ctx, checked: True]),
            r"has no name .* use guardrail\(…, name=…\)",
        ),
        (lambda: untyped_guardrail(len, name="one"), "guardrail `one` must take two arguments"),
        (
            lambda: untyped(Agent("D"), input_guardrails=[RecordingGuardrail("j"), RecordingGuardrail("j")]),
            r"the input of with_guardrails\(`D`\) has two guardrails called `j`",
        ),
        (
            lambda: untyped(
                then_transfer(untyped(Agent("D"), input_guardrails=[RecordingGuardrail("j")]), to="E"),
                input_guardrails=[RecordingGuardrail("j")],
            ),
            r"the input of with_guardrails\(`D`\) has two guardrails called `j`",
        ),
    ],
)
def test_invalid_guardrails_are_refused_at_construction(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        make()


async def test_an_input_and_an_output_guardrail_may_have_the_same_name() -> None:
    check = RecordingGuardrail("j")
    result = await Runner(
        with_guardrails(Agent("D", model=ScriptedModel(["hi"])), input_guardrails=[check], output_guardrails=[check])
    ).run("go")
    assert [(said.name, said.stage) for said in result.guardrail_results] == [("j", "input"), ("j", "output")]


async def test_an_agent_without_guardrails_leaves_the_same_log() -> None:
    result = await Runner(with_guardrails(Agent("D", model=ScriptedModel(["hi"])), mode="parallel")).run("go")
    plain = await Runner(Agent("D", model=ScriptedModel(["hi"]))).run("go")
    assert transcript(result.events) == transcript(plain.events)
    assert not [event for event in result.events if isinstance(event, ToolReturned | StepCompleted)]
