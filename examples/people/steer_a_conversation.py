"""Messages while a run is active: steer it, or queue. The model is scripted: no network, no key.

python examples/people/steer_a_conversation.py
baton check examples/people/steer_a_conversation.py:shop
"""

import asyncio

from batonkit import Agent, Runner, tool
from batonkit.messages import UserMessage, text_of
from batonkit.models import ModelRequest
from batonkit.testing import call, scripted_or_real

searching, may_return = asyncio.Event(), asyncio.Event()


@tool
async def search() -> str:
    """Search the catalogue. It takes a while."""
    searching.set()
    await may_return.wait()
    return "12 pairs"


shop = Agent("Shop", description="Sells shoes.", tools=[search])


def as_told(request: ModelRequest) -> str:
    """An answer that shows what the user has said so far."""
    said = [text_of(message.content) for message in request.messages if isinstance(message, UserMessage)]
    return f"I have read: {' / '.join(said)}"


async def main() -> None:
    model = scripted_or_real([[call("search")], as_told, as_told])
    print(model.notice)
    runner = Runner(shop, model=model, store="memory:")  # A database lets several processes share the thread.

    first = asyncio.create_task(runner.run("Red shoes, please.", thread="u42"))
    await searching.wait()
    # The agent reads it before its next model call; both callers get the result of the same run.
    steering = asyncio.create_task(runner.run("Blue ones, I mean.", thread="u42", when_busy="steer"))
    queued = asyncio.create_task(runner.run("And socks.", thread="u42", when_busy="queue"))
    await wait_for_messages(runner, 2)
    may_return.set()
    print(f"first:    {(await first).output}")
    print(f"steering: the same run: {(await steering).run_id == (await first).run_id}")
    print(f"queued:   {(await queued).output}")


async def wait_for_messages(runner: Runner, count: int) -> None:
    for _ in range(1000):
        if len(await runner.thread("u42").waiting()) >= count:
            return
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main())
