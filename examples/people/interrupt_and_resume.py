"""Ask a person, stop, go on with the answer. The model is scripted: no network, no key.

python examples/people/interrupt_and_resume.py
baton check examples/people/interrupt_and_resume.py:agent
baton chat examples/people/interrupt_and_resume.py:runner
"""

import asyncio
from typing import Any

from batonkit import Agent, RunContext, Runner, tool
from batonkit.testing import call, scripted_or_real

searches = 0


def search() -> list[str]:
    """Something slow and dear that must not happen twice."""
    global searches
    searches += 1
    return ["07:10", "09:40"]


@tool
async def book_flight(ctx: RunContext[Any], city: str) -> str:
    """Book a flight; the customer chooses the time."""
    times = await ctx.step("search", search)  # Recorded: a resumed run gets the recorded value.
    print(f"  book_flight runs, the times are {times}")  # Not recorded: this happens again on resume.
    chosen = await ctx.interrupt({"question": "Which one?", "times": times})
    return f"booked {city} at {chosen}"


agent = Agent("TravelAgent", instructions="Book what is asked for.", tools=[book_flight])
model = scripted_or_real([call("book_flight", city="Rome"), "You fly to Rome at 09:40."], cycle=True)
runner = Runner(agent, model=model)


async def main() -> None:
    print(model.notice)
    result = await runner.run("A flight to Rome, please.")
    (question,) = result.interrupts
    print(f"{result.status}: {question.agent} asks {question.payload}")

    result = await runner.resume(result.run_id, {question.id: "09:40"})
    print(f"{result.status}: {result.output}")
    print(f"book_flight ran twice up to the question, the search ran {searches} time")


if __name__ == "__main__":
    asyncio.run(main())
