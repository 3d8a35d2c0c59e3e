"""Edges that are there for some customers and at some hours. The model is scripted: no network, no key.

python examples/handoffs/conditions.py
baton check examples/handoffs/conditions.py:desk
"""

from dataclasses import dataclass
from datetime import time
from typing import Any, Literal

from batonkit import Agent, RunContext, Runner, handoff
from batonkit.testing import call, scripted_or_real


@dataclass(frozen=True)
class Visit:
    """Facts of your program. Your functions read them as `ctx.context`; models never see them."""

    tier: Literal["basic", "gold"]
    now: time


def is_open(ctx: RunContext[Visit], agent: Any) -> bool:
    return time(9) <= ctx.context.now < time(18)


async def is_gold(ctx: RunContext[Visit], agent: Any) -> bool:
    return ctx.context.tier == "gold"  # Asked every turn. It may be async, to look something up.


phone = Agent[Visit]("Phone", description="People on the phone, from 9 to 18.", instructions="Help.")
concierge = Agent[Visit]("Concierge", description="For gold customers, at any hour.", instructions="Help at once.")
mail = Agent[Visit]("Mail", description="Answers by mail, within a day.", instructions="Take it down.")
desk = Agent[Visit](
    "Desk",
    instructions="Hand over to the best desk there is.",
    handoffs=[handoff(phone, is_enabled=is_open), handoff(concierge, is_enabled=is_gold), mail],
)


def main() -> None:
    for number, visit in enumerate((Visit("basic", time(11)), Visit("basic", time(22)), Visit("gold", time(22)))):
        # A model does not see an edge that is off. If it calls it anyway, the call is refused.
        answers = {"Desk": [call("transfer_to_concierge"), call("transfer_to_mail")]}
        model = scripted_or_real({**answers, "Concierge": ["At your service."], "Mail": ["We shall write to you."]})
        if number == 0:
            print(model.notice)
        result = Runner(desk, model=model).run_sync("My order is lost.", context=visit)
        shown = ", ".join(spec.name.removeprefix("transfer_to_") for spec in model.requests[0].tools)
        print(f"{visit.tier} at {visit.now:%H:%M} may reach {shown}; is with {result.agent}")


if __name__ == "__main__":
    main()
