"""Messages and dismissals that come with a resumption, and runs that are cancelled after a response."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unfinished import recover
from tests.waiting import forever

from batonkit import Agent, AgentContext, BaseAgent, Runner, handoff, then_transfer, tool
from batonkit.context import RunContext
from batonkit.errors import AnswerError
from batonkit.log import (
    AgentResponded,
    ControlTransferred,
    Event,
    RunCancelled,
    ToolReturned,
    UserMessageAdded,
    keys,
)
from batonkit.messages import Message, ToolMessage, UserMessage, text_of
from batonkit.models import Chunk
from batonkit.runs import Dismiss
from batonkit.runs.answers import CANCELLED_CALL
from batonkit.stores import MemoryStore, Store
from batonkit.testing import ScriptedModel, call


class Orders:
    """Tools that count what they do."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @tool(needs_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.done.append(f"pay {amount}")
            return "paid"

        @tool
        def look() -> str:
            """Look."""
            self.done.append("look")
            return "seen"

        @tool
        async def ask(ctx: RunContext[Any]) -> str:
            """Ask."""
            return f"told {await ctx.interrupt('why?')}"

        @tool(return_directly=True)
        async def final(ctx: RunContext[Any]) -> str:
            """Ask for the answer."""
            return str(await ctx.interrupt("what?"))

        self.tools = [pay, look, ask, final]


def make(steps: Any, store: Store | None = None, **options: Any) -> tuple[Runner[Any, Any], ScriptedModel, Orders]:
    orders, model = Orders(), ScriptedModel(steps)
    return Runner(Agent("Desk", model=model, tools=orders.tools, **options), store=store), model, orders


def shown(messages: Any) -> list[str]:
    return [f"{type(message).__name__[:4]} {text_of(message.content)}" for message in messages]


@pytest.fixture(params=[None, MemoryStore])
def store(request: pytest.FixtureRequest) -> Store | None:
    return request.param() if request.param is not None else None


async def test_a_message_follows_the_results_of_pending_calls(store: Store | None) -> None:
    runner, model, orders = make([[call("ask"), call("look")], "Done."], store)
    first = await runner.run("one")
    result = await runner.resume(first.run_id, "because", message="And hurry.")
    assert result.output == "Done."
    assert shown(model.requests[-1].messages) == [
        *("User one", "Assi ", "Tool told because", "Tool seen", "User And hurry.")
    ]
    added = [event for event in result.events if isinstance(event, UserMessageAdded)]
    assert [(event.key, event.text) for event in added] == [("1/m2/user1", "And hurry.")]
    assert orders.done == ["look"]
    assert (await runner.runs.replay(result.events)).output == "Done."


async def test_a_message_waits_for_all_answers(store: Store | None) -> None:
    # The first resumption answers only one of two questions.
    runner, model, _ = make([[call("ask"), call("pay", amount=1)], "Done."], store)
    first = await runner.run("one")
    id_of = {interrupt.tool_call.name: interrupt.id for interrupt in first.interrupts if interrupt.tool_call}
    second = await runner.resume(first.run_id, {id_of["ask"]: "x"}, message="First.")
    assert second.status == "suspended"
    result = await runner.resume(first.run_id, {id_of["pay"]: True}, message=UserMessage("Second."))
    assert result.output == "Done."
    assert shown(model.requests[-1].messages)[-2:] == ["User First.", "User Second."]


async def test_a_message_resumes_a_failed_run(store: Store | None) -> None:
    runner, model, _ = make([ValueError("down"), "Done."], store)
    with pytest.raises(Exception, match="down"):
        await runner.run("one", run_id="r")
    assert (await runner.resume("r", message="Try again.")).output == "Done."
    assert shown(model.requests[-1].messages) == ["User one", "User Try again."]


async def test_a_stored_answer_takes_a_message_along() -> None:
    runner, model, _ = make([[call("ask")], "Done."], MemoryStore())
    first = await runner.run("one")
    await runner.runs.answer(first.run_id, "x", message="And hurry.")
    assert (await runner.runs.drive(first.run_id)).status == "completed"
    assert shown(model.requests[-1].messages)[-1] == "User And hurry."


async def test_a_message_that_no_agent_read_becomes_the_next_run() -> None:
    # The tool's result was the answer, so that no model call followed.
    runner, model, _ = make([[call("final")], "Later."], MemoryStore())
    first = await runner.run("one", thread="t")
    result = await runner.resume(first.run_id, "it", message="And then?")
    assert result.output == "it"
    assert list((await recover(runner)).values()) == ["completed"]
    assert shown(model.requests[-1].messages)[-1] == "User And then?"
    assert [run.status for run in await runner.thread("t").runs()] == ["completed", "completed"]


async def test_dismissed_calls_get_the_reason_as_their_result(store: Store | None) -> None:
    runner, model, orders = make([[call("ask"), call("pay", amount=1), call("look")], "Done."], store)
    first = await runner.run("one")
    assert len(first.interrupts) == 2
    result = await runner.resume(first.run_id, Dismiss("Never mind."), message="Do that instead.")
    assert (result.output, orders.done, result.interrupts) == ("Done.", ["look"], ())
    assert shown(model.requests[-1].messages)[2:] == [
        *("Tool Never mind.", "Tool Never mind.", "Tool seen", "User Do that instead.")
    ]
    assert (await runner.runs.replay(result.events)).output == "Done."


async def test_one_of_several_questions_can_be_dismissed(store: Store | None) -> None:
    runner, _, orders = make([[call("ask"), call("pay", amount=1)], "Done."], store)
    first = await runner.run("one")
    ask, pay = [interrupt.id for interrupt in first.interrupts]
    with pytest.raises(AnswerError, match="no open interrupt has the id `1/m9"):
        await runner.resume(first.run_id, {"1/m9.0/ask1": Dismiss()})
    second = await runner.resume(first.run_id, {ask: Dismiss("No.")})
    assert (second.status, [one.id for one in second.interrupts]) == ("suspended", [pay])
    result = await runner.resume(first.run_id, True)
    assert (result.output, orders.done) == ("Done.", ["pay 1"])
    results = [event.content for event in result.events if isinstance(event, ToolReturned)]
    assert sorted(map(str, results)) == ["No.", "paid"]


async def test_a_handoff_that_waits_for_approval_can_be_dismissed(store: Store | None) -> None:
    billing = Agent("Billing", model=ScriptedModel(["Hello."]))
    steps = [[call("transfer_to_billing")], "Stayed."]
    desk = Agent("Desk", model=ScriptedModel(steps), handoffs=[handoff(billing, needs_approval=True)])
    runner: Runner[Any, Any] = Runner(desk, store=store)
    first = await runner.run("one")
    result = await runner.resume(first.run_id, Dismiss("Stay here."))
    assert (result.output, result.agent) == ("Stayed.", "Desk")
    assert not [event for event in result.events if isinstance(event, ControlTransferred)]


async def test_a_question_inside_a_nested_agent_is_dismissed_there(store: Store | None) -> None:
    orders = Orders()
    inner = Agent("Helper", model=ScriptedModel([[call("ask")], "Without it."]), tools=orders.tools)
    outer_model = ScriptedModel([[call("helper", request="x")], "Done."])
    outer = Agent("Desk", model=outer_model, tools=[inner.as_tool()])
    runner: Runner[Any, Any] = Runner(outer, store=store)
    first = await runner.run("one")
    assert first.status == "suspended"
    result = await runner.resume(first.run_id, Dismiss("No."), message="Thanks.")
    assert result.output == "Done."
    # The message is for the outermost agent.
    assert shown(outer_model.requests[-1].messages)[-2:] == ["Tool Without it.", "User Thanks."]


async def test_only_questions_of_tool_calls_can_be_dismissed(store: Store | None) -> None:
    class Asking(BaseAgent[Any, Any]):
        async def run(self, ctx: AgentContext[Any]) -> None:
            await ctx.say(str(await ctx.interrupt("why?")))

    runner: Runner[Any, Any] = Runner(Asking("Asking"), store=store)
    first = await runner.run("one")
    with pytest.raises(AnswerError, match="does not come from a tool call and cannot be dismissed; answer it"):
        await runner.resume(first.run_id, Dismiss())
    assert (await runner.resume(first.run_id, "x")).output == "x"


# --- cancel("after_response")


class Stopping(ScriptedModel):
    """A script that cancels the run while it gives its first response."""

    run: Any = None

    def respond(self, request: Any) -> Any:
        if self.run is not None:
            run, self.run = self.run, None
            run._stop_soon("after_response")
        return super().respond(request)


async def stop_after_response(steps: Any, store: Store | None) -> tuple[Runner[Any, Any], Stopping, Orders, str]:
    orders, model = Orders(), Stopping(steps)
    agents = {"Desk": Agent("Desk", model=model, tools=orders.tools, sub_agents=[Agent("Other", model=model)])}
    runner: Runner[Any, Any] = Runner(agents["Desk"], store=store)
    stream = runner.stream("one")
    model.run = stream
    async with stream as run:
        events = [event async for event in run if isinstance(event, Event)]
    assert run.result.status == "cancelled"
    assert isinstance(events[-1], RunCancelled)
    assert events[-1].after_response
    assert isinstance(events[-2], AgentResponded)
    assert orders.done == []
    return runner, model, orders, run.run_id


async def test_calls_of_a_response_are_cancelled_on_resume(store: Store | None) -> None:
    # The response is kept; its calls get "cancelled" results.
    steps = [[call("look"), call("pay", amount=1), call("nothing"), call("transfer_to_agent", agent_name="Other")]]
    runner, model, orders, run_id = await stop_after_response([*steps, "Then not."], store)
    result = await runner.resume(run_id, message="I changed my mind.")
    assert (result.output, result.agent, orders.done) == ("Then not.", "Desk", [])
    messages: list[Message] = [*model.requests[-1].messages]
    assert [text_of(one.content) for one in messages if isinstance(one, ToolMessage)] == [CANCELLED_CALL] * 4
    assert shown(messages)[-1] == "User I changed my mind."
    assert (await runner.runs.replay(result.events)).output == "Then not."


async def test_a_single_transfer_is_cancelled_on_resume(store: Store | None) -> None:
    steps = [[call("transfer_to_agent", agent_name="Other")], "Stayed."]
    runner, _, _, run_id = await stop_after_response(steps, store)
    assert (await runner.resume(run_id)).agent == "Desk"


async def test_nothing_that_has_a_result_is_cancelled_on_resume(store: Store | None) -> None:
    # The first agent has handed over by `then_transfer`, which is no response of a model.
    orders, model = Orders(), Stopping([[call("look")], [call("look")], "Then not."])
    first = then_transfer(Agent("First", model=ScriptedModel(["Hello."])), to="Desk")
    desk = Agent("Desk", model=model, tools=orders.tools)
    runner: Runner[Any, Any] = Runner(first, extra_agents=[desk], store=store)
    for stream in (runner.stream("one", run_id="r"), runner.stream_resume("r")):
        model.run = stream
        async with stream as run:
            await run.wait()
        assert run.result.status == "cancelled"
    result = await runner.resume("r")
    assert (result.output, orders.done) == ("Then not.", [])
    results = [text_of(event.content) for event in result.events if isinstance(event, ToolReturned)]
    assert results == ["successfully transferred to agent [Desk]", CANCELLED_CALL, CANCELLED_CALL]
    dismissed = [event.key for event in result.events if keys.name(event.key) == keys.DISMISSED]
    assert dismissed == ["2/m1.0/dismissed", "2/m2.0/dismissed"]
    assert (await runner.runs.replay(result.events)).output == "Then not."


async def test_calls_of_a_response_can_be_executed_on_resume(store: Store | None) -> None:
    # Unless the user asks to execute them.
    runner, _, orders, run_id = await stop_after_response([[call("look"), call("look")], "Done."], store)
    result = await runner.resume(run_id, execute_calls=True)
    assert (result.output, orders.done) == ("Done.", ["look", "look"])


async def test_an_answer_is_not_cancelled(store: Store | None) -> None:
    # A response without calls ends the run as usual.
    model = Stopping(["Done."])
    runner: Runner[Any, Any] = Runner(Agent("Desk", model=model), store=store)
    stream = runner.stream("one")
    model.run = stream
    async with stream as run:
        [event async for event in run]
    assert run.result.output == "Done."


async def test_another_worker_cancels_after_the_response() -> None:
    # The request is in the store; the append of the response returns it.
    store, orders = MemoryStore(), Orders()
    entered, opened = asyncio.Event(), asyncio.Event()

    script = ScriptedModel([[call("pay", amount=1)], "Then not."])

    class Slow:
        name = "slow"

        async def respond(self, request: Any) -> AsyncIterator[Chunk]:
            entered.set()
            await opened.wait()
            async for chunk in script.respond(request):
                yield chunk

    agent = Agent("Desk", model=Slow(), tools=orders.tools)
    runner: Runner[Any, Any] = Runner(agent, store=store)
    other: Runner[Any, Any] = Runner(agent, store=store)
    task = asyncio.create_task(runner.run("one", run_id="r"))
    await entered.wait()
    assert await other.runs.cancel("r", "after_response") == "running"
    opened.set()
    result = await task
    assert (result.status, orders.done, result.interrupts) == ("cancelled", [], ())
    assert (await other.resume("r")).output == "Then not."


async def test_a_cancelled_turn_is_not_a_cancelled_response(store: Store | None) -> None:
    # Calls that had begun are executed on resume, as after any other cancellation.
    entered, begun = asyncio.Event(), list[str]()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.append("wait")
        entered.set()
        if len(begun) == 1:
            await forever()
        return "waited"

    model = ScriptedModel([[call("wait")], "Done."])
    runner: Runner[Any, Any] = Runner(Agent("Desk", model=model, tools=[wait]), store=store)
    async with runner.stream("one") as run:
        await entered.wait()
        await run.cancel("after_response")
        await run.cancel()
    result = await runner.resume(run.run_id)
    assert (result.output, begun) == ("Done.", ["wait", "wait"])
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["waited"]
