"""An approval that outlives the process that asked for it. The model is scripted: no network, no key.

python examples/durability/survives_a_restart.py
baton check examples/durability/survives_a_restart.py:clerk
"""

import asyncio
import tempfile
from pathlib import Path

from batonkit import Agent, Runner, tool
from batonkit.stores import resolve_store
from batonkit.testing import call, scripted_or_real


@tool(needs_approval=True, effect="once")
async def refund(order: str, amount: float) -> str:
    """Pay money back."""
    print(f"  refund runs: {amount:.2f} EUR for {order}")
    return f"{amount:.2f} EUR paid back"


clerk = Agent("Clerk", instructions="Settle complaints.", tools=[refund])


async def monday(file: Path) -> None:
    """The customer complains, and a person must decide. Then the process ends."""
    model = scripted_or_real([call("refund", order="A-17", amount=80)])
    print(model.notice)
    async with Runner(clerk, model=model, store=file) as runner:
        result = await runner.run("My lamp is broken.")
    print(f"monday:  {result.status}, {result.interrupts[0].payload}")


async def tuesday(file: Path) -> None:
    """Another process, another runner: all it has is the file."""
    store = resolve_store(file)
    async with Runner(clerk, model=scripted_or_real(["The money is on its way."]), store=store) as runner:
        (waiting,) = (await store.list(status=["suspended"])).records
        print(f"tuesday: {waiting.run_id} waits since monday, with {waiting.seq - 1} events on record")
        result = await runner.resume(waiting.run_id, True)
    print(f"tuesday: {result.status}, {result.output}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.db"
        await monday(file)
        await tuesday(file)


if __name__ == "__main__":
    asyncio.run(main())
