"""JSON encoding of events: round trips, unknown events, and damaged logs."""

from typing import Any

import msgspec
import pytest

from batonkit import Agent, Approval, RunContext, Runner, tool
from batonkit.errors import LogError, NotEncodableError, RunError
from batonkit.log import (
    LOG_FORMAT,
    AgentFinished,
    AgentResponded,
    AgentStarted,
    AnyEvent,
    ControlTransferred,
    CustomDelta,
    Delta,
    Event,
    EventRef,
    HistoryCompacted,
    HistorySummary,
    InterruptAnswered,
    InterruptRaised,
    OpenTask,
    Origin,
    ProgressDelta,
    ReasoningDelta,
    ResponseTruncated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    RunSuspended,
    SpeechInterval,
    StepCompleted,
    SummaryMessage,
    TaskEnded,
    TaskOpened,
    TextDelta,
    ToolCallDelta,
    ToolReturned,
    UnknownEvent,
    UserMessageAdded,
    ValueChanges,
    decode_event,
    decode_log,
    encode_event,
    encode_log,
)
from batonkit.log.codec import decode_lines, encode_header, require_known_events
from batonkit.log.event import RUN_ORIGIN
from batonkit.messages import (
    AssistantMessage,
    Audio,
    Data,
    File,
    Image,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from batonkit.testing import ScriptedModel, call, transfer_to

A = Origin("1", "A")
B = Origin("2", "B", A)
CALL = ToolCall("call_1", "look_up", '{"city": "Rom\u00e9 \U0001f600"}')
TASK = OpenTask("1/task", "B", "A", "C", "transfer_to_b", "call_1", ("D",), "r0")
CHANGES = ValueChanges({"x": [1, {"y": None}]}, ("z",))
PARTS = (
    Text("look"),
    Image(data=b"\x89PNG\x00", media_type="image/png", detail="low"),
    Audio(url="https://example.org/a.wav", transcript="hello"),
    File(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
    Data({"nested": [1, 2.5, "three", None, True]}),
)
USAGE = Usage(10, 2, 3, 1, 0.25, 0)
SUMMARY = SummaryMessage(AssistantMessage("a", (CALL,)), "A", "r0:1/0/2", True, (0, -1), (1,))

EVENTS: list[Event] = [
    RunStarted(
        "run",
        RUN_ORIGIN,
        1.5,
        "r1",
        "A",
        (SystemMessage("s"), UserMessage(PARTS), AssistantMessage("a", (CALL,)), ToolMessage("call_1", "t", "r", True)),
        {"x": 1},
    ),
    RunStarted("run", RUN_ORIGIN, 1.5, "r1", "A"),
    RunStarted("run", RUN_ORIGIN, 1.5, "r1", "A", options={"": {"model": "m"}, "B": {"not_recorded": ["tools"]}}),
    RunStarted("run", RUN_ORIGIN, 1.5, "r1", "A", input_guardrails=("polite",)),
    AgentStarted("1/start", A, 2.0),
    AgentStarted("1/start", A, 2.0, input_guardrails=("polite",), output_guardrails=("no secrets",)),
    AgentResponded(
        "1/m1",
        A,
        2.5,
        AssistantMessage(PARTS, (CALL,), (Reasoning("hm", "acme", {"signature": "s"}),)),
        "acme:large",
        USAGE,
        "tool_calls",
        CHANGES,
        response_id="resp_1",
    ),
    AgentResponded("1/say1", A, 2.5, AssistantMessage("plain")),
    AgentResponded("1/m4", A, 2.5, AssistantMessage("plain"), disabled_tools=("refund",)),
    UserMessageAdded("1/i1", A, 2.6, UserMessage(PARTS), "item_1"),
    UserMessageAdded("1/i2", A, 2.6, UserMessage("written")),
    UserMessageAdded("1/i2", A, 2.6, UserMessage("rejected"), withheld=True),
    UserMessageAdded("1/i3", A, 2.6, UserMessage("spoken"), "item_3", speech=SpeechInterval(1.5, 2.5)),
    AgentResponded("1/i4", A, 2.6, AssistantMessage("spoken"), speech=SpeechInterval(2.6, 4.5)),
    ResponseTruncated("1/i3/cut", A, 2.7, "1/i3", "so far", 1200),
    ResponseTruncated("1/i4/cut", A, 2.7, "1/i4"),
    HistoryCompacted(
        "1/m2/compact", A, 2.8, EventRef("r0", "1/m9"), (SUMMARY, SummaryMessage(UserMessage("s"))), USAGE, "acme:small"
    ),
    HistoryCompacted("1/m3/compact", A, 2.8, EventRef("r1", "1/m1"), readers="answers", is_local=True),
    RunStarted(
        "run", RUN_ORIGIN, 1.5, "r1", "A", summaries=(HistorySummary(EventRef("r0", "1/m1"), (SUMMARY,), "none"),)
    ),
    ToolReturned("1/m1.0", A, 3.0, "call_1", "look_up", PARTS, True, False, CHANGES),
    ToolReturned("1/m2.0", A, 3.0, "call_2", "look_up", "sunny", False, True),
    ToolReturned("1/m3.0", A, 3.0, "call_3", "quiet"),
    StepCompleted("1/step:x", A, 3.5, "x", {"a": [1, 2]}, CHANGES),
    StepCompleted("1/step:y", A, 3.5, "y"),
    ControlTransferred("1/to", A, 4.0, "A", "B", "call_1", {"reason": "bored"}, "loop", CHANGES),
    ControlTransferred("1/to2", A, 4.0, "A", "B"),
    TaskOpened("1/task", A, 4.2, TASK),
    TaskEnded("2/task1", B, 4.3, TASK, "finished", {"day": [1, "two"]}),
    TaskEnded("2/task2", B, 4.3, OpenTask("1/task", "B", "A", "A"), "cancelled", reason="too late"),
    RunStarted("run2", RUN_ORIGIN, 4.4, "r2", "B", tasks=(TASK,)),
    AgentFinished("1/end", A, 4.5, CHANGES),
    AgentStarted("2/start", B, 5.0),
    InterruptRaised("2/m1.0/ask1", B, 5.5, {"kind": "approval"}, CALL),
    InterruptRaised("2/ask1", B, 5.5),
    InterruptAnswered("2/ask1!", B, 6.0, "2/ask1", {"approved": True}),
    InterruptAnswered("2/ask2!", B, 6.0, "2/ask2"),
    RunSuspended("suspended1", RUN_ORIGIN, 6.5, ("2/ask1",)),
    RunResumed("resumed2", RUN_ORIGIN, 7.0),
    RunResumed("resumed3", RUN_ORIGIN, 7.0, {"": {"model": "m"}}),
    RunFailed("failed3", RUN_ORIGIN, 7.5, "LimitError", "too many"),
    RunCancelled("cancelled4", RUN_ORIGIN, 8.0),
    RunCompleted("completed", RUN_ORIGIN, 8.5),
]


def test_there_is_an_example_of_every_event_class() -> None:
    kinds = {kind for kind in Event.__subclasses__() if kind.__module__.startswith("batonkit.")} - {UnknownEvent}
    assert {type(event) for event in EVENTS} == kinds, "add an event of the new class to EVENTS"


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{type(event).__name__} {event.key}")
def test_every_event_class_round_trips(event: Event) -> None:
    line = encode_event(event)
    assert b"\n" not in line
    back = decode_event(line)
    assert back == event
    assert type(back) is type(event)


def test_a_log_round_trips() -> None:
    data = encode_log(EVENTS[:1] + EVENTS[2:])
    back = decode_log(data)
    assert back == EVENTS[:1] + EVENTS[2:]
    assert encode_log(back) == data


def test_a_log_starts_with_its_format_and_has_one_line_for_each_event() -> None:
    lines = encode_log(EVENTS).split(b"\n")
    assert lines[0] == b'{"format":%d}' % LOG_FORMAT
    assert LOG_FORMAT == 2
    assert lines[-1] == b""
    assert len(lines) == len(EVENTS) + 2
    assert decode_log(b'{"format":2}\n') == []


def test_the_encoding_of_events_is_stable() -> None:
    # The format is versioned: changing these lines means a new format.
    assert (
        encode_event(AgentStarted("2/start", B, 5.0))
        == b'{"type":"AgentStarted","key":"2/start","origin":["2","B","1"],"timestamp":5.0}'
    )
    assert encode_event(EVENTS[1]) == (
        b'{"type":"RunStarted","key":"run","origin":["","",null],"timestamp":1.5,"run_id":"r1","root_agent":"A"}'
    )
    assert encode_event(ControlTransferred("1/to", A, 4.0, "A", "B", "call_1")) == (
        b'{"type":"ControlTransferred","key":"1/to","origin":["1","A",null],"timestamp":4.0,'
        b'"source":"A","target":"B","call_id":"call_1"}'
    )
    assert encode_event(AgentResponded("1/m1", A, 2.5, AssistantMessage("hi"), "m", USAGE)) == (
        b'{"type":"AgentResponded","key":"1/m1","origin":["1","A",null],"timestamp":2.5,"message":{"role":"assistant","content":"hi"},'
        b'"model":"m","usage":{"input_tokens":10,"output_tokens":2,"cached_tokens":3,"reasoning_tokens":1,"cost":0.25}}'
    )


def test_origins_and_paths_round_trip() -> None:
    c = Origin("3", "A", B)
    events = [
        AgentStarted("1/start", A, 1.0),
        AgentResponded("1/m1", A, 1.0, AssistantMessage("x")),
        AgentStarted("2/start", B, 2.0),
        AgentStarted("3/start", c, 3.0),
    ]
    back = decode_log(encode_log(events))
    assert [event.path for event in back] == [("A",), ("A",), ("A", "B"), ("A", "B", "A")]
    assert [event.agent for event in back] == ["A", "A", "B", "A"]
    # Events of one activation share their origin.
    assert back[0].origin is back[1].origin
    assert back[3].origin.parent is back[2].origin


def test_events_of_the_run_as_a_whole_have_the_run_origin() -> None:
    back = decode_log(encode_log([EVENTS[1], EVENTS[-1]]))
    assert all(event.origin is RUN_ORIGIN for event in back)
    assert back[0].path == ()


def test_a_line_does_not_grow_with_the_path() -> None:
    # Stored bytes grow linearly with events.
    origin = None
    for _ in range(1000):
        origin = Origin("7", "A", origin)
    assert origin is not None
    assert len(origin.path) == 1000
    assert len(encode_event(AgentStarted("7/start", origin, 1.0))) < 80


def test_a_single_event_has_its_agent_but_not_its_whole_path() -> None:
    back = decode_event(encode_event(AgentStarted("2/start", B, 5.0)))
    assert (back.agent, back.path) == ("B", ("B",))


FUTURE = b'{"type":"Teleported","key":"2/beam","origin":["2","B","1"],"timestamp":9.0, "where": {"b":1,"a":[ 2 ]}}'


def test_unknown_events_are_kept_byte_for_byte() -> None:
    event = decode_event(FUTURE)
    assert isinstance(event, UnknownEvent)
    assert (event.event_type, event.key, event.agent, event.timestamp) == ("Teleported", "2/beam", "B", 9.0)
    assert encode_event(event) == FUTURE
    data = encode_log([AgentStarted("1/start", A, 1.0), AgentStarted("2/start", B, 1.0)]) + FUTURE + b"\n"
    back = decode_log(data)
    assert back[2].path == ("A", "B")
    assert encode_log(back) == data


def test_events_after_an_unknown_event_keep_their_path() -> None:
    lines = [
        b'{"format":2}',
        FUTURE,
        b'{"type":"AgentStarted","key":"3/start","origin":["3","C","2"],"timestamp":9.5}',
        b"",
    ]
    assert decode_log(b"\n".join(lines))[1].path == ("B", "C")


def test_a_log_with_an_unknown_event_can_be_loaded_but_not_used_as_known() -> None:
    known = encode_log([AgentStarted("1/start", A, 1.0)])
    assert list(require_known_events(decode_log(known))) == [AgentStarted("1/start", A, 1.0)]
    with pytest.raises(LogError, match="at event 1: this version of Baton does not know the event type `Teleported`"):
        require_known_events(decode_log(known + FUTURE + b"\n"))


def test_the_union_of_events_has_every_event_class() -> None:
    classes = {kind for kind in Event.__subclasses__() if kind.__module__ == "batonkit.log.events"}
    assert set(AnyEvent.__args__) == classes


def test_responses_and_interrupts_have_shortcuts() -> None:
    assert AgentResponded("1/m1", A, 2.5, AssistantMessage("", (CALL,))).tool_calls == (CALL,)
    assert InterruptRaised("2/ask1", B, 5.5).interrupt_id == "2/ask1"


def test_unknown_fields_of_a_known_event_are_ignored() -> None:
    line = b'{"type":"AgentStarted","key":"1/start","origin":["1","A",null],"timestamp":1.0,"mood":"good"}'
    assert decode_event(line) == AgentStarted("1/start", A, 1.0)


@pytest.mark.parametrize(
    "delta",
    [
        TextDelta(A, "he"),
        ReasoningDelta(A, "hm"),
        ToolCallDelta(A, 0, "call_1", "look_up", '{"ci'),
        ProgressDelta(A, "half", 1, 2, "call_1"),
        CustomDelta(A, "mood", {"good": True}),
    ],
    ids=lambda delta: type(delta).__name__,
)
def test_deltas_can_be_encoded(delta: Delta) -> None:
    plain: dict[str, Any] = msgspec.json.decode(encode_event(delta))
    assert plain["type"] == type(delta).__name__
    assert plain["origin"] == ["1", "A", None]


def test_a_log_cannot_hold_deltas() -> None:
    line = encode_event(TextDelta(A, "he"))
    with pytest.raises(LogError):
        decode_log(b'{"format":2}\n' + line + b"\n")


# --- errors


@pytest.mark.parametrize(
    ("data", "where", "reason"),
    [
        (b"", 0, "does not start with a line that names its format"),
        (b"\n", 0, "does not start with a line that names its format"),
        (b"hello\n", 0, "does not start with a line that names its format"),
        (b'{"format":"one"}\n', 0, "does not start with a line that names its format"),
        (encode_log(EVENTS[:3]).split(b"\n", 1)[1], 0, "does not start with a line that names its format"),
        (
            b'{"format":1}\n',
            0,
            "it has format 1, written by a version before the first release; this version reads format 2",
        ),
        (b'{"format":3}\n', 0, "it has format 3; this version of Baton reads format 2; install a newer version"),
        (encode_log(EVENTS[:3])[:-1], 2, "the last line is cut off"),
        (encode_log(EVENTS[:3])[:-20], 2, "the last line is cut off"),
        (encode_log(EVENTS[:2]) + b"garbage\n", 2, "JSON is malformed"),
        (encode_log(EVENTS[:2]) + b"\n", 2, "truncated"),
        (encode_log(EVENTS[:2]) + b'{"type":"AgentStarted"}\n', 2, "missing required field"),
        (
            encode_log(EVENTS[:2]) + b'{"type":"AgentStarted","key":7,"origin":["1","A",null],"timestamp":1.0}\n',
            2,
            "Expected `str`",
        ),
        (encode_log(EVENTS[:2]) + b'{"type":"AgentStarted","key":"k","origin":["1"],"timestamp":1.0}\n', 2, ""),
        (encode_log(EVENTS[:2]) + b'{"type":"AgentStarted","key":"k","origin":null,"timestamp":1.0}\n', 2, ""),
        (encode_log(EVENTS[:2]) + b'{"type":"Future","key":"k"}\n', 2, "type"),
        (
            encode_log(EVENTS[:2]) + b'{"type":"AgentResponded","key":"k","origin":["1","A",null],"timestamp":1.0}\n',
            2,
            "missing required field `message`",
        ),
        (encode_log(EVENTS[:2]) + b"[1,2]\n", 2, "Expected `object`, got `array`"),
    ],
)
def test_a_damaged_log_or_another_format_raises_an_error_with_the_position(
    data: bytes, where: int, reason: str
) -> None:
    with pytest.raises(LogError, match=f"the log cannot be read at event {where}") as caught:
        decode_log(data)
    assert caught.value.position == where
    assert reason in caught.value.reason
    assert isinstance(caught.value, RunError)


@pytest.mark.parametrize("origin", ["[1,2,3]", '["1",7,null]', '["1","A",5]'])
def test_an_origin_of_the_wrong_types_raises(origin: str) -> None:
    line = f'{{"type":"AgentStarted","key":"k","origin":{origin},"timestamp":1.0}}'
    with pytest.raises(LogError):
        decode_event(line)


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_log_cut_off_in_its_last_line_raises(cut: int) -> None:
    data = encode_log(EVENTS[:4])
    with pytest.raises(LogError):
        decode_log(data[:-cut])


def test_invalid_utf8_raises() -> None:
    data = (
        encode_log(EVENTS[:2]) + b'{"type":"AgentStarted","key":"\xff\xfe","origin":["1","A",null],"timestamp":1.0}\n'
    )
    with pytest.raises(LogError):
        decode_log(data)


@pytest.mark.parametrize("value", [object(), {1: {object()}}, lambda: None, Origin])
def test_values_that_json_cannot_represent_raise_when_encoded(value: object) -> None:
    with pytest.raises(
        NotEncodableError, match="StepCompleted event is a StepCompleted, which cannot be written to the log"
    ):
        encode_event(StepCompleted("k", A, 1.0, "x", value))


# --- whole runs


async def test_the_log_of_a_real_run_round_trips_and_can_be_replayed() -> None:
    @tool(needs_approval=True)
    async def pay(ctx: RunContext, euro: int) -> str:
        """Pay."""
        ctx.values.set("paid", euro)
        return "paid"

    model = ScriptedModel({"A": [[call("pay", euro=5), transfer_to("B")]], "B": ["done"]}, stream=True)
    runner = Runner(Agent("A", tools=[pay], sub_agents=[Agent("B")]), model=model)
    suspended = await runner.run("hi", values={"who": "Ada"})
    result = await runner.resume(suspended.run_id, Approval(True, reason="fine"))
    back = decode_log(encode_log(result.events))
    assert tuple(back) == result.events
    assert [event.path for event in back] == [event.path for event in result.events]


def test_decoding_a_log_does_not_affect_the_next_one() -> None:
    first, second = Origin("1", "A"), Origin("1", "B")
    lines = [[encode_header(), encode_event(AgentStarted("1/start", origin, 1.0))] for origin in (first, second)]
    with pytest.raises(LogError):
        decode_lines([*lines[0], b"{"])
    assert [decode_lines(each)[0].agent for each in lines] == ["A", "B"]
    with pytest.raises(LogError) as failure:
        decode_lines([*lines[1], b"{"])
    assert failure.value.position == 1
