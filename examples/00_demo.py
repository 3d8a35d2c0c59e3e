"""The weather router, end to end in your terminal: a transfer, a tool call, a streamed answer. Needs no network."""

import asyncio
import sys

from baton import Agent, Runner, tool
from baton.cli.show import Screen
from baton.events import TextDelta
from baton.messages import Usage
from baton.testing import ScriptedModel, call, say, transfer_to

QUESTION = "What's the weather in Beijing?"


@tool
async def get_weather(city: str) -> str:
    """Get the current weather for a city."""
    return f"the temperature in {city} is 25°C"


weather = Agent(
    "WeatherAgent",
    description="Knows the current weather of any city.",
    instructions="Use get_weather, then report the result.",
    tools=[get_weather],
)
chat = Agent("ChatAgent", description="General conversation.", instructions="Be friendly.")
router = Agent(
    "RouterAgent",
    description="Routes to an expert.",
    instructions="Pick the right expert.",
    sub_agents=[chat, weather],
)
model = ScriptedModel(
    {
        "RouterAgent": [say("", transfer_to("WeatherAgent"), usage=Usage(212, 17))],
        "WeatherAgent": [
            say("", call("get_weather", city="Beijing"), usage=Usage(187, 15)),
            say("It is 25 °C in Beijing right now: a good day for a walk in the hutongs.", usage=Usage(221, 24)),
        ],
    },
    stream=True,
)


async def main() -> None:
    screen = Screen()
    screen.line("scripted model: no language model is asked; what you see of transfers, tools and streaming is real")
    screen.line("(the token counts are part of the script)\n", "dim")
    screen.line(f"you › {QUESTION}", "bold")
    async with Runner(router, model=model).stream(QUESTION) as run:
        async for event in run:
            screen.show(event)
            if isinstance(event, TextDelta) and sys.stdout.isatty():
                await asyncio.sleep(0.05)  # A script has its words at once; a language model takes its time.
    screen.usage(run.result.usage.total)


if __name__ == "__main__":
    asyncio.run(main())
