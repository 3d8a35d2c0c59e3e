"""Handoffs with typed input: the schema that the model gets, corrections, and how the input is passed on."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Any, Literal

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from typing_extensions import TypedDict

from batonkit import Agent, BaseAgent, RunContext, Runner, RunResult, SetupError, handoff, tool
from batonkit.errors import HandoffInputError, TransferError
from batonkit.handoffs import HandoffInputData
from batonkit.log import ControlTransferred, RunFailed, decode_log, encode_log
from batonkit.messages import AssistantMessage, ToolCall, text_of
from batonkit.runs import HandoffRules
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedStream, call, transcript, transfer_to


class Ticket(BaseModel):
    """A support case."""

    subject: str
    urgency: int = 1


@dataclass
class TicketDataclass:
    """A support case as a dataclass."""

    subject: str


class TicketDict(TypedDict):
    """A support case as a dictionary."""

    subject: str


class Mood(Enum):
    """The mood of a customer."""

    CALM = "calm"
    ANGRY = "angry"


class Appointment(BaseModel):
    """A model with types that JSON does not have."""

    day: date
    mood: Mood
    size: tuple[int, int]
    share: float


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


@tool
def note() -> str:
    """Make a note."""
    return "noted"


def raw_call(arguments: str) -> AssistantMessage:
    """Create a call of the handoff with exactly these arguments."""
    return AssistantMessage(tool_calls=(ToolCall("", "transfer_to_b", arguments),))


def make_runner(*steps: Any, corrections: int = 2, **edge: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    """Create a team in which `A` plays these steps and hands off to `B`, which hands off to `C`."""
    model = ScriptedModel({"A": steps, "B": [call("transfer_to_c")], "C": [call("ask", question="?"), "done"]})
    c = Agent("C", tools=[ask])
    a = Agent("A", handoffs=[handoff(Agent("B", handoffs=[c]), **edge)])
    return Runner(a, model=model, handoff_rules=HandoffRules(max_corrections=corrections)), model


def transfer_payloads(result: RunResult[Any]) -> list[Any]:
    """Return the payloads of all transfers."""
    return [event.payload for event in result.events if isinstance(event, ControlTransferred)]


def texts(messages: Any) -> list[str]:
    """Return the texts of messages."""
    return [text_of(message.content) for message in messages]


# --- the handoff tool


async def test_without_input_type_the_schema_is_empty_and_arguments_are_ignored() -> None:
    for arguments in ("", "not json", "null", '{"left": "over"}'):
        runner, model = make_runner(raw_call(arguments))
        result = await runner.run("hi")
        (spec,) = model.requests[0].tools
        assert spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
        assert spec.strict
        assert (result.agent, transfer_payloads(result)) == ("C", [None, None])


async def test_the_handoff_tool_has_the_strict_schema_of_the_input_type() -> None:
    runner, model = make_runner(call("transfer_to_b", subject="x", urgency=1), input_type=Ticket)
    await runner.run("hi")
    (spec,) = model.requests[0].tools
    assert spec.strict
    assert spec.parameters == snapshot(
        {
            "description": "A support case.",
            "properties": {
                "subject": {"type": "string"},
                "urgency": {"type": "integer"},
            },
            "type": "object",
            "additionalProperties": False,
            "required": ["subject", "urgency"],
        }
    )


async def test_the_default_description_contains_the_description_of_the_agent() -> None:
    edges = [Agent("Plain"), Agent("Told", description="Knows it all."), handoff(Agent("Mine", description="x"))]
    model = ScriptedModel(["done"])
    await Runner(Agent("A", model=model, handoffs=edges)).run("hi")
    assert [spec.description for spec in model.requests[0].tools] == [
        "Handoff to the Plain agent to handle the request.",
        "Handoff to the Told agent to handle the request. Knows it all.",
        "Handoff to the Mine agent to handle the request. x",
    ]


# --- passing the input on


@pytest.mark.parametrize(
    ("kind", "arguments", "payload"),
    [
        (Ticket, {"subject": "rent"}, {"subject": "rent", "urgency": 1}),
        (TicketDataclass, {"subject": "rent"}, {"subject": "rent"}),
        (TicketDict, {"subject": "rent"}, {"subject": "rent"}),
        (list[str], {"input": ["a", "b"]}, ["a", "b"]),
        (int, {"input": 0}, 0),
        (bool, {"input": False}, False),
        (str, {"input": ""}, ""),
    ],
)
async def test_without_callback_the_target_reads_the_input_as_a_message(
    kind: Any, arguments: Any, payload: Any
) -> None:
    # Also if the input is false or empty.
    runner, model = make_runner(call("transfer_to_b", **arguments), input_type=kind)
    result = await runner.run("hi")
    assert transfer_payloads(result) == [payload, None]
    notes = [text for text in texts(model.requests[1].messages) if "handed over with" in text]
    assert len(notes) == 1
    assert notes[0] == texts(model.requests[1].messages)[-1]


NOTE = 'For context: [A] handed over with: {"subject":"rent","urgency":1}.'


@pytest.mark.parametrize("policy", ["rewritten", "verbatim", "lineage", "answers"])
async def test_the_target_reads_the_input_once_and_nothing_else_of_the_transfer(policy: Any) -> None:
    model = ScriptedModel({"A": [call("transfer_to_b", subject="rent")], "B": ["the rent is paid"]})
    desk = Agent("A", handoffs=[handoff(Agent("B"), input_type=Ticket)])
    result = await Runner(desk, model=model, history=policy).run("hi")
    assert texts(model.requests[1].messages) == ["hi", NOTE]
    # The call has its result in the log, and in what users read.
    assert [type(message).__name__ for message in result.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "UserMessage",
        "AssistantMessage",
    ]


async def test_the_other_calls_and_the_text_of_a_transfer_with_input_are_still_read() -> None:
    calls = [call("note"), call("transfer_to_b", subject="rent"), call("transfer_to_b", subject="late")]
    model = ScriptedModel({"A": [ScriptedStream("I pass you on", *calls)], "B": ["the rent is paid"]})
    desk = Agent("A", tools=[note], handoffs=[handoff(Agent("B"), input_type=Ticket)])
    await Runner(desk, model=model).run("hi")
    assert texts(model.requests[1].messages) == [
        "hi",
        "For context: [A] said: I pass you on. [A] called tool: `note` with arguments: {}.",
        "For context: [A] `note` tool returned result: noted.",
        NOTE,
    ]


async def test_a_filter_still_gets_the_call_that_asked_for_the_transfer() -> None:
    seen: list[HandoffInputData] = []

    def keep(data: HandoffInputData) -> HandoffInputData:
        seen.append(data)
        return data

    model = ScriptedModel({"A": [call("transfer_to_b", subject="rent")], "B": ["the rent is paid"]})
    desk = Agent("A", handoffs=[handoff(Agent("B"), input_type=Ticket, input_filter=keep)])
    await Runner(desk, model=model).run("hi")
    assert [type(item).__name__ for item in seen[0].new_items] == ["AssistantMessage", "ToolMessage", "UserMessage"]
    assert texts(model.requests[1].messages) == ["hi", NOTE]


async def test_the_next_run_of_a_thread_reads_the_input_once() -> None:
    store = MemoryStore()
    model = ScriptedModel({"A": [call("transfer_to_b", subject="rent"), "hello"], "B": ["paid", "welcome"]})
    desk = Agent("A", handoffs=[handoff(Agent("B"), input_type=Ticket)])
    await Runner(desk, model=model, store=store).run("hi", thread="t")
    await Runner(desk, model=model, store=store).run("thanks", thread="t")
    assert texts(model.requests[-1].messages) == ["hi", NOTE, "paid", "thanks"]


async def test_the_caller_reads_its_call_with_the_result_of_a_finished_task() -> None:
    model = ScriptedModel(
        {"A": [call("transfer_to_b", subject="rent"), "thanks"], "B": [call("finish_task", result="paid")]}
    )
    edge = handoff(Agent("B"), input_type=Ticket, return_to="caller", until="finished")
    await Runner(Agent("A", handoffs=[edge]), model=model).run("hi")
    read = model.requests[-1].messages
    assert [type(message).__name__ for message in read[:3]] == ["UserMessage", "AssistantMessage", "ToolMessage"]
    assert read[2].content == "paid"


async def test_an_input_of_none_adds_no_message() -> None:
    runner, model = make_runner(call("transfer_to_b", input=None), input_type=int | None)
    result = await runner.run("hi")
    assert (result.agent, transfer_payloads(result)) == ("C", [None, None])
    assert not any("handed over with" in text for text in texts(model.requests[1].messages))


async def test_later_agents_read_the_message_with_the_input_also_after_a_resume() -> None:
    runner, model = make_runner(call("transfer_to_b", subject="rent"), input_type=Ticket)
    suspended = await runner.run("hi")
    note = 'For context: [A] handed over with: {"subject":"rent","urgency":1}.'
    assert texts(model.requests[2].messages).count(note) == 1
    result = await runner.resume(suspended.run_id, "yes")
    assert texts(model.requests[3].messages).count(note) == 1
    assert texts(result.messages).count(note) == 1


class Recorder:
    """Callbacks of several kinds that record their input."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []

    def __call__(self, ctx: RunContext[Any], input: Any) -> None:
        self.inputs.append((ctx.agent, input))

    async def record_later(self, ctx: RunContext[Any], input: Any) -> str:
        self(ctx, input)
        return "the result of a callback is ignored"

    def record_with_prefix(self, prefix: str, ctx: Any, input: Any = "nothing", *, mood: str = "") -> None:
        self(ctx, input)


def take_context(ctx: Any) -> None: ...


def take_keyword(ctx: Any, input: Any, *, prefix: Any) -> None: ...


@pytest.mark.parametrize("kind", ["object", "coroutine", "partial", "varied"])
async def test_a_callback_receives_the_input_instead_of_a_message(kind: str) -> None:
    recorder = Recorder()
    callbacks: dict[str, Callable[..., Any]] = {
        "object": recorder,
        "coroutine": recorder.record_later,
        "partial": partial(recorder.record_with_prefix, "more"),
        "varied": lambda *arguments: recorder(*arguments),
    }
    callback = callbacks[kind]
    runner, model = make_runner(
        call("transfer_to_b", subject="rent", urgency=2), input_type=Ticket, on_handoff=callback
    )
    result = await runner.run("hi")
    assert recorder.inputs == [("A", Ticket(subject="rent", urgency=2))]
    assert transfer_payloads(result) == [{"subject": "rent", "urgency": 2}, None]
    assert not any("handed over with" in text for text in texts(model.requests[1].messages))


@pytest.mark.parametrize(
    ("callback", "input_type", "expected"),
    [
        (Recorder(), None, r"\(ctx\), because it has no input_type"),
        (lambda: None, None, r"\(ctx\), because it has no input_type"),
        (take_context, Ticket, r"\(ctx, input\), because it has an input_type"),
        (
            partial(Recorder().record_with_prefix, "more", None, "x"),
            Ticket,
            r"\(ctx, input\), because it has an input_type",
        ),
        (take_keyword, Ticket, r"\(ctx, input\), because it has an input_type"),
    ],
)
def test_a_callback_with_wrong_parameters_is_refused(callback: Any, input_type: Any, expected: str) -> None:
    # By `handoff` and by `clone`.
    with pytest.raises(SetupError, match=f"on_handoff of the handoff to `B` is called with {expected}"):
        handoff("B", on_handoff=callback, input_type=input_type)
    with pytest.raises(SetupError, match=f"is called with {expected}"):
        handoff("B").clone(on_handoff=callback, input_type=input_type)


def test_a_callback_without_a_signature_is_accepted() -> None:
    # Some callables in C have no signature.
    callback: Any = max
    assert handoff("B", on_handoff=callback).on_handoff is max


# --- invalid input


async def test_json_values_are_converted_to_other_types() -> None:
    # Values are not coerced, but JSON has no dates, enums or tuples.
    recorder = Recorder()
    arguments = {"day": "2031-05-01", "mood": "angry", "size": [1, 2], "share": 1}
    runner, _ = make_runner(call("transfer_to_b", **arguments), input_type=Appointment, on_handoff=recorder)
    result = await runner.run("hi")
    assert recorder.inputs == [("A", Appointment(day=date(2031, 5, 1), mood=Mood.ANGRY, size=(1, 2), share=1.0))]
    assert transfer_payloads(result)[0] == {"day": "2031-05-01", "mood": "angry", "size": [1, 2], "share": 1.0}


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("", "subject"),
        ("{", "the input"),
        ("null", "the input"),
        ('["rent"]', "the input"),
        ('{"urgency": 1}', "subject"),
        ('{"subject": null}', "subject"),
        ('{"subject": "rent", "urgency": "1"}', "urgency"),
        ('{"subject": "rent", "urgency": 1.5}', "urgency"),
        ('{"subject": "rent", "urgency": true}', "urgency"),
    ],
)
async def test_the_model_gets_the_problem_and_can_correct_it(arguments: str, place: str) -> None:
    recorder = Recorder()
    steps = [raw_call(arguments), call("transfer_to_b", subject="rent")]
    runner, model = make_runner(*steps, input_type=Ticket, on_handoff=recorder)
    result = await runner.run("hi")
    message = model.requests[1].messages[-1]
    assert text_of(message.content).startswith(f"Not transferred to [B]: {place}: ")
    assert recorder.inputs == [("A", Ticket(subject="rent"))]
    assert transfer_payloads(result)[0] == {"subject": "rent", "urgency": 1}
    # Later requests do not contain the mistake.
    assert not any("Not transferred" in text for request in model.requests[2:] for text in texts(request.messages))


@pytest.mark.parametrize("corrections", [0, 1, 2])
async def test_too_many_corrections_raise_a_handoff_input_error(corrections: int) -> None:
    recorder = Recorder()
    wrong = [call("transfer_to_b", subject=7)] * 9
    runner, model = make_runner(*wrong, corrections=corrections, input_type=Ticket, on_handoff=recorder)
    with pytest.raises(HandoffInputError) as caught:
        await runner.run("hi")
    assert len(model.requests) == corrections + 1
    assert (caught.value.source, caught.value.target) == ("A", "B")
    assert caught.value.problems == "subject: Input should be a valid string"
    assert recorder.inputs == []


async def test_wrong_targets_and_wrong_input_share_one_correction_budget() -> None:
    wrong_input, unknown_target = call("transfer_to_b", subject=7), transfer_to("Nobody")
    model = ScriptedModel([unknown_target, wrong_input, unknown_target, wrong_input])
    edge = handoff(Agent("B"), input_type=Ticket)
    with pytest.raises(TransferError, match="cannot transfer to `Nobody`"):
        await Runner(Agent("A", model=model, handoffs=[edge], sub_agents=[Agent("Child")])).run("hi")
    assert len(model.requests) == 3


class Card(BaseModel):
    """A model with a value that must not be logged."""

    kind: Literal["visa", "master"]
    number: int


SECRET = "4111-1111-1111"


@pytest.mark.parametrize("wrong", [{"kind": "visa", "number": SECRET}, {"kind": SECRET, "number": 1}, {SECRET: 1}])
async def test_invalid_values_are_not_logged(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    runner, _ = make_runner(*[call("transfer_to_b", **wrong)] * 3, input_type=Card)
    live = runner.stream("hi")
    with pytest.raises(HandoffInputError) as caught:
        await live._drive()
    assert SECRET not in caplog.text
    assert SECRET not in str(caught.value)
    (failed,) = [event for event in live.result.events if isinstance(event, RunFailed)]
    assert SECRET not in failed.message


async def test_valid_values_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    runner, _ = make_runner(call("transfer_to_b", subject=SECRET), input_type=Ticket, needs_approval=True)
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, True)
    assert SECRET not in caplog.text


# --- return_to, several edges, clones


async def test_a_handoff_with_input_can_return_to_its_caller() -> None:
    model = ScriptedModel(
        {"A": [call("transfer_to_b", subject="rent"), "thanks"], "B": ["the rent is paid"], "C": ["bye"]}
    )
    edge = handoff(Agent("B"), input_type=Ticket, return_to="caller")
    result = await Runner(Agent("A", handoffs=[edge]), model=model).run("hi")
    assert (result.agent, result.output) == ("A", "thanks")
    assert texts(model.requests[2].messages)[-2:] == [
        'For context: [A] handed over with: {"subject":"rent","urgency":1}.',
        "For context: [B] said: the rent is paid.",
    ]


async def test_a_handoff_with_input_can_return_to_a_third_agent() -> None:
    recorder = Recorder()
    model = ScriptedModel({"A": [call("transfer_to_b", subject="rent")], "B": ["paid"], "C": ["bye"]})
    edge = handoff(Agent("B"), input_type=Ticket, on_handoff=recorder, return_to="C")
    result = await Runner(Agent("A", handoffs=[edge]), model=model, extra_agents=[Agent("C")]).run("hi")
    assert [line for line in transcript(result.events) if "→" in line] == [
        'A → B with {"subject":"rent","urgency":1}',
        "B → C (returned)",
    ]
    assert len(recorder.inputs) == 1


async def test_two_handoffs_to_one_agent_have_separate_inputs_and_callbacks() -> None:
    not_urgent, urgent = Recorder(), Recorder()
    b = Agent("B")
    edges = [
        handoff(b, tool_name_override="file", input_type=TicketDataclass, on_handoff=not_urgent),
        handoff(b, tool_name_override="alarm", input_type=Ticket, on_handoff=urgent, return_to="caller"),
    ]
    model = ScriptedModel(
        {"A": [call("alarm", subject="fire", urgency=9), call("file", subject="rent")], "B": ["1", "2"]}
    )
    result = await Runner(Agent("A", handoffs=edges), model=model).run("hi")
    assert (result.agent, result.output) == ("B", "2")
    assert urgent.inputs == [("A", Ticket(subject="fire", urgency=9))]
    assert not_urgent.inputs == [("A", TicketDataclass("rent"))]


async def test_a_clone_uses_its_own_input_type() -> None:
    b = Agent("B")
    edge = handoff(b, input_type=Ticket, tool_name_override="go")
    model = ScriptedModel({"A": [call("go", input=3)], "B": ["ok"]})
    # The parser of the original is created before the clone.
    Runner(Agent("A", handoffs=[edge]))
    result = await Runner(Agent("A", handoffs=[edge.clone(input_type=int)]), model=model).run("hi")
    assert transfer_payloads(result) == [3]
    assert edge.input_type is Ticket


@pytest.mark.parametrize("wrong", [42, None, b"B", {"agent": "B"}, Agent, lambda: None])
def test_an_invalid_entry_in_handoffs_is_refused(wrong: Any) -> None:
    class CustomAgent(BaseAgent):
        async def run(self, ctx: Any) -> None: ...

    for kind in (Agent, CustomAgent):
        with pytest.raises(SetupError, match=r"`A` has .* in handoffs; give an agent, handoff\(agent, …\)") as caught:
            kind("A", handoffs=[Agent("Good"), wrong])
        assert repr(wrong) in str(caught.value)


async def test_handoffs_can_be_agents_handoffs_and_names() -> None:
    # Names make cycles possible.
    c = Agent("C", handoffs=["A"])
    a = Agent("A", handoffs=[Agent("B"), handoff(c), "D"])
    model = ScriptedModel(
        {"A": [call("transfer_to_c"), call("transfer_to_d")], "C": [call("transfer_to_a")], "D": ["!"]}
    )
    result = await Runner(a, model=model, extra_agents=[Agent("D")]).run("hi")
    assert result.events[-2].path == ("A", "C", "A", "D")


# --- the context of a callback


class Customer:
    """A context object that cannot be encoded as JSON."""

    def __init__(self) -> None:
        self.number = "customer-4711"
        self.notes: list[str] = []


async def test_a_callback_has_the_context_object_which_is_not_recorded() -> None:
    customer = Customer()

    def record(ctx: RunContext[Customer], ticket: Ticket) -> None:
        ctx.context.notes.append(ticket.subject)

    runner, model = make_runner(call("transfer_to_b", subject="rent"), input_type=Ticket, on_handoff=record)
    suspended = await runner.run("hi", context=customer)
    result = await runner.resume(suspended.run_id, "yes")
    assert customer.notes == ["rent"]
    assert b"4711" not in encode_log(result.events)
    assert not any("4711" in text for request in model.requests for text in texts(request.messages))


async def test_values_set_by_a_callback_are_recorded() -> None:
    def set_values(ctx: RunContext[Any], ticket: Ticket) -> None:
        values = ctx.values
        values.update({"count": values.get("count", 0) + 1, "subject": ticket.subject})
        values.set("by", ctx.agent)
        values.delete("draft")

    edge = handoff(Agent("B", tools=[ask]), input_type=Ticket, on_handoff=set_values)
    a = Agent("A", handoffs=[edge])
    model = ScriptedModel({"A": [call("transfer_to_b", subject="rent")], "B": [call("ask", question="?")]})
    suspended = await Runner(a, model=model).run("hi", values={"draft": "x"})
    expected = {"count": 1, "subject": "rent", "by": "A"}
    assert suspended.values == expected
    other = Runner(a, model=ScriptedModel({"B": ["done"]}))
    run_id = await other.runs.load(decode_log(encode_log(suspended.events)))
    assert (await other.resume(run_id, "yes")).values == expected


async def test_a_step_in_a_callback_runs_once() -> None:
    done: list[str] = []

    async def run_steps(ctx: RunContext[Any]) -> None:
        first = await ctx.step("book", lambda: done.append("booked") or "number 1")
        await ctx.step("mail", lambda: done.append(f"mailed {first}"))
        if len(done) == 2:
            raise ConnectionError("connection lost")

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    edge = handoff(Agent("B", tools=[ask]), on_handoff=run_steps)
    runner = Runner(Agent("A", handoffs=[edge]), model=model)
    live = runner.stream("hi")
    with pytest.raises(ConnectionError):
        await live._drive()
    done.append("tried again")
    suspended = await runner.resume(live.run_id)
    result = await runner.resume(live.run_id, "yes")
    await runner.runs.replay(result.events)
    assert (suspended.agent, result.output) == ("B", "done")
    assert done == ["booked", "mailed number 1", "tried again"]
