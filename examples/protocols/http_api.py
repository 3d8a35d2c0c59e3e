"""A team behind an HTTP API; runs outlive connections. The model is scripted: no network, no key.

python examples/protocols/http_api.py
baton check examples/protocols/http_api.py:desk
"""

import asyncio
import json
from typing import Any

import aiohttp

from batonkit import Agent, RunContext, Runner, tool
from batonkit.serve import api_app, serve_in_background
from batonkit.testing import call, scripted_or_real


@tool
async def book_table(ctx: RunContext[Any], people: int) -> str:
    """Book a table; the guest chooses the time."""
    time = await ctx.interrupt({"question": "At what time?", "times": ["18:00", "20:30"]})
    return f"a table for {people} at {time}"


desk = Agent("Desk", instructions="Book what is asked for.", tools=[book_table])
model = scripted_or_real([call("book_table", people=4), "Done: four people at 20:30."], cycle=True)
app = api_app(Runner(desk, model=model, store="memory:"), auth={"s3cret": "ada"})


async def listen(client: aiohttp.ClientSession, run: str, after: int = 0) -> int:
    """Print what happens until the run stops; the number of the last event."""
    async with client.get(f"/runs/{run}/events", headers={"Last-Event-ID": str(after)}) as stream:
        async for line in stream.content:
            field, _, value = line.decode().strip().partition(": ")
            after = int(value) if field == "id" else after
            if field == "event":
                print(f"  {after} {value}")
    return after


async def main() -> None:
    print(model.notice)
    headers = {"Authorization": "Bearer s3cret"}
    async with serve_in_background(app) as url, aiohttp.ClientSession(url, headers=headers) as client:
        async with client.post("/runs", json={"input": "A table for four, please."}) as answer:
            run = (await answer.json())["id"]
        last = await listen(client, run)
        async with client.get(f"/runs/{run}") as answer:
            (question,) = (await answer.json())["interrupts"]
        print(f"asked: {json.dumps(question['payload'])}")
        await (await client.post(f"/runs/{run}/answers", json={"answers": {question["id"]: "20:30"}})).read()
        await listen(client, run, after=last)
        async with client.get(f"/runs/{run}") as answer:
            print((await answer.json())["output"])


if __name__ == "__main__":
    asyncio.run(main())
