"""A parent and its sub_agents pass control to one another. The model is scripted: no network, no key.

python examples/first_steps/transfer.py
baton check examples/first_steps/transfer.py:router
baton graph examples/first_steps/transfer.py:router
"""

from batonkit import Agent, Runner, tool
from batonkit.testing import call, scripted_or_real, transcript, transfer_to


@tool
async def get_weather(city: str) -> str:
    """Get the current weather for a city."""
    return f"25 °C in {city}"


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
model = scripted_or_real(
    {
        "RouterAgent": [transfer_to("WeatherAgent")],
        "WeatherAgent": [call("get_weather", city="Beijing"), "It is 25 °C in Beijing."],
    }
)
runner = Runner(router, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("What's the weather in Beijing?")
    print("\n".join(transcript(result.events)))
    print(f"{result.agent} is active now, reached by {' → '.join(result.events[-2].path)}")


if __name__ == "__main__":
    main()
