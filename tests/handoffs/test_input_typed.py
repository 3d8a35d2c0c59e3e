"""Handoffs with an input: what the model is shown, what becomes of what it gives, and who gets it."""

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

from baton import Agent, BaseAgent, RunContext, Runner, RunResult, SetupError, handoff, tool
from baton.errors import HandoffInputError, TransferError
from baton.events import ControlTransferred, RunFailed, decode_log, encode_log
from baton.messages import AssistantMessage, ToolCall, text_of
from baton.testing import ScriptedModel, call, transcript, transfer_to


class Ticket(BaseModel):
    """What a case is about."""

    subject: str
    urgency: int = 1


@dataclass
class Note:
    """The same as a dataclass."""

    subject: str


class Slip(TypedDict):
    """The same as a dictionary."""

    subject: str


class Mood(Enum):
    """How somebody feels."""

    CALM = "calm"
    ANGRY = "angry"


class Visit(BaseModel):
    """Things that JSON has no types for."""

    day: date
    mood: Mood
    size: tuple[int, int]
    share: float


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def written(arguments: str) -> AssistantMessage:
    """A call of the handoff with these very arguments."""
    return AssistantMessage(tool_calls=(ToolCall("", "transfer_to_b", arguments),))


def desk(*steps: Any, corrections: int = 2, **edge: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    """`A` plays these steps and hands over to `B` along one edge; `B` hands on to `C`."""
    model = ScriptedModel({"A": steps, "B": [call("transfer_to_c")], "C": [call("ask", question="?"), "done"]})
    c = Agent("C", tools=[ask])
    a = Agent("A", handoffs=[handoff(Agent("B", handoffs=[c]), **edge)])
    return Runner(a, model=model, max_corrections=corrections), model


def payloads(result: RunResult[Any]) -> list[Any]:
    """What went along with each transfer."""
    return [event.payload for event in result.events if isinstance(event, ControlTransferred)]


def texts(messages: Any) -> list[str]:
    """The texts of messages."""
    return [text_of(message.content) for message in messages]


# --- what the model is shown


async def test_without_a_type_the_schema_is_empty_and_arguments_are_ignored() -> None:
    # H4
    for arguments in ("", "not json", "null", '{"left": "over"}'):
        runner, model = desk(written(arguments))
        result = await runner.run("hi")
        (spec,) = model.requests[0].tools
        assert spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
        assert spec.strict
        assert (result.agent, payloads(result)) == ("C", [None, None])


async def test_with_a_type_the_model_is_shown_its_strict_schema() -> None:
    # H4
    runner, model = desk(call("transfer_to_b", subject="x", urgency=1), input_type=Ticket)
    await runner.run("hi")
    (spec,) = model.requests[0].tools
    assert spec.strict
    assert spec.parameters == snapshot(
        {
            "description": "What a case is about.",
            "properties": {
                "subject": {"type": "string"},
                "urgency": {"type": "integer"},
            },
            "type": "object",
            "additionalProperties": False,
            "required": ["subject", "urgency"],
        }
    )


async def test_the_description_is_the_agents_and_ends_without_a_space() -> None:
    # H3
    edges = [Agent("Plain"), Agent("Told", description="Knows it all."), handoff(Agent("Mine", description="x"))]
    model = ScriptedModel(["done"])
    await Runner(Agent("A", model=model, handoffs=edges)).run("hi")
    assert [spec.description for spec in model.requests[0].tools] == [
        "Handoff to the Plain agent to handle the request.",
        "Handoff to the Told agent to handle the request. Knows it all.",
        "Handoff to the Mine agent to handle the request. x",
    ]


# --- who gets the input


@pytest.mark.parametrize(
    ("kind", "given", "payload"),
    [
        (Ticket, {"subject": "rent"}, {"subject": "rent", "urgency": 1}),
        (Note, {"subject": "rent"}, {"subject": "rent"}),
        (Slip, {"subject": "rent"}, {"subject": "rent"}),
        (list[str], {"input": ["a", "b"]}, ["a", "b"]),
        (int, {"input": 0}, 0),
        (bool, {"input": False}, False),
        (str, {"input": ""}, ""),
    ],
)
async def test_without_a_callback_the_input_is_a_message_for_the_target(kind: Any, given: Any, payload: Any) -> None:
    # H5: also what is false or empty has been given.
    runner, model = desk(call("transfer_to_b", **given), input_type=kind)
    result = await runner.run("hi")
    assert payloads(result) == [payload, None]
    told = [text for text in texts(model.requests[1].messages) if "handed over with" in text]
    assert len(told) == 1
    assert told[0] == texts(model.requests[1].messages)[-1]


async def test_an_input_of_none_is_told_to_nobody() -> None:
    # H5
    runner, model = desk(call("transfer_to_b", input=None), input_type=int | None)
    result = await runner.run("hi")
    assert (result.agent, payloads(result)) == ("C", [None, None])
    assert not any("handed over with" in text for text in texts(model.requests[1].messages))


async def test_the_message_with_the_input_stays_for_later_agents_and_across_resume() -> None:
    # H5, D5
    runner, model = desk(call("transfer_to_b", subject="rent"), input_type=Ticket)
    suspended = await runner.run("hi")
    told = 'For context: [A] handed over with: {"subject":"rent","urgency":1}.'
    assert texts(model.requests[2].messages).count(told) == 1
    result = await runner.resume(suspended.run_id, "yes")
    assert texts(model.requests[3].messages).count(told) == 1
    assert texts(result.messages).count(told) == 1


class Keeper:
    """Keeps what it is given, in every manner a callback may have."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __call__(self, ctx: RunContext[Any], given: Any) -> None:
        self.kept.append((ctx.agent, given))

    async def in_a_while(self, ctx: RunContext[Any], given: Any) -> str:
        self(ctx, given)
        return "what a callback returns is nobody's business"

    def with_more(self, more: str, ctx: Any, given: Any = "nothing", *, mood: str = "") -> None:
        self(ctx, given)


def only_context(ctx: Any) -> None: ...


def with_a_keyword(ctx: Any, given: Any, *, more: Any) -> None: ...


@pytest.mark.parametrize("manner", ["object", "coroutine", "partial", "varied"])
async def test_a_callback_of_any_manner_gets_the_value_and_the_target_no_message(manner: str) -> None:
    # H5
    keeper = Keeper()
    callbacks: dict[str, Callable[..., Any]] = {
        "object": keeper,
        "coroutine": keeper.in_a_while,
        "partial": partial(keeper.with_more, "more"),
        "varied": lambda *given: keeper(*given),
    }
    callback = callbacks[manner]
    runner, model = desk(call("transfer_to_b", subject="rent", urgency=2), input_type=Ticket, on_handoff=callback)
    result = await runner.run("hi")
    assert keeper.kept == [("A", Ticket(subject="rent", urgency=2))]
    assert payloads(result) == [{"subject": "rent", "urgency": 2}, None]
    assert not any("handed over with" in text for text in texts(model.requests[1].messages))


@pytest.mark.parametrize(
    ("callback", "input_type", "wanted"),
    [
        (Keeper(), None, r"\(ctx\), because it has no input_type"),
        (lambda: None, None, r"\(ctx\), because it has no input_type"),
        (only_context, Ticket, r"\(ctx, input\), because it has an input_type"),
        (partial(Keeper().with_more, "more", None, "x"), Ticket, r"\(ctx, input\), because it has an input_type"),
        (with_a_keyword, Ticket, r"\(ctx, input\), because it has an input_type"),
    ],
)
def test_a_callback_that_cannot_be_called_so_is_refused_when_it_is_given(
    callback: Any, input_type: Any, wanted: str
) -> None:
    # H5: at construction, and also by clone.
    with pytest.raises(SetupError, match=f"on_handoff of the handoff to `B` is called with {wanted}"):
        handoff("B", on_handoff=callback, input_type=input_type)
    with pytest.raises(SetupError, match=f"is called with {wanted}"):
        handoff("B").clone(on_handoff=callback, input_type=input_type)


def test_a_callback_that_does_not_say_what_it_takes_is_let_pass() -> None:
    # H5: some callables of C have no signature to look at.
    callback: Any = max
    assert handoff("B", on_handoff=callback).on_handoff is max


# --- input that does not fit


async def test_strict_is_as_json_has_it() -> None:
    # H6: no coercion, but JSON has no dates, enums or tuples of its own.
    keeper = Keeper()
    given = {"day": "2031-05-01", "mood": "angry", "size": [1, 2], "share": 1}
    runner, _ = desk(call("transfer_to_b", **given), input_type=Visit, on_handoff=keeper)
    result = await runner.run("hi")
    assert keeper.kept == [("A", Visit(day=date(2031, 5, 1), mood=Mood.ANGRY, size=(1, 2), share=1.0))]
    assert payloads(result)[0] == {"day": "2031-05-01", "mood": "angry", "size": [1, 2], "share": 1.0}


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
async def test_the_model_is_told_what_is_wrong_where_and_may_correct_it(arguments: str, place: str) -> None:
    # H6
    keeper = Keeper()
    steps = [written(arguments), call("transfer_to_b", subject="rent")]
    runner, model = desk(*steps, input_type=Ticket, on_handoff=keeper)
    result = await runner.run("hi")
    told = model.requests[1].messages[-1]
    assert text_of(told.content).startswith(f"Not transferred to [B]: {place}: ")
    assert keeper.kept == [("A", Ticket(subject="rent"))]
    assert payloads(result)[0] == {"subject": "rent", "urgency": 1}
    # Nobody reads of the mistake later.
    assert not any("Not transferred" in text for request in model.requests[2:] for text in texts(request.messages))


@pytest.mark.parametrize("corrections", [0, 1, 2])
async def test_after_the_budget_it_is_a_typed_error(corrections: int) -> None:
    # H6, T19
    keeper = Keeper()
    wrong = [call("transfer_to_b", subject=7)] * 9
    runner, model = desk(*wrong, corrections=corrections, input_type=Ticket, on_handoff=keeper)
    with pytest.raises(HandoffInputError) as caught:
        await runner.run("hi")
    assert len(model.requests) == corrections + 1
    assert (caught.value.source, caught.value.target) == ("A", "B")
    assert caught.value.problems == "subject: Input should be a valid string"
    assert keeper.kept == []


async def test_wrong_targets_and_wrong_input_share_one_budget() -> None:
    # H6, T19
    wrong_input, nobody = call("transfer_to_b", subject=7), transfer_to("Nobody")
    model = ScriptedModel([nobody, wrong_input, nobody, wrong_input])
    edge = handoff(Agent("B"), input_type=Ticket)
    with pytest.raises(TransferError, match="cannot transfer to `Nobody`"):
        await Runner(Agent("A", model=model, handoffs=[edge], sub_agents=[Agent("Child")])).run("hi")
    assert len(model.requests) == 3


class Card(BaseModel):
    """Something that nobody should read in a log file."""

    kind: Literal["visa", "master"]
    number: int


SECRET = "4111-1111-1111"


@pytest.mark.parametrize("wrong", [{"kind": "visa", "number": SECRET}, {"kind": SECRET, "number": 1}, {SECRET: 1}])
async def test_values_are_not_shown_in_logs_and_errors(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    # H6
    caplog.set_level(logging.INFO)
    runner, _ = desk(*[call("transfer_to_b", **wrong)] * 3, input_type=Card)
    live = runner.stream("hi")
    with pytest.raises(HandoffInputError) as caught:
        await live._drive()
    assert SECRET not in caplog.text
    assert SECRET not in str(caught.value)
    (failed,) = [event for event in live.result.events if isinstance(event, RunFailed)]
    assert SECRET not in failed.message


async def test_values_that_fit_are_not_shown_in_logs_either(caplog: pytest.LogCaptureFixture) -> None:
    # H6
    caplog.set_level(logging.INFO)
    runner, _ = desk(call("transfer_to_b", subject=SECRET), input_type=Ticket, needs_approval=True)
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, True)
    assert SECRET not in caplog.text


# --- where control goes, and by which edge


async def test_a_typed_edge_may_return_to_its_caller() -> None:
    # H1, T21
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


async def test_a_typed_edge_may_lead_on_to_a_third_agent() -> None:
    # H1, T21
    keeper = Keeper()
    model = ScriptedModel({"A": [call("transfer_to_b", subject="rent")], "B": ["paid"], "C": ["bye"]})
    edge = handoff(Agent("B"), input_type=Ticket, on_handoff=keeper, return_to="C")
    result = await Runner(Agent("A", handoffs=[edge]), model=model, extra_agents=[Agent("C")]).run("hi")
    assert [line for line in transcript(result.events) if "→" in line] == [
        'A → B with {"subject":"rent","urgency":1}',
        "B → C (returned)",
    ]
    assert len(keeper.kept) == 1


async def test_of_two_edges_to_one_agent_each_has_its_own_input_and_callback() -> None:
    # H1, H5
    calm, urgent = Keeper(), Keeper()
    b = Agent("B")
    edges = [
        handoff(b, tool_name_override="file", input_type=Note, on_handoff=calm),
        handoff(b, tool_name_override="alarm", input_type=Ticket, on_handoff=urgent, return_to="caller"),
    ]
    model = ScriptedModel(
        {"A": [call("alarm", subject="fire", urgency=9), call("file", subject="rent")], "B": ["1", "2"]}
    )
    result = await Runner(Agent("A", handoffs=edges), model=model).run("hi")
    assert (result.agent, result.output) == ("B", "2")
    assert urgent.kept == [("A", Ticket(subject="fire", urgency=9))]
    assert calm.kept == [("A", Note("rent"))]


async def test_a_clone_reads_its_own_type() -> None:
    # H1
    b = Agent("B")
    edge = handoff(b, input_type=Ticket, tool_name_override="go")
    model = ScriptedModel({"A": [call("go", input=3)], "B": ["ok"]})
    # The first edge has read its type before the clone is made.
    Runner(Agent("A", handoffs=[edge]))
    result = await Runner(Agent("A", handoffs=[edge.clone(input_type=int)]), model=model).run("hi")
    assert payloads(result) == [3]
    assert edge.input_type is Ticket


@pytest.mark.parametrize("wrong", [42, None, b"B", {"agent": "B"}, Agent, lambda: None])
def test_what_is_no_edge_is_refused_and_shown(wrong: Any) -> None:
    # H1
    class Mine(BaseAgent):
        async def run(self, ctx: Any) -> None: ...

    for kind in (Agent, Mine):
        with pytest.raises(SetupError, match=r"`A` has .* in handoffs; give an agent, handoff\(agent, …\)") as caught:
            kind("A", handoffs=[Agent("Good"), wrong])
        assert repr(wrong) in str(caught.value)


async def test_entries_may_be_agents_handoffs_and_names_in_one_list() -> None:
    # H1: names, for cycles.
    c = Agent("C", handoffs=["A"])
    a = Agent("A", handoffs=[Agent("B"), handoff(c), "D"])
    model = ScriptedModel(
        {"A": [call("transfer_to_c"), call("transfer_to_d")], "C": [call("transfer_to_a")], "D": ["!"]}
    )
    result = await Runner(a, model=model, extra_agents=[Agent("D")]).run("hi")
    assert result.events[-2].path == ("A", "C", "A", "D")


# --- the context of a callback


class Customer:
    """An object that JSON cannot hold."""

    def __init__(self) -> None:
        self.number = "customer-4711"
        self.notes: list[str] = []


async def test_a_callback_has_the_callers_own_object_which_goes_nowhere_else() -> None:
    # H17
    customer = Customer()

    def note(ctx: RunContext[Customer], given: Ticket) -> None:
        ctx.context.notes.append(given.subject)

    runner, model = desk(call("transfer_to_b", subject="rent"), input_type=Ticket, on_handoff=note)
    suspended = await runner.run("hi", context=customer)
    result = await runner.resume(suspended.run_id, "yes")
    assert customer.notes == ["rent"]
    assert b"4711" not in encode_log(result.events)
    assert not any("4711" in text for request in model.requests for text in texts(request.messages))


async def test_what_a_callback_does_to_the_values_is_there_in_another_process() -> None:
    # H17, D5
    def note(ctx: RunContext[Any], given: Ticket) -> None:
        values = ctx.values
        values.update({"count": values.get("count", 0) + 1, "subject": given.subject})
        values.set("by", ctx.agent)
        values.delete("draft")

    edge = handoff(Agent("B", tools=[ask]), input_type=Ticket, on_handoff=note)
    a = Agent("A", handoffs=[edge])
    model = ScriptedModel({"A": [call("transfer_to_b", subject="rent")], "B": [call("ask", question="?")]})
    suspended = await Runner(a, model=model).run("hi", values={"draft": "x"})
    wanted = {"count": 1, "subject": "rent", "by": "A"}
    assert suspended.values == wanted
    other = Runner(a, model=ScriptedModel({"B": ["done"]}))
    run_id = other.load_log(decode_log(encode_log(suspended.events)))
    assert (await other.resume(run_id, "yes")).values == wanted


async def test_what_a_callback_does_in_a_step_is_done_once() -> None:
    # H5, D5
    done: list[str] = []

    async def note(ctx: RunContext[Any]) -> None:
        first = await ctx.step("book", lambda: done.append("booked") or "number 1")
        await ctx.step("mail", lambda: done.append(f"mailed {first}"))
        if len(done) == 2:
            raise ConnectionError("lost at the last moment")

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    edge = handoff(Agent("B", tools=[ask]), on_handoff=note)
    runner = Runner(Agent("A", handoffs=[edge]), model=model)
    live = runner.stream("hi")
    with pytest.raises(ConnectionError):
        await live._drive()
    done.append("tried again")
    suspended = await runner.resume(live.run_id)
    result = await runner.resume(live.run_id, "yes")
    await runner.replay(result.events)
    assert (suspended.agent, result.output) == ("B", "done")
    assert done == ["booked", "mailed number 1", "tried again"]
