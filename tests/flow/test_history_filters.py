"""Filters on handoffs: what they are given, and that they change what the target reads and nothing else."""

from typing import Any

import pytest

from baton import Agent, RunContext, Runner, SetupError, handoff, tool
from baton.handoffs import HandoffInputData, HandoffInputFilter
from baton.messages import AssistantMessage, ToolMessage, UserMessage, text_of
from baton.testing import ScriptedModel, call, say


@tool
async def look_up(city: str) -> str:
    """Look up."""
    return f"sunny in {city}"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def line(**facts: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    """`A` looks something up and hands over to `B` along one edge, in a turn with words of its own."""
    edge = {name: facts.pop(name) for name in ("input_filter", "history", "return_to") if name in facts}
    model = ScriptedModel(
        {
            "A": [say("Hm.", call("look_up", city="Rome")), say("Over to B.", call("transfer_to_b")), "A ends"],
            "B": [call("ask", question="?"), "B is done"],
        }
    )
    a = Agent("A", tools=[look_up], handoffs=[handoff(Agent("B", tools=[ask]), **edge)])
    return Runner(a, model=model, **facts), model


def texts(model: ScriptedModel, index: int) -> list[str]:
    """What a request reads."""
    return [text_of(message.content) for message in model.requests[index].messages]


async def test_a_filter_is_given_everything_cut_where_the_turn_begins() -> None:
    # handoffs.md H10
    seen: list[HandoffInputData] = []

    def look(data: HandoffInputData) -> HandoffInputData:
        seen.append(data)
        return data

    runner, model = line(input_filter=look)
    await runner.run([UserMessage("hi"), UserMessage("there")], values={"x": 1})
    (data,) = seen
    assert data.input_history == (UserMessage("hi"), UserMessage("there"))
    assert [text_of(message.content) for message in data.pre_handoff_items] == ["Hm.", "sunny in Rome"]
    assert [text_of(message.content) for message in data.new_items] == ["Over to B.", '{"assistant":"B"}']
    assert data.run_context is not None
    assert data.run_context.values["x"] == 1
    # Given back as it is, it changes nothing.
    plain, plain_model = line()
    await plain.run([UserMessage("hi"), UserMessage("there")])
    assert list(model.requests[2].messages) == list(plain_model.requests[2].messages)


async def test_a_filter_changes_what_the_target_reads_and_nothing_else() -> None:
    # handoffs.md H9, DESIGN §5
    def only_new(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(), pre_handoff_items=())

    runner, model = line(input_filter=only_new)
    suspended = await runner.run("hi")
    assert texts(model, 2) == [
        "For context: [A] said: Over to B.. [A] called tool: `transfer_to_b` with arguments: {}.",
        'For context: [A] `transfer_to_b` tool returned result: {"assistant":"B"}.',
    ]
    assert [text_of(message.content) for message in suspended.messages][:2] == ["hi", "Hm."]
    # The target goes on from there, also across resume.
    await runner.resume(suspended.run_id, "yes")
    assert len(model.requests[3].messages) == 4


async def test_what_a_filter_gives_is_made_valid() -> None:
    # T26, handoffs.md H10: items may be dicts; calls and results are paired.
    def careless(data: HandoffInputData) -> HandoffInputData:
        calls = [item for item in data.pre_handoff_items if isinstance(item, AssistantMessage)]
        return data.clone(
            input_history=({"role": "user", "content": "as a dict"},), pre_handoff_items=tuple(calls), new_items=()
        )

    runner, model = line(input_filter=careless, history="verbatim")
    await runner.run("hi")
    kinds = [type(message).__name__ for message in model.requests[2].messages]
    assert kinds == ["UserMessage", "AssistantMessage", "ToolMessage"]
    last = model.requests[2].messages[-1]
    assert isinstance(last, ToolMessage)
    assert last.is_error


async def test_a_filter_may_be_async_or_a_callable_object_even_a_falsy_one() -> None:
    # handoffs.md H9
    async def by_coroutine(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(UserMessage("by coroutine"),))

    class Empty(list[str]):
        """Falsy, and a filter."""

        def __call__(self, data: HandoffInputData) -> HandoffInputData:
            return data.clone(input_history=(UserMessage("by object"),))

    runner, model = line(input_filter=by_coroutine)
    await runner.run("hi")
    assert texts(model, 2)[0] == "by coroutine"
    runner, model = line(input_filter=Empty(), handoff_input_filter=by_coroutine)
    await runner.run("hi")
    assert texts(model, 2)[0] == "by object"


async def test_the_edges_filter_goes_before_the_runners() -> None:
    # handoffs.md H9
    def named(name: str) -> HandoffInputFilter:
        return lambda data: data.clone(input_history=(UserMessage(name),))

    runner, model = line(handoff_input_filter=named("the runner's"))
    await runner.run("hi")
    assert texts(model, 2)[0] == "the runner's"
    runner, model = line(input_filter=named("the edge's"), handoff_input_filter=named("the runner's"))
    await runner.run("hi")
    assert texts(model, 2)[0] == "the edge's"


@pytest.mark.parametrize("wrong", [None, [], "everything"])
async def test_a_filter_that_gives_something_else_is_refused_before_the_target_starts(wrong: Any) -> None:
    # handoffs.md H9
    def careless(data: HandoffInputData) -> Any:
        return wrong

    runner, model = line(input_filter=careless)
    with pytest.raises(
        SetupError, match=r"the filter `careless` of the handoff from `A` to `B` returned .*data\.clone"
    ):
        await runner.run("hi")
    assert [request.agent for request in model.requests] == ["A", "A"]


async def test_the_others_read_everything_again() -> None:
    # handoffs.md H9: only the target's view is changed.
    def only_new(data: HandoffInputData) -> HandoffInputData:
        return data.clone(pre_handoff_items=())

    runner, model = line(input_filter=only_new, return_to="caller")
    suspended = await runner.run("hi")
    assert "sunny in Rome" not in "".join(texts(model, 2))
    await runner.resume(suspended.run_id, "yes")
    assert "sunny in Rome" in "".join(texts(model, 4))
