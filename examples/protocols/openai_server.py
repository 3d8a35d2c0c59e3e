"""A team behind OpenAI's API, for chat programs and SDKs. The model is scripted: no network, no key.

The app is the line with `openai_app`; the rest is a client, written with the official `openai` package. To serve it on
a port for Open WebUI: `baton serve examples/protocols/openai_server.py:runner --openai`.

python examples/protocols/openai_server.py
baton check examples/protocols/openai_server.py:desk
"""

import asyncio

from openai import AsyncOpenAI

from batonkit import Agent, Runner, tool
from batonkit.serve import openai_app, serve_in_background
from batonkit.testing import call, scripted_or_real


@tool(needs_approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"{order} is refunded"


billing = Agent("Billing", description="Refunds orders.", tools=[refund])
desk = Agent("Desk", instructions="Pass refunds on to Billing.", handoffs=[billing])
script = [call("transfer_to_billing"), call("refund", order="A-1"), "The money is on its way.", "You are welcome!"]
model = scripted_or_real(script, cycle=True)
runner = Runner(desk, model=model, store="memory:")
app = openai_app(runner, auth={"s3cret": "ada"}, answer_in_chat=True, show_agents=True)


async def say(client: AsyncOpenAI, text: str) -> None:
    """Say something in the chat, and print the answer with the agent that gives it."""
    print(f"user: {text}")
    completion = await client.chat.completions.create(
        model="Desk", messages=[{"role": "user", "content": text}], metadata={"thread": "chat-1"}
    )
    message = completion.choices[0].message
    agent = (message.model_extra or {}).get("baton", {}).get("agent", "")
    print(f"{agent}: {message.content}")


async def main() -> None:
    print(model.notice)
    async with (
        serve_in_background(app) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="s3cret") as client,
    ):
        for text in ("I want my money back for A-1.", "yes", "Thank you."):
            await say(client, text)


if __name__ == "__main__":
    asyncio.run(main())
