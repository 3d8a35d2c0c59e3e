"""The smallest examples of what the laws have found. What is not mended yet is marked, and `known` steps around it."""

import asyncio
from collections.abc import Sequence

import pytest

from baton import Agent, RunContext, Runner, RunResult, agent, handoff, then_transfer, tool
from baton.agents import AgentContext
from baton.context import HistoryEntry
from baton.errors import BatonError, LogError, NotEncodableError
from baton.events import (
    AgentResponded,
    InterruptAnswered,
    Origin,
    StepCompleted,
    ToolReturned,
    decode_event,
    decode_log,
    encode_event,
)
from baton.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    pair_calls_with_results,
    text_of,
)
from baton.testing import ScriptedModel, call, transfer_to
from baton.testing.scripted import ScriptStep


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def ask(ctx: RunContext) -> str:
    """Ask somebody."""
    return str(await ctx.interrupt("well?"))


def _calls(messages: "list[Message] | tuple[Message, ...]") -> list[str]:
    return [each.id for message in messages if isinstance(message, AssistantMessage) for each in message.tool_calls]


async def _ids(steps: list[ScriptStep], given: "str | list[Message]" = "go") -> list[str]:
    result = await Runner(Agent("A", tools=[look]), model=ScriptedModel(steps)).run(given)
    return _calls(result.messages)


async def test_two_calls_of_one_response_with_one_id() -> None:
    ids = await _ids([[ToolCall("dup", "look"), ToolCall("dup", "look")], "done"])

    assert len(set(ids)) == 2


async def test_an_id_that_looks_like_one_of_ours() -> None:
    (_, made) = await _ids([[ToolCall("x", "look"), ToolCall("x", "look")], "done"])
    ids = await _ids([[ToolCall(made, "look"), ToolCall(made, "look")], "done"])

    assert len(set(ids)) == 2


async def test_an_id_that_the_input_has_used() -> None:
    before: list[Message] = [UserMessage("hi"), AssistantMessage("", (ToolCall("c1", "look"),))]
    ids = await _ids([ToolCall("c1", "look"), "done"], before)

    assert len(set(ids)) == 2


async def test_then_transfer_can_be_hidden() -> None:
    model = ScriptedModel({"A": ["a"], "B": ["b"]})
    team = Agent("Root", sub_agents=[then_transfer(Agent("A"), to="B"), Agent("B")])
    first = team.sub_agents[0]
    await Runner(first, extra_agents=[team], model=model, show_transfers=False).run("go")

    assert list(model.requests[-1].messages) == [UserMessage("go"), UserMessage("For context: [A] said: a.")]


async def test_nothing_is_left_of_a_refused_transfer_with_an_empty_part() -> None:
    refused = AssistantMessage((Text(""),), (ToolCall("c", "transfer_to_agent", '{"agent_name":"C"}'),))
    model = ScriptedModel([refused, transfer_to("B"), transfer_to("A"), "done"])
    await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("go")

    assert all(message.content or _calls([message]) for message in model.requests[-1].messages)
    assert AssistantMessage((Text(""),)) not in model.requests[-1].messages


async def test_the_edge_that_was_asked_for_is_the_one_that_is_followed() -> None:
    b = Agent("B")
    a = Agent("A", sub_agents=[b], handoffs=[handoff(b, return_to="caller")])
    result = await Runner(a, model=ScriptedModel([call("transfer_to_b"), "b", "a"])).run("go")

    assert result.output == "a"


async def test_two_questions_answered_one_after_the_other() -> None:
    runner = Runner(Agent("A", tools=[ask]), model=ScriptedModel([[call("ask"), call("ask")], "done"]))
    result = await runner.run("go")
    for _ in range(2):
        result = await runner.resume(result.run_id, {result.interrupts[0].id: "yes"})

    assert result.output == "done"


async def test_a_run_with_a_question_is_replayed() -> None:
    runner = Runner(Agent("A", tools=[ask]), model=ScriptedModel([call("ask"), "done"]))
    result = await runner.resume((await runner.run("go")).run_id, "yes")
    replayed = await runner.replay(result.events)

    assert (replayed.output, replayed.events) == (result.output, result.events)


async def test_a_resumed_agent_is_rewritten_for_the_next_one() -> None:
    model = ScriptedModel([call("ask"), transfer_to("B"), "done"])
    runner = Runner(Agent("A", tools=[ask], sub_agents=[Agent("B")]), model=model)
    await runner.resume((await runner.run("go")).run_id, "yes")

    assert all(isinstance(message, UserMessage) for message in model.requests[-1].messages)


async def test_a_direct_result_that_a_transfer_beats_is_no_answer() -> None:
    shout = tool(_shout, name="shout", return_directly=True)
    model = ScriptedModel([[call("shout"), transfer_to("B")], "done"])
    await Runner(Agent("A", tools=[shout], sub_agents=[Agent("B")]), model=model, history="answers").run("go")

    assert list(model.requests[-1].messages) == [UserMessage("go")]


async def test_of_several_direct_results_only_the_last_is_an_answer() -> None:
    shout = tool(_shout, name="shout", return_directly=True)
    a = Agent("A", tools=[shout])
    model = ScriptedModel([call("transfer_to_a"), [call("shout", word="1"), call("shout", word="2")], "done"])
    root = Agent("Root", handoffs=[handoff(a, return_to="caller")])
    await Runner(root, model=model, history="answers").run("go")

    assert len(model.requests[-1].messages) == 2


async def _shout(word: str = "hey") -> str:
    return word


async def test_a_function_that_looks_up_an_agent_works_after_a_resume() -> None:
    register: dict[str, Agent] = {}

    @tool
    async def fetch() -> object:
        """Fetch B."""
        return register["B"]

    b = register["B"] = Agent("B")
    model = ScriptedModel([[call("fetch"), call("ask")], "done"])
    runner = Runner(Agent("A", tools=[fetch, ask]), extra_agents=[b], model=model)
    result = await runner.resume((await runner.run("go")).run_id, "yes")

    assert (result.agent, result.output) == ("B", "done")


async def test_a_function_that_looks_up_an_agent_works_after_a_restart() -> None:
    register: dict[str, Agent] = {}

    @tool
    async def fetch() -> object:
        """Fetch B."""
        return register["B"]

    b = register["B"] = Agent("B")
    model = ScriptedModel([[call("fetch"), call("ask")], "done"])
    a = Agent("A", tools=[fetch, ask])
    result = await Runner(a, extra_agents=[b], model=model).run("go")
    runner = Runner(a, extra_agents=[b], model=model)
    result = await runner.resume(runner.load_log(result.events), "yes")

    assert (result.agent, result.output) == ("B", "done")


async def test_values_written_by_concurrent_tools_are_the_same_in_a_replay() -> None:
    @tool
    async def slow(ctx: RunContext) -> None:
        """Write late."""
        await asyncio.sleep(0)
        ctx.values.set("k", "slow")

    @tool
    async def fast(ctx: RunContext) -> None:
        """Write at once."""
        ctx.values.set("k", "fast")

    runner = Runner(Agent("A", tools=[slow, fast]), model=ScriptedModel([[call("slow"), call("fast")], "done"]))
    result = await runner.run("go")

    assert (await runner.replay(result.events)).values == result.values


async def test_a_replay_asks_no_model() -> None:
    model = ScriptedModel(["done"])
    runner = Runner(Agent("A"), model=model)
    result = await runner.run("go")
    with pytest.raises(BatonError):
        await runner.replay([event for event in result.events[:2] if not isinstance(event, AgentResponded)])

    assert len(model.requests) == 1


async def test_a_replay_runs_no_tool() -> None:
    ran: list[int] = []

    @tool
    async def work() -> None:
        """Work."""
        ran.append(1)

    runner = Runner(Agent("A", tools=[work]), model=ScriptedModel([call("work"), "done"]))
    result = await runner.run("go")
    until_said = next(i for i, event in enumerate(result.events) if isinstance(event, AgentResponded)) + 1
    with pytest.raises(BatonError):
        await runner.replay(result.events[:until_said])

    assert ran == [1]


async def test_an_empty_input_is_not_sent() -> None:
    model = ScriptedModel(["done"])
    await Runner(Agent("A"), model=model).run("")

    assert UserMessage("") not in model.requests[0].messages


async def test_a_replay_does_not_finish_a_tool_that_was_answered() -> None:
    ran: list[int] = []

    @tool
    async def work(ctx: RunContext) -> None:
        """Work, if somebody says so."""
        await ctx.interrupt("well?")
        ran.append(1)

    runner = Runner(Agent("A", tools=[work]), model=ScriptedModel([call("work"), "done"]))
    result = await runner.resume((await runner.run("go")).run_id, "yes")
    until_answered = next(i for i, event in enumerate(result.events) if isinstance(event, InterruptAnswered)) + 1
    with pytest.raises(BatonError):
        await runner.replay(result.events[:until_answered])

    assert ran == [1]


async def test_then_transfer_goes_by_no_other_rules() -> None:
    b = Agent("B")
    a = then_transfer(Agent("A", handoffs=[handoff(b, return_to="caller")]), to="B")
    result = await Runner(a, model=ScriptedModel(["a", "b"])).run("go")

    assert result.output == "b"


async def test_a_disabled_target_is_told_what_would_work() -> None:
    a = Agent("A", handoffs=[handoff(Agent("B"), is_enabled=False), Agent("C")])
    result = await Runner(a, model=ScriptedModel([call("transfer_to_b"), "done"])).run("go")

    (told,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert "`C`" in text_of(told.content)


async def test_an_unknown_tool_is_not_told_of_disabled_handoffs() -> None:
    a = Agent("A", handoffs=[handoff(Agent("B"), is_enabled=False), Agent("C")])
    result = await Runner(a, model=ScriptedModel([call("nothing"), "done"])).run("go")

    (told,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert "transfer_to_b" not in text_of(told.content)


def test_two_calls_with_one_id_keep_their_results() -> None:
    calls = (ToolCall("x", "look"), ToolCall("x", "listen"))
    told = [ToolMessage("x", "look", "1"), ToolMessage("x", "listen", "2")]

    said, *results = pair_calls_with_results([AssistantMessage("", calls), *told])

    assert [text_of(result.content) for result in results] == ["1", "2"]
    assert len(set(_calls([said]))) == 2


def test_a_call_without_an_id_gets_one() -> None:
    said, result = pair_calls_with_results(
        [AssistantMessage("", (ToolCall("", "look"),)), ToolMessage("", "look", "1")]
    )

    (id,) = _calls([said])
    assert id
    assert result == ToolMessage(id, "look", "1")


async def test_an_id_that_a_projection_has_changed() -> None:
    def twice(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entry.message for entry in entries for _ in range(2)]

    async def ids_with(id: str) -> list[str]:
        model = ScriptedModel([ToolCall("c", "transfer_to_b"), ToolCall(id, "look"), "done"])
        await Runner(Agent("A", handoffs=[Agent("B", tools=[look], history=twice)]), model=model).run("go")
        return _calls(list(model.requests[-1].messages))

    (_, changed, _) = await ids_with("other")
    assert len(set(await ids_with(changed))) == 3


async def test_a_projection_that_repeats_a_message_with_calls() -> None:
    def twice(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entry.message for entry in entries for _ in range(2)]

    model = ScriptedModel([call("transfer_to_b"), "done"])
    await Runner(Agent("A", handoffs=[Agent("B", history=twice)]), model=model).run("go")

    ids = _calls(list(model.requests[-1].messages))
    assert len(ids) == len(set(ids))


def test_a_log_that_is_not_utf8() -> None:
    with pytest.raises(LogError):
        decode_log(b'{"format":1}\n{"type":"Started","key":"\xf4\x90\x80\x80","origin":["1","A",null],"at":0}\n')


@pytest.mark.parametrize("origin", [b'["1",5,null]', b'"abc"', b'[1,"A",null]'])
def test_a_log_with_a_strange_origin(origin: bytes) -> None:
    with pytest.raises(LogError):
        decode_log(b'{"format":1}\n{"type":"Started","key":"k","origin":' + origin + b',"at":0}\n')


def test_a_log_that_is_nested_too_deeply() -> None:
    value = b"[" * 20000 + b"]" * 20000
    with pytest.raises(LogError):
        decode_log(
            b'{"format":1}\n{"type":"Stepped","key":"k","origin":["1","A",null],"at":0,"name":"n","value":%b}\n' % value
        )


def test_text_that_utf8_cannot_hold() -> None:
    with pytest.raises(NotEncodableError):
        encode_event(StepCompleted("k", Origin("1", "A"), 0.0, "n", "\ud800"))


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        2**64,
        [2**70],
        "\ud800",
        {"\ud800": 1},
    ],
)
async def test_a_value_that_the_log_would_change_is_refused(value: object) -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.step("s", lambda: value)
        await ctx.say("done")

    result: RunResult[object] | None = None
    try:
        result = await Runner(a).run("go")
    except NotEncodableError:
        return
    stepped = next(event for event in result.events if isinstance(event, StepCompleted))
    assert decode_event(encode_event(stepped)) == stepped
