"""Translation of single events, where a run of a whole team would be a long way round."""

from collections.abc import Sequence
from typing import Any

from tests.serve.ai_sdk.chat import MessageBuilder, summary

from batonkit.log import (
    AgentFinished,
    AgentResponded,
    AgentStarted,
    Delta,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Origin,
    ResponseRestarted,
    RunCompleted,
    RunStarted,
    RunSuspended,
    TextDelta,
    ToolReturned,
)
from batonkit.messages import AssistantMessage, Image, Text, ToolCall
from batonkit.serve.ai_sdk.translation import ChunkTranslator

DESK = Origin("1", "Desk")
NONE = Origin("", "")
CALL = ToolCall("c", "look_up", "{broken")
STARTED = [RunStarted("run", NONE, 0.0, "r", "Desk"), AgentStarted("1/start", DESK, 0.0)]


def _translator(past: Sequence[Event], *transfer_tools: str) -> ChunkTranslator:
    return ChunkTranslator(run_id="r", past=past, transfer_tools=transfer_tools, show_errors=False)


def _parts(items: Sequence[Event | Delta], *transfer_tools: str) -> list[str]:
    translator = _translator([], *transfer_tools)
    chunks = [translator.start(), *[chunk for item in items for chunk in translator.translate(item)]]
    assert translator.has_stopped
    chunks += translator.finish()
    return summary(MessageBuilder({"parts": []}).apply(chunks))


def _responded(text: str, *calls: ToolCall, key: str = "1/m1") -> AgentResponded:
    return AgentResponded(key, DESK, 0.0, AssistantMessage(text, calls), "m")


DONE = RunCompleted("completed", NONE, 0.0)


def test_a_response_that_starts_again_marks_its_text_as_discarded() -> None:
    deltas = [TextDelta(DESK, "Goo"), ResponseRestarted(DESK), TextDelta(DESK, "Hel")]
    assert _parts([*STARTED, *deltas, _responded("Hello"), AgentFinished("1/end", DESK, 0.0), DONE]) == [
        *("---", "Desk text: Goo (discarded)", "Desk text: Hello"),
    ]


def test_texts_of_parallel_agents_do_not_end_each_other() -> None:
    first, second = Origin("1/0/1", "A"), Origin("1/1/1", "B")
    said = AgentResponded("1/1/1/m1", second, 0.0, AssistantMessage("b"), "m")
    again = AgentResponded("1/1/1/m2", second, 0.0, AssistantMessage("bb"), "m")
    rest = AgentResponded("1/0/1/m1", first, 0.0, AssistantMessage("aa"), "m")
    items = [*STARTED, TextDelta(first, "a"), TextDelta(second, "b"), said, again, TextDelta(first, "a"), rest, DONE]
    assert _parts(items) == ["---", "A text: aa", "B text: b", "B text: bb"]


def test_arguments_that_are_not_json_are_shown_as_text() -> None:
    result = ToolReturned("1/m1.0", DESK, 0.0, "c", "look_up", "The arguments are not JSON.", is_error=True)
    assert _parts([*STARTED, _responded("", CALL), result, DONE]) == [
        *("---", "Desk tool-look_up({broken) output-error The arguments are not JSON."),
    ]


def test_media_in_results_are_file_parts() -> None:
    content = (Text("a map"), Image(data=b"hi"), Image(url="https://example.org/b.png"))
    result = ToolReturned("1/m1.0", DESK, 0.0, "c", "look_up", content)
    translator = _translator([*STARTED, _responded("", CALL)])
    (chunk,) = translator.translate(result)
    assert chunk["output"] == [
        {"type": "text", "text": "a map"},
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="},
        {"type": "file", "mediaType": "image/png", "url": "https://example.org/b.png"},
    ]


def test_a_refused_transfer_is_shown_as_a_call() -> None:
    refused = ToolReturned(
        "1/m1.0", DESK, 0.0, "c", "look_up", "Not now.", is_error=True, is_transfer_refused=True, requested_agent="B"
    )
    items = [*STARTED, _responded("", CALL), refused, DONE]
    shown = ["---", "Desk tool-look_up({broken) output-error Not now."]
    assert _parts(items, "look_up") == shown


def test_a_stream_that_continues_knows_what_the_message_has() -> None:
    question: dict[str, Any] = {"kind": "approval", "tool": "look_up", "arguments": {}}
    raised = InterruptRaised("1/m1.0/ask1", DESK, 0.0, question, CALL)
    translator = _translator([*STARTED, _responded("", CALL), raised, RunSuspended("suspended4", NONE, 0.0)])
    assert not translator.has_stopped
    answered = InterruptAnswered("1/m1.0/ask1!", DESK, 0.0, "1/m1.0/ask1", {"approved": False})
    result = ToolReturned("1/m1.0", DESK, 0.0, "c", "look_up", "No.", is_error=True)
    assert [chunk for item in (answered, result) for chunk in translator.translate(item)] == [
        {"type": "tool-output-denied", "toolCallId": "c"}
    ]


def test_a_stream_that_ends_before_the_run_closes_its_parts_and_says_so() -> None:
    translator = _translator([])
    chunks = [translator.start(), *translator.translate(TextDelta(DESK, "a")), *translator.finish()]
    assert summary(MessageBuilder({"parts": []}).apply(chunks)) == ["---", "Desk text: a"]
    assert chunks[-1]["type"] == "error"
