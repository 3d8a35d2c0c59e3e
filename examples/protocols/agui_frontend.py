"""A team behind any user interface that speaks AG-UI. The model is scripted: no network, no key.

The app is the four lines that end with `agui_app`; the rest plays the user interface. To serve it on a port:
`baton serve examples/protocols/agui_frontend.py:runner --agui`.

python examples/protocols/agui_frontend.py
baton check examples/protocols/agui_frontend.py:painter
"""

import asyncio
import json
from typing import Any

import aiohttp

from batonkit import Agent, Runner
from batonkit.serve import serve_in_background
from batonkit.serve.agui import agui_app, with_frontend_tools
from batonkit.testing import call, scripted_or_real

model = scripted_or_real([call("pick_color"), "Red it is: I paint the door."], cycle=True)
painter = with_frontend_tools(Agent("Painter", instructions="Let the user pick the color."))
runner = Runner(painter, model=model, store="memory:")
app = agui_app(runner)

PICK_COLOR = {"name": "pick_color", "description": "Let the user pick a color on the screen."}


async def run(client: aiohttp.ClientSession, number: int, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Act as a user interface: send the conversation and its tools, and show the events."""
    request = {"threadId": "door", "runId": f"run-{number}", "messages": messages, "tools": [PICK_COLOR]}
    async with client.post("/", json=request) as answer:
        lines = (await answer.text()).splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    print(f"run {number}: {', '.join(event['type'] for event in events)}")
    return events


async def main() -> None:
    print(model.notice)
    async with serve_in_background(app) as url, aiohttp.ClientSession(url) as client:
        messages: list[dict[str, Any]] = [{"id": "1", "role": "user", "content": "Paint the door, please."}]
        events = await run(client, 1, messages)
        (pending,) = events[-1]["outcome"]["pendingToolCallIds"]
        messages.append({"id": "2", "role": "tool", "toolCallId": pending, "content": "red"})
        events = await run(client, 2, messages)
        print("".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"))


if __name__ == "__main__":
    asyncio.run(main())
