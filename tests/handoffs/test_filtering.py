"""How filters act in a run: on what the target reads, and on nothing and nobody else."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from baton import Agent, AgentContext, RunContext, Runner, RunResult, SetupError, Transfer, agent, handoff, tool
from baton.agents import RunHooks
from baton.events import AgentStarted, ControlTransferred, decode_log, encode_log
from baton.handoffs import HandoffInputData, HandoffInputFilter
from baton.handoffs.filters import compose, keep_last, nest_history, redact, remove_all_tools, summarize
from baton.messages import AssistantMessage, ToolMessage, UserMessage, pair_calls_with_results, text_of
from baton.testing import ScriptedModel, call, say, transcript, transfer_to


@tool
async def look(at: str) -> str:
    """Look."""
    return f"{at} seen"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def drop_all(data: HandoffInputData) -> HandoffInputData:
    """Nothing is left."""
    return data.clone(input_history=(), pre_handoff_items=(), new_items=())


def only(**sections: Any) -> HandoffInputFilter:
    """A filter that gives this and nothing else."""
    return lambda data: drop_all(data).clone(**sections)


def told(text: str) -> HandoffInputFilter:
    """A filter that tells this and nothing else."""
    return only(input_history=(UserMessage(text),))


def line(
    input_filter: HandoffInputFilter | None = None, *, runner_filter: HandoffInputFilter | None = None, **facts: Any
) -> tuple[Runner[Any, Any], ScriptedModel]:
    """`A` looks and hands to `B` through a filter; `B` hands to `C`, which hands back to `B`, which asks and ends."""
    model = ScriptedModel(
        {
            "A": [
                say("Hm.", call("look", at="the sky")),
                say("To B.", call("look", at="the sea"), call("transfer_to_b")),
            ],
            "B": [say("To C.", call("transfer_to_c")), call("ask", question="?"), "B is done"],
            "C": [say("Back.", call("transfer_to_b"))],
        }
    )
    b = Agent("B", tools=[ask], handoffs=[Agent("C", handoffs=["B"])])
    a = Agent("A", tools=[look], handoffs=[handoff(b, input_filter=input_filter)])
    return Runner(a, model=model, handoff_input_filter=runner_filter, **facts), model


def texts(model: ScriptedModel, index: int) -> list[str]:
    """What a request reads."""
    return [text_of(message.content) for message in model.requests[index].messages]


async def finished(runner: Runner[Any, Any], given: Any = "hi") -> RunResult[Any]:
    """The run, with its question answered."""
    suspended = await runner.run(given)
    return await runner.resume(suspended.run_id, "yes")


# --- only the target's view


async def test_a_filter_that_drops_everything_loses_nothing() -> None:
    # H9: the log, the result and later agents have everything; so has the target when it gets the floor again.
    plain, plain_model = line()
    filtered, model = line(drop_all)
    wanted, result = await finished(plain), await finished(filtered)
    assert texts(model, 2) == []
    assert result.messages == wanted.messages
    assert transcript(result.events) == transcript(wanted.events)
    for index in (3, 4):
        assert list(model.requests[index].messages) == list(plain_model.requests[index].messages)
        assert "For context: [A] `look` tool returned result: the sky seen." in texts(model, index)


async def test_a_filter_given_back_untouched_changes_nothing() -> None:
    # H9, H10
    plain, plain_model = line()
    filtered, model = line(lambda data: data)
    await finished(plain)
    await finished(filtered)
    requests = [list(request.messages) for request in model.requests]
    assert requests == [list(request.messages) for request in plain_model.requests]


async def test_the_target_goes_on_from_what_it_was_given() -> None:
    # H9, D5: also when it is resumed, here or elsewhere.
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    a = Agent("A", handoffs=[handoff(Agent("B", tools=[ask]), input_filter=told("Only this."))])
    suspended = await Runner(a, model=model).run("hi")
    other = Runner(a, model=model)
    await other.resume(other.load_log(decode_log(encode_log(suspended.events))), "yes")
    assert texts(model, 1) == ["Only this."]
    assert texts(model, 2) == ["Only this.", "", "yes"]


async def test_what_is_recorded_in_a_filter_is_done_once() -> None:
    # H9, H13, D5
    done: list[str] = []

    async def summing_up(data: HandoffInputData) -> HandoffInputData:
        assert data.run_context is not None
        summary = await data.run_context.step("summary", lambda: done.append("summed up") or f"summary {len(done)}")
        return data.clone(input_history=(UserMessage(str(summary)),), pre_handoff_items=(), new_items=())

    runner, model = line(summing_up)
    result = await finished(runner)
    assert done == ["summed up"]
    assert texts(model, 2) == ["summary 1"]
    await runner.replay(result.events)
    assert done == ["summed up"]


async def test_a_filter_knows_the_run_and_whose_words_are_whose() -> None:
    # H10, H17
    seen: list[HandoffInputData] = []

    def keep(data: HandoffInputData) -> HandoffInputData:
        seen.append(data)
        return data

    runner, _ = line(keep)
    suspended = await runner.run([UserMessage("one"), UserMessage("two")], context="mine", values={"x": 1})
    (data,) = seen
    assert data.input_history == (UserMessage("one"), UserMessage("two"))
    assert [(type(item), text_of(item.content)) for item in data.pre_handoff_items] == [
        (AssistantMessage, "Hm."),
        (ToolMessage, "the sky seen"),
    ]
    assert [(type(item), text_of(item.content)) for item in data.new_items] == [
        (AssistantMessage, "To B."),
        (ToolMessage, "the sea seen"),
        (ToolMessage, '{"assistant":"B"}'),
    ]
    assert {item.author for item in data.new_items if isinstance(item, AssistantMessage | ToolMessage)} == {"A"}
    ctx = data.run_context
    assert ctx is not None
    assert (ctx.context, ctx.values["x"], ctx.run_id, ctx.agent) == ("mine", 1, suspended.run_id, "A")


async def test_what_a_filter_is_given_is_frozen() -> None:
    # H10
    def careless(data: HandoffInputData) -> HandoffInputData:
        data.new_items = ()  # pyright: ignore[reportAttributeAccessIssue]
        return data

    runner, _ = line(careless)
    with pytest.raises(AttributeError):
        await runner.run("hi")
    data = HandoffInputData(input_history=(), pre_handoff_items=(), new_items=())
    with pytest.raises(TypeError):
        data.clone(news=())
    assert isinstance(data, msgspec.Struct)


# --- which filter


class Falsy(list[str]):
    """A filter that is false, for it is an empty list."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __call__(self, data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(UserMessage(self.text),), pre_handoff_items=(), new_items=())


async def later(data: HandoffInputData) -> HandoffInputData:
    """An async filter."""
    return data.clone(input_history=(UserMessage("later"),), pre_handoff_items=(), new_items=())


@pytest.mark.parametrize(
    ("of_edge", "of_runner", "wanted"),
    [
        (told("edge"), None, "edge"),
        (None, told("runner"), "runner"),
        (told("edge"), told("runner"), "edge"),
        (Falsy("falsy edge"), told("runner"), "falsy edge"),
        (None, Falsy("falsy runner"), "falsy runner"),
        (later, told("runner"), "later"),
        (None, later, "later"),
        (partial(later), None, "later"),
    ],
)
async def test_the_edges_filter_goes_before_the_runners(of_edge: Any, of_runner: Any, wanted: str) -> None:
    # H9: whatever the manner of either.
    runner, model = line(of_edge, runner_filter=of_runner)
    await runner.run("hi")
    assert texts(model, 2) == [wanted]


def by_handoff(target: Agent) -> Any:
    """An edge of its own."""
    return Agent("A", handoffs=[target])


def by_tree(target: Agent) -> Any:
    """A child."""
    return Agent("A", sub_agents=[target])


def by_function(target: Agent) -> Any:
    """A function that returns the agent."""

    def transfer_to_b() -> Agent:
        """Go."""
        return target

    return Agent("A", tools=[transfer_to_b])


def by_code(target: Agent) -> Any:
    """Code that names the agent."""

    @agent("A", handoffs=[target])
    async def a(ctx: AgentContext) -> Transfer:
        await ctx.say("Over.")
        return Transfer("B")

    return a


@pytest.mark.parametrize("door", [by_handoff, by_tree, by_function, by_code])
async def test_the_runners_filter_acts_whatever_the_door(door: Callable[[Agent], Any]) -> None:
    # H9
    step = transfer_to("B") if door is by_tree else call("transfer_to_b")
    model = ScriptedModel({"A": [step], "B": ["done"]})
    runner = Runner(door(Agent("B")), model=model, handoff_input_filter=told("runner"))
    assert (await runner.run("hi")).output == "done"
    assert [text_of(message.content) for message in model.requests[-1].messages] == ["runner"]


# --- what a filter may give


@pytest.mark.parametrize("wrong", [None, [], "everything", {"new_items": ()}])
@pytest.mark.parametrize("is_async", [True, False])
async def test_anything_else_is_refused_before_the_target_starts(wrong: Any, is_async: bool) -> None:
    # H9, H13: and the run can be resumed when the filter is mended; what was recorded is not repeated.
    done: list[str] = []
    is_broken = True

    class Noting(RunHooks):
        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            done.append("hook")

    def careless(data: HandoffInputData) -> Any:
        return wrong if is_broken else data

    async def careless_later(data: HandoffInputData) -> Any:
        return careless(data)

    def note(ctx: RunContext[Any]) -> None:
        done.append("on_handoff")

    given = careless_later if is_async else careless
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["done"]})
    a = Agent("A", handoffs=[handoff(Agent("B"), input_filter=given, on_handoff=note)])
    runner = Runner(a, model=model, hooks=Noting())
    live = runner.stream("hi")
    with pytest.raises(SetupError, match=rf"`{given.__name__}` of the handoff from `A` to `B` returned \w+; it must"):
        await live._drive()
    assert not any(isinstance(event, AgentStarted) and event.agent == "B" for event in live.result.events)
    is_broken = False
    assert (await runner.resume(live.run_id)).output == "done"
    assert done == ["on_handoff", "hook"]
    assert [request.agent for request in model.requests] == ["A", "B"]


async def test_a_filter_that_raises_ends_the_run_which_can_be_resumed() -> None:
    # H13
    tries: list[str] = []

    async def fragile(data: HandoffInputData) -> HandoffInputData:
        tries.append("tried")
        if len(tries) == 1:
            raise ConnectionError("no summary")
        return data

    runner, model = line(fragile)
    live = runner.stream("hi")
    with pytest.raises(ConnectionError, match="no summary"):
        await live._drive()
    assert [event.target for event in live.result.events if isinstance(event, ControlTransferred)] == ["B"]
    suspended = await runner.resume(live.run_id)
    assert (suspended.agent, len(tries)) == ("B", 2)
    assert [request.agent for request in model.requests] == ["A", "A", "B", "C", "B"]


@pytest.mark.parametrize("section", ["input_history", "pre_handoff_items", "new_items"])
async def test_items_may_be_plain_dicts_of_role_and_content(section: str) -> None:
    # H10
    runner, model = line(only(**{section: [{"role": "user", "content": "a dict"}]}))
    await runner.run("hi")
    assert list(model.requests[2].messages) == [UserMessage("a dict")]


async def test_the_input_may_be_text() -> None:
    # F32
    runner, model = line(only(input_history="a text"))
    await runner.run("hi")
    assert list(model.requests[2].messages) == [UserMessage("a text")]
    # A filter that is applied afterwards reads messages.
    seen: list[Any] = []

    def look(data: HandoffInputData) -> HandoffInputData:
        seen.append(data.input_history)
        return data

    runner, model = line(compose(only(input_history="a text"), look, remove_all_tools))
    await runner.run("hi")
    assert seen == [(UserMessage("a text"),)]
    assert list(model.requests[2].messages) == [UserMessage("a text")]


@pytest.mark.parametrize("section", ["pre_handoff_items", "new_items"])
async def test_other_sections_may_not_be_text(section: str) -> None:
    runner, _ = line(only(**{section: "a text"}))
    with pytest.raises(SetupError, match="'a text' instead of messages"):
        await runner.run("hi")


@pytest.mark.parametrize("section", ["pre_handoff_items", "new_items"])
async def test_a_dict_reads_like_the_message_it_stands_for(section: str) -> None:
    # H10, T24
    read: list[Any] = []
    for item in (AssistantMessage("a summary"), {"role": "assistant", "content": "a summary"}):
        runner, model = line(only(**{section: (item,)}))
        await runner.run("hi")
        read.append(list(model.requests[2].messages))
    assert read[1] == read[0] == [UserMessage("For context: [A] said: a summary.")]


@pytest.mark.parametrize("wrong", ["text", 42, None, {"role": "king", "content": "x"}])
async def test_items_that_are_no_messages_are_refused(wrong: Any) -> None:
    # H9, H10
    runner, model = line(lambda data: data.clone(new_items=(wrong,)))
    with pytest.raises(SetupError, match="not a message"):
        await runner.run("hi")
    assert [request.agent for request in model.requests] == ["A", "A"]


@pytest.mark.parametrize("section", ["input_history", "pre_handoff_items", "new_items"])
async def test_items_that_are_no_list_are_refused(section: str) -> None:
    # H9
    runner, _ = line(lambda data: data.clone(**{section: None}))
    with pytest.raises(SetupError):
        await runner.run("hi")


async def test_what_is_torn_apart_is_made_valid() -> None:
    # T26, H10
    def tear(data: HandoffInputData) -> HandoffInputData:
        results = [item for item in data.pre_handoff_items if isinstance(item, ToolMessage)]
        calls = [item for item in data.new_items if isinstance(item, AssistantMessage)]
        return data.clone(pre_handoff_items=results, new_items=calls)

    runner, model = line(tear, history="verbatim")
    await runner.run("hi")
    read = list(model.requests[2].messages)
    assert read == pair_calls_with_results(read)
    assert [text_of(message.content) for message in read][:2] == ["hi", "To B."]
    assert len(read) == 4


async def test_the_targets_own_words_stay_its_own() -> None:
    # H9, T24
    model = ScriptedModel({"A": [call("transfer_to_b"), "done"], "B": [say("B knows.", call("transfer_to_a"))]})
    b = Agent("B", handoffs=[handoff("A", input_filter=lambda data: data.clone(input_history=()))])
    await Runner(Agent("A", handoffs=[b]), model=model).run("hi")
    assert [type(message).__name__ for message in model.requests[2].messages] == snapshot(
        ["AssistantMessage", "ToolMessage", "UserMessage", "UserMessage"]
    )
    assert texts(model, 2)[2].startswith("For context: [B] said: B knows..")


# --- stock filters, end to end


@pytest.mark.parametrize(
    ("stock", "wanted"),
    [
        (
            remove_all_tools,
            ["My card is 4111 1111 1111 1111", "For context: [A] said: Hm..", "For context: [A] said: To B.."],
        ),
        (
            compose(remove_all_tools, redact()),
            ["My card is [card removed]", "For context: [A] said: Hm..", "For context: [A] said: To B.."],
        ),
    ],
)
async def test_stock_filters_act_like_ones_own(stock: HandoffInputFilter, wanted: list[str]) -> None:
    # H11
    runner, model = line(stock)
    result = await finished(runner, "My card is 4111 1111 1111 1111")
    assert texts(model, 2) == wanted
    assert text_of(result.messages[0].content) == "My card is 4111 1111 1111 1111"


async def test_few_messages_are_kept_and_pairs_stay_pairs() -> None:
    # H11
    for n, wanted in ((0, 0), (1, 0), (2, 2)):
        runner, model = line(keep_last(n), history="verbatim")
        await runner.run("hi")
        read = list(model.requests[2].messages)
        assert read == pair_calls_with_results(read)
        assert len(read) == 1 + wanted + 3


async def test_everything_before_is_one_message() -> None:
    # H11
    runner, model = line(nest_history())
    await finished(runner)
    before, *turn = texts(model, 2)
    assert "the sky seen" in before
    assert len(turn) == 3


async def test_a_summary_is_made_once_also_across_resume_and_counts() -> None:
    # H11, H13, D5
    writer = ScriptedModel(["In short: the sky was seen."], name="writer")
    runner, model = line(summarize(writer))
    result = await finished(runner)
    await runner.replay(result.events)
    assert len(writer.requests) == 1
    assert "Summary of the conversation so far: In short: the sky was seen." in texts(model, 2)
    assert "the sky seen" not in "".join(texts(model, 2))
