"""A task over several user turns, with a digression. The model is scripted: no network, no key.

python examples/handoffs/task_with_a_digression.py
baton check examples/handoffs/task_with_a_digression.py:desk
baton graph examples/handoffs/task_with_a_digression.py:desk
"""

import asyncio

from pydantic import BaseModel

from batonkit import Agent, Runner, handoff
from batonkit.messages import text_of
from batonkit.testing import call, scripted_or_real


class Table(BaseModel):
    """The result of a booking."""

    day: str
    people: int


weather = Agent("Weather", description="Knows the weather.")
booking = Agent("Booking", description="Books tables.", handoffs=[weather])
# Booking stays active until it calls finish_task; its questions go to the user.
desk = Agent("Desk", handoffs=[handoff(booking, return_to="caller", until="finished", result_type=Table)])

model = scripted_or_real(
    {
        "Desk": [call("transfer_to_booking"), "Your table is booked. See you on Monday!"],
        "Booking": [
            "For which day?",
            call("transfer_to_weather"),  # A digression: when Weather has answered, Booking goes on.
            "So, Monday. For how many people?",
            call("finish_task", result={"day": "Monday"}),  # Not a Table: the model is told, and corrects it.
            call("finish_task", result={"day": "Monday", "people": 2}),
        ],
        "Weather": ["Monday will be sunny."],
    }
)
runner = Runner(desk, model=model, store="memory:")


async def main() -> None:
    print(model.notice)
    for text in ("A table, please.", "Will it be sunny on Monday?", "Two of us."):
        print(f"user: {text}")
        result = await runner.run(text, thread="ann")
        tasks = ", ".join(f"{task.agent} for {task.caller}" for task in result.open_tasks)
        print(f"{result.agent}: {result.output}  [open tasks: {tasks or 'none'}]")
    print("Desk reads as the result of its call:", text_of(model.requests[-1].messages[2].content))


if __name__ == "__main__":
    asyncio.run(main())
