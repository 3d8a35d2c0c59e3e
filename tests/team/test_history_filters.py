"""Input filters of handoffs: their input, and what the target and other agents read."""

from typing import Any

import pytest

from batonkit import Agent, RunContext, Runner, SetupError, handoff, tool
from batonkit.handoffs import HandoffInputData, HandoffInputFilter
from batonkit.messages import AssistantMessage, ToolMessage, UserMessage, text_of
from batonkit.runs import HistoryOptions
from batonkit.testing import ScriptedModel, call, say


@tool
async def look_up(city: str) -> str:
    """Look up."""
    return f"sunny in {city}"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def make_runner(runner_filter: HandoffInputFilter | None = None, **edge: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    """Create a runner whose agent `A` calls a tool and then transfers to `B`, with text in both responses."""
    model = ScriptedModel(
        {
            "A": [say("Hm.", call("look_up", city="Rome")), say("Over to B.", call("transfer_to_b")), "A ends"],
            "B": [call("ask", question="?"), "B is done"],
        }
    )
    a = Agent("A", tools=[look_up], handoffs=[handoff(Agent("B", tools=[ask]), **edge)])
    return Runner(a, model=model, history=HistoryOptions(input_filter=runner_filter)), model


def request_texts(model: ScriptedModel, index: int) -> list[str]:
    """Return the texts of a request."""
    return [text_of(message.content) for message in model.requests[index].messages]


async def test_a_filter_gets_the_history_split_at_the_start_of_the_turn() -> None:
    seen: list[HandoffInputData] = []

    def record(data: HandoffInputData) -> HandoffInputData:
        seen.append(data)
        return data

    runner, model = make_runner(input_filter=record)
    await runner.run([UserMessage("hi"), UserMessage("there")], values={"x": 1})
    (data,) = seen
    assert data.input_history == (UserMessage("hi"), UserMessage("there"))
    assert [text_of(message.content) for message in data.pre_handoff_items] == ["Hm.", "sunny in Rome"]
    assert [text_of(message.content) for message in data.new_items] == ["Over to B.", '{"assistant":"B"}']
    assert data.run_context is not None
    assert data.run_context.values["x"] == 1
    # Returning the data unchanged has no effect.
    runner_without_filter, model_without_filter = make_runner()
    await runner_without_filter.run([UserMessage("hi"), UserMessage("there")])
    assert list(model.requests[2].messages) == list(model_without_filter.requests[2].messages)


async def test_a_filter_changes_only_what_the_target_reads() -> None:
    def only_new(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(), pre_handoff_items=())

    runner, model = make_runner(input_filter=only_new)
    suspended = await runner.run("hi")
    assert request_texts(model, 2) == [
        "For context: [A] said: Over to B. [A] called tool: `transfer_to_b` with arguments: {}.",
        'For context: [A] `transfer_to_b` tool returned result: {"assistant":"B"}.',
    ]
    assert [text_of(message.content) for message in suspended.messages][:2] == ["hi", "Hm."]
    # The filtered history is kept after a resume.
    await runner.resume(suspended.run_id, "yes")
    assert len(model.requests[3].messages) == 4


async def test_filtered_messages_are_made_valid() -> None:
    # Items may be dicts; calls and results are paired.
    def calls_without_results(data: HandoffInputData) -> HandoffInputData:
        calls = [item for item in data.pre_handoff_items if isinstance(item, AssistantMessage)]
        return data.clone(
            input_history=({"role": "user", "content": "as a dict"},), pre_handoff_items=tuple(calls), new_items=()
        )

    runner, model = make_runner(input_filter=calls_without_results, history="verbatim")
    await runner.run("hi")
    kinds = [type(message).__name__ for message in model.requests[2].messages]
    assert kinds == ["UserMessage", "AssistantMessage", "ToolMessage"]
    last = model.requests[2].messages[-1]
    assert isinstance(last, ToolMessage)
    assert last.is_error


async def test_a_filter_can_be_async_or_a_callable_object() -> None:
    async def by_coroutine(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(UserMessage("by coroutine"),))

    class FalsyFilter(list[str]):
        """A filter that is falsy."""

        def __call__(self, data: HandoffInputData) -> HandoffInputData:
            return data.clone(input_history=(UserMessage("by object"),))

    runner, model = make_runner(input_filter=by_coroutine)
    await runner.run("hi")
    assert request_texts(model, 2)[0] == "by coroutine"
    runner, model = make_runner(input_filter=FalsyFilter(), runner_filter=by_coroutine)
    await runner.run("hi")
    assert request_texts(model, 2)[0] == "by object"


async def test_the_filter_of_a_handoff_takes_precedence_over_the_runners() -> None:
    def filter_named(name: str) -> HandoffInputFilter:
        return lambda data: data.clone(input_history=(UserMessage(name),))

    runner, model = make_runner(runner_filter=filter_named("the runner's"))
    await runner.run("hi")
    assert request_texts(model, 2)[0] == "the runner's"
    runner, model = make_runner(input_filter=filter_named("the edge's"), runner_filter=filter_named("the runner's"))
    await runner.run("hi")
    assert request_texts(model, 2)[0] == "the edge's"


@pytest.mark.parametrize("wrong", [None, [], "everything"])
async def test_an_invalid_result_of_a_filter_is_refused_before_the_target_starts(wrong: Any) -> None:
    def returns_wrong_type(data: HandoffInputData) -> Any:
        return wrong

    runner, model = make_runner(input_filter=returns_wrong_type)
    with pytest.raises(
        SetupError, match=r"the filter `returns_wrong_type` of the handoff from `A` to `B` returned .*data\.clone"
    ):
        await runner.run("hi")
    assert [request.agent for request in model.requests] == ["A", "A"]


async def test_other_agents_read_the_unfiltered_history() -> None:
    def only_new(data: HandoffInputData) -> HandoffInputData:
        return data.clone(pre_handoff_items=())

    runner, model = make_runner(input_filter=only_new, return_to="caller")
    suspended = await runner.run("hi")
    assert "sunny in Rome" not in "".join(request_texts(model, 2))
    await runner.resume(suspended.run_id, "yes")
    assert "sunny in Rome" in "".join(request_texts(model, 4))
