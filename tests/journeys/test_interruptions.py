"""End-to-end runs that stop for an interrupt, a failure or a closed stream, and are resumed."""

import asyncio

import pytest
from inline_snapshot import snapshot

from batonkit import Agent, AgentContext, Approval, ModelError, RunContext, Runner, agent, handoff, tool
from batonkit.log import TextDelta, decode_log, encode_log
from batonkit.testing import ScriptedModel, ScriptedStream, call, say, transcript, transfer_to


async def test_an_approved_call_runs_once_before_the_transfer() -> None:
    # Approval first, then the transfer; each happens once.
    paid: list[int] = []

    @tool(needs_approval=lambda ctx, arguments: arguments["euro"] > 10)
    async def refund(ctx: RunContext, euro: int) -> str:
        """Give money back."""
        paid.append(euro)
        ctx.values.set("refunded", sum(paid))
        return f"refunded {euro} euro"

    model = ScriptedModel(
        {
            "Desk": [
                say("Let me see.", call("refund", euro=5), call("refund", euro=50), call("transfer_to_survey")),
            ],
            "Survey": ["How did we do?"],
        }
    )
    runner = Runner(Agent("Desk", tools=[refund], handoffs=[Agent("Survey", description="asks")]), model=model)
    suspended = await runner.run("I want my money back")
    assert transcript(suspended.events) == snapshot(
        [
            'run of Desk started with "I want my money back"',
            "Desk started",
            'Desk: said "Let me see." + refund({"euro":5}) + refund({"euro":50}) + transfer_to_survey({})',
            "Desk: step needs_approval -> false",
            "Desk: refund -> refunded 5 euro [refunded=5]",
            "Desk: step needs_approval -> true",
            'Desk: asked {"kind":"approval","tool":"refund","arguments":{"euro":50}} about refund({"euro":50})',
            "run suspended with 1 open question",
        ]
    )
    assert paid == [5]
    (question,) = suspended.interrupts
    approval = Approval(True, arguments={"euro": 40})
    result = await runner.resume(suspended.run_id, {question.id: approval})
    assert transcript(result.events[len(suspended.events) :]) == snapshot(
        [
            "run resumed",
            'Desk: got the answer {"approved":true,"arguments":{"euro":40}}',
            'Desk: refund({"euro": 40}) -> refunded 40 euro [refunded=45]',
            'Desk: transfer_to_survey -> {"assistant":"Survey"}',
            "Desk → Survey",
            "Desk finished",
            "Survey started",
            'Survey: said "How did we do?"',
            "Survey finished",
            "run completed",
        ]
    )
    assert (paid, result.values) == ([5, 40], {"refunded": 45})
    replayed = await runner.runs.replay(decode_log(encode_log(result.events)))
    assert (replayed.output, replayed.values, paid) == (result.output, result.values, [5, 40])


async def test_a_rejected_call_is_returned_to_the_model_as_an_error() -> None:
    @tool(needs_approval=True)
    async def refund(euro: int) -> str:
        """Give money back."""
        return f"refunded {euro} euro"

    model = ScriptedModel([call("refund", euro=50), "I am sorry, that was not possible."])
    runner = Runner(Agent("Desk", model=model, tools=[refund]))
    suspended = await runner.run("I want my money back")
    result = await runner.resume(suspended.run_id, {"approved": False, "reason": "no receipt"})
    assert transcript(result.events) == snapshot(
        [
            'run of Desk started with "I want my money back"',
            "Desk started",
            'Desk: called refund({"euro":50})',
            "Desk: step needs_approval -> true",
            'Desk: asked {"kind":"approval","tool":"refund","arguments":{"euro":50}} about refund({"euro":50})',
            "run suspended with 1 open question",
            "run resumed",
            'Desk: got the answer {"approved":false,"reason":"no receipt"}',
            "Desk: refund failed -> This call of `refund` was not approved: no receipt",
            'Desk: said "I am sorry, that was not possible."',
            "Desk finished",
            "run completed",
        ]
    )


async def test_interrupts_in_concurrent_tools_and_in_a_custom_agent_are_answered_one_by_one() -> None:
    # In two concurrent tools, then in a custom agent, answered one at a time.
    @tool
    async def ask(ctx: RunContext, question: str) -> str:
        """Ask the user."""
        await ctx.step("note", lambda: f"asking {question}")
        return str(await ctx.interrupt({"question": question}))

    @agent("Booker", handoffs=["Desk"])
    async def booker(ctx: AgentContext) -> None:
        number = await ctx.step("book", lambda: 4711)
        sure = await ctx.interrupt(f"book {number}?")
        ctx.values.set("booked", number if sure else None)
        await ctx.say("Booked." if sure else "Not booked.")

    model = ScriptedModel(
        {
            "Desk": [
                [call("ask", question="when?"), call("ask", question="how many?")],
                call("transfer_to_booker"),
                "Bye.",
            ]
        }
    )
    runner = Runner(Agent("Desk", tools=[ask], handoffs=[handoff(booker, return_to="caller")]), model=model)
    result = await runner.run("A table, please")
    when, how_many = result.interrupts
    result = await runner.resume(result.run_id, {how_many.id: "two"})
    assert [question.id for question in result.interrupts] == [when.id]
    result = await runner.resume(result.run_id, {when.id: "tonight"})
    result = await runner.resume(result.run_id, True)
    assert transcript(result.events) == snapshot(
        [
            'run of Desk started with "A table, please"',
            "Desk started",
            'Desk: called ask({"question":"when?"}) + ask({"question":"how many?"})',
            'Desk: step note -> "asking when?"',
            'Desk: asked {"question":"when?"} about ask({"question":"when?"})',
            'Desk: step note -> "asking how many?"',
            'Desk: asked {"question":"how many?"} about ask({"question":"how many?"})',
            "run suspended with 2 open questions",
            "run resumed",
            'Desk: got the answer "two"',
            "Desk: ask -> two",
            "run suspended with 1 open question",
            "run resumed",
            'Desk: got the answer "tonight"',
            "Desk: ask -> tonight",
            "Desk: called transfer_to_booker({})",
            'Desk: transfer_to_booker -> {"assistant":"Booker"}',
            "Desk → Booker",
            "Desk finished",
            "Booker started",
            "Booker: step book -> 4711",
            'Booker: asked "book 4711?"',
            "run suspended with 1 open question",
            "run resumed",
            "Booker: got the answer true",
            'Booker: said "Booked." [booked=4711]',
            "Booker → Desk (returned)",
            "Booker finished",
            "Desk started",
            'Desk: said "Bye."',
            "Desk finished",
            "run completed",
        ]
    )
    assert (result.output, result.values) == ("Bye.", {"booked": 4711})


async def test_a_run_that_fails_twice_can_be_resumed_twice() -> None:
    attempts: list[str] = []

    @tool(on_error="raise")
    async def fragile() -> str:
        """Work at the second attempt."""
        attempts.append("fragile")
        if len(attempts) == 1:
            raise ConnectionError("no route")
        return "at last"

    model = ScriptedModel(
        {"A": [call("fragile"), transfer_to("B")], "B": [ModelError("overloaded", retryable=True), "done"]}
    )
    runner = Runner(Agent("A", tools=[fragile], sub_agents=[Agent("B")]), model=model)
    live = runner.stream("hi")
    with pytest.raises(Exception, match="no route"):
        await live._drive()
    with pytest.raises(ModelError, match="overloaded"):
        await runner.resume(live.run_id)
    result = await runner.resume(live.run_id)
    assert transcript(result.events) == snapshot(
        [
            'run of A started with "hi"',
            "A started",
            "A: called fragile({})",
            "run failed with ToolFailedError: tool `fragile` failed: ConnectionError: no route",
            "run resumed",
            "A: fragile -> at last",
            'A: called transfer_to_agent({"agent_name":"B"})',
            "A: transfer_to_agent -> successfully transferred to agent [B]",
            "A → B",
            "A finished",
            "B started",
            "run failed with ModelError: overloaded",
            "run resumed",
            'B: said "done"',
            "B finished",
            "run completed",
        ]
    )
    assert [request.agent for request in model.requests] == ["A", "A", "B", "B"]


async def test_a_run_whose_stream_was_closed_can_be_resumed() -> None:
    model = ScriptedModel(
        {
            "A": [say("Over to B.", transfer_to("B"))],
            "B": [ScriptedStream("Once upon ", asyncio.Event()), "Once upon a time."],
        },
        stream=True,
    )
    runner = Runner(Agent("A", sub_agents=[Agent("B")]), model=model)
    async with runner.stream("A story") as live:
        async for event in live:
            if isinstance(event, TextDelta) and event.agent == "B":
                break
    async with runner.stream_resume(live.run_id) as resumed:
        rest = [event async for event in resumed]
    assert transcript(resumed.result.events) == snapshot(
        [
            'run of A started with "A story"',
            "A started",
            'A: said "Over to B." + transfer_to_agent({"agent_name":"B"})',
            "A: transfer_to_agent -> successfully transferred to agent [B]",
            "A → B",
            "A finished",
            "B started",
            "run cancelled",
            "run resumed",
            'B: said "Once upon a time."',
            "B finished",
            "run completed",
        ]
    )
    assert "".join(event.text for event in rest if isinstance(event, TextDelta)) == "Once upon a time."
