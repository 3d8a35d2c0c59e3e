"""Hypothesis strategies and builders for the data that handoff filters receive."""

from typing import Any

from hypothesis import strategies as st

from batonkit.context import Limits, RunContext
from batonkit.context.run_state import RunState, UsageMeter
from batonkit.handoffs import HandoffInputData, HandoffInputFilter
from batonkit.log import Origin
from batonkit.log.log import Log
from batonkit.messages import (
    AssistantMessage,
    Content,
    Data,
    Image,
    Message,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)

IMAGE = Image(url="https://example.org/a.png")

_contents: st.SearchStrategy[Content] = st.sampled_from(
    [
        "",
        "hello",
        "mail ada@example.org or call +1 415 555 0132",
        "4111 1111 1111 1111",
        (Text("look"), IMAGE),
        (Data({"card": 4111111111111111, "to": ["ada@example.org"]}),),
        (),
    ]
)
_arguments = st.sampled_from(["{}", '{"to": "ada@example.org"}', "not json 078-05-1120", ""])
_authors = st.sampled_from(["", "A", "B"])
_user_messages = st.lists(st.builds(UserMessage, _contents), max_size=1)


@st.composite
def _turns(draw: st.DrawFn) -> list[Message]:
    """Generate an assistant message and the results of its calls in any order, with user messages between them."""
    # Some providers reuse call ids in every turn.
    calls = tuple(ToolCall(f"c{index}", "look_up", draw(_arguments)) for index in range(draw(st.integers(0, 3))))
    author = draw(_authors)
    reasoning = (Reasoning("hm"),) if draw(st.booleans()) else ()
    turn: list[Message] = [AssistantMessage(draw(_contents), calls, reasoning, author)]
    for call in draw(st.permutations(calls)):
        turn += draw(_user_messages)
        turn.append(ToolMessage(call.id, call.name, draw(_contents), draw(st.booleans()), author))
    return turn


_others: st.SearchStrategy[Message] = st.builds(UserMessage, _contents) | st.builds(SystemMessage, _contents)
conversations: st.SearchStrategy[list[Message]] = st.lists(
    _turns() | st.lists(_others, min_size=1, max_size=1), max_size=8
).map(lambda pieces: [message for piece in pieces for message in piece])


def make_context() -> RunContext[Any]:
    """Create the context of a run with an empty log."""
    return RunContext(RunState("r", Log(), None, {}, UsageMeter(Limits())), Origin("1", "A"), "1/filter")


def make_data(
    *, history: Any = (), before: Any = (), turn: Any = (), run_context: RunContext[Any] | None = None
) -> HandoffInputData:
    """Create the data that a filter receives."""
    return HandoffInputData(
        input_history=tuple(history),
        pre_handoff_items=tuple(before),
        new_items=tuple(turn),
        run_context=run_context or make_context(),
    )


def apply_sync(input_filter: HandoffInputFilter, data: HandoffInputData) -> HandoffInputData:
    """Apply a synchronous filter."""
    result = input_filter(data)
    assert isinstance(result, HandoffInputData)
    return result


def all_messages(data: HandoffInputData) -> tuple[Message, ...]:
    """Return the messages of all three sections."""
    return (*data.input_history, *data.pre_handoff_items, *data.new_items)


@st.composite
def handoff_data(draw: st.DrawFn) -> HandoffInputData:
    """Generate a conversation and split it into three sections anywhere, also within a turn."""
    messages = draw(conversations)
    first, second = sorted((draw(st.integers(0, len(messages))), draw(st.integers(0, len(messages)))))
    return make_data(history=messages[:first], before=messages[first:second], turn=messages[second:])


def is_paired(messages: tuple[Message, ...]) -> bool:
    """Check that every call is followed by exactly one result, and every result follows its call."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            open_calls += [call.id for call in message.tool_calls]
        elif isinstance(message, ToolMessage):
            if message.tool_call_id not in open_calls:
                return False
            open_calls.remove(message.tool_call_id)
    return not open_calls
