"""A conversation of several runs that remembers the active agent. The model is scripted: no network, no key.

python examples/durability/threads.py
baton check examples/durability/threads.py:desk
"""

import asyncio

from batonkit import Agent, Runner
from batonkit.models import ModelRequest
from batonkit.testing import scripted_or_real, transfer_to

bookings = Agent("Bookings", description="Books tables and changes bookings.")
desk = Agent("Desk", description="Finds out who can help.", sub_agents=[bookings])


def as_told(request: ModelRequest) -> str:
    """An answer that shows how much of the conversation was read."""
    return f"[{len(request.messages)} messages read] It is noted."


model = scripted_or_real({"Desk": [transfer_to("Bookings"), "Hello again!"], "Bookings": [as_told, as_told]})


async def main() -> None:
    print(model.notice)
    runner = Runner(desk, model=model, store="memory:")  # A file or a database keeps threads for longer.
    thread = runner.thread("u42")

    for text in ("A table for two, please.", "Make it three."):
        result = await runner.run(text, thread="u42")
        print(f"{result.agent}: {result.output}")
    print(f"{await thread.active_agent()} is active: the second run started there, not with Desk")

    result = await runner.run("Hello?", thread="u42", start_at="root")
    print(f"{result.agent}: {result.output}")

    print(f"{len(await thread.runs())} runs, {len(await thread.messages())} messages")
    print(f"forgot {await thread.trim(keep=1)} runs, {len(await thread.messages())} messages are left")


if __name__ == "__main__":
    asyncio.run(main())
