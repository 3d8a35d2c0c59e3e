"""Several edges: in one response, where one is followed and the others are told; and in one team, kept apart."""

import re
from typing import Any

import pytest
from inline_snapshot import snapshot

from baton import Agent, RunContext, Runner, RunResult, SetupError, handoff, tool
from baton.agents import MultipleTransfers
from baton.errors import TransferError
from baton.events import AgentResponded, ControlTransferred, TextDelta, ToolReturned
from baton.messages import ToolCall, text_of
from baton.testing import ScriptedModel, call, say, transcript, transfer_to


@tool
async def look(at: str) -> str:
    """Look."""
    return f"{at} seen"


class Notes(list[str]):
    """Notes which callbacks were called."""

    def of(self, name: str) -> Any:
        """The callback of the edge to this agent."""

        def note(ctx: RunContext[Any]) -> None:
            self.append(name)

        return note


def office(
    *calls: ToolCall, policy: MultipleTransfers = "first", notes: Notes | None = None
) -> tuple[Runner[Any, Any], ScriptedModel]:
    """`A` makes these calls in one response. It has a tool per target for B and C, a function for D, a child E."""
    d = Agent("D")
    noted = notes if notes is not None else Notes()

    def to_d(ctx: RunContext) -> Agent:
        """Go to D."""
        noted.append("D")
        return d

    edges = [handoff(Agent(name), on_handoff=noted.of(name)) for name in "BC"]
    steps = {name: [f"{name} is done"] for name in "BCDE"}
    model = ScriptedModel({"A": [say("Well.", *calls)], **steps})
    a = Agent("A", tools=[look, to_d], handoffs=edges, sub_agents=[Agent("E")])
    return Runner(a, model=model, multiple_transfers=policy), model


def results(result: RunResult[Any]) -> dict[str, str]:
    """What each call of `A` was told, in the order of the conversation."""
    said = next(event for event in result.events if isinstance(event, AgentResponded))
    names = {each.id: f"{each.name}{each.arguments}" for each in said.message.tool_calls}
    told = [message for message in result.messages if getattr(message, "tool_call_id", "") in names]
    return {names[getattr(message, "tool_call_id", "")]: text_of(message.content) for message in told}


# --- in one response

ALL = (call("transfer_to_b"), call("to_d"), call("look", at="sky"), transfer_to("E"), call("transfer_to_c"))


async def test_the_first_is_followed_and_the_others_are_told_which() -> None:
    # H8, DESIGN §4 clauses 1, 2 and 4: whatever the door, and a tool beside them keeps its result.
    notes = Notes()
    runner, model = office(*ALL, notes=notes)
    result = await runner.run("hi")
    assert result.agent == "B"
    assert results(result) == snapshot(
        {
            "transfer_to_b{}": '{"assistant":"B"}',
            "to_d{}": "Not transferred to [D]: only one transfer is followed per response, and that is the one to [B].",
            'look{"at":"sky"}': "sky seen",
            'transfer_to_agent{"agent_name":"E"}': "Not transferred to [E]: only one transfer is followed per response, and that is the one to [B].",  # noqa: E501
            "transfer_to_c{}": "Not transferred to [C]: only one transfer is followed per response, and that is the one to [B].",  # noqa: E501
        }
    )
    # A function has run before it is known that it loses; a callback is called only for what is followed.
    assert notes == ["D", "B"]
    assert [text_of(message.content) for message in model.requests[1].messages] == [
        "hi",
        "For context: [A] said: Well.. [A] called tool: `transfer_to_b` with arguments: {}. "
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
async def test_exactly_one_is_followed_by_its_place(
    policy: MultipleTransfers, calls: tuple[ToolCall, ...], winner: str
) -> None:
    # H8
    runner, model = office(*calls, policy=policy)
    result = await runner.run("hi")
    assert (result.agent, result.output) == (winner, f"{winner} is done")
    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == [winner]
    told = results(result)
    assert len(told) == len(calls)
    lost = [text for text in told.values() if text.startswith("Not transferred")]
    assert len(lost) == len(calls) - 2
    assert all(f"that is the one to [{winner}]" in text for text in lost)
    assert "Not transferred" not in repr(list(model.requests[1].messages))


async def test_one_too_many_is_an_error_if_that_is_the_policy() -> None:
    # H8: it names all that were asked for, every call has its result, and nobody is called back.
    notes = Notes()
    runner, model = office(
        call("transfer_to_b"), call("look", at="sky"), call("transfer_to_c"), policy="error", notes=notes
    )
    live = runner.stream("hi")
    with pytest.raises(TransferError, match="`A` asked for several transfers at once: `B`, `C`; only one is allowed"):
        await live._drive()
    assert notes == []
    assert len([event for event in live.result.events if isinstance(event, ToolReturned)]) == 3
    # It is the same when it is taken up again: nothing is done a second time.
    with pytest.raises(TransferError):
        await runner.resume(live.run_id)
    assert len(model.requests) == 1


async def test_one_alone_is_fine_under_every_policy() -> None:
    # H8
    for policy in ("first", "last", "error"):
        runner, _ = office(call("look", at="sky"), call("transfer_to_c"), policy=policy)
        assert (await runner.run("hi")).agent == "C"


async def test_the_same_handoff_twice_happens_once() -> None:
    # H8, DESIGN §4 clause 6
    notes = Notes()
    runner, _ = office(call("transfer_to_b"), call("transfer_to_b"), notes=notes)
    result = await runner.run("hi")
    assert (result.agent, notes) == ("B", ["B"])
    told = [event for event in result.events if isinstance(event, ToolReturned)]
    assert sorted(event.is_error for event in told) == [False, True]
    assert len({event.call_id for event in told}) == 2


async def test_streamed_or_not_is_the_same_and_every_event_has_its_sender() -> None:
    # H8, T22, T28
    drained, _ = office(*ALL)
    streamed, model = office(*ALL)
    model.stream = True
    async with streamed.stream("hi") as live:
        heard = [event async for event in live]
    assert transcript(live.result.events) == transcript((await drained.run("hi")).events)
    words = [(event.agent, event.text) for event in heard if isinstance(event, TextDelta)]
    assert words == [("A", "Well."), ("B", "B "), ("B", "is "), ("B", "done")]
    border = [type(event).__name__ for event in heard].index("ControlTransferred")
    assert {event.agent for event in heard[1:border]} == {"A"}
    assert {event.agent for event in heard[border + 2 : -1]} == {"B"}
    assert heard[border + 2].path == ("A", "B")


# --- in one team


async def test_agents_with_names_in_other_scripts_are_all_reachable() -> None:
    # H2
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


async def test_two_agents_in_chinese_hand_to_one_another() -> None:
    # H2, T22
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
def test_two_edges_that_would_be_called_the_same_are_refused(first: str, second: str) -> None:
    # H2: naming both, and proposing an override.
    with pytest.raises(SetupError, match=r"handoff\(agent, tool_name_override=…\)") as caught:
        Runner(Agent("A", handoffs=[Agent(first), Agent(second)]))
    assert f"the handoff to `{first}` and the handoff to `{second}`" in str(caught.value)
    Runner(Agent("A", handoffs=[Agent(first), handoff(Agent(second), tool_name_override="to_the_other")]))


def test_an_edge_called_like_a_tool_is_refused() -> None:
    # H2
    with pytest.raises(SetupError, match="its tool `look` and the handoff to `B`") as caught:
        Runner(Agent("A", tools=[look], handoffs=[handoff(Agent("B"), tool_name_override="look")]))
    assert "tool_name_override" in str(caught.value)


def test_two_edges_to_one_agent_need_two_names() -> None:
    # H2
    b = Agent("B")
    with pytest.raises(SetupError, match="has two tools called `transfer_to_b`"):
        Runner(Agent("A", handoffs=[b, handoff(b, return_to="caller")]))
    Runner(Agent("A", handoffs=[b, handoff(b, return_to="caller", tool_name_override="consult")]))


@pytest.mark.parametrize(("policy", "followed"), [("first", "B"), ("last", "D"), ("error", None)])
async def test_the_log_says_which_call_asked_for_whom(policy: MultipleTransfers, followed: str | None) -> None:
    calls = [call("transfer_to_b"), call("look", at="it"), transfer_to("E"), call("to_d"), transfer_to("Nobody")]
    runner, _ = office(*calls, policy=policy)
    heard: list[Any] = []
    try:
        async with runner.stream("Hi") as run:
            async for event in run:
                heard.append(event)  # noqa: PERF401 - what came before an error counts too
    except TransferError:
        assert followed is None
    wanted = {event.key: event.requested_agent for event in heard if isinstance(event, ToolReturned)}
    assert wanted == {"1/m1.0": "B", "1/m1.1": "", "1/m1.2": "E", "1/m1.3": "D", "1/m1.4": ""}
    assert [event.target for event in heard if isinstance(event, ControlTransferred)] == (
        [followed] if followed else []
    )
