"""A chat page with `useChat` of the AI SDK: who speaks, handoffs, approvals. The model is scripted: no network, no key.

It plays the page. For a browser: `npm install && npm run build` in `chat_page/`, then add `serve` to the command.

python examples/protocols/chat_page.py
baton check examples/protocols/chat_page.py:desk
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from batonkit import Agent, Runner, tool
from batonkit.runs import BackgroundRunner
from batonkit.serve import ai_sdk_app, runner_lifespan, serve, serve_in_background
from batonkit.testing import call, scripted_or_real


@tool(needs_approval=True)
async def refund(order: str, euros: int) -> str:
    """Pay back an order."""
    return f"{euros} EUR for order {order} are paid back"


steps = [call("refund", order="A-17", euros=80), "Done: 80 EUR are on their way.", "You are welcome."]
model = scripted_or_real({"Desk": [call("transfer_to_refunds")], "Refunds": steps}, cycle=True)
refunds = Agent("Refunds", description="Pays back orders.", instructions="Refund what is owed.", tools=[refund])
desk = Agent("Desk", instructions="Help customers; hand refunds over.", handoffs=[refunds])
background = BackgroundRunner(Runner(desk, model=model, store="memory:"))
page = Mount("/", StaticFiles(directory=Path(__file__).with_suffix(""), html=True))
app = Starlette(routes=[Mount("/api/chat", ai_sdk_app(background)), page], lifespan=runner_lifespan(background))


async def send(client: aiohttp.ClientSession, message: dict[str, Any]) -> list[dict[str, Any]]:
    """Act as the page: send its last message, and show what comes back."""
    async with client.post("/api/chat/", json={"id": "chat", "messages": [message]}) as answer:
        chunks = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: {")]
    print(", ".join(chunk["type"] for chunk in chunks))
    return chunks


async def main() -> None:
    async with serve_in_background(app) as url, aiohttp.ClientSession(url) as client:
        chunks = await send(client, {"id": "1", "role": "user", "parts": [{"type": "text", "text": "A-17 broke."}]})
        for asked in [chunk for chunk in chunks if chunk["type"] == "tool-approval-request"]:
            decision = {"approval": {"id": asked["approvalId"], "approved": True}, "state": "approval-responded"}
            answer = {"id": chunks[0]["messageId"], "role": "assistant", "parts": [{"type": "tool-refund", **decision}]}
            print("".join([chunk.get("delta", "") for chunk in await send(client, answer)]))


if __name__ == "__main__":
    print(model.notice)
    serve(app) if sys.argv[1:] == ["serve"] else asyncio.run(main())
