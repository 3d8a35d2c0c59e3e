"""A handoff that says why, and how urgent it is. The model is scripted: no network, no key.

python examples/handoffs/triage.py
baton check examples/handoffs/triage.py:triage
"""

from typing import Any, Literal

from pydantic import BaseModel, Field

from batonkit import Agent, RunContext, Runner, handoff
from batonkit.testing import call, scripted_or_real, transcript


class Ticket(BaseModel):
    """The facts that triage must find out before it hands over. A model that leaves one out is told so."""

    reason: Literal["refund", "late parcel", "broken"]
    priority: int = Field(ge=1, le=3, description="1 is the most urgent.")
    order: str


def file_ticket(ctx: RunContext[Any], ticket: Ticket) -> None:
    """Called once per handoff, with an input that has been checked."""
    ctx.values.set("ticket", ticket.model_dump())


def told_of_ticket(ctx: RunContext[Any]) -> str:
    ticket = Ticket.model_validate(ctx.values["ticket"])
    return f"Settle order {ticket.order}: {ticket.reason}, priority {ticket.priority}."


refunds = Agent("Refunds", description="Pays money back.", instructions=told_of_ticket)
parcels = Agent("Parcels", description="Finds parcels.", instructions=told_of_ticket)
triage = Agent(
    "Triage",
    instructions="Find out what it is about, then hand over.",
    handoffs=[handoff(desk, input_type=Ticket, on_handoff=file_ticket) for desk in (refunds, parcels)],
)
model = scripted_or_real(
    {
        "Triage": [
            call("transfer_to_refunds", reason="refund", priority=9, order="A-17"),  # There is no priority 9.
            call("transfer_to_refunds", reason="refund", priority=1, order="A-17"),
        ],
        "Refunds": ["Your money is on its way."],
    }
)
runner = Runner(triage, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("Order A-17 came broken, and I want my money back today!")
    print("\n".join(transcript(result.events)))
    print(f"{result.agent} was told: {model.requests[-1].instructions}")


if __name__ == "__main__":
    main()
