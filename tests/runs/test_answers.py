"""Answers to interrupts are validated before anything is written."""

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel
from tests.hostile_schemas import UNUSABLE
from tests.runs.recording_store import RecordingStore, get_record, load_events

from batonkit import Agent, AgentContext, RunContext, Runner, agent, tool
from batonkit.errors import AnswerError, NotEncodableError, SetupError
from batonkit.log import InterruptAnswered, InterruptRaised
from batonkit.messages import ToolMessage
from batonkit.testing import ScriptedModel, call


class Address(BaseModel):
    street: str
    number: int


@dataclass
class Size:
    width: int
    height: int = 1


def runner_asking_for(schema: Any, answers: list[Any], store: Any = None) -> Runner[Any, Any]:
    """Create a runner whose agent asks for an answer with this schema."""

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        answers.append(await ctx.interrupt("which?", schema=schema))
        return "ok"

    model = ScriptedModel([call("ask"), "done"], cycle=True)
    return Runner(Agent("A", model=model, tools=[ask]), store=store)


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize(
    ("schema", "answer", "expected"),
    [
        (Address, {"street": "High", "number": 5}, Address(street="High", number=5)),
        (Address, Address(street="High", number=5), Address(street="High", number=5)),
        (Size, {"width": 3}, Size(3)),
        (int, 7, 7),
        (list[int], [1, 2], [1, 2]),
        ({"type": "object", "required": ["x"]}, {"x": [1]}, {"x": [1]}),
        ({"enum": ["red", "blue"]}, "red", "red"),
        (None, {"anything": ["at", "all"]}, {"anything": ["at", "all"]}),
        (None, None, None),
    ],
)
async def test_a_valid_answer_is_converted_to_the_schema_type(
    schema: Any, answer: Any, expected: Any, is_stored: bool
) -> None:
    answers: list[Any] = []
    runner = runner_asking_for(schema, answers, RecordingStore() if is_stored else None)
    waiting = await runner.run("hi")
    (question,) = waiting.interrupts
    assert (question.schema is None) == (schema is None)
    assert (await runner.resume(waiting.run_id, {question.id: answer})).output == "done"
    assert answers == [expected]


@pytest.mark.parametrize(
    ("schema", "answer", "problem"),
    [
        (Address, {"street": "High"}, "'number' is a required property"),
        (Address, {"street": "High", "number": "five"}, "number: 'five' is not of type 'integer'"),
        (int, "seven", "'seven' is not of type 'integer'"),
        (int, None, "None is not of type 'integer'"),
        ({"enum": ["red", "blue"]}, "green", "'green' is not one of"),
        ({"type": "object", "properties": {"a": {"items": {"type": "string"}}}}, {"a": ["x", 1]}, "a.1: 1 is not of"),
    ],
)
async def test_an_invalid_answer_is_refused_and_nothing_is_written(schema: Any, answer: Any, problem: str) -> None:
    answers: list[Any] = []
    store = RecordingStore()
    stored_runner, plain_runner = runner_asking_for(schema, answers, store), runner_asking_for(schema, answers)
    for runner in (stored_runner, plain_runner):
        waiting = await runner.run("hi", run_id="r")
        before, expected = await runner.runs.events("r"), {waiting.interrupts[0].id: answer}
        with pytest.raises(AnswerError, match="does not fit its schema") as caught:
            await runner.resume("r", expected)
        assert problem in str(caught.value)
        if runner is stored_runner:
            with pytest.raises(AnswerError, match="does not fit its schema"):
                await runner.runs.answer("r", expected)
        assert await runner.runs.events("r") == before
        assert (await runner.resume("r")).interrupts == waiting.interrupts
    record = await get_record(store, "r")
    assert (record.status, record.lease_until) == ("suspended", 0.0)
    assert answers == []


@pytest.mark.parametrize("name", UNUSABLE)
async def test_a_question_with_an_unsafe_schema_is_not_asked(name: str) -> None:
    schema, reason = UNUSABLE[name]
    store = RecordingStore()
    with pytest.raises(SetupError, match=rf"^interrupt\(schema=…\) cannot be used: .*{reason}"):
        await runner_asking_for(schema, [], store).run("hi", run_id="r")
    assert not [event for event in await load_events(store, "r") if isinstance(event, InterruptRaised)]


@pytest.mark.parametrize("name", ["a web address", "a file", "a wrong type", "itself", "a lookahead"])
async def test_an_unsafe_schema_in_a_log_makes_an_answer_invalid(name: str) -> None:
    # Another version, or another program, may have written the log.
    answers: list[Any] = []
    runner = runner_asking_for({"type": "string"}, answers)
    waiting = await runner.run("hi")
    schema, reason = UNUSABLE[name]
    events = [
        replace(event, schema=schema) if isinstance(event, InterruptRaised) else event
        for event in await runner.runs.events(waiting.run_id)
    ]
    other = runner_asking_for({"type": "string"}, answers)
    run_id = await other.runs.load(events)
    with pytest.raises(AnswerError, match=f"cannot be checked: .*{reason}"):
        await other.resume(run_id, "aaa")
    assert answers == []


async def test_all_answers_are_validated_before_any_is_written() -> None:
    store = RecordingStore()

    @tool
    async def ask(ctx: RunContext, kind: str) -> str:
        """Ask."""
        return str(await ctx.interrupt(kind, schema=int if kind == "number" else str))

    calls = [call("ask", kind="number"), call("ask", kind="text")]
    runner = Runner(Agent("A", model=ScriptedModel([calls, "done"]), tools=[ask]), store=store)
    waiting = await runner.run("hi", run_id="r")
    number, text = [question.id for question in waiting.interrupts]
    with pytest.raises(AnswerError, match=text):
        await runner.resume("r", {number: 5, text: 6})
    assert not [event for event in await load_events(store, "r") if isinstance(event, InterruptAnswered)]
    assert (await runner.resume("r", {number: 5, text: "six"})).output == "done"


async def test_interrupt_ids_are_stable() -> None:
    # The activation and an ordinal.
    store = RecordingStore()

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        first = await ctx.interrupt("one")
        second = await ctx.interrupt("two")
        await ctx.say(f"{first} {second}")

    ids: list[str] = []
    result = await Runner(a, store=store).run("hi", run_id="r")
    for answer in ("x", "y"):
        for _ in range(2):
            result = await Runner(a, store=store).resume("r")
            ids += [question.id for question in result.interrupts]
        result = await Runner(a, store=store).resume("r", answer)
    assert ids == ["1/ask1", "1/ask1", "1/ask2", "1/ask2"]
    assert result.messages[-1].content == "x y"


async def test_values_passed_with_an_answer_apply_from_then_on() -> None:
    # Also on a replay, where values read before the answer are the old ones.
    store = RecordingStore()

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        read = [ctx.values["who"]]
        ctx.values.set("mine", "kept")
        for _ in range(2):
            await ctx.interrupt("next?")
            read.append(ctx.values["who"])
        await ctx.say(" ".join(read))

    runner = Runner(a, store=store)
    await runner.run("hi", run_id="r", values={"who": "ann"})
    await runner.resume("r", "x", values={"who": "bob"})
    await runner.runs.answer("r", "y", values={"who": "cleo"})
    assert (await runner.runs.drive("r")).status == "completed"
    result = await runner.runs.replay("r")
    assert result.output == "ann bob cleo"
    assert dict(result.values) == {"who": "cleo", "mine": "kept"}
    answered = [event.values for event in await load_events(store, "r") if isinstance(event, InterruptAnswered)]
    assert answered == [{"who": "bob"}, {"who": "cleo"}]


async def test_values_without_an_answer_are_refused() -> None:
    runner = runner_asking_for(None, [])
    waiting = await runner.run("hi")
    with pytest.raises(AnswerError, match="got `who` without one"):
        await runner.resume(waiting.run_id, values={"who": "bob"})


async def test_a_tool_sees_the_values_passed_with_its_answer() -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return f"{await ctx.interrupt('which?')} from {ctx.values['who']}"

    runner = Runner(Agent("A", model=ScriptedModel([call("ask"), "done"]), tools=[ask]))
    waiting = await runner.run("hi")
    result = await runner.resume(waiting.run_id, "red", values={"who": "bob"})
    assert [each.content for each in result.messages if isinstance(each, ToolMessage)] == ["red from bob"]


async def test_a_wrong_id_for_an_approval_names_the_open_one() -> None:
    @tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    runner = Runner(Agent("A", tools=[pay], model=ScriptedModel([call("pay"), "Done."])))
    stopped = await runner.run("hi")
    with pytest.raises(AnswerError, match=r"To answer by interrupt id, use the id of the open one: '1/m1.0/ask1'"):
        await runner.resume(stopped.run_id, {"foo": True})


@pytest.mark.parametrize("reason", ["half\ud800", "\udfff"])
@pytest.mark.parametrize("is_background", [False, True], ids=["resume", "answer"])
async def test_an_approval_that_cannot_be_stored_is_refused_and_the_question_stays_open(
    reason: str, is_background: bool
) -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    store = RecordingStore()
    model = ScriptedModel([call("pay", amount=5), "Done."])
    runner = Runner(Agent("A", model=model, tools=[pay]), store=store)
    await runner.run("pay", run_id="r")
    before = await get_record(store, "r")
    answer = runner.runs.answer if is_background else runner.resume
    with pytest.raises(NotEncodableError, match="which cannot be written to the log"):
        await answer("r", {"approved": False, "reason": reason})
    after = await get_record(store, "r")
    assert (after.status, after.seq, after.is_leased) == ("suspended", before.seq, False)
    assert (await runner.resume("r", True)).status == "completed"
