"""A tool that must never run twice, stopped in the middle. The model is scripted: no network, no key.

python examples/durability/never_twice.py
baton check examples/durability/never_twice.py:bank
"""

import asyncio

from batonkit import Agent, Runner, tool
from batonkit.testing import call, scripted_or_real

transfers = 0
has_sent = asyncio.Event()


@tool(effect="once")
async def send_money(to: str, amount: float) -> str:
    """Send money."""
    global transfers
    transfers += 1  # The money is gone …
    has_sent.set()
    await asyncio.sleep(3600)  # … and the bank's answer never comes.
    return "sent"


bank = Agent("Bank", instructions="Send what is asked for.", tools=[send_money])
model = scripted_or_real([call("send_money", to="Ada", amount=100), "Ada has her 100 EUR."])


async def main() -> None:
    print(model.notice)
    runner = Runner(bank, model=model, store="memory:")

    # A crash leaves the same behind: it is on record that the tool was about to run, and nothing else.
    async with runner.stream("Send Ada 100 EUR.") as run:
        await has_sent.wait()
        await run.cancel()
    print(f"{run.result.status}; it is unknown whether the money was sent")

    result = await runner.resume(run.run_id)
    (question,) = result.interrupts
    print(f"{result.status}: {question.payload}")

    # A person has looked it up at the bank, by the idempotency key. Or: {"error": "…"}, {"run_again": True}.
    result = await runner.resume(run.run_id, {"result": "sent"})
    print(f"{result.status}: {result.output} The tool ran {transfers} time.")


if __name__ == "__main__":
    asyncio.run(main())
