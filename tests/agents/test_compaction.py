"""Compaction: when the history is replaced by a summary, who reads it, and what happens if that fails."""

from collections.abc import Sequence
from typing import Any

import pytest

from batonkit import (
    Agent,
    Limits,
    ParallelAgent,
    RunContext,
    RunHooks,
    Runner,
    SequentialAgent,
    SetupError,
    handoff,
    then_transfer,
    tool,
)
from batonkit.agents import AgentHooks, Compaction
from batonkit.errors import LimitError, ReplayMismatchError
from batonkit.handoffs import filters
from batonkit.log import AgentResponded, EventRef, HistoryCompacted, decode_log, encode_log
from batonkit.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    estimate_text_tokens,
    estimate_tokens,
    text_of,
)
from batonkit.models import ModelRequest, ModelResponse
from batonkit.realtime import RealtimeAgent, RealtimeRunner
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel, assert_survives_crashes, call

HEADING = "Summary of the conversation so far:\n"


@tool
def look(number: int) -> str:
    """Look something up."""
    return fact(number)


def fact(number: int) -> str:
    return f"fact {number} " + "x" * 80


def looks(count: int, start: int = 0) -> list[Any]:
    return [call("look", number=number) for number in range(start, start + count)]


def summarizer(*texts: str, usage: Usage | None = None) -> ScriptedModel:
    """Return a model that answers with these texts."""
    message = [ModelResponse(AssistantMessage(text), usage, "stop") for text in texts]
    return ScriptedModel(message, name="small")


def compactions(events: Sequence[Any]) -> list[HistoryCompacted]:
    return [event for event in events if isinstance(event, HistoryCompacted)]


def texts(messages: Sequence[Message]) -> list[str]:
    return [text_of(message.content) for message in messages]


async def run_long(compaction: Compaction, turns: int = 8, **options: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel([*looks(turns), "done"])
    agent = Agent("Clerk", tools=[look], compaction=compaction)
    return await Runner(agent, model=model, **options).run("go", run_id="r"), model


async def test_messages_before_the_last_turns_are_replaced_by_a_summary() -> None:
    small = summarizer("facts 0 to 2", "facts 0 to 4")
    result, model = await run_long(Compaction(at_tokens=120, keep_last=2, summarizer=small))

    first, second = compactions(result.events)
    assert (first.key, first.upto, first.text) == ("1/m6/compact", EventRef("r", "1/m3"), HEADING + "facts 0 to 2")
    assert (second.key, second.upto) == ("1/m9/compact", EventRef("r", "1/m6"))
    assert texts(model.requests[5].messages) == [HEADING + "facts 0 to 2", "", fact(3), "", fact(4)]
    assert result.output == "done"


async def test_the_summarizer_reads_a_transcript_with_the_summary_before() -> None:
    small = summarizer("first", "second")
    await run_long(Compaction(at_tokens=120, keep_last=2, summarizer=small))

    before, after = (text_of(request.messages[0].content) for request in small.requests)
    assert before.splitlines()[:2] == ["1. user: go", '2. assistant [Clerk] called `look` with {"number":0}']
    assert after.splitlines()[:2] == ["1. user: Summary of the conversation so far:", "   first"]
    assert "replaces it for the agents" in small.requests[0].instructions


async def test_the_log_and_the_result_keep_all_messages() -> None:
    result, _ = await run_long(Compaction(at_tokens=120, keep_last=1, summarizer=summarizer(*"abcdef")))

    assert texts(result.messages) == ["go", *[text for number in range(8) for text in ("", fact(number))], "done"]


async def test_the_event_is_written_before_the_model_call_and_after_the_instructions() -> None:
    order: list[str] = []

    def instructions(ctx: RunContext[Any]) -> str:
        order.append("instructions")
        return "Be brief."

    def summarize(ctx: RunContext[Any], messages: Sequence[Message]) -> str:
        order.append("summary")
        return "short"

    class Hooks(AgentHooks[Any]):
        def on_model_start(self, ctx: RunContext[Any], agent: Any, request: ModelRequest) -> None:
            order.append(f"model {len(request.messages)}")

    compaction = Compaction(at_tokens=30, keep_last=1, summarizer=summarize)
    agent = Agent("A", instructions=instructions, tools=[look], compaction=compaction, hooks=Hooks())
    await Runner(agent, model=ScriptedModel([*looks(2), "done"])).run("go")

    assert order == ["instructions", "model 1", "instructions", "model 3", "instructions", "summary", "model 3"]


async def test_the_agents_own_model_summarizes_by_default() -> None:
    model = ScriptedModel([*looks(3), "the summary", "done"])
    agent = Agent("A", tools=[look])
    result = await Runner(agent, model=model, compaction=Compaction(at_tokens=80, keep_last=1)).run("go")

    assert [event.text for event in compactions(result.events)] == [HEADING + "the summary"]
    assert model.requests[3].tools == ()


async def test_an_agents_compaction_wins_over_the_runners() -> None:
    own = Compaction(at_tokens=60, keep_last=1, summarizer=lambda ctx, messages: "own")
    common = Compaction(at_tokens=60, keep_last=1, summarizer=lambda ctx, messages: "common")
    used: list[set[str]] = []
    for agent in (Agent("A", tools=[look], compaction=own), Agent("A", tools=[look])):
        result = await Runner(agent, model=ScriptedModel([*looks(3), "done"]), compaction=common).run("go")
        used.append({event.text for event in compactions(result.events)})

    assert used == [{HEADING + "own"}, {HEADING + "common"}]


@pytest.mark.parametrize(("input_tokens", "expected"), [(148, []), (149, ["1/m3/compact"])])
async def test_the_providers_count_is_used_where_it_is_known(input_tokens: int, expected: list[str]) -> None:
    # The provider's count, 30 tokens of the response, and 22 that are estimated for the result of its call.
    usage = Usage(input_tokens, 30)
    second = ModelResponse(AssistantMessage(tool_calls=(call("look", number=1),)), usage, "tool_calls")
    compaction = Compaction(at_tokens=200, keep_last=1, summarizer=lambda ctx, messages: "short")
    agent = Agent("A", tools=[look], compaction=compaction)
    result = await Runner(agent, model=ScriptedModel([*looks(1), second, "done"])).run("go" * 200)

    assert [event.key for event in compactions(result.events)] == expected


async def test_tokens_are_estimated_for_the_first_turn_of_a_run() -> None:
    compaction = Compaction(at_tokens=40, keep_last=1, summarizer=lambda ctx, messages: "short")
    model = ScriptedModel(["yes", "yes", "yes"])
    runner = Runner(Agent("A"), model=model, compaction=compaction)
    results = [await runner.run(question, thread="t") for question in ("a" * 100, "b" * 40, "c" * 40)]

    assert [event.key for event in compactions(results[-1].events)] == ["1/m1/compact"]
    assert texts(model.requests[-1].messages) == [HEADING + "short", "b" * 40, "yes", "c" * 40]


def test_tokens_are_a_quarter_of_the_bytes_of_a_text() -> None:
    assert [estimate_text_tokens(text) for text in ("", "a", "abcd", "abcde", "天气")] == [0, 1, 1, 2, 2]
    calls = AssistantMessage("abcd", (ToolCall("1", "look", '{"n":1}'),))
    assert estimate_tokens([UserMessage("abcd"), calls, ToolMessage("1", "look", "abcdefgh")]) == 1 + 4 + 2


async def test_a_summary_covers_enough_or_is_postponed() -> None:
    asked: list[int] = []

    def summarize(ctx: RunContext[Any], messages: Sequence[Message]) -> str:
        asked.append(len(messages))
        return "x" * 400

    # The summary and the last turns are longer than the limit: without a minimum, there would be one at every turn.
    await run_long(Compaction(at_tokens=110, keep_last=1, summarizer=summarize), turns=12)

    assert len(asked) < 9


async def test_the_usage_of_the_summarizer_counts_and_is_recorded_once() -> None:
    small = summarizer("first", "second", usage=Usage(500, 20, cost=0.5))
    result, _ = await run_long(Compaction(at_tokens=120, keep_last=2, summarizer=small))

    first, _ = compactions(result.events)
    assert (first.usage, first.model) == (Usage(500, 20, cost=0.5, model_calls=1), "small")
    assert result.usage.by_model["small"] == Usage(1000, 40, cost=1.0, model_calls=2)
    assert result.usage.total.model_calls == 11


@pytest.mark.parametrize("limits", [Limits(model_calls=7), Limits(tokens=900), Limits(model_calls=6)])
async def test_the_summarizer_counts_for_the_limits_and_a_replay_raises_the_same_error(limits: Limits) -> None:
    small = summarizer("first", "second", usage=Usage(1000, 20))
    agent = Agent("Clerk", tools=[look], compaction=Compaction(at_tokens=120, keep_last=2, summarizer=small))
    runner = Runner(agent, model=ScriptedModel([*looks(8), "done"]), limits=limits)
    with pytest.raises(LimitError) as raised:
        await runner.run("go", run_id="r")

    events = await runner.runs.events("r")
    with pytest.raises(LimitError) as replayed:
        await runner.runs.replay(decode_log(encode_log(events)))
    assert str(replayed.value).partition("\n")[0] == str(raised.value).partition("\n")[0]


class Failures(RunHooks[Any]):
    """Records the failures of summarizers."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def on_compaction_failed(self, ctx: RunContext[Any], agent: Any, error: Exception) -> None:
        self.errors.append(error)
        ctx.values.set("failures", len(self.errors))


async def test_a_failing_summarizer_leaves_the_history_unchanged_and_is_not_retried_at_every_turn() -> None:
    hooks = Failures()
    small = ScriptedModel([RuntimeError("no network")] * 20, name="small")
    result, model = await run_long(Compaction(at_tokens=60, keep_last=1, summarizer=small), turns=18, hooks=hooks)

    assert result.output == "done"
    assert compactions(result.events) == []
    assert len(model.requests[-1].messages) == 37
    # At 81 tokens, and when the history has doubled.
    assert [str(error) for error in hooks.errors] == ["no network"] * 3
    assert result.values["failures"] == 3


async def test_failed_summaries_replay_with_their_model_calls_and_the_values_that_hooks_set() -> None:
    small = ScriptedModel([RuntimeError("no network"), "fine", "fine"], name="small")
    agent = Agent("Clerk", tools=[look], compaction=Compaction(at_tokens=60, keep_last=1, summarizer=small))
    runner = Runner(agent, model=ScriptedModel([*looks(8), "done"]), hooks=Failures())
    result = await runner.run("go", run_id="r")

    calls = [event.failed_calls for event in result.events if isinstance(event, AgentResponded)]
    assert sorted(calls) == [0] * 8 + [1]
    replayed = await runner.runs.replay(decode_log(encode_log(result.events)))
    assert replayed.values == result.values == {"failures": 1}
    assert replayed._run.meter.model_calls == result._run.meter.model_calls == 12


@pytest.mark.parametrize("owner", ["run", "agent"])
async def test_a_run_whose_hook_fails_can_be_resumed(owner: str) -> None:
    failures: list[str] = []

    def fail_once(ctx: RunContext[Any], agent: Any, error: Exception) -> None:
        failures.append(str(error))
        if len(failures) == 1:
            raise ZeroDivisionError("hook")

    run_hooks, agent_hooks = RunHooks[Any](), AgentHooks[Any]()
    (run_hooks if owner == "run" else agent_hooks).on_compaction_failed = fail_once
    small = ScriptedModel([RuntimeError("no network")] * 2, name="small")
    compaction = Compaction(at_tokens=60, keep_last=1, summarizer=small)
    agent = Agent("Clerk", tools=[look], compaction=compaction, hooks=agent_hooks)
    runner = Runner(agent, model=ScriptedModel([*looks(3), "done"]), hooks=run_hooks)
    with pytest.raises(ZeroDivisionError, match="hook"):
        await runner.run("go", run_id="r")

    assert (await runner.resume("r")).output == "done"
    assert failures == ["no network"] * 2


async def test_a_refusal_is_not_taken_for_a_summary() -> None:
    hooks = Failures()
    small = ScriptedModel([ModelResponse(AssistantMessage("I cannot do that."), None, "refusal")], name="small")
    await run_long(Compaction(at_tokens=120, keep_last=2, summarizer=small), turns=5, hooks=hooks)

    assert [str(error) for error in hooks.errors] == ["the model `small` refused to write a summary: I cannot do that."]


@pytest.mark.parametrize("returned", [None, 3, [], "", " ", [UserMessage("")]])
async def test_a_function_must_return_text_or_messages(returned: Any) -> None:
    compaction = Compaction(at_tokens=60, keep_last=1, summarizer=lambda ctx, messages: returned)
    with pytest.raises(SetupError, match=r"the summarizer of `Clerk` returned .*; return text or messages"):
        await run_long(compaction)


async def test_calls_and_results_stay_together_whatever_a_function_returns() -> None:
    def summarize(ctx: RunContext[Any], messages: Sequence[Message]) -> Sequence[Message]:
        # The call without its result, and a result without its call.
        return [messages[0], messages[1], messages[4]]

    _, model = await run_long(Compaction(at_tokens=100, keep_last=1, summarizer=summarize), turns=4)

    seen = model.requests[-1].messages
    missing = "The result of this call is not available."
    assert texts(seen) == ["go", "", missing, "", fact(3)]


async def test_a_function_may_use_steps_values_and_interrupts() -> None:
    asked: list[str] = []

    async def summarize(ctx: RunContext[Any], messages: Sequence[Message]) -> str:
        name = await ctx.step("name", lambda: asked.append("step") or "Ada")
        note = await ctx.interrupt("What matters?")
        ctx.values.set("note", note)
        return f"{name}: {note}"

    agent = Agent("Clerk", tools=[look], compaction=Compaction(at_tokens=60, keep_last=1, summarizer=summarize))
    runner = Runner(agent, model=ScriptedModel([*looks(3), "done"]))
    suspended = await runner.run("go", run_id="r")
    assert [interrupt.id for interrupt in suspended.interrupts] == ["1/m4/compact/ask1"]
    result = await runner.resume("r", "all")

    assert [event.text for event in compactions(result.events)] == [HEADING + "Ada: all"]
    assert (asked, result.values) == (["step"], {"note": "all"})
    assert (await runner.runs.replay(decode_log(encode_log(result.events)))).values == {"note": "all"}


# --- one history: threads, forks, branches, nested runs


def keep_facts(ctx: RunContext[Any], messages: Sequence[Message]) -> str:
    """Summarize with the facts alone."""
    words = " ".join(texts(messages)).split()
    return "facts " + " ".join(dict.fromkeys(word for word in words if word.isdecimal()))


CHAT = Compaction(at_tokens=30, keep_last=1, summarizer=keep_facts)


def chat(*answers: Any, **options: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    model = ScriptedModel([*answers])
    return Runner(Agent("A", **options), model=model, compaction=CHAT, store="memory:"), model


async def test_later_runs_of_a_thread_read_the_summary() -> None:
    runner, model = chat(*["yes " + "y" * 40] * 5)
    results = [await runner.run(f"{number} " + "z" * 60, thread="t") for number in range(5)]

    seen = [texts(request.messages) for request in model.requests]
    assert seen[2][0] == HEADING + "facts 0"
    assert seen[4] == [HEADING + "facts 0 1 2", "3 " + "z" * 60, "yes " + "y" * 40, "4 " + "z" * 60]
    assert len(await runner.thread("t").messages()) == 10
    replayed = await runner.runs.replay(results[-1].run_id)
    assert (replayed.output, replayed.events) == (results[-1].output, results[-1].events)


@pytest.mark.parametrize(("keep", "summary"), [(1, "facts 0 1"), (2, "facts 0 1 2")])
async def test_trimming_a_thread_keeps_the_summary(keep: int, summary: str) -> None:
    runner, model = chat(*["yes " + "y" * 40] * 4, "ok")
    for number in range(3):
        await runner.run(f"{number} " + "z" * 60, thread="t")
    # The fourth run makes a summary up to the second one.
    await runner.run("3 short", thread="t")
    assert await runner.thread("t").trim(keep) == 4 - keep
    await runner.run("4 short", thread="t")

    # The last run covers the third one as well, if it is still there.
    assert texts(model.requests[-1].messages) == [HEADING + summary, "3 short", "yes " + "y" * 40, "4 short"]


async def test_a_run_whose_thread_was_trimmed_meanwhile_resumes_with_its_summary() -> None:
    @tool
    async def ask(ctx: RunContext[Any]) -> str:
        """Ask."""
        return str(await ctx.interrupt("really?"))

    runner, model = chat(*["yes " + "y" * 40] * 2, call("ask"), "done", tools=[ask])
    for number in range(2):
        await runner.run(f"{number} " + "z" * 60, thread="t")
    result = await runner.run("2 " + "z" * 60, thread="t")
    for record in await runner.thread("t").runs():
        if record.run_id != result.run_id:
            await runner._require_store("test").delete(record.run_id)
    await runner.resume(result.run_id, "yes")

    assert texts(model.requests[-1].messages) == [HEADING + "facts 0", "2 " + "z" * 60, "", "yes"]


async def test_a_fork_after_a_summary_reads_it() -> None:
    small = summarizer("first", "second", "never")
    compaction = Compaction(at_tokens=120, keep_last=2, summarizer=small)
    model = ScriptedModel([*looks(8), "done"])
    runner = Runner(Agent("Clerk", tools=[look], compaction=compaction), model=model)
    result = await runner.run("go", run_id="r")
    at = next(place for place, event in enumerate(result.events) if isinstance(event, HistoryCompacted)) + 1

    fork = await runner.runs.fork(result.events, at=at, run_id="fork")
    model.fast_forward(result.events[:at])
    again = await runner.resume(fork)
    assert again.output == "done"
    assert [event.upto for event in compactions(again.events)] == [EventRef("fork", "1/m3"), EventRef("fork", "1/m6")]
    assert texts(model.requests[9].messages)[0] == HEADING + "first"

    edited = await runner.runs.fork(result.events, edit={"1/m6/compact": "edited"}, run_id="edited")
    model.fast_forward(result.events[:at])
    await runner.resume(edited)
    assert texts(model.requests[-4].messages)[0] == "edited"


async def test_a_parallel_branch_compacts_its_own_copy() -> None:
    model = ScriptedModel({"A": [*looks(6), "a", "a"], "B": ["b", "b"], "C": ["c", "c"]})
    a = Agent("A", tools=[look], compaction=Compaction(at_tokens=60, keep_last=1, summarizer=keep_facts))
    team = SequentialAgent("S", sub_agents=[ParallelAgent("P", sub_agents=[a, Agent("B")]), Agent("C")])
    runner = Runner(team, model=model, store="memory:")
    result = await runner.run("go", thread="t")

    assert {event.is_local for event in compactions(result.events)} == {True}
    read = next(texts(request.messages) for request in model.requests if request.agent == "C")
    assert [text for text in read if "returned result" in text] == [
        f"For context: [A] `look` tool returned result: {fact(number)}." for number in range(6)
    ]
    assert len(result.messages) == 1 + 12 + 3
    # The next run of the thread reads everything.
    await runner.run("again", thread="t", start_at="root")
    assert texts(next(each for each in reversed(model.requests) if each.agent == "B").messages)[0] == "go"


async def test_a_branch_reads_the_summary_that_was_made_before_it() -> None:
    model = ScriptedModel({"A": [*looks(4), "a"], "B": ["b"], "C": ["c"]})
    a = Agent("A", tools=[look], compaction=Compaction(at_tokens=60, keep_last=1, summarizer=keep_facts))
    team = SequentialAgent("S", sub_agents=[a, ParallelAgent("P", sub_agents=[Agent("B"), Agent("C")])])
    result = await Runner(team, model=model).run("go")

    assert {event.is_local for event in compactions(result.events)} == {False}
    for request in model.requests[-2:]:
        assert texts(request.messages)[0] == HEADING + "facts 0 1 2"


async def test_an_agent_as_tool_compacts_its_own_history() -> None:
    inner = Agent("Inner", tools=[look], compaction=Compaction(at_tokens=60, keep_last=1, summarizer=keep_facts))
    model = ScriptedModel({"Outer": [call("Inner", request="do"), "done"], "Inner": [*looks(5), "facts"]})
    runner = Runner(Agent("Outer", tools=[inner.as_tool(name="Inner")]), model=model, store="memory:")
    result = await runner.run("go", thread="t")

    assert {event.is_local for event in compactions(result.events)} == {True}
    model.fast_forward([])
    await runner.run("again", thread="t")
    outer = [request for request in model.requests if request.agent == "Outer"][2]
    assert texts(outer.messages) == ["go", "", "facts", "done", "again"]


async def test_a_summary_of_a_failed_activation_is_not_read() -> None:
    compaction = Compaction(at_tokens=60, keep_last=1, summarizer=keep_facts)
    broken = Agent("Broken", tools=[look], compaction=compaction)
    model = ScriptedModel({"Broken": [*looks(4), RuntimeError("down")], "Next": ["fine", "again"]})
    team = then_transfer(broken, to="Next", on_error="report")
    runner = Runner(team, extra_agents=[Agent("Next")], model=model, store="memory:")
    result = await runner.run("go", thread="t")
    await runner.run("more", thread="t")

    assert compactions(result.events)
    for request in model.requests[-2:]:
        assert texts(request.messages)[0] == "go"
        assert "Broken" in texts(request.messages)[1]


# --- policies and filters


@pytest.mark.parametrize("policy", ["none", "answers"])
async def test_agents_that_select_messages_read_their_own_summaries(policy: Any) -> None:
    a = Agent("A", tools=[look], handoffs=[handoff(Agent("B", history=policy))])
    steps = {"A": [call("look", number=1), call("look", number=2), call("look", number=3), call("transfer_to_b")]}
    model = ScriptedModel({**steps, "B": ["b"]})
    compaction = Compaction(at_tokens=60, keep_last=1, summarizer=keep_facts)
    result = await Runner(a, model=model, compaction=compaction).run("the question")

    assert {event.readers for event in compactions(result.events)} == {"all"}
    assert texts(model.requests[-1].messages) == ["the question"]


async def test_a_long_thread_of_selected_messages_is_compacted_for_their_readers() -> None:
    runner, model = chat(*["yes " + "y" * 40] * 5, history="answers")
    results = [await runner.run(f"{number} " + "z" * 60, thread="t") for number in range(5)]

    assert {event.readers for event in compactions(results[-1].events)} == {"answers"}
    assert texts(model.requests[-1].messages)[:2] == [HEADING + "facts 0 1 2", "3 " + "z" * 60]


async def test_the_summary_of_a_filtered_activation_has_only_what_the_filter_let_through() -> None:
    target = Agent("B", tools=[look])
    edge = handoff(target, input_filter=filters.redact(also={"pin": r"PIN \d+"}))
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [*looks(4), "done"]})
    seen: list[str] = []

    def summarize(ctx: RunContext[Any], messages: Sequence[Message]) -> str:
        seen.extend(texts(messages))
        return "short"

    compaction = Compaction(at_tokens=90, keep_last=1, summarizer=summarize)
    result = await Runner(Agent("A", handoffs=[edge]), model=model, compaction=compaction).run(
        "my PIN 1234 " + "x" * 80
    )

    assert {event.readers for event in compactions(result.events)} == {"activation"}
    assert seen[0].startswith("my [pin removed]")
    assert not any("1234" in text for request in model.requests[1:] for text in texts(request.messages))


async def test_filters_get_the_summary_instead_of_the_messages_it_covers() -> None:
    given: list[Any] = []

    def look_at(data: Any) -> Any:
        given.append((texts(data.input_history), texts(data.pre_handoff_items), texts(data.new_items)))
        return data

    edge = handoff(Agent("B"), input_filter=look_at)
    model = ScriptedModel({"A": [*looks(3), call("transfer_to_b")], "B": ["done"]})
    compaction = Compaction(at_tokens=60, keep_last=1, summarizer=keep_facts)
    await Runner(Agent("A", tools=[look], handoffs=[edge]), model=model, compaction=compaction).run("go")

    ((inputs, before, turn),) = given
    assert inputs == [HEADING + "facts 0 1"]
    assert before == ["", fact(2)]
    assert len(turn) == 2
    assert texts(model.requests[-1].messages)[0] == HEADING + "facts 0 1"


async def test_agents_share_the_messages_after_the_summary() -> None:
    a = Agent("A", tools=[look], handoffs=["B"])
    b = Agent("B", tools=[look], handoffs=[a])
    steps_a = [*looks(4), call("transfer_to_b"), "end"]
    model = ScriptedModel({"A": steps_a, "B": [*looks(1, 7), call("transfer_to_a")]})
    compaction = Compaction(at_tokens=70, keep_last=2, summarizer=keep_facts)
    await Runner(a, model=model, compaction=compaction, extra_agents=[b]).run("go")

    last = model.requests[-1].messages
    assert text_of(last[0].content).startswith(HEADING)
    assert f"For context: [B] `look` tool returned result: {fact(7)}." in texts(last)


async def test_messages_that_a_summary_keeps_are_rewritten_for_other_agents() -> None:
    compaction = Compaction(at_tokens=60, keep_last=1, summarizer=lambda ctx, messages: messages)
    model = ScriptedModel({"A": [*looks(4), call("transfer_to_b")], "B": ["b"]})
    a = Agent("A", tools=[look], handoffs=[Agent("B")], compaction=compaction)
    result = await Runner(a, model=model).run("go")

    assert compactions(result.events)
    assert all(isinstance(message, UserMessage) for message in model.requests[-1].messages)
    assert all(isinstance(message, UserMessage) for message in model.requests[-2].messages[:1])
    assert isinstance(model.requests[-2].messages[1], AssistantMessage)


async def test_stored_requests_are_restored_with_their_summaries() -> None:
    runner, model = chat(*["yes " + "y" * 40] * 4)
    results = [await runner.run(f"{number} " + "z" * 60, thread="t") for number in range(4)]

    restored = [(await runner.runs.requests(result.run_id))["1/m1"] for result in results]
    assert [each.messages for each in restored] == [tuple(request.messages) for request in model.requests]
    assert restored[-1].sources[0].key == "1/m1/compact"


# --- replay and errors


async def test_a_summary_whose_response_is_missing_is_a_mismatch() -> None:
    compaction = Compaction(at_tokens=60, keep_last=1, summarizer=keep_facts)
    agent = Agent("Clerk", tools=[look], compaction=compaction)
    runner = Runner(agent, model=ScriptedModel([*looks(4), "done"]))
    result = await runner.run("go", run_id="r")
    broken = encode_log(result.events).replace(b'"upto":{"run_id":"r","key":"1/m', b'"upto":{"run_id":"r","key":"9/m')

    with pytest.raises(ReplayMismatchError, match="a summary up to 9/m"):
        await runner.runs.replay(decode_log(broken))


async def test_a_compacted_run_survives_crashes_after_every_event() -> None:
    def runner(store: Any) -> Runner[Any, Any]:
        compaction = Compaction(at_tokens=60, keep_last=1, summarizer=keep_facts)
        b = Agent("B", tools=[look], history="answers")
        a = Agent("A", tools=[look], handoffs=[b])
        model = ScriptedModel({"A": [*looks(4), call("transfer_to_b")], "B": [*looks(4), "done"]})
        return Runner(a, model=model, compaction=compaction, store=store)

    report = await assert_survives_crashes(runner, "go")
    assert report.crashes >= report.events


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"at_tokens": 0}, "at_tokens=0.*at least 1"),
        ({"at_tokens": 10, "keep_last": 0}, "keep_last=0.*at least 1"),
        ({"at_tokens": 10, "summarizer": 5}, "summarizer"),
        ({"at_tokens": 10, "summarizer": fact}, "summarizer"),
        ({"at_tokens": 10, "summarizer": keep_facts, "instructions": "Be brief."}, "is for a model"),
        ({"at_token": 10}, "at_tokens"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Compaction(**arguments)


def test_a_compaction_must_be_one() -> None:
    wrong: Any = 5000
    with pytest.raises(SetupError, match="`A` has compaction=5000; give Compaction"):
        Agent("A", compaction=wrong)
    with pytest.raises(SetupError, match="compaction"):
        Runner(Agent("A", model=ScriptedModel([])), compaction=wrong)


def test_a_realtime_runner_refuses_compaction_by_name() -> None:
    with pytest.raises(SetupError, match=r"RealtimeRunner\(\) has compaction, but a realtime model keeps"):
        RealtimeRunner(RealtimeAgent("A"), model=ScriptedRealtimeModel([]), compaction=CHAT)
