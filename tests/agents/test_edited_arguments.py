"""Arguments that a person changes while approving a call: every reader learns what was executed."""

from dataclasses import dataclass
from typing import Any

import pytest

from batonkit import Agent, Approval, RunContext, Runner, handoff, tool
from batonkit.log import ToolReturned
from batonkit.messages import Text, ToolCall, text_of
from batonkit.middleware import tool_middleware
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedModel, call, transcript
from batonkit.tools import ToolResult, with_tool_guardrails

EDITED = Approval(True, arguments={"euro": 60})
NOTE = 'The person who approved this call changed its arguments to {"euro": 60}.'


@tool(needs_approval=True)
async def pay(euro: int) -> str:
    """Pay."""
    return f"paid {euro}"


def last_result(request: ModelRequest) -> str:
    return text_of(request.messages[-1].content)


async def run_edited(*tools: Any, **options: Any) -> tuple[Runner[Any, Any], Any]:
    model = ScriptedModel([call("pay", euro=100), last_result])
    runner = Runner(Agent("Clerk", model=model, tools=tools, **options))
    asked = await runner.run("pay 100")
    return runner, await runner.resume(asked.run_id, EDITED)


async def test_the_model_reads_what_was_executed_and_that_a_person_changed_it() -> None:
    runner, result = await run_edited(pay)
    assert result.output == f"{NOTE}\npaid 60"
    assert 'Clerk: pay({"euro": 60}) -> paid 60' in transcript(result.events)
    assert (await runner.runs.replay(result.events)).messages == result.messages


async def test_the_next_run_of_the_thread_reads_it_too() -> None:
    model = ScriptedModel([call("pay", euro=100), "done", "hello"])
    runner = Runner(Agent("Clerk", model=model, tools=[pay]), store="memory:")
    asked = await runner.run("pay 100", thread="t")
    await runner.resume(asked.run_id, EDITED)
    await runner.run("and?", thread="t")
    assert f"{NOTE}\npaid 60" in [text_of(message.content) for message in model.requests[-1].messages]


async def test_an_answer_that_a_tool_gives_directly_has_no_note() -> None:
    @tool(needs_approval=True, return_directly=True, name="pay")
    async def pay_directly(euro: int) -> str:
        """Pay."""
        return f"paid {euro}"

    _, result = await run_edited(pay_directly)
    assert result.output == "paid 60"


async def test_a_result_of_parts_keeps_its_parts() -> None:
    @tool(needs_approval=True, name="pay")
    async def pay_in_parts(euro: int) -> list[Text]:
        """Pay."""
        return [Text(f"paid {euro}")]

    _, result = await run_edited(pay_in_parts)
    returned = next(event for event in result.events if isinstance(event, ToolReturned))
    assert returned.message.content == (Text(f"{NOTE}\n"), Text("paid 60"))


async def test_an_unchanged_call_has_no_note() -> None:
    model = ScriptedModel([call("pay", euro=100), last_result])
    runner = Runner(Agent("Clerk", model=model, tools=[pay]))
    result = await runner.resume((await runner.run("pay 100")).run_id, Approval(True))
    assert result.output == "paid 100"


@tool_middleware
async def shout(ctx: RunContext[Any], given: ToolCall, next: Any) -> ToolResult:
    result = await next(given)
    return ToolResult(text_of(result.content).upper())


async def test_middleware_that_makes_a_result_of_its_own_does_not_hide_the_change() -> None:
    _, result = await run_edited(pay, middleware=[shout])
    assert result.output == f"{NOTE}\nPAID 60"


def withhold(ctx: RunContext[Any], result: Any) -> bool:
    return False


async def test_a_guardrail_that_withholds_the_result_does_not_hide_the_change() -> None:
    _, result = await run_edited(with_tool_guardrails(pay, output_guardrails=[withhold]))
    assert result.output.startswith(f"{NOTE}\nThe result of `pay` is withheld")


@dataclass
class Order:
    euro: int


@pytest.mark.parametrize("has_callback", [False, True])
async def test_the_target_of_a_handoff_reads_the_input_that_the_person_gave(has_callback: bool) -> None:
    called: list[Order] = []

    def note(ctx: RunContext[Any], order: Order) -> None:
        called.append(order)

    payer = Agent("Payer", description="Pays.", model=ScriptedModel(["done"]))
    edge: Any = handoff(payer, input_type=Order, needs_approval=True, on_handoff=note if has_callback else None)
    model = ScriptedModel([call("transfer_to_payer", euro=100)])
    runner = Runner(Agent("Desk", model=model, handoffs=[edge]))
    asked = await runner.run("pay")
    result = await runner.resume(asked.run_id, EDITED)
    read = " ".join([text_of(message.content) for message in payer.model.requests[0].messages])  # pyright: ignore
    assert "60" in read
    assert called == ([Order(60)] if has_callback else [])
    if has_callback:
        assert "The person who approved this call changed its arguments" in read
    assert (await runner.runs.replay(result.events)).output == "done"


async def test_a_tool_that_returns_an_agent_after_a_change_tells_its_target() -> None:
    payer = Agent("Payer", description="Pays.", model=ScriptedModel(["done"]))

    @tool(needs_approval=True)
    async def to_payer(euro: int) -> Agent:
        """Let the payer pay."""
        return payer

    runner = Runner(Agent("Desk", model=ScriptedModel([call("to_payer", euro=100)]), tools=[to_payer]))
    await runner.resume((await runner.run("pay")).run_id, EDITED)
    read = " ".join([text_of(message.content) for message in payer.model.requests[0].messages])  # pyright: ignore
    assert NOTE in read
