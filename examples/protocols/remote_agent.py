"""An agent of another service, as if it were here; it asks, and is answered here. The models are scripted.

python examples/protocols/remote_agent.py
baton check examples/protocols/remote_agent.py:weather
"""

import asyncio
import socket
from typing import Any

import uvicorn

from batonkit import Agent, Runner, tool
from batonkit.a2a import RemoteAgent
from batonkit.serve.a2a import a2a_app
from batonkit.testing import call, scripted_or_real, transfer_to


@tool(needs_approval=True)
async def send_warning(city: str) -> str:
    """Send a storm warning to everybody in a city."""
    return f"everybody in {city} has been warned"


there = scripted_or_real([call("send_warning", city="Rome"), "Rome has been warned."], cycle=True)
weather = Agent("Weather", description="Knows the weather, sends warnings.", tools=[send_warning], model=there)
app = a2a_app(weather)  # In a program of its own: app.run(port=8000)


async def ask(url: str) -> None:
    """The program that uses the service."""
    remote = await RemoteAgent.discover(url)
    print(f"found {remote.name}: {remote.description}")
    model = scripted_or_real([transfer_to("Weather")])
    runner = Runner(Agent("Router", description="Routes.", sub_agents=[remote], model=model))

    result = await runner.run("A storm is coming to Rome!")
    for question in result.interrupts:
        print(f"{result.status}: {question.agent} asks {question.payload['question']}")
        result = await runner.resume(result.run_id, {question.id: True})
    print(f"{result.status}: {result.agent} says {result.output}")
    await remote.close()


async def main() -> None:
    print(there.notice)
    listening: Any = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server.serve([listening]))
    await ask(f"http://127.0.0.1:{listening.getsockname()[1]}")
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
