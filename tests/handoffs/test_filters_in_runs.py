"""Input filters in runs: they change only the messages that the target reads."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from batonkit import (
    Agent,
    AgentContext,
    RunContext,
    Runner,
    RunResult,
    SetupError,
    Transfer,
    agent,
    handoff,
    tool,
)
from batonkit.agents import RunHooks
from batonkit.handoffs import HandoffInputData, HandoffInputFilter
from batonkit.handoffs.filters import compose, keep_last, nest_history, redact, remove_all_tools, summarize
from batonkit.log import AgentStarted, ControlTransferred, decode_log, encode_log
from batonkit.messages import AssistantMessage, ToolMessage, UserMessage, pair_calls_with_results, text_of
from batonkit.runs import HistoryOptions
from batonkit.testing import ScriptedModel, call, say, transcript, transfer_to


@tool
async def look(at: str) -> str:
    """Look."""
    return f"{at} seen"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def remove_all(data: HandoffInputData) -> HandoffInputData:
    """Remove all messages."""
    return data.clone(input_history=(), pre_handoff_items=(), new_items=())


def replace_all(**sections: Any) -> HandoffInputFilter:
    """Create a filter that returns only these sections."""
    return lambda data: remove_all(data).clone(**sections)


def replace_by_text(text: str) -> HandoffInputFilter:
    """Create a filter that returns only one user message."""
    return replace_all(input_history=(UserMessage(text),))


def make_runner(
    input_filter: HandoffInputFilter | None = None, *, runner_filter: HandoffInputFilter | None = None, **options: Any
) -> tuple[Runner[Any, Any], ScriptedModel]:
    """Create a team: `A` calls a tool and hands off to `B`, filtered; `B` goes to `C` and back, then interrupts."""
    model = ScriptedModel(
        {
            "A": [
                say("Looking.", call("look", at="the sky")),
                say("To B.", call("look", at="the sea"), call("transfer_to_b")),
            ],
            "B": [say("To C.", call("transfer_to_c")), call("ask", question="?"), "B is done"],
            "C": [say("Back.", call("transfer_to_b"))],
        }
    )
    b = Agent("B", tools=[ask], handoffs=[Agent("C", handoffs=["B"])])
    a = Agent("A", tools=[look], handoffs=[handoff(b, input_filter=input_filter)])
    return Runner(a, model=model, history=HistoryOptions(input_filter=runner_filter, **options)), model


def request_texts(model: ScriptedModel, index: int) -> list[str]:
    """Return the texts of the messages in a request."""
    return [text_of(message.content) for message in model.requests[index].messages]


async def run_and_answer(runner: Runner[Any, Any], input: Any = "hi") -> RunResult[Any]:
    """Run a team and answer its interrupt."""
    suspended = await runner.run(input)
    return await runner.resume(suspended.run_id, "yes")


# --- only the target's history is filtered


async def test_a_filter_that_removes_everything_affects_only_the_target() -> None:
    # The log, the result, later agents and the target's next activation have everything.
    plain, plain_model = make_runner()
    filtered, model = make_runner(remove_all)
    expected, result = await run_and_answer(plain), await run_and_answer(filtered)
    assert request_texts(model, 2) == []
    assert result.messages == expected.messages
    assert transcript(result.events) == transcript(expected.events)
    for index in (3, 4):
        assert list(model.requests[index].messages) == list(plain_model.requests[index].messages)
        assert "For context: [A] `look` tool returned result: the sky seen." in request_texts(model, index)


async def test_returning_the_data_unchanged_changes_nothing() -> None:
    plain, plain_model = make_runner()
    filtered, model = make_runner(lambda data: data)
    await run_and_answer(plain)
    await run_and_answer(filtered)
    requests = [list(request.messages) for request in model.requests]
    assert requests == [list(request.messages) for request in plain_model.requests]


async def test_the_target_continues_with_the_filtered_messages() -> None:
    # Also if the run is resumed in another process.
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    a = Agent("A", handoffs=[handoff(Agent("B", tools=[ask]), input_filter=replace_by_text("Only this."))])
    suspended = await Runner(a, model=model).run("hi")
    other = Runner(a, model=model)
    await other.resume(await other.runs.load(decode_log(encode_log(suspended.events))), "yes")
    assert request_texts(model, 1) == ["Only this."]
    assert request_texts(model, 2) == ["Only this.", "", "yes"]


async def test_a_step_in_a_filter_runs_once() -> None:
    done: list[str] = []

    async def summarize_in_step(data: HandoffInputData) -> HandoffInputData:
        assert data.run_context is not None
        summary = await data.run_context.step("summary", lambda: done.append("summed up") or f"summary {len(done)}")
        return data.clone(input_history=(UserMessage(str(summary)),), pre_handoff_items=(), new_items=())

    runner, model = make_runner(summarize_in_step)
    result = await run_and_answer(runner)
    assert done == ["summed up"]
    assert request_texts(model, 2) == ["summary 1"]
    await runner.runs.replay(result.events)
    assert done == ["summed up"]


async def test_a_filter_receives_the_context_and_the_authors() -> None:
    seen: list[HandoffInputData] = []

    def record(data: HandoffInputData) -> HandoffInputData:
        seen.append(data)
        return data

    runner, _ = make_runner(record)
    suspended = await runner.run([UserMessage("one"), UserMessage("two")], context="mine", values={"x": 1})
    (data,) = seen
    assert data.input_history == (UserMessage("one"), UserMessage("two"))
    assert [(type(item), text_of(item.content)) for item in data.pre_handoff_items] == [
        (AssistantMessage, "Looking."),
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


async def test_the_data_of_a_filter_is_frozen() -> None:
    def set_attribute(data: HandoffInputData) -> HandoffInputData:
        data.new_items = ()  # pyright: ignore[reportAttributeAccessIssue]
        return data

    runner, _ = make_runner(set_attribute)
    with pytest.raises(AttributeError):
        await runner.run("hi")
    data = HandoffInputData(input_history=(), pre_handoff_items=(), new_items=())
    with pytest.raises(TypeError):
        data.clone(news=())
    assert isinstance(data, msgspec.Struct)


# --- which filter


class FalsyFilter(list[str]):
    """A filter that is false, because it is an empty list."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __call__(self, data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(UserMessage(self.text),), pre_handoff_items=(), new_items=())


async def later_filter(data: HandoffInputData) -> HandoffInputData:
    """Return one user message asynchronously."""
    return data.clone(input_history=(UserMessage("later"),), pre_handoff_items=(), new_items=())


@pytest.mark.parametrize(
    ("handoff_filter", "runner_filter", "expected"),
    [
        (replace_by_text("edge"), None, "edge"),
        (None, replace_by_text("runner"), "runner"),
        (replace_by_text("edge"), replace_by_text("runner"), "edge"),
        (FalsyFilter("falsy edge"), replace_by_text("runner"), "falsy edge"),
        (None, FalsyFilter("falsy runner"), "falsy runner"),
        (later_filter, replace_by_text("runner"), "later"),
        (None, later_filter, "later"),
        (partial(later_filter), None, "later"),
    ],
)
async def test_the_filter_of_the_handoff_replaces_the_filter_of_the_runner(
    handoff_filter: Any, runner_filter: Any, expected: str
) -> None:
    # For all kinds of callables.
    runner, model = make_runner(handoff_filter, runner_filter=runner_filter)
    await runner.run("hi")
    assert request_texts(model, 2) == [expected]


def handoff_team(target: Agent) -> Any:
    """Create a team with a handoff to the target."""
    return Agent("A", handoffs=[target])


def sub_agent_team(target: Agent) -> Any:
    """Create a team with the target as sub-agent."""
    return Agent("A", sub_agents=[target])


def function_team(target: Agent) -> Any:
    """Create a team with a function that returns the target."""

    def transfer_to_b() -> Agent:
        """Go."""
        return target

    return Agent("A", tools=[transfer_to_b])


def code_team(target: Agent) -> Any:
    """Create a team with a custom agent that transfers to the target."""

    @agent("A", handoffs=[target])
    async def a(ctx: AgentContext) -> Transfer:
        await ctx.say("Over.")
        return Transfer("B")

    return a


@pytest.mark.parametrize("make_team", [handoff_team, sub_agent_team, function_team, code_team])
async def test_the_filter_of_the_runner_applies_to_all_kinds_of_transfers(make_team: Callable[[Agent], Any]) -> None:
    step = transfer_to("B") if make_team is sub_agent_team else call("transfer_to_b")
    model = ScriptedModel({"A": [step], "B": ["done"]})
    runner = Runner(make_team(Agent("B")), model=model, history=HistoryOptions(input_filter=replace_by_text("runner")))
    assert (await runner.run("hi")).output == "done"
    assert [text_of(message.content) for message in model.requests[-1].messages] == ["runner"]


# --- results of filters


@pytest.mark.parametrize("wrong", [None, [], "everything", {"new_items": ()}])
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_invalid_result_is_refused_before_the_target_starts(wrong: Any, is_async: bool) -> None:
    # The run can be resumed once the filter is fixed; recorded steps are not repeated.
    done: list[str] = []
    is_broken = True

    class RecordingHooks(RunHooks):
        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            done.append("hook")

    def return_invalid(data: HandoffInputData) -> Any:
        return wrong if is_broken else data

    async def return_invalid_later(data: HandoffInputData) -> Any:
        return return_invalid(data)

    def record(ctx: RunContext[Any]) -> None:
        done.append("on_handoff")

    given = return_invalid_later if is_async else return_invalid
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["done"]})
    a = Agent("A", handoffs=[handoff(Agent("B"), input_filter=given, on_handoff=record)])
    runner = Runner(a, model=model, hooks=RecordingHooks())
    live = runner.stream("hi")
    with pytest.raises(SetupError, match=rf"`{given.__name__}` of the handoff from `A` to `B` returned \w+; it must"):
        await live._drive()
    assert not any(isinstance(event, AgentStarted) and event.agent == "B" for event in live.result.events)
    is_broken = False
    assert (await runner.resume(live.run_id)).output == "done"
    assert done == ["on_handoff", "hook"]
    assert [request.agent for request in model.requests] == ["A", "B"]


async def test_a_run_whose_filter_raises_can_be_resumed() -> None:
    attempts: list[str] = []

    async def fail_once(data: HandoffInputData) -> HandoffInputData:
        attempts.append("tried")
        if len(attempts) == 1:
            raise ConnectionError("no summary")
        return data

    runner, model = make_runner(fail_once)
    live = runner.stream("hi")
    with pytest.raises(ConnectionError, match="no summary"):
        await live._drive()
    assert [event.target for event in live.result.events if isinstance(event, ControlTransferred)] == ["B"]
    suspended = await runner.resume(live.run_id)
    assert (suspended.agent, len(attempts)) == ("B", 2)
    assert [request.agent for request in model.requests] == ["A", "A", "B", "C", "B"]


@pytest.mark.parametrize("section", ["input_history", "pre_handoff_items", "new_items"])
async def test_items_can_be_dicts_of_role_and_content(section: str) -> None:
    runner, model = make_runner(replace_all(**{section: [{"role": "user", "content": "a dict"}]}))
    await runner.run("hi")
    assert list(model.requests[2].messages) == [UserMessage("a dict")]


async def test_the_input_history_can_be_text() -> None:
    runner, model = make_runner(replace_all(input_history="a text"))
    await runner.run("hi")
    assert list(model.requests[2].messages) == [UserMessage("a text")]
    # A filter that is applied afterwards reads messages.
    seen: list[Any] = []

    def record(data: HandoffInputData) -> HandoffInputData:
        seen.append(data.input_history)
        return data

    runner, model = make_runner(compose(replace_all(input_history="a text"), record, remove_all_tools))
    await runner.run("hi")
    assert seen == [(UserMessage("a text"),)]
    assert list(model.requests[2].messages) == [UserMessage("a text")]


@pytest.mark.parametrize("section", ["pre_handoff_items", "new_items"])
async def test_other_sections_must_not_be_text(section: str) -> None:
    runner, _ = make_runner(replace_all(**{section: "a text"}))
    with pytest.raises(SetupError, match="'a text' instead of messages"):
        await runner.run("hi")


@pytest.mark.parametrize("section", ["pre_handoff_items", "new_items"])
async def test_a_dict_is_treated_like_the_message(section: str) -> None:
    read: list[Any] = []
    for item in (AssistantMessage("a summary"), {"role": "assistant", "content": "a summary"}):
        runner, model = make_runner(replace_all(**{section: (item,)}))
        await runner.run("hi")
        read.append(list(model.requests[2].messages))
    assert read[1] == read[0] == [UserMessage("For context: [A] said: a summary.")]


@pytest.mark.parametrize("wrong", ["text", 42, None, {"role": "king", "content": "x"}])
async def test_items_that_are_not_messages_are_refused(wrong: Any) -> None:
    runner, model = make_runner(lambda data: data.clone(new_items=(wrong,)))
    with pytest.raises(SetupError, match=r"(is not|must be) a message"):
        await runner.run("hi")
    assert [request.agent for request in model.requests] == ["A", "A"]


@pytest.mark.parametrize("section", ["input_history", "pre_handoff_items", "new_items"])
async def test_sections_that_are_not_lists_are_refused(section: str) -> None:
    runner, _ = make_runner(lambda data: data.clone(**{section: None}))
    with pytest.raises(SetupError):
        await runner.run("hi")


async def test_calls_without_results_and_results_without_calls_are_repaired() -> None:
    def separate(data: HandoffInputData) -> HandoffInputData:
        results = [item for item in data.pre_handoff_items if isinstance(item, ToolMessage)]
        calls = [item for item in data.new_items if isinstance(item, AssistantMessage)]
        return data.clone(pre_handoff_items=results, new_items=calls)

    runner, model = make_runner(separate, policy="verbatim")
    await runner.run("hi")
    read = list(model.requests[2].messages)
    assert read == pair_calls_with_results(read)
    assert [text_of(message.content) for message in read][:2] == ["hi", "To B."]
    assert len(read) == 4


async def test_messages_of_the_target_itself_are_not_rewritten() -> None:
    model = ScriptedModel({"A": [call("transfer_to_b"), "done"], "B": [say("B knows.", call("transfer_to_a"))]})
    b = Agent("B", handoffs=[handoff("A", input_filter=lambda data: data.clone(input_history=()))])
    await Runner(Agent("A", handoffs=[b]), model=model).run("hi")
    assert [type(message).__name__ for message in model.requests[2].messages] == snapshot(
        ["AssistantMessage", "ToolMessage", "UserMessage", "UserMessage"]
    )
    assert request_texts(model, 2)[2].startswith("For context: [B] said: B knows.")


# --- built-in filters in runs


@pytest.mark.parametrize(
    ("built_in", "expected"),
    [
        (
            remove_all_tools,
            ["My card is 4111 1111 1111 1111", "For context: [A] said: Looking.", "For context: [A] said: To B."],
        ),
        (
            compose(remove_all_tools, redact()),
            ["My card is [card removed]", "For context: [A] said: Looking.", "For context: [A] said: To B."],
        ),
    ],
)
async def test_built_in_filters_work_like_custom_filters(built_in: HandoffInputFilter, expected: list[str]) -> None:
    runner, model = make_runner(built_in)
    result = await run_and_answer(runner, "My card is 4111 1111 1111 1111")
    assert request_texts(model, 2) == expected
    assert text_of(result.messages[0].content) == "My card is 4111 1111 1111 1111"


async def test_keep_last_keeps_calls_with_their_results() -> None:
    for n, expected in ((0, 0), (1, 0), (2, 2)):
        runner, model = make_runner(keep_last(n), policy="verbatim")
        await runner.run("hi")
        read = list(model.requests[2].messages)
        assert read == pair_calls_with_results(read)
        assert len(read) == 1 + expected + 3


async def test_nest_history_gives_the_target_one_message() -> None:
    runner, model = make_runner(nest_history())
    await run_and_answer(runner)
    before, *turn = request_texts(model, 2)
    assert "the sky seen" in before
    assert len(turn) == 3


async def test_a_summary_is_requested_once_across_resume_and_replay() -> None:
    writer = ScriptedModel(["In short: the sky was seen."], name="writer")
    runner, model = make_runner(summarize(writer))
    result = await run_and_answer(runner)
    await runner.runs.replay(result.events)
    assert len(writer.requests) == 1
    assert "Summary of the conversation so far: In short: the sky was seen." in request_texts(model, 2)
    assert "the sky seen" not in "".join(request_texts(model, 2))


async def test_a_filter_may_return_dicts_in_the_formats_of_providers() -> None:
    turn = [
        {"type": "function_call", "call_id": "x", "name": "look", "arguments": "{}"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "seen"}]},
    ]
    input_filter = replace_all(input_history=({"role": "developer", "content": "Be kind."},), new_items=tuple(turn))
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["hi"]})
    await Runner(Agent("A", handoffs=[handoff(Agent("B"), input_filter=input_filter)]), model=model).run("go")
    assert [text_of(message.content) for message in model.requests[1].messages] == [
        "Be kind.",
        "For context: [A] called tool: `look` with arguments: {}.",
        "For context: [A] `look` tool returned result: seen.",
    ]


async def test_an_invalid_dict_of_a_filter_is_named() -> None:
    input_filter = replace_all(new_items=({"role": "usr", "content": "x"},))
    model = ScriptedModel({"A": [call("transfer_to_b")]})
    runner = Runner(Agent("A", handoffs=[handoff(Agent("B"), input_filter=input_filter)]), model=model)
    with pytest.raises(SetupError, match=r"filtered messages from `A` to `B`\[0\] is not a message: .*role is 'usr'"):
        await runner.run("go")
