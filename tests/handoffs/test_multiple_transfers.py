"""Several handoffs: in one response, where only one is followed, and in one team, where names must differ."""

import re
from typing import Any

import pytest
from inline_snapshot import snapshot

from batonkit import Agent, RunContext, Runner, RunResult, SetupError, handoff, tool
from batonkit.agents import MultipleTransfers
from batonkit.errors import TransferError
from batonkit.log import AgentResponded, ControlTransferred, TextDelta, ToolReturned
from batonkit.messages import ToolCall, text_of
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedModel, call, say, transcript, transfer_to


@tool
async def look(at: str) -> str:
    """Look."""
    return f"{at} seen"


class CallbackRecorder(list[str]):
    """Records which callbacks were called."""

    def callback_for(self, name: str) -> Any:
        """Create the callback of the handoff to this agent."""

        def record(ctx: RunContext[Any]) -> None:
            self.append(name)

        return record


def make_runner(
    *calls: ToolCall, policy: MultipleTransfers = "first", recorder: CallbackRecorder | None = None
) -> tuple[Runner[Any, Any], ScriptedModel]:
    """Create a team in which `A` makes these calls. B and C are handoffs, D is returned by a function, E is a child."""
    d = Agent("D")
    recorded = recorder if recorder is not None else CallbackRecorder()

    def to_d(ctx: RunContext) -> Agent:
        """Go to D."""
        recorded.append("D")
        return d

    edges = [handoff(Agent(name), on_handoff=recorded.callback_for(name)) for name in "BC"]
    steps = {name: [f"{name} is done"] for name in "BCDE"}
    model = ScriptedModel({"A": [say("Well.", *calls)], **steps})
    a = Agent("A", tools=[look, to_d], handoffs=edges, sub_agents=[Agent("E")])
    return Runner(a, model=model, handoff_rules=HandoffRules(multiple_transfers=policy)), model


def results_by_call(result: RunResult[Any]) -> dict[str, str]:
    """Return the result of each call of `A`, in the order of the conversation."""
    response = next(event for event in result.events if isinstance(event, AgentResponded))
    names = {each.id: f"{each.name}{each.arguments}" for each in response.message.tool_calls}
    messages = [message for message in result.messages if getattr(message, "tool_call_id", "") in names]
    return {names[getattr(message, "tool_call_id", "")]: text_of(message.content) for message in messages}


# --- in one response

ALL = (call("transfer_to_b"), call("to_d"), call("look", at="sky"), transfer_to("E"), call("transfer_to_c"))


async def test_the_first_transfer_is_followed_and_the_other_calls_get_an_error() -> None:
    # 2 and 4: for all kinds of transfers, and the tool keeps its result.
    recorder = CallbackRecorder()
    runner, model = make_runner(*ALL, recorder=recorder)
    result = await runner.run("hi")
    assert result.agent == "B"
    assert results_by_call(result) == snapshot(
        {
            "transfer_to_b{}": '{"assistant":"B"}',
            "to_d{}": "Not transferred to [D]: only one transfer is followed per response, and that is the one to [B].",
            'look{"at":"sky"}': "sky seen",
            'transfer_to_agent{"agent_name":"E"}': "Not transferred to [E]: only one transfer is followed per response, and that is the one to [B].",  # noqa: E501
            "transfer_to_c{}": "Not transferred to [C]: only one transfer is followed per response, and that is the one to [B].",  # noqa: E501
        }
    )
    # The function runs before the transfer is chosen; a callback is called only for the chosen one.
    assert recorder == ["D", "B"]
    assert [text_of(message.content) for message in model.requests[1].messages] == [
        "hi",
        "For context: [A] said: Well. [A] called tool: `transfer_to_b` with arguments: {}. "
        '[A] called tool: `look` with arguments: {"at":"sky"}.',
        'For context: [A] `transfer_to_b` tool returned result: {"assistant":"B"}.',
        "For context: [A] `look` tool returned result: sky seen.",
    ]


@pytest.mark.parametrize(
    ("policy", "calls", "winner"),
    [
        ("first", ALL, "B"),
        ("last", ALL, "C"),
        ("first", ALL[1:], "D"),
        ("last", ALL[:-1], "E"),
        ("first", ALL[::-1], "C"),
        ("last", ALL[2::-1], "B"),
    ],
)
async def test_exactly_one_transfer_is_followed_by_its_position(
    policy: MultipleTransfers, calls: tuple[ToolCall, ...], winner: str
) -> None:
    runner, model = make_runner(*calls, policy=policy)
    result = await runner.run("hi")
    assert (result.agent, result.output) == (winner, f"{winner} is done")
    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == [winner]
    results = results_by_call(result)
    assert len(results) == len(calls)
    refused = [text for text in results.values() if text.startswith("Not transferred")]
    assert len(refused) == len(calls) - 2
    assert all(f"that is the one to [{winner}]" in text for text in refused)
    assert "Not transferred" not in repr(list(model.requests[1].messages))


async def test_the_policy_error_refuses_several_transfers() -> None:
    # The error names all targets, every call has a result, and no callback is called.
    recorder = CallbackRecorder()
    runner, model = make_runner(
        call("transfer_to_b"), call("look", at="sky"), call("transfer_to_c"), policy="error", recorder=recorder
    )
    live = runner.stream("hi")
    with pytest.raises(TransferError, match="`A` asked for several transfers at once: `B`, `C`; only one is allowed"):
        await live._drive()
    assert recorder == []
    assert len([event for event in live.result.events if isinstance(event, ToolReturned)]) == 3
    # A resumed run raises the same error and repeats nothing.
    with pytest.raises(TransferError):
        await runner.resume(live.run_id)
    assert len(model.requests) == 1


async def test_a_single_transfer_is_followed_under_every_policy() -> None:
    for policy in ("first", "last", "error"):
        runner, _ = make_runner(call("look", at="sky"), call("transfer_to_c"), policy=policy)
        assert (await runner.run("hi")).agent == "C"


async def test_a_handoff_that_is_called_twice_happens_once() -> None:
    recorder = CallbackRecorder()
    runner, _ = make_runner(call("transfer_to_b"), call("transfer_to_b"), recorder=recorder)
    result = await runner.run("hi")
    assert (result.agent, recorder) == ("B", ["B"])
    returned = [event for event in result.events if isinstance(event, ToolReturned)]
    assert sorted(event.is_error for event in returned) == [False, True]
    assert len({event.call_id for event in returned}) == 2


async def test_a_streamed_run_has_the_same_events_each_with_its_agent() -> None:
    blocking, _ = make_runner(*ALL)
    streamed, model = make_runner(*ALL)
    model.stream = True
    async with streamed.stream("hi") as live:
        events = [event async for event in live]
    assert transcript(live.result.events) == transcript((await blocking.run("hi")).events)
    deltas = [(event.agent, event.text) for event in events if isinstance(event, TextDelta)]
    assert deltas == [("A", "Well."), ("B", "B "), ("B", "is "), ("B", "done")]
    transfer_index = [type(event).__name__ for event in events].index("ControlTransferred")
    assert {event.agent for event in events[1:transfer_index]} == {"A"}
    assert {event.agent for event in events[transfer_index + 2 : -1]} == {"B"}
    assert events[transfer_index + 2].path == ("A", "B")


# --- in one team


async def test_agents_with_names_in_other_scripts_are_all_reachable() -> None:
    names = ("客服", "销售", "Поддержка", "émile", "営業 二課")
    edges = [Agent(name, description=name) for name in names]
    shown: dict[str, str] = {}
    model = ScriptedModel(["done"])
    await Runner(Agent("A", model=model, handoffs=edges)).run("hi")
    for spec, name in zip(model.requests[0].tools, names, strict=True):
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", spec.name)
        assert name in spec.description
        shown[name] = spec.name
    assert len(set(shown.values())) == len(names)
    for name, tool_name in shown.items():
        model = ScriptedModel({"A": [call(tool_name)], name: ["你好"]})
        result = await Runner(Agent("A", handoffs=edges), model=model).run("hi")
        assert (result.agent, result.output) == (name, "你好")


async def test_agents_with_chinese_names_hand_off_to_each_other() -> None:
    service = Agent("客服", description="回答问题", handoffs=["销售"])
    sales = Agent("销售", description="负责销售", handoffs=[service])

    def first_tool(request: Any) -> ToolCall:
        return call(request.tools[0].name)

    model = ScriptedModel({"客服": [first_tool, "再见"], "销售": [first_tool]})
    result = await Runner(service, model=model, extra_agents=[sales]).run("你好")
    assert (result.output, result.events[-2].path) == ("再见", ("客服", "销售", "客服"))


@pytest.mark.parametrize(
    ("first", "second"),
    [("Sales Desk", "sales_desk"), ("Sales", "SALES"), ("Zürich", "Zurich")],
)
def test_handoffs_with_the_same_tool_name_are_refused(first: str, second: str) -> None:
    # The message names both and proposes an override.
    with pytest.raises(SetupError, match=r"handoff\(agent, tool_name_override=…\)") as caught:
        Runner(Agent("A", handoffs=[Agent(first), Agent(second)]))
    assert f"the handoff to `{first}` and the handoff to `{second}`" in str(caught.value)
    Runner(Agent("A", handoffs=[Agent(first), handoff(Agent(second), tool_name_override="to_the_other")]))


def test_a_handoff_with_the_name_of_a_tool_is_refused() -> None:
    with pytest.raises(SetupError, match="its tool `look` and the handoff to `B`") as caught:
        Runner(Agent("A", tools=[look], handoffs=[handoff(Agent("B"), tool_name_override="look")]))
    assert "tool_name_override" in str(caught.value)


def test_two_handoffs_to_one_agent_need_two_names() -> None:
    b = Agent("B")
    with pytest.raises(SetupError, match="has two tools called `transfer_to_b`"):
        Runner(Agent("A", handoffs=[b, handoff(b, return_to="caller")]))
    Runner(Agent("A", handoffs=[b, handoff(b, return_to="caller", tool_name_override="consult")]))


@pytest.mark.parametrize(("policy", "followed"), [("first", "B"), ("last", "D"), ("error", None)])
async def test_tool_results_in_the_log_have_the_requested_agent(
    policy: MultipleTransfers, followed: str | None
) -> None:
    calls = [call("transfer_to_b"), call("look", at="it"), transfer_to("E"), call("to_d"), transfer_to("Unknown")]
    runner, _ = make_runner(*calls, policy=policy)
    events: list[Any] = []
    try:
        async with runner.stream("Hi") as run:
            async for event in run:
                events.append(event)  # noqa: PERF401 - events before an error count too
    except TransferError:
        assert followed is None
    requested = {event.key: event.requested_agent for event in events if isinstance(event, ToolReturned)}
    assert requested == {"1/m1.0": "B", "1/m1.1": "", "1/m1.2": "E", "1/m1.3": "D", "1/m1.4": ""}
    assert [event.target for event in events if isinstance(event, ControlTransferred)] == (
        [followed] if followed else []
    )
