"""Promises about one run at the moment it stops, asks or is answered, many times on both databases.

Two rounds with every test run, ROUNDS or 200 of them with `make soak`. Each promise prints how often it was tried, and
how often it was broken.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.conftest import PROFILE
from tests.integration.soak.test_contention import OpenStore, open_store, report

from batonkit import Agent, Approval, RunContext, Runner, guardrail, handoff, tool
from batonkit.errors import GuardrailTrippedError, RunNotSuspendedError, SetupError
from batonkit.handoffs import HandoffInputData
from batonkit.log import AgentResponded, ToolReturned
from batonkit.runs import BackgroundRunner
from batonkit.stores import FullStore
from batonkit.testing import ScriptedModel, call
from batonkit.worker import LocalEngine, Worker

__all__ = ["open_store"]

ROUNDS = int(os.environ.get("ROUNDS", "200" if PROFILE == "soak" else "2"))


class Shop:
    """A team with a refund that needs approval, and the refunds that it has paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        def at_most_100(ctx: RunContext[Any], arguments: Any) -> bool:
            return arguments["amount"] <= 100

        @tool(needs_approval=True, input_guardrails=[at_most_100])
        def refund(amount: int) -> str:
            """Pay an amount back."""
            self.paid.append(amount)
            return "paid"

        self.refund = refund

    def runner(self, store: FullStore) -> Runner[Any, Any]:
        """Return a runner whose agent asks for approval of a refund, then answers."""
        model = ScriptedModel([call("refund", amount=80), "done"])
        return Runner(Agent("Desk", tools=[self.refund], model=model), store=store)


async def a_handoff_counts_although_the_run_stops_right_there(store: FullStore, number: int) -> bool:
    fails = bool(number % 2)

    def filter_or_fail(data: HandoffInputData) -> HandoffInputData:
        if fails:
            raise ValueError("no filter")
        return data

    model = ScriptedModel({"Desk": [call("transfer_to_refunds")], "Refunds": ["I am Refunds"]})
    refunds = Agent("Refunds", description="Pays back.")
    desk = Agent("Desk", handoffs=[handoff(refunds, input_filter=filter_or_fail)], model=model)
    runner = Runner(desk, store=store)
    stream = runner.stream("hi", thread=f"t{number}")
    with suppress(ValueError):
        async with stream:
            async for event in stream:
                if not fails and isinstance(event, AgentResponded):
                    await stream.cancel("after_turn")
    holders = {stream.result.agent, await runner.thread(f"t{number}").active_agent()}
    return stream.result.status == ("failed" if fails else "cancelled") and holders == {"Refunds"}


async def reaches(store: FullStore, run_id: str, status: str) -> None:
    """Wait until a run has a status, asking again as soon as possible."""
    while (record := await store.record(run_id)) is None or record.status != status:
        await asyncio.sleep(0)


async def a_cancel_wins_over_a_suspension_and_its_answer(store: FullStore, number: int) -> bool:
    shop = Shop()
    runner = shop.runner(store)
    background = BackgroundRunner(runner)
    run_id = await background.start("hi")
    await reaches(store, run_id, "suspended")
    status = await background.cancel(run_id)
    with pytest.raises(RunNotSuspendedError):
        await runner.runs.answer(run_id, True)
    await background.drain()
    record = await store.record(run_id)
    return record is not None and record.status == status == "cancelled" and shop.paid == []


async def an_answer_is_accepted_as_soon_as_the_run_is_suspended(store: FullStore, number: int) -> bool:
    shop = Shop()
    runner = shop.runner(store)
    worker = Worker(runner, engine=LocalEngine())
    working = asyncio.create_task(worker.run())
    run_id = await runner.submit("hi")
    await reaches(store, run_id, "suspended")
    await runner.runs.answer(run_id, True)
    await reaches(store, run_id, "completed")
    worker.stop()
    await working
    return shop.paid == [80]


async def values_cannot_be_changed_in_place(store: FullStore, number: int) -> bool:
    refused: list[bool] = []

    @tool
    def add(ctx: RunContext[Any]) -> str:
        """Add a value."""
        try:
            ctx.values["list"].append(2)
        except SetupError:
            refused.append(True)
        ctx.values.set("list", [*ctx.values["list"], 3])
        return "added"

    @tool(needs_approval=True)
    def wait() -> str:
        """Wait for approval."""
        return "go"

    model = ScriptedModel([call("add"), call("wait"), "done"])
    runner = Runner(Agent("Desk", tools=[add, wait], model=model), store=store)
    suspended = await runner.run("hi", values={"list": [1]})
    result = await runner.resume(suspended.run_id, True)
    return refused == [True] and result.values["list"] == [1, 3]


async def an_edited_approval_passes_the_guardrails(store: FullStore, number: int) -> bool:
    shop = Shop()
    runner = shop.runner(store)
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, Approval(True, arguments={"amount": 500}))
    return shop.paid == []


async def a_rejected_answer_is_read_by_no_one(store: FullStore, number: int) -> bool:
    @guardrail
    def no_secrets(ctx: RunContext[Any], output: Any) -> bool:
        return "swordfish" not in str(output)

    desk = Agent("Desk", model=ScriptedModel(["It is swordfish."]), output_guardrails=[no_secrets])
    thread = f"t{number}"
    with pytest.raises(GuardrailTrippedError):
        await Runner(desk, store=store).run("The password?", thread=thread)
    model = ScriptedModel(["I cannot say."])
    later = Runner(Agent("Desk", model=model), store=store)
    await later.run("Why not?", thread=thread)
    return "swordfish" not in repr((await later.thread(thread).messages(), [*model.requests[0].messages]))


async def a_cancellation_that_a_tool_lets_out_is_its_failure(store: FullStore, number: int) -> bool:
    @tool
    async def fetch() -> str:
        """Await a task that it has cancelled itself."""
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task
        return "never"

    model = ScriptedModel([call("fetch"), "could not fetch it"])
    result = await Runner(Agent("Desk", tools=[fetch], model=model), store=store).run("hi")
    return result.status == "completed" and any(isinstance(e, ToolReturned) and e.is_error for e in result.events)


async def a_later_message_of_a_thread_can_be_edited(store: FullStore, number: int) -> bool:
    thread = f"t{number}"
    runner = Runner(Agent("Desk", model=ScriptedModel(["one", "two", "three"])), store=store)
    await runner.run("first", thread=thread)
    second = await runner.run("second", thread=thread)
    fork = await runner.runs.fork(second.run_id, edit={"run": "edited"}, thread=f"{thread}-new")
    result = await runner.resume(fork)
    return result.output == "three" and "edited" in repr(result.messages) and "second" not in repr(result.messages)


async def a_cancel_after_the_turn_calls_the_model_no_more(store: FullStore, number: int) -> bool:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([call("look"), call("look"), "done"])
    async with Runner(Agent("Desk", tools=[look], model=model), store=store).stream("hi") as stream:
        async for event in stream:
            if isinstance(event, ToolReturned):
                await stream.cancel("after_turn")
    return stream.result.status == "cancelled" and len(model.requests) == 1


Promise = Callable[[FullStore, int], Awaitable[bool]]

PROMISES: list[Promise] = [
    a_handoff_counts_although_the_run_stops_right_there,
    a_cancel_wins_over_a_suspension_and_its_answer,
    an_answer_is_accepted_as_soon_as_the_run_is_suspended,
    values_cannot_be_changed_in_place,
    an_edited_approval_passes_the_guardrails,
    a_rejected_answer_is_read_by_no_one,
    a_cancellation_that_a_tool_lets_out_is_its_failure,
    a_later_message_of_a_thread_can_be_edited,
    a_cancel_after_the_turn_calls_the_model_no_more,
]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_a_promise_is_kept_every_time(promise: Promise, open_store: OpenStore) -> None:
    store = open_store()
    kept = [await promise(store, number) for number in range(ROUNDS)]
    await store.close()
    report(f"{promise.__name__}, {type(store).__name__}", ROUNDS, kept.count(False))
