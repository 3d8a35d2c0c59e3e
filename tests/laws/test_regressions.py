"""Minimal examples of bugs that the property tests have found."""

import asyncio
from collections.abc import Sequence

import pytest

from batonkit import Agent, RunContext, Runner, RunResult, agent, handoff, then_transfer, tool
from batonkit.agents import AgentContext
from batonkit.errors import LogError, NotEncodableError
from batonkit.log import (
    AgentResponded,
    HistoryEntry,
    InterruptAnswered,
    Origin,
    StepCompleted,
    ToolReturned,
    decode_event,
    decode_log,
    encode_event,
)
from batonkit.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
    pair_calls_with_results,
    text_of,
)
from batonkit.runs import HistoryOptions
from batonkit.testing import ScriptedModel, call, transfer_to
from batonkit.testing.scripted import ScriptStep


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def ask(ctx: RunContext) -> str:
    """Ask a question."""
    return str(await ctx.interrupt("well?"))


def _call_ids(messages: "list[Message] | tuple[Message, ...]") -> list[str]:
    return [each.id for message in messages if isinstance(message, AssistantMessage) for each in message.tool_calls]


async def _call_ids_of_run(steps: list[ScriptStep], given: "str | list[Message]" = "go") -> list[str]:
    result = await Runner(Agent("A", tools=[look]), model=ScriptedModel(steps)).run(given)
    return _call_ids(result.messages)


async def test_two_calls_of_one_response_with_the_same_id_get_different_ids() -> None:
    ids = await _call_ids_of_run([[ToolCall("dup", "look"), ToolCall("dup", "look")], "done"])

    assert len(set(ids)) == 2


async def test_a_call_id_equal_to_a_generated_one_is_replaced() -> None:
    (_, generated) = await _call_ids_of_run([[ToolCall("x", "look"), ToolCall("x", "look")], "done"])
    ids = await _call_ids_of_run([[ToolCall(generated, "look"), ToolCall(generated, "look")], "done"])

    assert len(set(ids)) == 2


async def test_a_call_id_already_used_in_the_input_is_replaced() -> None:
    before: list[Message] = [UserMessage("hi"), AssistantMessage("", (ToolCall("c1", "look"),))]
    ids = await _call_ids_of_run([ToolCall("c1", "look"), "done"], before)

    assert len(set(ids)) == 2


async def test_show_transfers_false_hides_then_transfer() -> None:
    model = ScriptedModel({"A": ["a"], "B": ["b"]})
    team = Agent("Root", sub_agents=[then_transfer(Agent("A"), to="B"), Agent("B")])
    first = team.sub_agents[0]
    await Runner(first, extra_agents=[team], model=model, history=HistoryOptions(show_transfers=False)).run("go")

    assert list(model.requests[-1].messages) == [UserMessage("go"), UserMessage("For context: [A] said: a.")]


async def test_a_refused_transfer_with_an_empty_part_leaves_no_message() -> None:
    refused = AssistantMessage((Text(""),), (ToolCall("c", "transfer_to_agent", '{"agent_name":"C"}'),))
    model = ScriptedModel([refused, transfer_to("B"), transfer_to("A"), "done"])
    await Runner(Agent("A", sub_agents=[Agent("B")]), model=model).run("go")

    assert all(message.content or _call_ids([message]) for message in model.requests[-1].messages)
    assert AssistantMessage((Text(""),)) not in model.requests[-1].messages


async def test_the_requested_handoff_is_followed_rather_than_the_sub_agent() -> None:
    b = Agent("B")
    a = Agent("A", sub_agents=[b], handoffs=[handoff(b, return_to="caller")])
    result = await Runner(a, model=ScriptedModel([call("transfer_to_b"), "b", "a"])).run("go")

    assert result.output == "a"


async def test_two_interrupts_can_be_answered_one_by_one() -> None:
    runner = Runner(Agent("A", tools=[ask]), model=ScriptedModel([[call("ask"), call("ask")], "done"]))
    result = await runner.run("go")
    for _ in range(2):
        result = await runner.resume(result.run_id, {result.interrupts[0].id: "yes"})

    assert result.output == "done"


async def test_replaying_a_run_with_an_interrupt_reproduces_it() -> None:
    runner = Runner(Agent("A", tools=[ask]), model=ScriptedModel([call("ask"), "done"]))
    result = await runner.resume((await runner.run("go")).run_id, "yes")
    replayed = await runner.runs.replay(result.events)

    assert (replayed.output, replayed.events) == (result.output, result.events)


async def test_messages_of_a_resumed_agent_are_rewritten_for_the_next_agent() -> None:
    model = ScriptedModel([call("ask"), transfer_to("B"), "done"])
    runner = Runner(Agent("A", tools=[ask], sub_agents=[Agent("B")]), model=model)
    await runner.resume((await runner.run("go")).run_id, "yes")

    assert all(isinstance(message, UserMessage) for message in model.requests[-1].messages)


async def test_a_direct_result_is_not_an_answer_when_a_transfer_is_followed() -> None:
    shout = tool(_shout, name="shout", return_directly=True)
    model = ScriptedModel([[call("shout"), transfer_to("B")], "done"])
    await Runner(Agent("A", tools=[shout], sub_agents=[Agent("B")]), model=model, history="answers").run("go")

    assert list(model.requests[-1].messages) == [UserMessage("go")]


async def test_only_the_last_of_several_direct_results_is_an_answer() -> None:
    shout = tool(_shout, name="shout", return_directly=True)
    a = Agent("A", tools=[shout])
    model = ScriptedModel([call("transfer_to_a"), [call("shout", word="1"), call("shout", word="2")], "done"])
    root = Agent("Root", handoffs=[handoff(a, return_to="caller")])
    await Runner(root, model=model, history="answers").run("go")

    assert len(model.requests[-1].messages) == 2


async def _shout(word: str = "hey") -> str:
    return word


async def test_a_tool_that_returns_a_looked_up_agent_works_after_a_resume() -> None:
    agents_by_name: dict[str, Agent] = {}

    @tool
    async def fetch() -> object:
        """Fetch B."""
        return agents_by_name["B"]

    b = agents_by_name["B"] = Agent("B")
    model = ScriptedModel([[call("fetch"), call("ask")], "done"])
    runner = Runner(Agent("A", tools=[fetch, ask]), extra_agents=[b], model=model)
    result = await runner.resume((await runner.run("go")).run_id, "yes")

    assert (result.agent, result.output) == ("B", "done")


async def test_a_tool_that_returns_a_looked_up_agent_works_after_a_restart() -> None:
    agents_by_name: dict[str, Agent] = {}

    @tool
    async def fetch() -> object:
        """Fetch B."""
        return agents_by_name["B"]

    b = agents_by_name["B"] = Agent("B")
    model = ScriptedModel([[call("fetch"), call("ask")], "done"])
    a = Agent("A", tools=[fetch, ask])
    result = await Runner(a, extra_agents=[b], model=model).run("go")
    runner = Runner(a, extra_agents=[b], model=model)
    result = await runner.resume(await runner.runs.load(result.events), "yes")

    assert (result.agent, result.output) == ("B", "done")


async def test_a_replay_gives_the_values_that_concurrent_tools_wrote() -> None:
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

    assert (await runner.runs.replay(result.events)).values == result.values


async def test_a_replay_makes_no_model_request() -> None:
    model = ScriptedModel(["done"])
    runner = Runner(Agent("A"), model=model)
    result = await runner.run("go")
    await runner.runs.replay([event for event in result.events[:2] if not isinstance(event, AgentResponded)])

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
    await runner.runs.replay(result.events[:until_said])

    assert ran == [1]


async def test_a_replay_does_not_continue_a_tool_whose_interrupt_was_answered() -> None:
    ran: list[int] = []

    @tool
    async def work(ctx: RunContext) -> None:
        """Work after an answer."""
        await ctx.interrupt("well?")
        ran.append(1)

    runner = Runner(Agent("A", tools=[work]), model=ScriptedModel([call("work"), "done"]))
    result = await runner.resume((await runner.run("go")).run_id, "yes")
    until_answered = next(i for i, event in enumerate(result.events) if isinstance(event, InterruptAnswered)) + 1
    await runner.runs.replay(result.events[:until_answered])

    assert ran == [1]


async def test_then_transfer_ignores_the_options_of_a_handoff_to_the_same_agent() -> None:
    b = Agent("B")
    a = then_transfer(Agent("A", handoffs=[handoff(b, return_to="caller")]), to="B")
    result = await Runner(a, model=ScriptedModel(["a", "b"])).run("go")

    assert result.output == "b"


async def test_a_transfer_to_a_disabled_target_names_the_enabled_ones() -> None:
    a = Agent("A", handoffs=[handoff(Agent("B"), is_enabled=False), Agent("C")])
    result = await Runner(a, model=ScriptedModel([call("transfer_to_b"), "done"])).run("go")

    (told,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert "`C`" in text_of(told.content)


async def test_an_unknown_tool_error_does_not_name_disabled_handoffs() -> None:
    a = Agent("A", handoffs=[handoff(Agent("B"), is_enabled=False), Agent("C")])
    result = await Runner(a, model=ScriptedModel([call("nothing"), "done"])).run("go")

    (told,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert "transfer_to_b" not in text_of(told.content)


def test_two_calls_with_one_id_keep_their_results() -> None:
    calls = (ToolCall("x", "look"), ToolCall("x", "listen"))
    told = [ToolMessage("x", "look", "1"), ToolMessage("x", "listen", "2")]

    said, *results = pair_calls_with_results([AssistantMessage("", calls), *told])

    assert [text_of(result.content) for result in results] == ["1", "2"]
    assert len(set(_call_ids([said]))) == 2


def test_a_call_without_an_id_gets_one() -> None:
    said, result = pair_calls_with_results(
        [AssistantMessage("", (ToolCall("", "look"),)), ToolMessage("", "look", "1")]
    )

    (id,) = _call_ids([said])
    assert id
    assert result == ToolMessage(id, "look", "1")


async def test_a_call_id_equal_to_one_changed_by_a_projection_is_replaced() -> None:
    def twice(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entry.message for entry in entries for _ in range(2)]

    async def ids_with(id: str) -> list[str]:
        model = ScriptedModel([ToolCall("c", "transfer_to_b"), ToolCall(id, "look"), "done"])
        await Runner(Agent("A", handoffs=[Agent("B", tools=[look], history=twice)]), model=model).run("go")
        return _call_ids(list(model.requests[-1].messages))

    (_, changed, _) = await ids_with("other")
    assert len(set(await ids_with(changed))) == 3


async def test_a_projection_that_repeats_calls_yields_unique_ids() -> None:
    def twice(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        return [entry.message for entry in entries for _ in range(2)]

    model = ScriptedModel([call("transfer_to_b"), "done"])
    await Runner(Agent("A", handoffs=[Agent("B", history=twice)]), model=model).run("go")

    ids = _call_ids(list(model.requests[-1].messages))
    assert len(ids) == len(set(ids))


def test_a_log_that_is_not_utf8_raises_a_log_error() -> None:
    with pytest.raises(LogError):
        decode_log(b'{"format":1}\n{"type":"Started","key":"\xf4\x90\x80\x80","origin":["1","A",null],"at":0}\n')


@pytest.mark.parametrize("origin", [b'["1",5,null]', b'"abc"', b'[1,"A",null]'])
def test_a_log_with_an_invalid_origin_raises_a_log_error(origin: bytes) -> None:
    with pytest.raises(LogError):
        decode_log(b'{"format":1}\n{"type":"Started","key":"k","origin":' + origin + b',"at":0}\n')


def test_a_log_nested_too_deeply_raises_a_log_error() -> None:
    value = b"[" * 20000 + b"]" * 20000
    with pytest.raises(LogError):
        decode_log(
            b'{"format":1}\n{"type":"Stepped","key":"k","origin":["1","A",null],"at":0,"name":"n","value":%b}\n' % value
        )


def test_text_that_utf8_cannot_encode_is_refused() -> None:
    with pytest.raises(NotEncodableError):
        encode_event(StepCompleted("k", Origin("1", "A"), 0.0, "n", "\ud800"))


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        2**64,
        [2**70],
    ],
)
async def test_a_value_that_does_not_round_trip_is_refused(value: object) -> None:
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
