"""The small readings that events offer."""

from batonkit.log import AgentResponded, ToolReturned
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import AssistantMessage, Data, Image, Text, ToolMessage


def test_the_text_of_a_response() -> None:
    parts = (Text("look"), Image(url="https://example.org/cat.png"), Data({"a": 1}))
    assert AgentResponded("k", RUN_ORIGIN, 1.0, AssistantMessage(parts)).text == 'look\n{"a":1}'
    assert AgentResponded("k", RUN_ORIGIN, 1.0, AssistantMessage("plain")).text == "plain"


def test_a_result_as_a_message_for_a_model() -> None:
    event = ToolReturned("k", RUN_ORIGIN, 1.0, "call_1", "t", "broken", is_error=True)
    assert event.message == ToolMessage("call_1", "t", "broken", is_error=True)
