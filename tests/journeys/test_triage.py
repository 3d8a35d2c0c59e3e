"""A triage team that uses every option of handoffs: input, conditions, approval, `accepts`, filters, callbacks."""

from typing import Any

from inline_snapshot import snapshot
from pydantic import BaseModel

from batonkit import Agent, RunContext, Runner, handoff, tool
from batonkit.handoffs.filters import compose, redact, remove_all_tools
from batonkit.log import TextDelta, decode_log, encode_log
from batonkit.messages import text_of
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedModel, call, say, transcript


class Refund(BaseModel):
    """The refund of an order."""

    order: str
    euro: int


@tool
async def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order}: 250 euro, paid by card 4111 1111 1111 1111"


def note_refund(ctx: RunContext[list[str]], refund: Refund) -> None:
    """Record the refund, and store the order for the next agent."""
    ctx.context.append(f"refund of {refund.euro} for {refund.order}")
    ctx.values.set("order", refund.order)


def is_large(ctx: RunContext[Any], refund: Refund) -> bool:
    """Return whether the refund needs approval."""
    return refund.euro > 100


def is_open(ctx: RunContext[Any], source: Any) -> bool:
    """Return whether sales is open, which it is only by day."""
    return ctx.values.get("is_day", False)


def takes_vips(ctx: RunContext[Any], payload: Any) -> bool | str:
    """Accept only VIPs."""
    return True if ctx.values.get("is_vip") else "for VIPs only"


def triage_team() -> Agent:
    """Build the team."""
    refunds = Agent("Refunds", description="Pays back.", instructions="Refund order {order}.", template=True)
    return Agent(
        "Triage",
        description="Finds out who can help.",
        tools=[look_up],
        handoffs=[
            handoff(
                refunds,
                input_type=Refund,
                on_handoff=note_refund,
                needs_approval=is_large,
                input_filter=compose(remove_all_tools, redact()),
            ),
            handoff(Agent("Sales", description="Sells."), is_enabled=is_open),
            Agent("Manager", description="Decides.", accepts=takes_vips),
        ],
    )


def texts_of(request: ModelRequest) -> list[str]:
    """Return the texts of a request's messages."""
    return [text_of(message.content) for message in request.messages]


async def test_a_large_refund_is_approved_in_another_process() -> None:
    recorded: list[str] = []
    model = ScriptedModel(
        {
            "Triage": [
                say("Let me see.", call("look_up", order="X1")),
                [call("transfer_to_refunds", order="X1", euro=250), call("look_up", order="X1")],
            ]
        }
    )
    suspended = await Runner(triage_team(), model=model).run("Give me my money back", context=recorded)
    assert transcript(suspended.events) == snapshot(
        [
            'run of Triage started with "Give me my money back"',
            "Triage started",
            'Triage: said "Let me see." + look_up({"order":"X1"})',
            "Triage: look_up -> order X1: 250 euro, paid by card 4111 1111 1111 1111",
            'Triage: called transfer_to_refunds({"order":"X1","euro":250}) + look_up({"order":"X1"})',
            "Triage: look_up -> order X1: 250 euro, paid by card 4111 1111 1111 1111",
            "Triage: step needs_approval -> true",
            'Triage: asked {"kind":"approval","handoff":"Refunds","input":{"order":"X1","euro":250}} about transfer_to_refunds({"order":"X1","euro":250})',  # noqa: E501
            "run suspended with 1 open question",
        ]
    )
    assert recorded == []

    other_model = ScriptedModel({"Refunds": ["It is on its way."]}, stream=True)
    other = Runner(triage_team(), model=other_model)
    run_id = await other.runs.load(decode_log(encode_log(suspended.events)))
    async with other.stream_resume(run_id, True, context=recorded) as live:
        delivered = [event async for event in live]
    assert transcript(delivered) == snapshot(
        [
            "run resumed",
            'Triage: got the answer {"approved":true}',
            'Triage: step on_handoff -> null [order="X1"]',
            'Triage: transfer_to_refunds -> {"assistant":"Refunds"}',
            'Triage → Refunds with {"order":"X1","euro":250}',
            "Triage finished",
            "Refunds started",
            'Refunds: said "It is on its way."',
            "Refunds finished",
            "run completed",
        ]
    )
    assert recorded == ["refund of 250 for X1"]
    assert [(event.agent, event.text) for event in delivered if isinstance(event, TextDelta)] == snapshot(
        [("Refunds", "It "), ("Refunds", "is "), ("Refunds", "on "), ("Refunds", "its "), ("Refunds", "way.")]
    )
    (request,) = other_model.requests
    assert request.instructions == "Refund order X1."
    assert texts_of(request) == snapshot(["Give me my money back", "For context: [Triage] said: Let me see."])
    # What the filter hides from the target is still in the result's messages.
    assert "4111 1111 1111 1111" in "".join(text_of(message.content) for message in live.result.messages)
    replayed = await other.runs.replay(live.result.events)
    assert (replayed.output, replayed.values, len(recorded)) == ("It is on its way.", {"order": "X1"}, 1)


async def test_transfers_that_fail_are_answered_and_left_out_of_the_history() -> None:
    # Every call gets a result, and transfers that did not happen remain only in the log.
    model = ScriptedModel(
        {
            "Triage": [
                call("transfer_to_sales"),
                say("Then the manager.", call("transfer_to_manager")),
                call("transfer_to_refunds", order=1, euro="much"),
                [
                    call("transfer_to_refunds", order="X1", euro=5),
                    call("look_up", order="X1"),
                    call("transfer_to_manager"),
                ],
            ],
            "Refunds": ["Done."],
        }
    )
    result = await Runner(triage_team(), model=model, history="verbatim").run("Help", context=list[str]())
    assert transcript(result.events) == snapshot(
        [
            'run of Triage started with "Help"',
            "Triage started",
            "Triage: called transfer_to_sales({})",
            "Triage: transfer_to_sales failed -> Not transferred: [Sales] is not available now; you can transfer to: `Refunds`, `Manager`.",  # noqa: E501
            'Triage: said "Then the manager." + transfer_to_manager({})',
            'Triage: step accepts -> "for VIPs only"',
            "Triage: transfer_to_manager failed -> Not transferred: [Manager] declined: for VIPs only",
            'Triage: called transfer_to_refunds({"order":1,"euro":"much"})',
            "Triage: transfer_to_refunds failed -> Not transferred to [Refunds]: order: Input should be a valid string; euro: Input should be a valid integer.",  # noqa: E501
            'Triage: called transfer_to_refunds({"order":"X1","euro":5}) + look_up({"order":"X1"}) + transfer_to_manager({})',  # noqa: E501
            "Triage: look_up -> order X1: 250 euro, paid by card 4111 1111 1111 1111",
            "Triage: transfer_to_manager failed -> Not transferred to [Manager]: only one transfer is followed per response, and that is the one to [Refunds].",  # noqa: E501
            "Triage: step needs_approval -> false",
            'Triage: step on_handoff -> null [order="X1"]',
            'Triage: transfer_to_refunds -> {"assistant":"Refunds"}',
            'Triage → Refunds with {"order":"X1","euro":5}',
            "Triage finished",
            "Refunds started",
            'Refunds: said "Done."',
            "Refunds finished",
            "run completed",
        ]
    )
    assert [[spec.name for spec in request.tools] for request in model.requests[:1]] == snapshot(
        [["look_up", "transfer_to_refunds", "transfer_to_manager"]]
    )
    assert texts_of(model.requests[-1]) == snapshot(["Help", "Then the manager."])


async def test_agents_with_chinese_names_and_prompts() -> None:
    sales = Agent("销售", description="负责销售", handoffs=["客服"])
    service = Agent("客服", description="回答问题", handoffs=[handoff(sales, is_enabled=is_open)])
    model = ScriptedModel(
        {
            "客服": [say("请稍等。", call("transfer_to_26ca4800")), "再见。"],
            "销售": [say("好的。", call("transfer_to_2557fd52"))],
        },
        stream=True,
    )
    runner = Runner(service, model=model, prompt_language="zh")
    async with runner.stream("我想买票", values={"is_day": True}) as live:
        delivered = [event async for event in live]
    assert transcript(delivered) == snapshot(
        [
            'run of 客服 started with "我想买票"',
            "客服 started",
            '客服: said "请稍等。" + transfer_to_26ca4800({})',
            '客服: transfer_to_26ca4800 -> {"assistant":"销售"}',
            "客服 → 销售",
            "客服 finished",
            "销售 started",
            '销售: said "好的。" + transfer_to_2557fd52({})',
            '销售: transfer_to_2557fd52 -> {"assistant":"客服"}',
            "销售 → 客服",
            "销售 finished",
            "客服 started",
            '客服: said "再见。"',
            "客服 finished",
            "run completed",
        ]
    )
    assert [(event.agent, event.text) for event in delivered if isinstance(event, TextDelta)] == snapshot(
        [("客服", "请稍等。"), ("销售", "好的。"), ("客服", "再见。")]
    )
    assert live.result.agent == "客服"
