"""Three levels, one case, and a level that declines. The model is scripted: no network, no key.

python examples/handoffs/escalation.py
baton check examples/handoffs/escalation.py:first
"""

from typing import Any

from batonkit import Agent, RunContext, Runner, handoff
from batonkit.testing import call, scripted_or_real, transcript


def note(ctx: RunContext[Any], text: str) -> str:
    """Write down in the case what was tried."""
    ctx.values.set("case", [*ctx.values.get("case", []), f"{ctx.agent}: {text}"])
    return "noted"


def case(ctx: RunContext[Any]) -> str:
    return "\n".join(["Solve it, or note what you tried and escalate.", *ctx.values.get("case", [])])


def only_after_second(ctx: RunContext[Any], payload: Any) -> bool | str:
    """Return True, or the reason against it, which the model that asked reads."""
    tried = ctx.values.get("case", [])
    return any(line.startswith("Second") for line in tried) or "the second level has not looked at it yet"


third = Agent("Third", description="The engineers.", instructions=case, accepts=only_after_second)
second = Agent(
    "Second",
    description="Knows the product.",
    instructions=case,
    tools=[note],
    handoffs=[handoff(third, tool_name_override="escalate")],
)
first = Agent("First", description="Answers the phone.", instructions=case, tools=[note], handoffs=[second, third])
model = scripted_or_real(
    {
        "First": [call("note", text="restarted it"), call("transfer_to_third"), call("transfer_to_second")],
        "Second": [call("note", text="replaced the cable"), call("escalate")],
        "Third": ["It was the firmware. Version 7 is on its way to you."],
    }
)
runner = Runner(first, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("My lamp flickers.")
    print("\n".join(transcript(result.events)))
    print(f"the case that {result.agent} read: {'; '.join(result.values.get('case', []))}")


if __name__ == "__main__":
    main()
