"""Code in a realtime session that goes on without the answer to its interrupt is not recorded as finished."""

import asyncio
from typing import Any

import pytest

from batonkit import Agent, RunContext, tool
from batonkit.errors import OpenInterruptError
from batonkit.log import AgentResponded, ControlTransferred, Event, StepCompleted, ToolReturned
from batonkit.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession, RealtimeSettings
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel, call

TEXT = RealtimeSettings(modality="text")


@tool
async def book(ctx: RunContext) -> str:
    """Book a seat, by mistake without the answer."""
    try:
        return await ctx.interrupt("which seat?")
    except BaseException:  # noqa: BLE001 - the mistake under test
        return "any seat"


@tool
async def book_in_step(ctx: RunContext) -> str:
    """Book a seat in a step, by mistake without the answer."""

    async def careless() -> str:
        try:
            return await asyncio.create_task(ctx.interrupt("which seat?"))
        except BaseException:  # noqa: BLE001 - the mistake under test
            return "any seat"

    await ctx.step("seat", careless)
    return await ctx.interrupt("and which meal?")


@tool
async def ask(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt("which seat?")


def recorded(session: RealtimeSession, *kinds: type[Event]) -> list[Event]:
    """Return the events of these kinds."""
    return [event for event in session.result.events if isinstance(event, kinds)]


def start(agent: RealtimeAgent, *steps: Any) -> tuple[RealtimeRunner, ScriptedRealtimeModel]:
    model = ScriptedRealtimeModel(steps)
    return RealtimeRunner(agent, model=model, settings=TEXT, store=MemoryStore()), model


@pytest.mark.parametrize("is_by_provider", [True, False])
@pytest.mark.parametrize("careless", [book, book_in_step], ids=lambda each: each.spec.name)
async def test_a_tool_that_goes_on_when_the_session_ends_has_no_result(
    careless: Any, is_by_provider: bool, caplog: pytest.LogCaptureFixture
) -> None:
    runner, model = start(RealtimeAgent("Desk", tools=[careless]), call(careless.spec.name))
    async with runner.connect() as session:
        await session.send_text("A seat, please")
        await session.wait_until_idle()
        (question,) = session.interrupts
        if is_by_provider:
            model.connections[-1].end()
            await session._stream.wait()
    assert recorded(session, ToolReturned, StepCompleted) == []
    # The question is still open, and its answer resumes the run.
    assert (session.result.status, [each.id for each in session.result.interrupts]) == ("suspended", [question.id])
    assert f"of `Desk` continued while its question `{question.id}` is open" in caplog.text


async def test_the_answer_is_used_when_the_careless_tool_is_resumed() -> None:
    runner, _ = start(RealtimeAgent("Desk", tools=[book]), call("book"), "Booked.")
    async with runner.connect() as session:
        await session.send_text("A seat, please")
        await session.wait_until_idle()
        (question,) = session.interrupts
    async with runner.resume(session.run_id, {question.id: "12A"}) as later:
        async for event in later:
            if isinstance(event, AgentResponded) and event.text == "Booked.":
                break
    (returned,) = [event for event in later.result.events if isinstance(event, ToolReturned)]
    assert (returned.content, later.result.status) == ("12A", "completed")


@pytest.mark.parametrize("is_by_provider", [True, False])
async def test_an_agent_as_a_tool_that_goes_on_has_no_result(is_by_provider: bool) -> None:
    inner = Agent("Writer", tools=[book], model=ScriptedModel([call("book"), "I booked it."]))
    runner, model = start(RealtimeAgent("Desk", tools=[inner.as_tool()]), call("writer", request="a seat"))
    async with runner.connect() as session:
        await session.send_text("A seat, please")
        await session.wait_until_idle()
        (question,) = session.interrupts
        if is_by_provider:
            model.connections[-1].end()
            await session._stream.wait()
    assert recorded(session, ToolReturned) == []
    assert (session.result.status, [each.id for each in session.result.interrupts]) == ("suspended", [question.id])


@pytest.mark.parametrize("is_by_provider", [True, False])
async def test_instructions_that_go_on_leave_the_question_open(is_by_provider: bool) -> None:
    asked = 0

    async def instructions(ctx: RunContext) -> str:
        nonlocal asked
        asked += 1
        if asked > 1:
            try:
                return await ctx.interrupt("which tone?")
            except BaseException:  # noqa: BLE001 - the mistake under test
                return "Be curt."
        return "Be kind."

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    desk = RealtimeAgent("Desk", instructions=instructions, tools=[look])
    runner, model = start(desk, call("look"), "I see it.")
    async with runner.connect() as session:
        await session.send_text("Look")
        while not session.interrupts:
            await asyncio.sleep(0)
        if is_by_provider:
            model.connections[-1].end()
            await session._stream.wait()
    assert session.result.status == "failed"
    assert isinstance(session.result.error, OpenInterruptError)
    assert "the configuration of `Desk` continued while its question" in str(session.result.error)


async def test_a_transfer_beside_a_suspended_tool_is_no_error() -> None:
    """The session is closed during a transfer, while a tool of the agent waits correctly for its answer."""
    is_asked, is_closing = asyncio.Event(), asyncio.Event()

    async def instructions(ctx: RunContext) -> str:
        is_asked.set()
        await is_closing.wait()
        return "Be kind."

    billing = RealtimeAgent("Billing", description="Bills.", instructions=instructions)
    runner, _ = start(RealtimeAgent("Desk", tools=[ask], handoffs=[billing]), call("ask"))
    async with runner.connect() as session:
        await session.send_text("A seat, please")
        await session.wait_until_idle()
        transfer = asyncio.create_task(session.handoff_to("Billing"))
        await is_asked.wait()
        closing = asyncio.create_task(session.close())
        run = session._controller.run
        assert run is not None
        while not run.suspended_by:
            await asyncio.sleep(0)
        is_closing.set()
        await asyncio.wait([transfer, closing])
    assert (session.result.status, session.result.error) == ("suspended", None)
    assert recorded(session, ControlTransferred)


async def test_a_timeout_of_a_tool_that_asks_is_a_result() -> None:
    """An answer that does not come while the session is open is for the tool to handle; the run is not suspended."""

    @tool
    async def book_soon(ctx: RunContext) -> str:
        """Book a seat, or any seat if there is no answer in time."""
        try:
            async with asyncio.timeout(0.01):
                return await ctx.interrupt("which seat?")
        except TimeoutError:
            return "any seat"

    runner, _ = start(RealtimeAgent("Desk", tools=[book_soon]), call("book_soon"), "Booked.")
    async with runner.connect() as session:
        await session.send_text("A seat, please")
        async for event in session:
            if isinstance(event, AgentResponded) and event.text == "Booked.":
                break
    (returned,) = [event for event in session.result.events if isinstance(event, ToolReturned)]
    assert (returned.content, session.result.status) == ("any seat", "completed")


async def test_a_tool_with_effect_once_that_asks_is_known_to_have_paused() -> None:
    """The question of the tool suspended it, so that a resume does not ask for an unknown outcome."""

    @tool(effect="once")
    async def pay(ctx: RunContext) -> str:
        """Pay."""
        return f"paid {await ctx.interrupt('how much?')}"

    runner, _ = start(RealtimeAgent("Desk", tools=[pay]), call("pay"), "Paid.")
    async with runner.connect() as session:
        await session.send_text("Pay")
        await session.wait_until_idle()
        (question,) = session.interrupts
    async with runner.resume(session.run_id, {question.id: "5"}) as later:
        async for event in later:
            if isinstance(event, AgentResponded) and event.text == "Paid.":
                break
        assert later.interrupts == ()
    (returned,) = [event for event in later.result.events if isinstance(event, ToolReturned)]
    assert returned.content == "paid 5"
