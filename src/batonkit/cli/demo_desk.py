"""The support desk of `baton demo`, and the two processes of its story.

`start` runs the desk until a refund waits for approval; `baton demo` then kills it. `resume` is another process, which
finds the open question in the store, asks it and lets the desk pay.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from ..agents import Agent
from ..handoffs import PromptLanguage, handoff
from ..log import AgentStarted, TextDelta
from ..messages import Usage
from ..runs import Interrupt, Runner, RunStream
from ..testing import ScriptedModel, call, say
from ..tools import Approval, tool
from .display import Screen, ask_interrupts, format_interrupt
from .output import write
from .targets import open_interrupts

_SECONDS_A_WORD = 0.05
"""About the speed of a language model."""
HEADING = "bold magenta"
"""The style of headings."""
READY = "waiting in run "
"""The first process writes this and the id of its run to stderr when the refund waits."""


class DeskTexts(Struct, frozen=True):
    """The texts of the desk in one language; those of agents are description and instructions."""

    question: str
    desk: tuple[str, str]
    refunds: tuple[str, str]
    reason: str
    refund: str
    paid: str
    """The result of the refund, with `{order}` and `{euros}`."""
    answer: str
    """The scripted answer."""


TEXTS: dict[PromptLanguage, DeskTexts] = {
    "en": DeskTexts(
        "My lamp arrived broken: order A-17, 80 EUR. I want my money back!",
        desk=("Talks to customers first.", "Hand over to the colleague who can help. Do not answer yourself."),
        refunds=("Pays money back.", "Use refund, then tell the customer what was paid back."),
        reason="arrived broken",
        refund="Pay back the price of an order.",
        paid="{euros} EUR for order {order} paid back",
        answer="I am sorry about the lamp. Your 80 EUR are on their way back to you.",
    ),
    "zh": DeskTexts(
        "我的台灯送到时坏了：订单 A-17，80 欧元。我要退款！",
        desk=("最先接待顾客。", "把顾客交给能帮忙的同事，不要自己回答。"),
        refunds=("给顾客退款。", "使用 refund，然后用一句话告诉顾客退了多少钱。"),
        reason="送到时已损坏",
        refund="退还一个订单的价款。",
        paid="订单 {order} 已退款 {euros} 欧元",
        answer="台灯的事非常抱歉。80 欧元正在退回给您。",
    ),
}


@dataclass
class Complaint:
    """The input of the handoff."""

    order: str
    reason: str


def make_desk(texts: DeskTexts, ledger: Path) -> Agent[Any]:
    """Return the first agent of the team; each payment adds a line to the ledger."""

    async def refund(order: str, euros: int) -> str:
        paid = texts.paid.format(order=order, euros=euros)
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{paid}\n")
        return paid

    pay = tool(refund, description=texts.refund, needs_approval=True, effect="once")
    about, instructions = texts.refunds
    # Small models would rather say that they have paid than pay.
    refunds = Agent("Refunds", description=about, instructions=instructions, tools=[pay], tool_choice="required")
    about, instructions = texts.desk
    return Agent(
        "Desk", description=about, instructions=instructions, handoffs=[handoff(refunds, input_type=Complaint)]
    )


def make_script(texts: DeskTexts) -> ScriptedModel:
    """Return a model that plays the story."""
    steps = {
        "Desk": [say("", call("transfer_to_refunds", order="A-17", reason=texts.reason), usage=Usage(231, 26))],
        "Refunds": [
            say("", call("refund", order="A-17", euros=80), usage=Usage(301, 21)),
            say(texts.answer, usage=Usage(334, 19)),
        ],
    }
    return ScriptedModel(steps, name="scripted", stream=True)


async def show_run(
    run: RunStream[Any], screen: Screen, *, headings: Mapping[str, str] | None = None, is_scripted: bool = False
) -> None:
    """Show a run until it stops, with a heading before some agents start."""
    headings = headings or {}
    async with screen.spinner.running(), run:
        async for event in run:
            if isinstance(event, AgentStarted) and event.agent in headings:
                screen.line(headings[event.agent], HEADING)
            screen.show(event)
            if is_scripted and isinstance(event, TextDelta) and screen.console.is_terminal:
                await asyncio.sleep(_SECONDS_A_WORD)


def ask_user(interrupts: Sequence[Interrupt], screen: Screen) -> dict[str, Any]:
    """Ask the user the open questions; without a terminal, approve.

    Raises:
        click.Abort: The user did not answer.
    """
    if not sys.stdin.isatty():
        for interrupt in interrupts:
            screen.line(f"? {interrupt.agent}: {format_interrupt(interrupt)}", "bold yellow")
        screen.line("  yes (there is no terminal to ask at)", "dim")
        return {interrupt.id: Approval(True) for interrupt in interrupts}
    answers: dict[str, Any] = {}
    if ask_interrupts(interrupts, answers, screen=screen, commands=()) is not None:
        raise click.Abort
    return answers


def _make_runner(language: PromptLanguage, store: str, ledger: Path) -> tuple[Runner[Any, Any], ScriptedModel]:
    texts = TEXTS[language]
    script = make_script(texts)
    return Runner(make_desk(texts, ledger), model=script, prompt_language=language, store=store), script


async def _start(language: PromptLanguage, store: str, ledger: Path) -> None:
    """Run the desk until it asks; then wait to be killed."""
    screen = Screen()
    texts = TEXTS[language]
    runner, _ = _make_runner(language, store, ledger)
    run = runner.stream(texts.question)
    screen.line("1. The desk hands over, with a typed reason", HEADING)
    screen.line(f"you › {texts.question}", "bold")
    await show_run(run, screen, headings={"Refunds": "2. A refund waits for a person"}, is_scripted=True)
    for interrupt in run.result.interrupts:
        screen.line(f"? {interrupt.agent}: {format_interrupt(interrupt)}", "bold yellow")
    write(f"{READY}{run.run_id}", err=True)
    # The end of stdin: `baton demo` itself has ended.
    await asyncio.to_thread(sys.stdin.read)


async def _resume(language: PromptLanguage, store: str, ledger: Path, run_id: str) -> None:
    """Ask the open question of a run that another process left behind, and finish the run."""
    screen = Screen()
    runner, script = _make_runner(language, store, ledger)
    async with runner:
        script.fast_forward(await runner.runs.events(run_id))
        answers = ask_user(await open_interrupts(runner, run_id), screen)
        run = runner.stream_resume(run_id, answers)
        await show_run(run, screen, is_scripted=True)
        screen.usage(run.result.usage.total)


@click.command()
@click.argument("language")
@click.argument("store")
@click.argument("ledger", type=click.Path(path_type=Path))
@click.argument("run_id", default="")
def main(language: PromptLanguage, store: str, ledger: Path, run_id: str) -> None:
    """Run one process of the story: the first one or, with a run id, the second one."""
    asyncio.run(_resume(language, store, ledger, run_id) if run_id else _start(language, store, ledger))


if __name__ == "__main__":
    main()
