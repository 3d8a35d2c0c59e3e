"""Start, resume and replay runs: what is in the log is never done again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from batonkit import Agent, AgentContext, Approval, RunContext, RunHooks, Runner, SetupError, Transfer, agent, tool
from batonkit.errors import (
    AnswerError,
    BatonError,
    LogError,
    ModelError,
    NotEncodableError,
    ReplayMismatchError,
    RunError,
    RunExistsError,
    RunNotFoundError,
    TeamChangedError,
)
from batonkit.log import (
    AgentResponded,
    Event,
    InterruptAnswered,
    InterruptRaised,
    RunStarted,
    UnknownEvent,
    decode_log,
    encode_log,
)
from batonkit.messages import Message, UserMessage, text_of
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedModel, call, transcript, transfer_to


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


# --- starting


def test_run_sync_runs_without_an_event_loop() -> None:
    result = Runner(Agent("A", model=ScriptedModel(["hello"]))).run_sync("hi", values={"x": 1}, run_id="r1")
    assert (result.output, result.values, result.run_id) == ("hello", {"x": 1}, "r1")


def test_an_error_of_run_sync_has_no_context_of_ours() -> None:
    with pytest.raises(BatonError) as caught:
        Runner(Agent("A", model=ScriptedModel([RuntimeError("down")]))).run_sync("hi")
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "no running event loop" not in str(shown)
        shown = shown.__cause__ or shown.__context__


async def test_run_sync_inside_an_event_loop_is_refused() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["hello"])))
    with pytest.raises(SetupError, match=r"run_sync\(\) was called inside a running event loop; use `await"):
        runner.run_sync("hi")


@pytest.mark.parametrize("is_stored", [False, True])
def test_resume_sync_continues_a_run_without_an_event_loop(is_stored: bool, tmp_path: Path) -> None:
    model = ScriptedModel([call("ask", question="size?"), "done"])
    runner = Runner(Agent("A", tools=[ask]), model=model, store=tmp_path / "runs.db" if is_stored else None)
    assert runner.run_sync("hi", run_id="r").status == "suspended"
    assert runner.resume_sync("r", "large").output == "done"
    with pytest.raises(RunError, match="has completed and cannot be resumed"):
        runner.resume_sync("r")


async def test_resume_sync_inside_an_event_loop_is_refused() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["hello"])))
    with pytest.raises(
        SetupError, match=r"resume_sync\(\) was called inside a running event loop; use `await runner\.res"
    ):
        runner.resume_sync("r")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        pytest.param(" ", [" "], id="a space"),
        pytest.param([UserMessage("a"), UserMessage("")], ["a"], id="a message and an empty one"),
        pytest.param([UserMessage("a")] * 20, ["a"] * 20, id="a long input"),
    ],
)
async def test_models_read_the_input_without_empty_messages(given: str | list[Message], read: list[str]) -> None:
    model = ScriptedModel(["hello"])
    await Runner(Agent("A", model=model)).run(given)
    assert [text_of(message.content) for message in model.requests[0].messages] == read


async def test_every_run_gets_a_unique_id_unless_one_is_given() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["hello"], cycle=True)))
    ids = [(await runner.run("hi")).run_id for _ in range(100)]
    assert len(set(ids)) == 100
    assert sorted(ids) == ids
    assert (await runner.run("hi", run_id="mine")).run_id == "mine"


async def test_the_id_of_a_stopped_run_cannot_be_reused() -> None:
    # Recorded events are never lost.
    runner = Runner(Agent("A", model=ScriptedModel([call("ask", question="?"), "another"]), tools=[ask]))
    await runner.run("hi", run_id="r1")
    with pytest.raises(RunExistsError, match="`r1` already exists; resume it"):
        await runner.run("hello", run_id="r1")


async def test_input_may_be_a_whole_conversation() -> None:
    model = ScriptedModel(["hello"])
    conversation = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    result = await Runner(Agent("A", model=model)).run(conversation)
    assert [message.content for message in model.requests[0].messages] == ["a", "b", "c"]
    assert len(result.messages) == 4


async def test_calls_in_the_input_get_missing_results_before_recording() -> None:
    model = ScriptedModel(["hello"])
    call_without_result = {
        "role": "assistant",
        "tool_calls": [{"id": "x", "function": {"name": "t", "arguments": "{}"}}],
    }
    await Runner(Agent("A", model=model)).run([call_without_result, {"role": "user", "content": "hi"}])
    assert [type(message).__name__ for message in model.requests[0].messages] == [
        "AssistantMessage",
        "ToolMessage",
        "UserMessage",
    ]


# --- interrupts


async def test_an_interrupt_of_a_tool_suspends_the_run_and_its_answer_resumes_it() -> None:
    runner = Runner(Agent("A", model=ScriptedModel([call("ask", question="sure?"), "done"]), tools=[ask]))
    suspended = await runner.run("hi")
    assert (suspended.status, suspended.agent) == ("suspended", "A")
    (question,) = suspended.interrupts
    assert (question.agent, question.path, question.payload) == ("A", ("A",), "sure?")
    assert question.tool_call is not None
    assert question.tool_call.name == "ask"
    result = await runner.resume(suspended.run_id, {question.id: "yes"})
    assert (result.status, result.output, result.interrupts) == ("completed", "done", ())
    assert result.run_id == suspended.run_id


async def test_two_interrupts_can_be_answered_one_at_a_time() -> None:
    # Unanswered ones stay open.
    done: list[str] = []

    @tool
    async def other() -> str:
        """Do something."""
        done.append("other")
        return "ok"

    calls = [call("ask", question="a?"), call("other"), call("ask", question="b?")]
    model = ScriptedModel([calls, "done"])
    runner = Runner(Agent("A", model=model, tools=[ask, other]))
    suspended = await runner.run("hi")
    first, second = suspended.interrupts
    assert [first.payload, second.payload] == ["a?", "b?"]
    # In any order.
    half = await runner.resume(suspended.run_id, {second.id: "B"})
    assert (half.status, [question.id for question in half.interrupts]) == ("suspended", [first.id])
    result = await runner.resume(half.run_id, {first.id: "A"})
    assert [message.content for message in result.messages[2:5]] == ["A", "ok", "B"]
    assert done == ["other"]
    assert sum(isinstance(event, InterruptRaised) for event in result.events) == 2
    assert len(model.requests) == 2


async def test_two_interrupts_can_be_answered_together() -> None:
    calls = [call("ask", question="a?"), call("ask", question="b?")]
    runner = Runner(Agent("A", model=ScriptedModel([calls, "done"]), tools=[ask]))
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, {question.id: question.payload for question in suspended.interrupts})
    assert [message.content for message in result.messages[2:4]] == ["a?", "b?"]


async def test_a_tool_may_interrupt_several_times() -> None:
    @tool
    async def interview(ctx: RunContext) -> str:
        """Ask three questions."""
        answers = [str(await ctx.interrupt(f"question {number}")) for number in range(3)]
        return " ".join(answers)

    runner = Runner(Agent("A", model=ScriptedModel([call("interview"), "done"]), tools=[interview]))
    result = await runner.run("hi")
    for answer in ("x", "y", "z"):
        result = await runner.resume(result.run_id, answer)
    assert result.messages[2].content == "x y z"


async def test_resuming_without_an_answer_repeats_nothing() -> None:
    model = ScriptedModel([call("ask", question="?"), "done"])
    runner = Runner(Agent("A", model=model, tools=[ask]))
    suspended = await runner.run("hi")
    again = await runner.resume(suspended.run_id)
    assert again.status == "suspended"
    assert again.interrupts == suspended.interrupts
    assert sum(isinstance(event, InterruptRaised) for event in again.events) == 1
    assert len(model.requests) == 1


async def test_an_interrupt_in_a_custom_agent() -> None:
    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        return Transfer(str(await ctx.interrupt("to whom?")))

    runner = Runner(a, extra_agents=[Agent("B", model=ScriptedModel(["hello"]))])
    suspended = await runner.run("hi")
    (question,) = suspended.interrupts
    assert question.tool_call is None
    assert (await runner.resume(suspended.run_id, "B")).agent == "B"


async def test_the_context_of_a_suspended_run_is_kept_or_replaced() -> None:
    seen: list[Any] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        seen.append(ctx.context)
        await ctx.interrupt("?")

    runner = Runner(a)
    suspended = await runner.run("hi", context="mine")
    await runner.resume(suspended.run_id)
    await runner.resume(suspended.run_id, "yes", context="another")
    assert seen == ["mine", "mine", "another"]


async def test_values_survive_resume() -> None:
    @tool
    async def write(ctx: RunContext, key: str, value: int) -> str:
        """Write."""
        ctx.values.set(key, value)
        return "ok"

    @tool
    async def forget(ctx: RunContext, key: str) -> str:
        """Forget."""
        ctx.values.delete(key)
        return "ok"

    model = ScriptedModel(
        [
            [call("write", key="a", value=1), call("write", key="b", value=2)],
            [call("forget", key="a"), call("write", key="c", value=3)],
            call("ask", question="?"),
            "done",
        ]
    )
    runner = Runner(Agent("A", model=model, tools=[write, forget, ask], output_key="answer"))
    suspended = await runner.run("hi", values={"start": 0})
    assert suspended.values == {"start": 0, "b": 2, "c": 3}
    result = await runner.resume(suspended.run_id, "yes")
    assert result.values == {"start": 0, "b": 2, "c": 3, "answer": "done"}
    assert suspended.values == {"start": 0, "b": 2, "c": 3}


async def test_values_of_concurrent_tools_are_the_same_after_resume() -> None:
    # The last write wins, not the last call.
    written = asyncio.Event()

    @tool
    async def slow(ctx: RunContext) -> str:
        """Write last."""
        await written.wait()
        ctx.values.set("x", "slow")
        return "ok"

    @tool
    async def fast(ctx: RunContext) -> str:
        """Write first."""
        ctx.values.set("x", "fast")
        written.set()
        return "ok"

    model = ScriptedModel([[call("slow"), call("fast")], call("ask", question="?"), "done"])
    runner = Runner(Agent("A", model=model, tools=[slow, fast, ask]))
    suspended = await runner.run("hi")
    assert suspended.values == {"x": "slow"}
    assert (await runner.resume(suspended.run_id, "yes")).values == {"x": "slow"}


async def test_a_permanent_approval_is_remembered_across_resume() -> None:
    paid: list[int] = []

    @tool(needs_approval=True)
    async def pay(euro: int) -> str:
        """Pay."""
        paid.append(euro)
        return f"paid {euro}"

    model = ScriptedModel(
        [call("pay", euro=1), call("pay", euro=2), call("ask", question="?"), call("pay", euro=3), "done"]
    )
    runner = Runner(Agent("A", model=model, tools=[pay, ask]))
    suspended = await runner.run("hi")
    suspended = await runner.resume(suspended.run_id, Approval(True, always=True))
    assert [question.payload for question in suspended.interrupts] == ["?"]
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.status, paid) == ("completed", [1, 2, 3])


# --- resuming failed runs


async def test_a_failed_run_resumed_repeats_nothing_that_was_recorded() -> None:
    runs: list[str] = []

    @tool
    async def work(ctx: RunContext) -> str:
        """Work."""
        runs.append("work")
        ctx.values.set("worked", len(runs))
        return "ok"

    model = ScriptedModel(
        {"A": [call("work"), transfer_to("B")], "B": [call("work"), ModelError("overloaded"), "done"]}
    )
    runner = Runner(Agent("A", tools=[work], sub_agents=[Agent("B", tools=[work])]), model=model)
    live = runner.stream("hi")
    with pytest.raises(ModelError, match="overloaded"):
        await live._drive()
    result = await runner.resume(live.run_id)
    assert (result.output, result.values, runs) == ("done", {"worked": 2}, ["work", "work"])
    assert [request.agent for request in model.requests] == ["A", "A", "B", "B", "B"]
    assert transcript(result.events)[-6:] == [
        "B: work -> ok [worked=2]",
        "run failed with ModelError: overloaded",
        "run resumed",
        'B: said "done"',
        "B finished",
        "run completed",
    ]


async def test_a_run_may_fail_and_be_resumed_many_times() -> None:
    model = ScriptedModel([*[ModelError(f"failure {number}") for number in range(5)], "done"])
    runner = Runner(Agent("A", model=model))
    live = runner.stream("hi")
    with pytest.raises(ModelError, match="failure 0"):
        await live._drive()
    for number in range(1, 5):
        with pytest.raises(ModelError, match=f"failure {number}"):
            await runner.resume(live.run_id)
    result = await runner.resume(live.run_id)
    assert result.output == "done"
    assert len({event.key for event in result.events}) == len(result.events)


async def test_a_finished_or_unknown_run_cannot_be_resumed() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["hello", call("ask", question="?")]), tools=[ask]))
    finished = await runner.run("hi")
    waiting = await runner.run("hi", run_id="waits")
    assert waiting.status == "suspended"
    for run_id in (finished.run_id, "unknown"):
        with pytest.raises(RunNotFoundError, match=f"no run `{run_id}` in the memory of this runner") as caught:
            await runner.resume(run_id)
        assert caught.value.run_id == run_id


async def test_of_two_concurrent_resumes_one_is_refused() -> None:
    runner = Runner(Agent("A", model=ScriptedModel([call("ask", question="?"), "done"]), tools=[ask]))
    suspended = await runner.run("hi")
    outcomes = await asyncio.gather(
        runner.resume(suspended.run_id, "yes"), runner.resume(suspended.run_id, "no"), return_exceptions=True
    )
    assert [type(outcome).__name__ for outcome in outcomes] == ["RunResult", "RunConflictError"]


# --- replay


def make_busy_runner(*, stream: bool = False) -> tuple[Runner[Any, Any], ScriptedModel]:
    """Create a runner whose run has tools, steps, interrupts, values, transfers and a custom agent."""

    @tool
    async def work(ctx: RunContext) -> str:
        """Work."""
        ctx.values.set("worked", await ctx.step("count", lambda: 7))
        return "ok"

    @tool(needs_approval=True)
    async def pay(euro: int) -> str:
        """Pay."""
        return f"paid {euro}"

    @agent("Own", handoffs=["B"])
    async def own(ctx: AgentContext) -> Transfer:
        await ctx.say(f"step gave {await ctx.step('x', lambda: [1, 2])}")
        ctx.values.set("own", await ctx.interrupt("value?"))
        return Transfer("B")

    model = ScriptedModel(
        {
            "A": [[call("work"), call("pay", euro=5), call("nope")], [call("transfer_to_own"), transfer_to("B")]],
            "B": ["done"],
        },
        stream=stream,
    )
    a = Agent("A", tools=[work, pay], sub_agents=[Agent("B", output_key="answer")], handoffs=[own])
    return Runner(a, model=model), model


async def run_busy(runner: Runner[Any, Any]) -> Any:
    """Run the busy team to its end."""
    suspended = await runner.run("hi", values={"start": 1})
    suspended = await runner.resume(suspended.run_id, True)
    return await runner.resume(suspended.run_id, "v")


async def test_a_replay_gives_the_same_log_result_values_and_conversation() -> None:
    # replay(log) == log.
    runner, model = make_busy_runner()
    result = await run_busy(runner)
    assert result.status == "completed"
    request_count = len(model.requests)
    again = await runner.runs.replay(result.events)
    assert again.events == result.events
    assert (again.output, again.agent, again.status) == (result.output, result.agent, "completed")
    assert again.values == result.values == {"start": 1, "worked": 7, "own": "v", "answer": "done"}
    assert again.messages == result.messages
    assert len(model.requests) == request_count


async def test_a_log_read_from_disk_replays_like_the_one_in_memory() -> None:
    runner, _ = make_busy_runner()
    result = await run_busy(runner)
    other, model = make_busy_runner()
    again = await other.runs.replay(decode_log(encode_log(result.events)))
    assert (again.output, again.values, again.messages) == (result.output, result.values, result.messages)
    assert model.requests == []


async def test_a_suspended_log_replays_to_its_interrupt() -> None:
    runner, model = make_busy_runner()
    suspended = await runner.run("hi")
    request_count = len(model.requests)
    again = await runner.runs.replay(suspended.events)
    assert (again.status, again.interrupts) == ("suspended", suspended.interrupts)
    assert len(model.requests) == request_count
    # It still waits: a replay does not resume it.
    assert (await runner.resume(suspended.run_id, True)).status == "suspended"


async def test_a_log_with_an_unknown_event_is_not_replayed() -> None:
    runner, _ = make_busy_runner()
    result = await run_busy(runner)
    future = b'{"type":"Teleported","key":"1/beam","origin":["1","A",null],"timestamp":9.0}\n'
    events = decode_log(encode_log(result.events) + future)
    assert isinstance(events[-1], UnknownEvent)
    with pytest.raises(LogError, match=f"at event {len(events) - 1}: .* does not know the event type `Teleported`"):
        await runner.runs.replay(events)


async def test_a_log_with_an_unknown_event_is_not_resumed() -> None:
    runner, _ = make_busy_runner()
    suspended = await runner.run("hi")
    future = b'{"type":"Teleported","key":"1/beam","origin":["1","A",null],"timestamp":9.0}\n'
    events = decode_log(encode_log(suspended.events) + future)
    other, _ = make_busy_runner()
    with pytest.raises(LogError, match="does not know the event type `Teleported`"):
        await other.runs.load(events)


async def test_a_replay_with_an_event_missing_names_the_first_difference() -> None:
    runner, _ = make_busy_runner()
    result = await run_busy(runner)
    own_events = [event for event in result.events if event.agent == "Own"]
    assert len(own_events) > 4
    for missing in own_events:
        if isinstance(missing, InterruptRaised | InterruptAnswered):
            continue
        events = [event for event in result.events if event is not missing]
        with pytest.raises(ReplayMismatchError) as caught:
            await runner.runs.replay(events)
        assert (caught.value.key, caught.value.recorded) == (missing.key, "nothing")


def runner_with_behaviour(behaviour: dict[str, Any]) -> Runner[Any, Any]:
    """Create a runner with an agent whose code depends on `behaviour`."""

    @agent("A", handoffs=["B", "C"])
    async def a(ctx: AgentContext) -> Transfer:
        for name in behaviour["steps"]:
            await ctx.step(name, lambda: "x")
        if behaviour["asks"]:
            await ctx.interrupt("?")
        return Transfer(behaviour["to"])

    b, c = (Agent(name, model=ScriptedModel(["ok"] * 3)) for name in "BC")
    return Runner(a, extra_agents=[b, c])


@pytest.mark.parametrize(
    ("changes", "key", "recorded"),
    [
        ({"steps": ["one", "three"]}, "1/step:three", "nothing"),
        ({"steps": ["one"]}, "1/step:two", "StepCompleted"),
        ({"to": "C"}, "1/to", "a transfer to B"),
    ],
)
async def test_changed_code_raises_a_mismatch_with_the_first_difference(
    changes: dict[str, Any], key: str, recorded: str
) -> None:
    behaviour: dict[str, Any] = {"steps": ["one", "two"], "asks": False, "to": "B"}
    runner = runner_with_behaviour(behaviour)
    result = await runner.run("hi")
    behaviour.update(changes)
    with pytest.raises(ReplayMismatchError) as caught:
        await runner.runs.replay(result.events)
    assert (caught.value.key, caught.value.recorded) == (key, recorded)
    assert f"at `{key}` the log has {recorded}, but the code produces " in str(caught.value)


async def test_code_that_changed_during_a_suspension_is_detected_on_resume() -> None:
    behaviour: dict[str, Any] = {"steps": ["one", "two"], "asks": True, "to": "B"}
    runner = runner_with_behaviour(behaviour)
    suspended = await runner.run("hi")
    behaviour["steps"] = ["one"]
    with pytest.raises(ReplayMismatchError) as caught:
        await runner.resume(suspended.run_id, "yes")
    assert (caught.value.key, caught.value.recorded, caught.value.produced) == (
        "1/step:two",
        "StepCompleted",
        "nothing there",
    )


async def test_a_log_without_run_started_cannot_be_replayed() -> None:
    runner, _ = make_busy_runner()
    result = await run_busy(runner)
    for events in ([], list[Event](result.events[1:])):
        with pytest.raises(RunError, match="starts with RunStarted, but this one does not"):
            await runner.runs.replay(events)


# --- runs of other processes


async def test_a_run_can_be_resumed_from_its_log_by_another_runner() -> None:
    # Recovery is the same code run again over the same log.
    runner, _ = make_busy_runner()
    suspended = await runner.run("hi", values={"start": 1})
    other, model = make_busy_runner()
    # The other process's model has a new script; skip the response that is already in the log.
    _ = [chunk async for chunk in model.respond(ModelRequest((), agent="A"))]
    run_id = await other.runs.load(decode_log(encode_log(suspended.events)))
    assert run_id == suspended.run_id
    half = await other.resume(run_id, True)
    result = await other.resume(run_id, "v")
    assert (half.status, result.output) == ("suspended", "done")
    assert result.values == {"start": 1, "worked": 7, "own": "v", "answer": "done"}


@pytest.mark.parametrize("kept", range(1, 12))
async def test_a_log_cut_at_any_event_can_be_resumed_by_another_runner(kept: int) -> None:
    # As recovery after `kill -9`; any prefix of a log can be resumed.
    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    def team() -> tuple[Runner[Any, str], ScriptedModel]:
        steps: dict[str, list[Any]] = {"A": [call("work"), transfer_to("B")], "B": [call("work"), "done"]}
        model = ScriptedModel(steps)
        return Runner(Agent("A", tools=[work], sub_agents=[Agent("B", tools=[work])]), model=model), model

    whole = (await team()[0].run("hi")).events
    runner, model = team()
    for event in whole[:kept]:
        if isinstance(event, AgentResponded):
            # Skip the scripted responses from before the crash.
            _ = [chunk async for chunk in model.respond(ModelRequest((), agent=event.agent))]
    await runner.runs.load(decode_log(encode_log(whole[:kept])))
    result = await runner.resume(whole[0].run_id if isinstance(whole[0], RunStarted) else "")
    assert result.output == "done"
    assert [line for line in transcript(result.events) if line != "run resumed"] == transcript(whole)


async def test_a_completed_run_is_not_loaded() -> None:
    runner, _ = make_busy_runner()
    result = await run_busy(runner)
    with pytest.raises(RunError, match=f"run `{result.run_id}` has completed and cannot be resumed"):
        await runner.runs.load(result.events)


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_a_log_is_loaded_once_under_its_own_id(store: str | None) -> None:
    @agent("Asking")
    async def asking(ctx: AgentContext) -> None:
        await ctx.say(str(await ctx.interrupt("Shall I?")))

    suspended = await Runner(asking).run("hi")
    other = Runner(asking, store=store)
    assert await other.runs.load(suspended.events) == suspended.run_id
    assert (await other.runs.get(suspended.run_id)).status == "suspended"
    with pytest.raises(RunExistsError, match="already exists"):
        await other.runs.load(suspended.events)
    assert (await other.runs.get(await other.runs.fork(suspended.events))).status == "suspended"
    assert (await other.resume(suspended.run_id, "yes")).output == "yes"


async def test_an_invalid_log_is_not_loaded() -> None:
    runner, _ = make_busy_runner()
    suspended = await runner.run("hi")
    with pytest.raises(RunError, match="starts with RunStarted, but this one does not"):
        await runner.runs.load(suspended.events[1:])
    with pytest.raises(ReplayMismatchError, match="a second AgentStarted"):
        await runner.runs.load(decode_log(encode_log([*suspended.events, suspended.events[1]])))


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_every_log_has_the_fingerprint_of_its_team(store: str | None) -> None:
    team = Agent("A", sub_agents=[Agent("B")])
    for thread in (None, "t"):
        result = await Runner(team, model=ScriptedModel(["done"]), store=store).run("hi", thread=thread)
        started = result.events[0]
        assert isinstance(started, RunStarted)
        assert started.team_fingerprint == {"A": "Agent; to B", "B": "Agent; to A"}


async def test_a_loaded_log_of_a_changed_team_is_refused_unless_it_is_accepted() -> None:
    model = ScriptedModel([call("ask", question="?"), "done"])
    suspended = await Runner(Agent("A", tools=[ask]), model=model).run("hi")
    changed = Runner(Agent("A", tools=[ask], sub_agents=[Agent("C")]), model=model)
    run_id = await changed.runs.load(decode_log(encode_log(suspended.events)))
    with pytest.raises(TeamChangedError, match=r"`C` is new.*accept_changes=True"):
        await changed.resume(run_id, "yes")
    assert (await changed.resume(run_id, "yes", accept_changes=True)).output == "done"


@pytest.mark.parametrize("accept_changes", [False, True])
@pytest.mark.parametrize("store", [None, "memory:"])
async def test_a_log_of_another_root_is_refused(store: str | None, accept_changes: bool) -> None:
    model = ScriptedModel([call("ask", question="?")])
    suspended = await Runner(Agent("Old", tools=[ask]), model=model).run("hi")
    other = Runner(Agent("New", tools=[ask]), model=ScriptedModel([]), store=store)
    run_id = await other.runs.fork(suspended.events)
    with pytest.raises(TeamChangedError, match=r"`Old` is gone") as caught:
        await other.resume(run_id, "yes", accept_changes=accept_changes)
    assert caught.value.differences == ("- `Old` is gone", "+ `New` is new")
    assert ("accept_changes" in str(caught.value)) is not accept_changes
    if accept_changes:
        assert "it started with `Old`" in str(caught.value)
    with pytest.raises(TeamChangedError, match="it started with `Old`"):
        await other.runs.replay(run_id)


async def test_a_log_without_a_fingerprint_is_not_compared() -> None:
    # Logs of runners without a store had none.
    runner, model = make_busy_runner()
    suspended = await runner.run("hi")
    started = suspended.events[0]
    assert isinstance(started, RunStarted)
    other = Runner(Agent("Elsewhere"), model=model)
    run_id = await other.runs.load([replace(started, team_fingerprint={}), *suspended.events[1:]])
    with pytest.raises(TeamChangedError, match="it started with `A`, which this team does not have"):
        await other.resume(run_id, True)


# --- answers


async def suspend_with(*questions: str) -> tuple[Runner[Any, str], str, list[str]]:
    """Start a run that is suspended with these questions."""
    calls = [call("ask", question=question) for question in questions]
    runner = Runner(Agent("A", model=ScriptedModel([calls, "done"]), tools=[ask]))
    suspended = await runner.run("hi")
    return runner, suspended.run_id, [question.id for question in suspended.interrupts]


async def test_a_single_interrupt_can_be_answered_without_its_id() -> None:
    runner, run_id, _ = await suspend_with("?")
    assert (await runner.resume(run_id, "yes")).messages[2].content == "yes"


async def test_a_dict_can_be_an_answer() -> None:
    runner, run_id, _ = await suspend_with("?")
    assert (await runner.resume(run_id, {"city": "Rome"})).messages[2].content == "{'city': 'Rome'}"


async def test_an_answer_to_an_unknown_interrupt_is_refused_and_nothing_is_written() -> None:
    runner, run_id, (first, second) = await suspend_with("a?", "b?")
    wrong: list[Any] = [{"1/m9.9/ask1": "yes"}, {first: "yes", "other": "no"}, {"nothing": "known"}]
    for answers in wrong:
        with pytest.raises(AnswerError, match=f"no open interrupt has the id .*; open: `{first}`, `{second}`"):
            await runner.resume(run_id, answers)
    still = await runner.resume(run_id)
    assert not any(isinstance(event, InterruptAnswered) for event in still.events)


async def test_an_unknown_id_is_not_taken_for_an_answer() -> None:
    runner, run_id, (only,) = await suspend_with("?")
    with pytest.raises(AnswerError, match=f"no open interrupt has the id `1/m7.0/ask1`; open: `{only}`"):
        await runner.resume(run_id, {"1/m7.0/ask1": "yes"})


async def test_a_single_answer_for_two_interrupts_is_refused() -> None:
    runner, run_id, _ = await suspend_with("a?", "b?")
    with pytest.raises(
        AnswerError, match=r"a single answer needs exactly one open interrupt; open: .*, .*\. Pass a mapping"
    ):
        await runner.resume(run_id, "yes")


async def test_an_answer_without_an_open_interrupt_is_refused() -> None:
    runner = Runner(Agent("A", model=ScriptedModel([ModelError("overloaded"), "done"])))
    live = runner.stream("hi")
    with pytest.raises(ModelError):
        await live._drive()
    with pytest.raises(AnswerError, match="open: nothing"):
        await runner.resume(live.run_id, "yes")
    assert (await runner.resume(live.run_id)).output == "done"


async def test_an_interrupt_can_be_answered_once() -> None:
    runner, run_id, (first, second) = await suspend_with("a?", "b?")
    await runner.resume(run_id, {first: "yes"})
    with pytest.raises(AnswerError, match=f"no open interrupt has the id `{first}`; open: `{second}`"):
        await runner.resume(run_id, {first: "no"})


async def test_an_answer_that_cannot_be_encoded_is_refused_and_the_run_stays_suspended() -> None:
    runner, run_id, (only,) = await suspend_with("?")
    with pytest.raises(NotEncodableError, match=f"the answer to `{only}` is an object"):
        await runner.resume(run_id, object())
    assert (await runner.resume(run_id, "yes")).output == "done"


@pytest.mark.parametrize(
    "wrong", ["yes", 1, ["True"], {"approved": "maybe"}, {"aproved": True}, {"approved": False, "always": True}]
)
async def test_an_answer_that_is_not_an_approval_is_refused_and_the_run_stays_suspended(wrong: Any) -> None:
    @tool(needs_approval=True)
    async def pay(euro: int) -> str:
        """Pay."""
        return f"paid {euro}"

    runner = Runner(Agent("A", model=ScriptedModel([call("pay", euro=1), "done"]), tools=[pay]))
    suspended = await runner.run("hi")
    (question,) = suspended.interrupts
    with pytest.raises(AnswerError):
        await runner.resume(suspended.run_id, {question.id: wrong})
    assert (await runner.resume(suspended.run_id, {"approved": True})).messages[2].content == "paid 1"


# --- concurrent runs


async def test_concurrent_runs_of_one_runner_are_independent() -> None:
    async def answer(request: ModelRequest) -> Any:
        await asyncio.sleep(0)
        if len(request.messages) == 1:
            return call("ask", question=str(request.messages[0].content))
        return f"{request.messages[0].content} {request.messages[-1].content}"

    runner = Runner(Agent("A", model=ScriptedModel([answer], cycle=True), tools=[ask]))
    suspended = await asyncio.gather(*[runner.run(str(number)) for number in range(50)])
    results = await asyncio.gather(*[runner.resume(each.run_id, f"answer {n}") for n, each in enumerate(suspended)])
    assert [result.output for result in results] == [f"{number} answer {number}" for number in range(50)]


async def test_a_clone_with_another_store_has_the_same_team_and_its_own_runs() -> None:
    first = Runner(Agent("A"), model=ScriptedModel(["one", "two"]))
    second = first.clone(store="memory:")
    result = await second.run("Hi.", run_id="r")
    assert (result.output, second.team is first.team) == ("one", True)
    assert [event.key for event in await second.runs.events("r")][-1] == "completed"
    with pytest.raises(RunNotFoundError):
        await first.runs.events("r")


async def test_an_error_before_the_first_agent_names_the_run_alone() -> None:
    class Broken(RunHooks):
        async def on_run_start(self, ctx: RunContext, agent: Any) -> None:
            raise ValueError("no start")

    with pytest.raises(ValueError, match="no start") as caught:
        await Runner(Agent("A", model=ScriptedModel(["hello"])), hooks=Broken()).run("hi", run_id="r")
    assert caught.value.__notes__[-1] == "in run r"
