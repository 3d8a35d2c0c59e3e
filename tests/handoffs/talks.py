"""Random conversations with calls and results, cut anywhere into what a filter is given."""

from typing import Any

from hypothesis import strategies as st

from baton.context import Limits, RunContext
from baton.context.run_state import RunState, UsageMeter
from baton.events import Origin
from baton.handoffs import HandoffInputData, HandoffInputFilter
from baton.log import Log
from baton.messages import (
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

PICTURE = Image(url="https://example.org/a.png")

_contents: st.SearchStrategy[Content] = st.sampled_from(
    [
        "",
        "hello",
        "mail ada@example.org or call +1 415 555 0132",
        "4111 1111 1111 1111",
        (Text("look"), PICTURE),
        (Data({"card": 4111111111111111, "to": ["ada@example.org"]}),),
        (),
    ]
)
_arguments = st.sampled_from(["{}", '{"to": "ada@example.org"}', "not json 078-05-1120", ""])
_authors = st.sampled_from(["", "A", "B"])
_asides = st.lists(st.builds(UserMessage, _contents), max_size=1)


@st.composite
def _turns(draw: st.DrawFn) -> list[Message]:
    """One assistant message and the results of its calls, in any order and with others between them."""
    # Ids are counted anew in each turn, as some providers do.
    calls = tuple(ToolCall(f"c{index}", "look", draw(_arguments)) for index in range(draw(st.integers(0, 3))))
    author = draw(_authors)
    thoughts = (Reasoning("hm"),) if draw(st.booleans()) else ()
    turn: list[Message] = [AssistantMessage(draw(_contents), calls, thoughts, author)]
    for call in draw(st.permutations(calls)):
        turn += draw(_asides)
        turn.append(ToolMessage(call.id, call.name, draw(_contents), draw(st.booleans()), author))
    return turn


_others: st.SearchStrategy[Message] = st.builds(UserMessage, _contents) | st.builds(SystemMessage, _contents)
conversations: st.SearchStrategy[list[Message]] = st.lists(
    _turns() | st.lists(_others, min_size=1, max_size=1), max_size=8
).map(lambda pieces: [message for piece in pieces for message in piece])


def context() -> RunContext[Any]:
    """The context of a run in which nothing has happened yet."""
    return RunContext(RunState("r", Log(), None, {}, UsageMeter(Limits())), Origin("1", "A"), "1/filter")


def data_of(
    *, given: Any = (), before: Any = (), turn: Any = (), run_context: RunContext[Any] | None = None
) -> HandoffInputData:
    """What a filter is given."""
    return HandoffInputData(
        input_history=tuple(given),
        pre_handoff_items=tuple(before),
        new_items=tuple(turn),
        run_context=run_context or context(),
    )


def at_once(input_filter: HandoffInputFilter, data: HandoffInputData) -> HandoffInputData:
    """What a filter gives that need not wait."""
    result = input_filter(data)
    assert isinstance(result, HandoffInputData)
    return result


def everything(data: HandoffInputData) -> tuple[Message, ...]:
    """All three sections in one row."""
    return (*data.input_history, *data.pre_handoff_items, *data.new_items)


@st.composite
def handoffs(draw: st.DrawFn) -> HandoffInputData:
    """A conversation cut into three, also in the middle of a turn."""
    talk = draw(conversations)
    first, second = sorted((draw(st.integers(0, len(talk))), draw(st.integers(0, len(talk)))))
    return data_of(given=talk[:first], before=talk[first:second], turn=talk[second:])


def is_paired(messages: tuple[Message, ...]) -> bool:
    """Whether every call has one result after it, and every result a call before it."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            waiting += [call.id for call in message.tool_calls]
        elif isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
    return not waiting
