"""Three at once, then one who reads all of them. The model is scripted: no network, no key.

python examples/workflows/market_research.py
baton check examples/workflows/market_research.py:study
baton graph examples/workflows/market_research.py:study
"""

import logging
from typing import Any

from batonkit import Agent, ParallelAgent, RunContext, Runner, SequentialAgent
from batonkit.messages import text_of
from batonkit.testing import call, scripted_or_real
from batonkit.workflows import reducers


async def note(ctx: RunContext[Any], figure: str) -> str:
    """Note down a figure for the record."""
    ctx.values.set("figures", figure)
    return "noted"


def analyst(name: str, about: str) -> Agent[Any, str]:
    return Agent(name, description=f"Knows {about}.", instructions=f"Report on {about}.", tools=[note])


analysts = ParallelAgent(
    "Analysts",
    sub_agents=[analyst("Customers", "customers"), analyst("Rivals", "rivals"), analyst("Prices", "prices")],
    on_error="ignore",  # Who fails is left out, and the others go on.
    reducers={"figures": reducers.append},  # All three write this value: a list of what each wrote.
)
study = SequentialAgent("Study", sub_agents=[analysts, Agent("Summary", instructions="Sum it up.")])
model = scripted_or_real(
    {
        "Customers": [call("note", figure="8 of 10 want it"), "Customers want it."],
        "Rivals": [RuntimeError("the archive is closed")],
        "Prices": [call("note", figure="30 EUR"), "They would pay 30 EUR."],
        "Summary": ["Worth building, at 30 EUR; nothing is known of rivals."],
    }
)
runner = Runner(study, model=model)


def main() -> None:
    print(model.notice)
    logging.disable()  # That a branch failed is logged as a warning, with its traceback.
    result = runner.run_sync("Should we build it?")
    first = {request.agent: request for request in reversed(model.requests)}
    print(f"Prices read {len(first['Prices'].messages)} message: branches do not read one another")
    print("Summary read all of them, in the order in which they are declared:")
    print("\n".join(f"    {text_of(message.content)}" for message in first["Summary"].messages))
    print(f"figures: {result.values.get('figures', [])}")
    print(f"Study: {result.output}")


if __name__ == "__main__":
    main()
