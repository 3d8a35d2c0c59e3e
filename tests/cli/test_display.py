"""The screen shows every event once, in a readable order, and nothing that could harm the terminal."""

from io import StringIO
from typing import Any, get_args

import pytest
from rich.console import Console

from batonkit import Agent, ParallelAgent, Runner, SequentialAgent, agent, handoff, supervisor, tool
from batonkit._wording import printable
from batonkit.agents import AgentContext
from batonkit.cli import display
from batonkit.cli.display import Screen, format_call, format_usage, format_value, shorten
from batonkit.context import RunContext
from batonkit.log import (
    AgentResponded,
    AgentStarted,
    ControlTransferred,
    CustomDelta,
    Delta,
    Event,
    Origin,
    ProgressDelta,
    ReasoningDelta,
    ResponseRestarted,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    TextDelta,
    ToolReturned,
)
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import AssistantMessage, Image, Text, ToolCall, Usage
from batonkit.testing import ScriptedModel, ScriptedStream, call, say

ROUTER = Origin("1", "Router")
WEATHER = Origin("2", "Weather", ROUTER)


def screen_of(*events: Event | Delta, answers: bool = True) -> str:
    file = StringIO()
    screen = Screen(Console(file=file, width=20), answers=answers)
    for event in events:
        screen.show(event)
    screen.end_line()
    return file.getvalue()


def responded(text: str, *calls: ToolCall, by: Origin = ROUTER) -> AgentResponded:
    return AgentResponded("k", by, 0.0, AssistantMessage(text, calls))


async def show_run(runner: Runner[Any, Any], **options: Any) -> list[str]:
    file = StringIO()
    screen = Screen(Console(file=file), **options)
    async with runner.stream("go") as run:
        async for event in run:
            screen.show(event)
    return file.getvalue().splitlines()


def test_text_is_streamed_and_written_once() -> None:
    file = StringIO()
    screen = Screen(Console(file=file))
    screen.show(AgentStarted("k", ROUTER, 0.0))
    screen.show(TextDelta(ROUTER, "Hello "))
    assert file.getvalue() == "● Router\nHello "
    screen.show(TextDelta(ROUTER, "you"))
    screen.show(responded("Hello you"))
    assert file.getvalue() == "● Router\nHello you\n"


def test_long_lines_and_markup_are_unchanged() -> None:
    text = "[bold]see[/bold] " + "word " * 20 + "https://example.org:8080 12345"
    assert screen_of(TextDelta(ROUTER, text), responded(text)) == f"● Router\n{text}\n"


def test_an_unstreamed_answer_is_written() -> None:
    assert screen_of(responded("Hello")) == "● Router\nHello\n"


def test_text_interrupted_by_a_line_is_written_once() -> None:
    events = TextDelta(ROUTER, "One "), ProgressDelta(ROUTER, "half", 1), TextDelta(ROUTER, "two"), responded("One two")
    assert screen_of(*events) == "● Router\nOne \n  … half 1\ntwo\n"


def test_concurrent_responses_are_not_mixed() -> None:
    events = (
        TextDelta(ROUTER, "I am "),
        TextDelta(WEATHER, "And "),
        TextDelta(ROUTER, "first."),
        responded("I am first."),
        TextDelta(WEATHER, "second."),
        responded("And second.", by=WEATHER),
    )
    assert screen_of(*events) == "● Router\nI am first.\n● Weather\nAnd second.\n"


def test_agent_changes_are_named() -> None:
    events = (
        TextDelta(ROUTER, "I am "),
        responded("Me too.", by=WEATHER),
        TextDelta(ROUTER, "first."),
        responded("I am first."),
    )
    assert screen_of(*events) == "● Router\nI am \n● Weather\nMe too.\n● Router\nfirst.\n"


def test_every_run_names_the_active_agent() -> None:
    run = RunStarted("run", RUN_ORIGIN, 0.0, "r", "Router"), AgentStarted("k", ROUTER, 0.0), responded("Hi")
    assert screen_of(*run, *run) == "● Router\nHi\n● Router\nHi\n"


def test_stopped_run_leaves_no_partial_output() -> None:
    start = RunStarted("run", RUN_ORIGIN, 0.0, "r", "Router")
    assert (
        screen_of(start, TextDelta(ROUTER, "Half a "), start, responded("Whole."))
        == "● Router\nHalf a \n● Router\nWhole.\n"
    )
    assert "Half" not in screen_of(start, responded("Half"), start, responded("Whole."), answers=False)


def test_a_model_cannot_write_control_characters_to_the_terminal() -> None:
    written = screen_of(
        TextDelta(ROUTER, "\x1b[2Jgone\x07\r\nline\ttab\x9b"), responded("x\x1b]0;title\x07", by=WEATHER)
    )
    assert "\x1b" not in written
    assert "␛[2Jgone␇\nline\ttab\ufffd" in written
    assert "x␛]0;title␇" in written


def test_reasoning_is_indicated_once() -> None:
    assert screen_of(ReasoningDelta(ROUTER, "hm"), ReasoningDelta(ROUTER, "aha"), responded("Yes.")) == (
        "● Router\n  … thinking\nYes.\n"
    )


def test_a_response_that_starts_again_is_marked() -> None:
    # The text of the first attempt looked like part of the answer.
    shown = screen_of(
        TextDelta(ROUTER, "Goo"), ResponseRestarted(ROUTER), TextDelta(ROUTER, "Hello"), responded("Hello")
    )
    assert shown == "● Router\nGoo\n  … the response was interrupted and starts again\nHello\n"
    assert screen_of(ResponseRestarted(ROUTER), responded("Hello")) == "● Router\nHello\n"


def test_progress_and_custom_deltas() -> None:
    deltas = (
        ProgressDelta(ROUTER, "", 1, 4),
        ProgressDelta(ROUTER, "a", 2.5),
        ProgressDelta(ROUTER),
        CustomDelta(ROUTER, "seen", {"n": 1}),
    )
    assert screen_of(*deltas).splitlines()[1:] == ["  … 1/4", "  … a 2.5", "  … in progress", '  * seen: {"n":1}']


def test_media_are_listed() -> None:
    image = Image(data=b"x", media_type="image/gif")
    event = AgentResponded("k", ROUTER, 0.0, AssistantMessage((Text("Look:"), image)))
    returned = ToolReturned("k", ROUTER, 0.0, "c", "draw", (image,))
    assert screen_of(event, returned).splitlines()[1:] == [
        "Look:",
        "  [image image/gif]",
        "  ◂ draw: ",
        "  [image image/gif]",
    ]


def test_transfers_with_input_back_to_a_caller_and_out_of_a_loop() -> None:
    def transferred(payload: Any = None, reason: str = "") -> ControlTransferred:
        return ControlTransferred("k", ROUTER, 0.0, "Router", "Weather", None, payload, reason)

    assert screen_of(
        transferred({"why": "rain"}), transferred(reason="returned"), transferred(reason="loop")
    ).splitlines()[1:] == [
        '  → Weather with {"why":"rain"}',
        "  ← back to Weather",
        "  → Weather (loop)",
    ]


async def test_every_kind_of_transfer_is_one_line() -> None:
    chat = Agent("Chat", description="Chats.", model=ScriptedModel(["Hi."]))
    by_handoff = Agent("Desk", handoffs=[chat], model=ScriptedModel([call("transfer_to_chat")]))
    assert await show_run(Runner(by_handoff)) == ["● Desk", "  → Chat", "● Chat", "Hi."]

    chat = chat.clone(model=ScriptedModel(["Hi."]))

    def to_chat() -> Agent:
        return chat

    by_function = Agent("Desk", tools=[to_chat], model=ScriptedModel([call("to_chat")]))
    assert await show_run(Runner(by_function)) == ["● Desk", "  ▸ to_chat()", "  → Chat", "● Chat", "Hi."]


async def test_a_return_of_control_is_shown() -> None:
    expert = Agent("Expert", description="Knows.", model=ScriptedModel(["It is 7."]))
    model = ScriptedModel([call("ask_expert"), "Seven."])
    override = handoff(expert, return_to="caller", tool_name_override="ask_expert")
    desk = Agent("Desk", handoffs=[override], model=model)
    assert await show_run(Runner(desk)) == [
        "● Desk",
        "  ▸ ask_expert()",
        "  → Expert",
        "● Expert",
        "It is 7.",
        "  ← back to Desk",
        "● Desk",
        "Seven.",
    ]


async def test_a_refused_transfer_is_shown() -> None:
    child = Agent("Child", description="d")
    model = ScriptedModel([call("transfer_to_agent", agent_name="Chidl"), "Well."])
    lines = await show_run(Runner(Agent("Desk", sub_agents=[child], model=model)))
    assert lines[1].startswith("  ✗ transfer_to_agent: Not transferred: there is no `Chidl`")


async def test_calls_results_and_failures_are_shown() -> None:
    @tool
    async def add(ctx: RunContext, left: int, right: int) -> int:
        """Add."""
        return left + right

    model = ScriptedModel([[call("add", left=1, right=2), call("subtract")], ScriptedStream("So ", "3.")])
    lines = await show_run(Runner(Agent("Desk", tools=[add], model=model)))
    assert lines[:3] == ["● Desk", "  ▸ add(left=1, right=2)", "  ▸ subtract()"]
    assert "  ◂ add: 3" in lines
    assert lines[-2].startswith("  ✗ subtract: There is no tool `subtract`") or lines[-3].startswith("  ✗ subtract:")
    assert lines[-1] == "So 3."


async def test_answers_can_be_hidden() -> None:
    @agent("Talker")
    async def talker(ctx: AgentContext) -> None:
        await ctx.say("first")
        await ctx.say("last")

    assert await show_run(Runner(talker), answers=False) == ["● Talker", "  first"]
    model = ScriptedModel([ScriptedStream("Ans", "wer.")])
    assert await show_run(Runner(Agent("Desk", model=model)), answers=False) == ["● Desk"]


@pytest.mark.parametrize(
    ("end", "is_shown"),
    [
        (RunCompleted("k", RUN_ORIGIN, 0.0), False),
        (RunSuspended("k", RUN_ORIGIN, 0.0, ("q",)), True),
        (RunFailed("k", RUN_ORIGIN, 0.0, "X"), True),
        (AgentStarted("k", WEATHER, 0.0), True),
    ],
)
def test_held_text_is_shown_if_it_is_not_the_answer(end: Event, is_shown: bool) -> None:
    assert ("  Not the end." in screen_of(responded("Not the end."), end, answers=False)) is is_shown


def test_colours_are_used_only_in_a_terminal() -> None:
    file = StringIO()
    screen = Screen(Console(file=file, force_terminal=True, color_system="standard"))
    screen.show(AgentStarted("k", ROUTER, 0.0))
    assert file.getvalue() == "\x1b[1;36m● Router\x1b[0m\n"
    assert "\x1b" not in screen_of(AgentStarted("k", ROUTER, 0.0))


def test_calls_and_values_are_formatted() -> None:
    assert format_call("f", '{"a": "x", "b": [1, null]}') == 'f(a="x", b=[1,null])'
    assert format_call("f", "") == "f()"
    assert format_call("f", "{not json") == "f({not json)"
    assert format_call("f", "[1]") == "f([1])"
    assert format_call("f", {"a": 1}) == "f(a=1)"
    assert format_value({"a": object}).startswith("{'a': <class")
    assert shorten("a\n  b\tc") == "a b c"
    assert shorten("x" * 500, 10) == "x" * 9 + "…"
    assert printable("a\r\nb") == "a\nb"


def test_usage_is_formatted() -> None:
    assert format_usage(Usage()) == "0 model calls"
    assert format_usage(Usage(model_calls=1)) == "1 model call"
    assert format_usage(Usage(1200, 30, cost=0.0123, model_calls=2), 1.25) == (
        "2 model calls · 1,200 tokens in, 30 out · $0.0123 · 1.2 s"
    )
    assert format_usage(Usage(12, 3, cost=0.5, model_calls=3, unpriced_calls=2)) == (
        "3 model calls · 12 tokens in, 3 out · $0.5 + 2 calls of unknown cost"
    )


async def test_a_streamed_run_is_shown() -> None:
    model = ScriptedModel([say("Hello there.", usage=Usage(3, 2))], stream=True)
    assert await show_run(Runner(Agent("Desk", model=model))) == ["● Desk", "Hello there."]


async def test_inner_agents_are_indented() -> None:
    # A step with an agent as a tool, and two branches; the caller's result comes after its tool's output.
    digger = Agent("Digger", description="d")
    both = ParallelAgent("Both", sub_agents=[Agent("Left"), Agent("Right")])
    line = SequentialAgent("Line", sub_agents=[Agent("Outline", tools=[digger.as_tool()]), both])
    steps: dict[str, Any] = {
        "Outline": [call("digger", request="dig"), "One:\n- two"],
        "Digger": ["gold"],
        "Left": ["l"],
        "Right": ["r"],
    }
    expected = [
        "● Line",
        "  ● Outline",
        '    ▸ digger(request="dig")',
        "    ● Digger",
        "    gold",
        "  ● Outline",
        "    ◂ digger: gold",
        "  One:",
        "  - two",
        "  ● Both",
        "    ● Left",
        "    l",
        "    ● Right",
        "    r",
    ]
    for stream in (False, True):
        seen = await show_run(Runner(line, model=ScriptedModel(steps, stream=stream)))
        assert seen == expected
    without_answers = await show_run(Runner(line, model=ScriptedModel(steps)), answers=False)
    assert without_answers[3:9] == [
        "    ● Digger",
        "      gold",
        "  ● Outline",
        "    ◂ digger: gold",
        "    One: - two",
        "  ● Both",
    ]


async def test_worker_text_is_shown_before_control_returns() -> None:
    boss = supervisor(Agent("Boss"), sub_agents=[Agent("Hand", description="d")])
    model = ScriptedModel({"Boss": [call("transfer_to_hand"), "Thanks."], "Hand": ["done"]})
    assert await show_run(Runner(boss, model=model), answers=False) == [
        "● Boss",
        "  → Hand",
        "● Hand",
        "  done",
        "  ← back to Boss",
        "● Boss",
    ]


def test_streamed_text_is_indented_line_by_line() -> None:
    inner = Origin("1/0/1", "Inner", ROUTER)
    texts = ["One\n", "two", "\n\nthree", "\n"]
    written = screen_of(*[TextDelta(inner, text) for text in texts], responded("".join(texts), by=inner))
    assert written == "  ● Inner\n  One\n  two\n  \n  three\n"


def test_every_event_class_is_displayed_or_ignored_explicitly() -> None:
    # A new event class must be added to the union; pyright then points at the match that lacks a case.
    assert set(get_args(display.AnyEvent)) == {
        event for event in Event.__subclasses__() if event.__module__ == "batonkit.log.events"
    }
