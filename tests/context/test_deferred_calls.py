"""A call of the context without `await`: it is refused as a value, and nothing ends with one left behind."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from batonkit import Agent, AgentContext, AgentHooks, BaseAgent, Middleware, RunContext, Runner, agent, guardrail, tool
from batonkit.errors import ToolFailedError
from batonkit.log import InterruptRaised, StepCompleted, ToolReturned
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call

Use = Callable[[Any], object]


@pytest.fixture(autouse=True)
def no_warnings(recwarn: pytest.WarningsRecorder) -> Any:
    """Forgotten calls are reported by errors, not by the garbage collector."""
    warnings.simplefilter("always")
    yield
    assert not [str(warning.message) for warning in recwarn if "never awaited" in str(warning.message)]


def desk(*tools: Any) -> Agent:
    """An agent that calls its first tool once."""
    return Agent("Desk", model=ScriptedModel([call(tools[0].name), "done"]), tools=tools)


USES: dict[str, Use] = {
    "bool": lambda ctx: bool(ctx.interrupt("pay 9000?")),
    "not": lambda ctx: not ctx.interrupt("pay 9000?"),
    "equal": lambda ctx: ctx.interrupt("pay 9000?") == "yes",
    "not equal": lambda ctx: ctx.interrupt("pay 9000?") != "no",
    "less": lambda ctx: ctx.interrupt("pay 9000?") < 3,
    "greater": lambda ctx: ctx.interrupt("pay 9000?") >= 3,
    "text": lambda ctx: str(ctx.interrupt("pay 9000?")),
    "format": lambda ctx: f"{ctx.interrupt('pay 9000?')}",
    "number": lambda ctx: int(ctx.interrupt("pay 9000?")),
    "float": lambda ctx: float(ctx.interrupt("pay 9000?")),
    "iteration": lambda ctx: list(ctx.interrupt("pay 9000?")),
    "in": lambda ctx: "yes" in ctx.interrupt("pay 9000?"),
    "length": lambda ctx: len(ctx.interrupt("pay 9000?")),
    "item": lambda ctx: ctx.interrupt("pay 9000?")["ok"],
    "sum": lambda ctx: 1 + ctx.interrupt("pay 9000?"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_question_without_await_cannot_be_used_as_an_answer(use: Use, in_thread: bool) -> None:
    paid: list[int] = []

    @tool(in_thread=in_thread)
    def pay(ctx: RunContext) -> str:
        """Pay."""
        if use(ctx):
            return "not paid"
        paid.append(9000)
        return "paid"

    with pytest.raises(ToolFailedError, match=r"tool `pay` of `Desk` used `ctx\.interrupt\('pay 9000\?'\)` without"):
        await Runner(desk(pay)).run("pay")
    assert not paid


async def test_an_exception_that_a_tool_swallows_does_not_hide_the_question() -> None:
    @tool
    async def pay(ctx: RunContext) -> str:
        """Pay."""
        try:
            if ctx.interrupt("pay?"):  # pyright: ignore[reportUnnecessaryComparison]
                return "paid"
        except Exception:  # noqa: BLE001 - what this is about
            return "paid anyway"
        return "not paid"

    with pytest.raises(ToolFailedError, match=r"tool `pay` of `Desk` has ended and left `ctx\.interrupt"):
        await Runner(desk(pay)).run("pay")


FORGOTTEN: dict[str, Use] = {
    "ctx.interrupt('sure?')": lambda ctx: ctx.interrupt("sure?"),
    "ctx.step('charge')": lambda ctx: ctx.step("charge", lambda: 1),
    "ctx.sleep(…)": lambda ctx: ctx.sleep(None),
}


@pytest.mark.parametrize("name", FORGOTTEN)
@pytest.mark.parametrize("effect", ["idempotent", "once"])
@pytest.mark.parametrize("stored", [False, True])
async def test_a_tool_that_leaves_a_call_unawaited_fails_and_names_it(name: str, effect: Any, stored: bool) -> None:
    @tool(effect=effect)
    async def pay(ctx: RunContext) -> str:
        """Pay."""
        FORGOTTEN[name](ctx)
        return "paid"

    runner = Runner(desk(pay), store=MemoryStore() if stored else None)
    with pytest.raises(ToolFailedError) as caught:
        await runner.run("pay", run_id="r")
    assert f"left `{name}` without `await`" in str(caught.value)
    assert caught.value.tool == "pay"
    log = await runner.runs.events("r")
    assert not [event for event in log if isinstance(event, ToolReturned)]


async def test_a_tool_in_a_thread_that_leaves_a_call_unawaited_fails() -> None:
    @tool
    def pay(ctx: RunContext) -> str:
        """Pay."""
        ctx.step("charge", lambda: 1)  # pyright: ignore[reportUnusedCoroutine]
        return "paid"

    with pytest.raises(ToolFailedError, match=r"ctx\.step\('charge'\)"):
        await Runner(desk(pay)).run("pay")


async def test_a_tool_in_a_thread_may_return_the_call() -> None:
    @tool
    def pay(ctx: RunContext) -> Awaitable[int]:
        """Pay."""
        return ctx.step("charge", lambda: 7)

    result = await Runner(desk(pay)).run("pay")
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["7"]


@pytest.mark.parametrize("name", ["say", "step", "interrupt", "run_agent"])
async def test_an_agent_that_leaves_a_call_unawaited_fails(name: str) -> None:
    inner = Agent("Inner", model=ScriptedModel(["hello"]))

    class Outer(BaseAgent):
        def inner_agents(self) -> tuple[BaseAgent, ...]:
            return (inner,)

        async def run(self, ctx: AgentContext) -> None:
            calls: dict[str, Use] = {
                "say": lambda _: ctx.say("hi"),
                "step": lambda _: ctx.step("a", int),
                "interrupt": lambda _: ctx.interrupt(),
                "run_agent": lambda _: ctx.run_agent(inner, "0"),
            }
            calls[name](ctx)

    with pytest.raises(ToolFailedError, match=rf"`Outer` has ended and left `ctx\.{name}\(.*\)` without `await`"):
        await Runner(Outer("Outer")).run("hi")


async def test_a_step_is_not_recorded_whose_function_leaves_a_call_unawaited() -> None:
    @tool
    async def pay(ctx: RunContext) -> str:
        """Pay."""

        async def charge() -> str:
            ctx.interrupt("sure?")  # pyright: ignore[reportUnusedCoroutine]
            return "charged"

        return await ctx.step("charge", charge)

    runner = Runner(desk(pay), store=MemoryStore())
    with pytest.raises(ToolFailedError, match=r"step `charge` of `Desk` has ended and left `ctx\.interrupt"):
        await runner.run("pay", run_id="r")
    assert not [event for event in await runner.runs.events("r") if isinstance(event, StepCompleted)]


async def test_a_guardrail_and_a_hook_that_leave_a_call_unawaited_fail() -> None:
    @guardrail
    async def check(ctx: RunContext, text: Any) -> bool:
        ctx.interrupt("fine?")  # pyright: ignore[reportUnusedCoroutine]
        return True

    class Watch(AgentHooks):
        async def on_start(self, ctx: Any, agent: Any) -> None:
            ctx.interrupt("fine?")

    model = ScriptedModel(["hello"])
    for guarded in (Agent("A", model=model, input_guardrails=[check]), Agent("A", model=model, hooks=Watch())):
        with pytest.raises(ToolFailedError, match=r"ctx\.interrupt\('fine\?'\)` without `await`"):
            await Runner(guarded).run("hi")


class _ForgetfulAroundTools(Middleware):
    async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
        ctx.interrupt("fine?")
        return await next(call)


class _ForgetfulAroundAgents(Middleware):
    async def activation(self, ctx: Any, next: Any) -> Any:
        ctx.step("fine?", int)
        return await next()


@pytest.mark.parametrize("forgetful", [_ForgetfulAroundTools(), _ForgetfulAroundAgents()])
async def test_middleware_that_leaves_a_call_unawaited_fails(forgetful: Middleware) -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    guarded = desk(pay).clone(middleware=[forgetful])
    with pytest.raises(ToolFailedError, match=r"middleware `_Forgetful.*` has ended and left `ctx\..*\('fine\?'\)`"):
        await Runner(guarded).run("hi")


async def test_a_call_that_waits_beside_a_step_is_not_part_of_it() -> None:
    @agent("A")
    async def a(ctx: AgentContext) -> None:
        later = ctx.step("later", lambda: 2)
        first, second = await asyncio.gather(ctx.step("first", lambda: 1), ctx.step("second", lambda: 3))
        await ctx.say(f"{first} {await later} {second}")

    assert (await Runner(a).run("hi")).output == "1 2 3"


Pending = Coroutine[Any, Any, Any]
Wait = Callable[[RunContext, Pending], Awaitable[Any]]


async def _in_group(_: RunContext, pending: Pending) -> Any:
    async with asyncio.TaskGroup() as group:
        task: asyncio.Task[Any] = group.create_task(pending)
    return task.result()


async def _gather(_: RunContext, pending: Pending) -> Any:
    results = await asyncio.gather(pending)
    return results[0]


async def _first_of(_: RunContext, pending: Pending) -> Any:
    (first,) = asyncio.as_completed([pending])
    return await first


async def _wait_for(_: RunContext, pending: Pending) -> Any:
    return await asyncio.wait_for(pending, None)


async def _in_task(_: RunContext, pending: Pending) -> Any:
    return await asyncio.create_task(pending)


async def _from_thread(_: RunContext, pending: Pending) -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(pending, loop).result())


WAYS: list[Wait] = [_in_group, _gather, _first_of, _wait_for, _in_task, _from_thread]


@pytest.mark.parametrize("wait", WAYS, ids=lambda wait: wait.__name__)
async def test_asyncio_takes_the_calls(wait: Wait) -> None:
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        length = await wait(ctx, ctx.step("measure", lambda: 3))
        answer = await wait(ctx, ctx.interrupt({"length": length}))
        return f"{length} {answer}"

    runner = Runner(desk(ask))
    suspended = await runner.run("go")
    assert [question.payload for question in suspended.interrupts] == [{"length": 3}]
    result = await runner.resume(suspended.run_id, "yes")
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["3 yes"]


async def test_a_call_is_awaited_once() -> None:
    done: list[int] = []

    @tool
    async def count(ctx: RunContext) -> str:
        """Count."""
        pending = ctx.step("count", lambda: done.append(1))
        await pending
        with pytest.raises(RuntimeError, match=r"cannot reuse already awaited ctx\.step"):
            await pending
        return "counted"

    assert (await Runner(desk(count)).run("go")).output == "done"
    assert done == [1]


async def test_a_call_that_is_closed_is_not_missed() -> None:
    @tool
    async def maybe(ctx: RunContext) -> str:
        """Ask perhaps."""
        ctx.interrupt("really?").close()
        return "no need"

    result = await Runner(desk(maybe)).run("go")
    assert result.output == "done"
    assert not [event for event in result.events if isinstance(event, InterruptRaised)]


async def test_a_debugger_may_show_a_call() -> None:
    shown: list[str] = []

    @tool
    async def look(ctx: RunContext) -> str:
        """Look."""
        pending = ctx.step("measure", lambda: 3)
        shown.append(repr(pending))
        return str(await pending)

    await Runner(desk(look)).run("go")
    assert shown == ["ctx.step('measure')"]


async def test_a_question_of_one_call_does_not_concern_the_calls_beside_it() -> None:
    ready = asyncio.Event()

    @tool
    async def slow(ctx: RunContext) -> str:
        """Prepare a step, and take it when the other tool has ended."""
        pending = ctx.step("late", lambda: 1)
        await ready.wait()
        return str(await pending)

    @tool
    async def quick() -> str:
        """End at once."""
        asyncio.get_running_loop().call_soon(ready.set)
        return "quick"

    model = ScriptedModel([[call("slow"), call("quick")], "done"])
    assert (await Runner(Agent("Desk", model=model, tools=[slow, quick])).run("go")).output == "done"
