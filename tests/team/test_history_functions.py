"""History functions: sync and async, with and without a context, on agents, handoffs, runners and tools."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from batonkit import Agent, BatonError, RunContext, Runner, SetupError, handoff, tool
from batonkit.agents import AgentContext
from batonkit.agents.middleware import Middleware, NextActivation
from batonkit.errors import ToolFailedError
from batonkit.handoffs import HandoffInputData
from batonkit.log import AgentStarted, HistoryEntry, StepCompleted
from batonkit.messages import Message, UserMessage, text_of
from batonkit.testing import ScriptedModel, assert_survives_crashes, call, say

Entries = Sequence[HistoryEntry]


def plain(entries: Entries) -> Sequence[Message]:
    return [UserMessage(f"{len(entries)} entries")]


async def awaited(entries: Entries) -> Sequence[Message]:
    return [UserMessage(f"{len(entries)} entries")]


def with_context(ctx: RunContext[Any], entries: Entries) -> Sequence[Message]:
    return [UserMessage(f"{len(entries)} entries for {ctx.agent}, {ctx.values['user']}, {ctx.context}")]


async def awaited_with_context(ctx: RunContext[Any], entries: Entries) -> Sequence[Message]:
    return with_context(ctx, entries)


class Selection:
    """An object that can be called."""

    async def __call__(self, ctx: RunContext[Any], entries: Entries) -> list[dict[str, str]]:
        return [{"role": "user", "content": f"{len(entries)} entries for {ctx.agent}"}]


def to_agent(history: Any, model: ScriptedModel) -> Runner[Any, Any]:
    return Runner(Agent("A", handoffs=[Agent("B", history=history)]), model=model)


def to_handoff(history: Any, model: ScriptedModel) -> Runner[Any, Any]:
    return Runner(Agent("A", handoffs=[handoff(Agent("B", history="none"), history=history)]), model=model)


def to_runner(history: Any, model: ScriptedModel) -> Runner[Any, Any]:
    return Runner(Agent("A", history="verbatim", handoffs=[Agent("B")]), model=model, history=history)


def to_tool(history: Any, model: ScriptedModel) -> Runner[Any, Any]:
    return Runner(Agent("A", tools=[Agent("B").as_tool("transfer_to_b", history=history)]), model=model)


def nothing() -> Sequence[Message]:
    return []


def too_much(a: Any, b: Any, c: Any) -> Sequence[Message]:
    return []


OWNERS = pytest.mark.parametrize("make", [to_agent, to_handoff, to_runner, to_tool])


@OWNERS
@pytest.mark.parametrize(
    ("function", "read"),
    [
        (plain, "3 entries"),
        (awaited, "3 entries"),
        (with_context, "3 entries for B, Ann, me"),
        (awaited_with_context, "3 entries for B, Ann, me"),
        (Selection(), "3 entries for B"),
    ],
)
async def test_every_owner_accepts_every_form(make: Callable[..., Runner[Any, Any]], function: Any, read: str) -> None:
    is_tool = make is to_tool
    steps = [call("transfer_to_b", request="go on"), "done"] if is_tool else [call("transfer_to_b")]
    model = ScriptedModel({"A": steps, "B": ["hi"]})
    runner = make(function, model)
    result = await runner.run("hello", values={"user": "Ann"}, context="me")
    seen = next(request for request in model.requests if request.agent == "B").messages
    # A tool reads the history before its call, and the request.
    assert [text_of(message.content) for message in seen] == [read.replace("3", "2") if is_tool else read]
    assert result.status == "completed"
    await runner.runs.replay(result.events, context="me")


@OWNERS
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (nothing, r"the history function `nothing` is called with \(entries\) or \(ctx, entries\), but it takes \(\)"),
        (too_much, r"`too_much` is called with .*, but it takes \(a: Any, b: Any, c: Any\)"),
    ],
)
def test_a_function_with_other_arguments_is_refused_at_construction(make: Any, function: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        make(function, ScriptedModel([]))


async def test_an_optional_second_argument_is_no_context() -> None:
    def last(entries: Entries, count: int = 1) -> Sequence[Message]:
        return [entry.message for entry in entries[-count:]]

    model = ScriptedModel(["hi"])
    await Runner(Agent("A", history=last, model=model)).run([UserMessage("a"), UserMessage("b")])
    assert list(model.requests[0].messages) == [UserMessage("b")]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("text", "the history function `select` of `A` must return a list of messages, not 'text'"),
        (
            [{"role": "usr"}],
            r"result of history function `select` of `A`: messages\[0\] is not a message: .*role is 'usr'",
        ),
    ],
)
async def test_an_async_function_must_return_messages(returned: Any, message: str) -> None:
    async def select(entries: Entries) -> Any:
        return returned

    with pytest.raises(SetupError, match=message):
        await Runner(Agent("A", history=select, model=ScriptedModel([]))).run("hi")


def desk(history: Any, store: Any) -> Runner[Any, Any]:
    """Create a team whose second agent reads what its history function selects, and then asks."""

    async def ask(ctx: RunContext[Any]) -> str:
        """Ask a person."""
        return str(await ctx.interrupt("?"))

    model = ScriptedModel({"A": [say("Off to B.", call("transfer_to_b"))], "B": [call("ask"), _last_seen]})
    return Runner(Agent("A", handoffs=[Agent("B", tools=[ask], history=history)]), model=model, store=store)


def _last_seen(request: Any) -> str:
    return f"read {text_of(request.messages[0].content)}"


async def test_a_step_of_a_history_function_is_executed_once() -> None:
    summaries: list[int] = []

    async def summary(ctx: RunContext[Any], entries: Entries) -> Sequence[Message]:
        def write() -> str:
            summaries.append(len(entries))
            return f"summary {len(summaries)}"

        return [UserMessage(await ctx.step("summary", write))]

    runner = desk(summary, None)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.output, summaries) == ("read summary 1", [3])
    steps = [event for event in result.events if isinstance(event, StepCompleted)]
    assert [(step.name, step.key) for step in steps] == [("summary", "2/history/step:summary")]
    await runner.runs.replay(result.events)
    assert summaries == [3]


async def test_history_functions_survive_crashes() -> None:
    async def select(ctx: RunContext[Any], entries: Entries) -> Sequence[Message]:
        count = await ctx.step("count", lambda: len(entries))
        ctx.values.set("count", count)
        return [UserMessage(f"{count} entries")]

    report = await assert_survives_crashes(lambda store: desk(select, store), "hi", answers="yes")
    assert report.crashes > 5


async def test_a_history_function_can_ask() -> None:
    async def select(ctx: RunContext[Any], entries: Entries) -> Sequence[Message]:
        if await ctx.interrupt("May B read everything?"):
            return [entry.message for entry in entries]
        return [UserMessage("nothing")]

    runner = desk(select, None)
    suspended = await runner.run("hi")
    assert [interrupt.payload for interrupt in suspended.interrupts] == ["May B read everything?"]
    suspended = await runner.resume(suspended.run_id, False)
    result = await runner.resume(suspended.run_id, "yes")
    assert result.output == "read nothing"
    await assert_survives_crashes(lambda store: desk(select, store), "hi", answers=False)


async def test_an_error_of_a_history_function_ends_the_run() -> None:
    async def select(entries: Entries) -> Sequence[Message]:
        raise BatonError("no summary")

    with pytest.raises(BatonError, match="no summary"):
        await Runner(Agent("A", history=select, model=ScriptedModel(["hi"]))).run("go")


class TryTwice(Middleware[Any]):
    """Runs the agent once more after an error."""

    async def activation(self, ctx: AgentContext[Any], next: NextActivation) -> Any:
        try:
            return await next()
        except ToolFailedError:
            return await next()


@pytest.mark.parametrize("history", [plain, awaited, "lineage", "none"])
async def test_a_further_attempt_reads_the_same_messages(history: Any) -> None:
    calls: list[int] = []

    def fails_once() -> str:
        """Fail once."""
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no")
        return "well"

    model = ScriptedModel([say("First.", call("fails_once")), say("Second.", call("fails_once")), "done"])
    worker = Agent("A", tools=[tool(fails_once, on_error="raise")], history=history, middleware=[TryTwice()])
    assert (await Runner(worker, model=model).run("go")).output == "done"
    first, second, third = [list(request.messages) for request in model.requests]
    assert second == first
    assert third[: len(first)] == first
    assert "First." not in str(third)


def _ask_then_answer() -> ScriptedModel:
    return ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask"), "done"]})


@tool
async def ask(ctx: RunContext[Any]) -> str:
    """Ask."""
    return str(await ctx.interrupt("which?"))


async def test_a_function_chooses_once_also_if_the_run_is_resumed() -> None:
    called: list[int] = []

    def choose(ctx: RunContext[Any], entries: Entries) -> Sequence[Message]:
        called.append(len(entries))
        ctx.values.set("chosen", len(called))
        return [entries[0].message, UserMessage(f"choice {len(called)}")]

    model = _ask_then_answer()
    runner = Runner(Agent("A", handoffs=[Agent("B", tools=[ask], history=choose)]), model=model, store="memory:")
    result = await runner.run("hi")
    result = await runner.resume(result.run_id, "this")
    assert (result.output, called, result.values["chosen"]) == ("done", [3], 1)
    assert [text_of(message.content) for message in model.requests[-1].messages[:2]] == ["hi", "choice 1"]


async def test_a_filter_chooses_once_also_if_the_run_is_resumed() -> None:
    called: list[int] = []

    def choose(data: HandoffInputData) -> HandoffInputData:
        called.append(len(data.new_items))
        return data.clone(new_items=(*data.new_items, UserMessage(f"choice {len(called)}")))

    model = _ask_then_answer()
    team = Agent("A", handoffs=[handoff(Agent("B", tools=[ask]), input_filter=choose)])
    runner = Runner(team, model=model, store="memory:")
    result = await runner.run("hi")
    before = list(model.requests[-1].messages)
    result = await runner.resume(result.run_id, "this")
    assert (result.output, len(called)) == ("done", 1)
    assert list(model.requests[-1].messages[: len(before)]) == before


async def test_chosen_messages_of_the_history_are_recorded_by_position() -> None:
    long = "x" * 10_000
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": ["done"]})
    team = Agent("A", handoffs=[Agent("B", history=lambda entries: [entry.message for entry in entries[:1]])])
    result = await Runner(team, model=model).run(long)
    started = [event for event in result.events if isinstance(event, AgentStarted)]
    assert [event.reads for event in started] == [(), ((0, 1, "same"),)]
