"""The run context: steps, interrupts, `once`, progress. Each effect is recorded and happens once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, AgentContext, RunContext, Runner, Transfer, agent, tool
from batonkit.errors import NotEncodableError, OpenInterruptError, SetupError
from batonkit.log import CustomDelta, Event, InterruptRaised, ProgressDelta, StepCompleted
from batonkit.testing import ScriptedModel, call, transcript


class Person(BaseModel):
    """Something that JSON does not bring back by itself."""

    name: str


@dataclass
class Point:
    """Something else."""

    x: int


# --- step


async def test_a_step_is_done_once_across_resume() -> None:
    done: list[str] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        async def fetch() -> str:
            done.append("fetch")
            return "Ada"

        def count() -> int:
            done.append("count")
            return len(done)

        name = await ctx.step("fetch", fetch)
        number = await ctx.step("count", count)
        answer = await ctx.interrupt("go on?")
        await ctx.say(f"{name} {number} {answer}")

    runner = Runner(a)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, "yes")
    assert result.output == "Ada 2 yes"
    assert done == ["fetch", "count"]
    assert transcript(result.events) == [
        'run of A started with "hi"',
        "A started",
        'A: step fetch -> "Ada"',
        "A: step count -> 2",
        'A: asked "go on?"',
        "run suspended with 1 open question",
        "run resumed",
        'A: got the answer "yes"',
        'A: said "Ada 2 yes"',
        "A finished",
        "run completed",
    ]


async def test_steps_of_one_name_are_told_apart_by_their_order() -> None:
    done: list[int] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        def next_number() -> int:
            done.append(1)
            return len(done)

        numbers = [await ctx.step("next", next_number) for _ in range(3)]
        await ctx.interrupt("?")
        ctx.output = numbers

    runner = Runner(a)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.output, len(done)) == ([1, 2, 3], 3)
    keys = [event.key for event in result.events if isinstance(event, StepCompleted)]
    assert keys == ["1/step:next", "1/step:next#2", "1/step:next#3"]


async def test_a_step_that_fails_is_not_recorded_and_is_tried_again() -> None:
    tries: list[int] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        def fragile() -> str:
            tries.append(1)
            if len(tries) == 1:
                raise OSError("disk full")
            return "at last"

        await ctx.say(await ctx.step("fragile", fragile))

    runner = Runner(a)
    live = runner.stream("hi")
    with pytest.raises(OSError, match="disk full"):
        await live._drive()
    assert not any(isinstance(event, StepCompleted) for event in live.result.events)
    assert (await runner.resume(live.run_id)).output == "at last"


async def test_as_type_brings_a_value_back_as_it_was() -> None:
    seen: list[Any] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        person = await ctx.step("person", lambda: Person(name="Ada"), result_type=Person)
        point = await ctx.step("point", lambda: Point(1), result_type=Point)
        points = await ctx.step("points", lambda: [Point(1), Point(2)], result_type=list[Point])
        seen.append((person, point, points))
        await ctx.interrupt("?")

    runner = Runner(a)
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, "yes")
    assert seen == [(Person(name="Ada"), Point(1), [Point(1), Point(2)])] * 2


async def test_a_value_that_cannot_be_brought_back_needs_as_type() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.step("person", lambda: Person(name="Ada"))

    with pytest.raises(NotEncodableError, match=r"the result of step `person` is a Person.*give result_type=…"):
        await Runner(a).run("hi")


async def test_a_type_that_cannot_be_validated_is_reported_before_anything_happens() -> None:
    counted: list[int] = []

    @agent("Stepping")
    async def stepping(ctx: AgentContext) -> None:
        await ctx.step("count", lambda: counted.append(1), result_type=3)

    @agent("Asking")
    async def asking(ctx: AgentContext) -> None:
        await ctx.interrupt("How many?", schema=3)

    with pytest.raises(SetupError, match=r"^step\(result_type=…\) takes a type that pydantic can validate, not 3: "):
        await Runner(stepping).run("hi")
    assert counted == []
    with pytest.raises(SetupError, match=r"^interrupt\(schema=…\) takes a type that pydantic can validate, not 3: "):
        await Runner(asking).run("hi")


async def test_a_first_run_sees_a_value_as_a_resumed_one_does() -> None:
    seen: list[Any] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        seen.append(await ctx.step("people", lambda: [Person(name="Ada")]))
        await ctx.interrupt("?")

    runner = Runner(a)
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, "yes")
    assert seen == [[{"name": "Ada"}]] * 2


async def test_a_step_in_a_tool_is_done_once_too() -> None:
    done: list[str] = []

    @tool
    async def book(ctx: RunContext) -> str:
        """Book."""
        number = await ctx.step("book", lambda: done.append("booked") or len(done))
        answer = await ctx.interrupt("confirm?")
        return f"{number} {answer}"

    runner = Runner(Agent("A", model=ScriptedModel([[call("book"), call("book")], "done"]), tools=[book]))
    suspended = await runner.run("hi")
    first, second = suspended.interrupts
    half = await runner.resume(suspended.run_id, {first.id: "yes"})
    assert [question.id for question in half.interrupts] == [second.id]
    result = await runner.resume(half.run_id, {second.id: "no"})
    assert [message.content for message in result.messages[2:4]] == ["1 yes", "2 no"]
    assert done == ["booked", "booked"]


async def test_values_written_before_a_step_are_recorded_with_it() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        ctx.values.set("before", 1)
        await ctx.step("x", lambda: None)
        ctx.values.set("after", 2)

    result = await Runner(a).run("hi")
    (stepped,) = [event for event in result.events if isinstance(event, StepCompleted)]
    assert stepped.value_changes is not None
    assert stepped.value_changes.written == {"before": 1}
    assert result.values == {"before": 1, "after": 2}


# --- interrupt


async def test_the_answer_to_a_question_may_be_anything_json_has() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        ctx.output = [await ctx.interrupt({"number": number}) for number in range(4)]

    runner = Runner(a)
    result = await runner.run("hi")
    for answer in (None, False, {"a": [1]}, "text"):
        (question,) = result.interrupts
        result = await runner.resume(result.run_id, {question.id: answer})
    assert result.output == [None, False, {"a": [1]}, "text"]
    assert [event.payload for event in result.events if isinstance(event, InterruptRaised)] == [
        {"number": n} for n in range(4)
    ]


async def test_code_before_a_question_runs_again_and_its_effects_do_not() -> None:
    runs: list[str] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        runs.append("code")
        await ctx.say("one moment")
        await ctx.interrupt("?")

    runner = Runner(a)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, "yes")
    assert runs == ["code", "code"]
    assert [line for line in transcript(result.events) if "said" in line] == ['A: said "one moment"']


async def test_a_question_is_not_swallowed_by_code_that_catches_errors() -> None:
    # A suspended run is not an error.
    @tool
    async def careful(ctx: RunContext) -> str:
        """Ask, carefully."""
        try:
            return str(await ctx.interrupt("?"))
        except Exception:  # noqa: BLE001 - as careless code does
            return "swallowed"

    runner = Runner(Agent("A", model=ScriptedModel([call("careful"), "done"]), tools=[careful]))
    suspended = await runner.run("hi")
    assert suspended.status == "suspended"
    assert (await runner.resume(suspended.run_id, "yes")).messages[2].content == "yes"


# --- progress


async def test_progress_and_messages_of_ones_own_are_told_and_not_recorded() -> None:
    @tool
    async def slow(ctx: RunContext) -> str:
        """Take long."""
        await ctx.progress("half", done=1, total=2)
        await ctx.emit("mood", {"good": True})
        return "ok"

    @agent("B")
    async def b(ctx: AgentContext) -> None:
        await ctx.progress("from an agent")

    model = ScriptedModel([[call("slow"), call("transfer_to_b")]])
    runner = Runner(Agent("A", model=model, tools=[slow], handoffs=[b]))
    async with runner.stream("hi") as live:
        told = [event async for event in live]
    halfway, from_agent = [event for event in told if isinstance(event, ProgressDelta)]
    assert (halfway.text, halfway.done, halfway.total, halfway.call_id) == ("half", 1, 2, "call_1")
    assert (from_agent.text, from_agent.call_id, from_agent.path) == ("from an agent", "", ("A", "B"))
    (mood,) = [event for event in told if isinstance(event, CustomDelta)]
    # The call it comes from was not among its fields.
    assert (mood.name, mood.data, mood.agent, mood.call_id) == ("mood", {"good": True}, "A", "call_1")
    assert tuple(event for event in told if isinstance(event, Event)) == live.result.events


async def test_without_a_listener_progress_goes_nowhere_and_costs_nothing() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        await ctx.progress("half")
        await ctx.emit("mood")
        ctx.output = ctx.run_id

    result = await Runner(a).run("hi", run_id="r1")
    assert result.output == "r1"
    assert [type(event).__name__ for event in result.events] == [
        "RunStarted",
        "AgentStarted",
        "AgentResponded",
        "AgentFinished",
        "RunCompleted",
    ]


async def test_the_users_own_object_is_passed_through_and_never_recorded() -> None:
    class Mine:
        """Not JSON in any way."""

    mine, seen = Mine(), list[Any]()

    @agent("A", handoffs=["B"])
    async def a(ctx: AgentContext) -> Transfer:
        seen.append(ctx.context)
        return Transfer("B")

    @tool
    async def look(ctx: RunContext) -> str:
        """Look."""
        seen.append(ctx.context)
        return str(await ctx.interrupt("?"))

    b = Agent("B", model=ScriptedModel([call("look"), "done"]), tools=[look])
    runner = Runner(a, extra_agents=[b])
    suspended = await runner.run("hi", context=mine)
    await runner.resume(suspended.run_id, "yes")
    assert seen == [mine] * 4
    other = Mine()
    suspended = await Runner(a, extra_agents=[b.clone(model=ScriptedModel([call("look"), "done"]))]).run(
        "hi", context=other
    )
    assert seen[-1] is other


# --- code that goes on without the answer


async def test_a_step_that_swallows_its_suspension_is_an_error_and_not_recorded() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        async def careless() -> str:
            try:
                return await ctx.interrupt("sure?")
            except BaseException:  # noqa: BLE001 - the mistake under test
                return "assumed"

        await ctx.say(await ctx.step("check", careless))

    runner = Runner(a)
    live = runner.stream("hi")
    with pytest.raises(OpenInterruptError, match="step `check` of `A` continued while its question `1/ask1` is open"):
        await live._drive()
    assert live.result.status == "failed"
    assert not any(isinstance(event, StepCompleted) for event in live.result.events)
    # The question is still open, and its answer resumes the run.
    assert (await runner.resume(live.run_id, "certain")).output == "certain"


async def test_a_step_may_end_while_a_question_beside_it_is_open() -> None:
    # Only the code that asked is to blame.
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        has_asked = asyncio.Event()

        async def ask() -> str:
            has_asked.set()
            return await ctx.interrupt("sure?")

        answer, _ = await asyncio.gather(ask(), ctx.step("wait", has_asked.wait))
        await ctx.say(answer)

    runner = Runner(a)
    suspended = await runner.run("hi")
    assert suspended.status == "suspended"
    assert (await runner.resume(suspended.run_id, "yes")).output == "yes"


Start = Callable[[Coroutine[Any, Any, str]], Awaitable[str]]


def in_thread(work: Coroutine[Any, Any, str]) -> Awaitable[str]:
    loop = asyncio.get_running_loop()
    return asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(work, loop).result())


async def in_task_group(work: Coroutine[Any, Any, str]) -> str:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
    return task.result()


STARTS: list[Start] = [asyncio.create_task, in_task_group, in_thread, lambda work: asyncio.wait_for(work, 60)]


@pytest.mark.parametrize("start", STARTS)
async def test_a_step_whose_task_swallows_the_suspension_is_an_error_and_not_recorded(start: Start) -> None:
    # The step was recorded, and the error came only at the end of the agent; the answer had no effect then.
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        async def ask() -> str:
            try:
                return await ctx.interrupt("sure?")
            except BaseException:  # noqa: BLE001 - the mistake under test
                return "assumed"

        async def careless() -> str:
            return await start(ask())

        await ctx.say(await ctx.step("check", careless))

    runner = Runner(a)
    live = runner.stream("hi")
    with pytest.raises(OpenInterruptError, match="step `check` of `A` continued while its question `1/ask1` is open"):
        await live._drive()
    assert not any(isinstance(event, StepCompleted) for event in live.result.events)
    assert (await runner.resume(live.run_id, "certain")).output == "certain"


async def test_a_step_around_a_step_is_an_error_too() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        async def ask() -> str:
            return await asyncio.create_task(ctx.interrupt("sure?"))

        async def careless() -> str:
            (answer,) = await asyncio.gather(ctx.step("inner", ask), return_exceptions=True)
            return str(answer)

        await ctx.say(await ctx.step("outer", careless))

    runner = Runner(a)
    live = runner.stream("hi")
    with pytest.raises(OpenInterruptError, match="step `outer` of `A` continued"):
        await live._drive()
    assert (await runner.resume(live.run_id, "certain")).output == "certain"


async def test_a_question_asked_by_an_older_task_is_found_at_the_end_of_the_agent() -> None:
    # Nothing connects such a task with the step.
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        may_ask = asyncio.Event()

        async def ask() -> str:
            await may_ask.wait()
            try:
                return await ctx.interrupt("sure?")
            except BaseException:  # noqa: BLE001 - the mistake under test
                return "assumed"

        asking = asyncio.create_task(ask())

        async def careless() -> str:
            may_ask.set()
            return await asking

        await ctx.say(await ctx.step("check", careless))

    live = Runner(a).stream("hi")
    with pytest.raises(OpenInterruptError, match="`A` continued while its question `1/ask1` is open"):
        await live._drive()
    assert live.result.status == "failed"
