"""`baton demo`: the weather router end to end, with the best model that can be had without asking for anything.

The weather router that `baton demo` runs: a team in English and in Chinese, and a script to play without a model.
"""

import asyncio
import os
import sys
from time import monotonic
from typing import Any

from msgspec import Struct

from ..agents import Agent
from ..errors import BatonError, SetupError
from ..events import TextDelta
from ..handoffs import PromptLanguage
from ..messages import Usage
from ..models import Model, resolve_model
from ..models.registry import MODEL_ENV_VAR
from ..runner import Runner
from ..testing import ScriptedModel, call, say, transfer_to
from ..testing.scripted import SCRIPTED
from ..tools import tool
from .display import Screen
from .models import model_of_ollama, pull


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


_NOT_TO_BUILD_ON = "it shows real transfers and tool calls; it is not a model to build on"


class DemoModel(Struct, frozen=True):
    """Who plays the model, and what a person should know about that. `model` is None for the script."""

    model: Model | None
    notice: str
    is_loud: bool = False


def demo(question: str = "", *, model: str | None = None, language: PromptLanguage = "en") -> None:
    """Run the demo and show what happens. Raises what ends the run."""
    screen = Screen()
    playing = choose_demo_model(model, screen)
    screen.line(playing.notice, "bold red" if playing.is_loud else None)
    asyncio.run(_play(demo_in(language), question, playing, screen))


def choose_demo_model(wish: str | None, screen: Screen) -> DemoModel:
    """The model that is wished for; else Ollama's, if one runs here; else the embedded one; else the script."""
    wish = wish or os.environ.get(MODEL_ENV_VAR)
    if wish == SCRIPTED:
        return DemoModel(None, "scripted model: no language model is called; transfers, tools and streaming are real")
    if wish:
        chosen = resolve_model(_fetched_if_embedded(wish, screen))
        return DemoModel(chosen, f"model: {chosen.name}")
    found = model_of_ollama()
    if found is not None:
        return DemoModel(found, f"model: {found.name}, which Ollama has on this machine")
    try:
        chosen = resolve_model(_fetched_if_embedded("local", screen))
    except BatonError as error:
        return DemoModel(None, _loudly(error), is_loud=True)
    return DemoModel(chosen, f"model: {chosen.name}, on this machine and without a key; {_NOT_TO_BUILD_ON}")


def _fetched_if_embedded(wish: str, screen: Screen) -> str:
    """The same wish, after fetching the weights if it means weights that can be fetched."""
    provider, _, name = wish.partition(":")
    if provider == "local":
        from ..models.local.engine import is_installed
        from ..models.local.weights import DEFAULT, known_weights

        if not is_installed():
            raise SetupError("llama.cpp is not installed; pip install 'baton-adk[local]' brings it")
        if (name or DEFAULT) in known_weights():
            pull(name or DEFAULT, screen=screen)
    return wish


def _loudly(error: BatonError) -> str:
    return (
        f"NO LANGUAGE MODEL: {error}\n"
        "scripted model: what follows plays a script; only transfers, tools and streaming are real.\n"
        "With a key: baton demo --model openai:gpt-5"
    )


async def _play(shown: DemoTeam, question: str, playing: DemoModel, screen: Screen) -> None:
    if playing.model is None:
        if question and question != shown.question:
            screen.line("(a script knows one question, so yours is not asked)", "dim")
        screen.line("(the token counts are part of the script)", "dim")
        question = shown.question
    question = question or shown.question
    screen.line("")
    screen.line(f"you › {question}", "bold")
    began = monotonic()
    runner = Runner(shown.router, model=playing.model or shown.script, prompt_language=shown.language)
    async with runner.stream(question) as run:
        async for event in run:
            screen.show(event)
            if playing.model is None and isinstance(event, TextDelta) and sys.stdout.isatty():
                await asyncio.sleep(0.05)  # A script has its words at once; a language model takes its time.
    screen.usage(run.result.usage.total, seconds=None if playing.model is None else monotonic() - began)
