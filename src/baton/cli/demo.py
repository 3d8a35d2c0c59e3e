"""`baton demo`: the weather router end to end, with the best model that can be had without asking for anything."""

import asyncio
import os
import sys
from time import monotonic

from msgspec import Struct

from ..errors import BatonError, SetupError
from ..events import TextDelta
from ..handoffs import PromptLanguage
from ..models import Model, resolve_model
from ..models.registry import MODEL_ENV_VAR
from ..runner import Runner
from ..testing.understudy import SCRIPTED
from .ollama import model_of_ollama
from .pull import pull
from .show import Screen
from .weather import DemoTeam, demo_in

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
        return DemoModel(None, "scripted model: no language model is asked; transfers, tools and streaming are real")
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
