"""The weather router that `baton demo` runs: a team in English and in Chinese, and a script to play without a model."""

from typing import Any

from msgspec import Struct

from ..agents import Agent
from ..handoffs import PromptLanguage
from ..messages import Usage
from ..testing import ScriptedModel, call, say, transfer_to
from ..tools import tool


class DemoTeam(Struct, frozen=True):
    """What the demo runs in one language."""

    language: PromptLanguage
    question: str
    router: Agent[Any]
    script: ScriptedModel


def demo_in(language: PromptLanguage) -> DemoTeam:
    """The demo in this language."""
    return _chinese() if language == "zh" else _english()


def _english() -> DemoTeam:
    @tool
    async def get_weather(city: str) -> str:
        """Get the current weather for a city."""
        return f"the temperature in {city} is 25°C"

    weather = Agent(
        "WeatherAgent",
        description="Knows the current weather of any city.",
        examples=["Is it cold in Lima?", "Do I need a coat in Cairo?"],
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
    answer = "It is 25 °C in Beijing right now: a good day for a walk in the hutongs."
    return DemoTeam("en", "What's the weather in Beijing?", router, _script("Beijing", answer))


def _chinese() -> DemoTeam:
    @tool
    async def get_weather(city: str) -> str:
        """查询一个城市现在的天气。"""
        return f"{city}现在的气温是 25°C"

    weather = Agent(
        "WeatherAgent",
        description="知道任何城市现在的天气。",
        examples=["利马冷吗？", "开罗要穿外套吗？"],
        instructions="使用 get_weather，然后报告结果。",
        tools=[get_weather],
    )
    chat = Agent("ChatAgent", description="日常聊天。", instructions="友好地聊天。")
    router = Agent(
        "RouterAgent",
        description="把请求交给合适的专家。",
        instructions="选择合适的专家。",
        sub_agents=[chat, weather],
    )
    return DemoTeam("zh", "北京今天天气怎么样？", router, _script("北京", "北京现在 25 °C，适合去胡同里走走。"))


def _script(city: str, answer: str) -> ScriptedModel:
    steps = {
        "RouterAgent": [say("", transfer_to("WeatherAgent"), usage=Usage(212, 17))],
        "WeatherAgent": [
            say("", call("get_weather", city=city), usage=Usage(187, 15)),
            say(answer, usage=Usage(221, 24)),
        ],
    }
    return ScriptedModel(steps, stream=True)
