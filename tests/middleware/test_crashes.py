"""Every ready-made middleware at once, in runs that crash after every event."""

from typing import Any

from batonkit import Agent, ParallelAgent, RunContext, Runner, SequentialAgent, guardrail, tool
from batonkit.middleware import (
    Cache,
    ClearToolResults,
    Middleware,
    PromptCache,
    RateLimit,
    RedactPII,
    RequireAnnouncedHandoff,
    ValidateOutput,
)
from batonkit.testing import ScriptedModel, assert_survives_crashes, call


@tool(effect="once")
async def pay(address: str) -> str:
    """Pay someone."""
    return f"paid {address}"


@tool
async def look(page: int) -> str:
    """Look at a page."""
    return f"page {page} of ada@example.org"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask the user."""
    return str(await ctx.interrupt(question))


def is_short(ctx: Any, output: str) -> str | None:
    """Complain about long answers."""
    return None if len(output) < 60 else "it is too long."


class Audited(Middleware):
    """Records a step around every call, so that what `next` returned is recorded, too."""

    async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
        response = await next(request)
        await ctx.step("audit", lambda: response.message.content)
        return response

    async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
        result = await next(call)
        await ctx.step("audit", lambda: str(result.content))
        return result


def stock(*outer: Middleware) -> list[Middleware]:
    """Return one of each, outermost first."""
    return [
        *outer,
        RequireAnnouncedHandoff(),
        ValidateOutput(is_short),
        ClearToolResults(keep_last=1),
        RedactPII(restore=True),
        PromptCache(),
        Cache({}),
        RateLimit(per_minute=10_000, tokens_per_minute=10_000_000),
    ]


STEPS = {
    "Desk": [
        [call("look", page=1), call("look", page=2)],
        call("look", page=3),
        "I will transfer you to billing.",
        call("transfer_to_billing"),
    ],
    "Billing": [
        call("ask", question="Pay [email 1]?"),
        call("pay", address="[email 1]"),
        "This answer is far too long to be accepted by the check of this team.",
        "Paid [email 1].",
    ],
}


def new_team(store: Any, *outer: Middleware) -> Runner[Any, Any]:
    billing = Agent("Billing", description="Pays.", tools=[pay, ask])
    desk = Agent("Desk", tools=[look], handoffs=[billing])
    return Runner(desk, model=ScriptedModel(STEPS), middleware=stock(*outer), store=store)


async def test_a_team_with_every_ready_made_middleware_survives_crashes() -> None:
    result = await new_team(None).run("I am ada@example.org, pay me.", run_id="r")
    assert [interrupt.payload for interrupt in result.interrupts] == ["Pay ada@example.org?"]
    await assert_survives_crashes(new_team, "I am ada@example.org, pay me.", answers="yes")


async def test_it_does_if_results_of_next_are_recorded_as_well() -> None:
    await assert_survives_crashes(
        lambda store: new_team(store, Audited()), "I am ada@example.org, pay me.", answers="yes"
    )


async def passes(ctx: Any, messages: Any) -> bool:
    """Pass."""
    return True


def new_workflow(store: Any) -> Runner[Any, Any]:
    """Return a workflow whose steps have tools, agents as tools, guardrails and a typed answer."""
    reader = Agent("Reader", tools=[look], input_guardrails=[guardrail(passes, parallel=True)])
    helper = Agent("Helper", description="Helps.", tools=[ask])
    writers = [Agent("Writer", tools=[pay]), Agent("Editor", tools=[helper.as_tool("help_out")], output_type=int)]
    steps = {
        "Reader": [call("look", page=1), "Read."],
        "Writer": [call("pay", address="[email 1]"), "x" * 80, "Written to [email 1]."],
        "Editor": [call("help_out", request="Edit."), "seven", "7"],
        "Helper": [call("ask", question="Well?"), "Helped."],
    }
    flow = SequentialAgent("Flow", sub_agents=[reader, ParallelAgent("Both", sub_agents=writers)])
    return Runner(flow, model=ScriptedModel(steps), middleware=stock(), store=store)


async def test_a_workflow_with_every_ready_made_middleware_survives_crashes() -> None:
    await assert_survives_crashes(new_workflow, "I am ada@example.org, write to me.", answers="yes")


async def test_a_replay_of_the_team_gives_the_same_outcome() -> None:
    runner = new_team(None)
    suspended = await runner.run("I am ada@example.org, pay me.")
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.agent, result.output) == ("Billing", "Paid ada@example.org.")
    replayed = await new_team(None).runs.replay(result.events)
    assert (replayed.output, replayed.messages) == (result.output, result.messages)
