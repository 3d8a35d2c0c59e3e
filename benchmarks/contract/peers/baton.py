"""Baton: `handoffs=[…]`, a tool for each target, and a store in SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from batonkit import Agent, RunContext, tool
from batonkit import Runner as BatonRunner
from batonkit.messages import AssistantMessage, ToolCall, text_of
from batonkit.models import ModelRequest, ModelResponse
from batonkit.stores import SQLiteStore
from benchmarks.contract.case import BILLING, SHIPPING, TRIAGE, Script, Seen


class ScriptedModel:
    """A model that answers from the script, and records what it reads."""

    name = "scripted"

    def __init__(self, script: Script, agent: str) -> None:
        self._script = script
        self._agent = agent

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        """Answer a request."""
        text, calls = self._script.play(self._agent, [seen(message) for message in request.messages])
        made = tuple([ToolCall(call.id, call.name, call.json) for call in calls])
        yield ModelResponse(AssistantMessage(text, made))


def seen(message: Any) -> Seen:
    """Convert a message of a request."""
    role = type(message).__name__.removesuffix("Message").lower()
    calls = tuple([call.id for call in getattr(message, "tool_calls", ())])
    answers = (message.tool_call_id,) if role == "tool" else ()
    return Seen(role, text_of(message.content), calls, answers)


def team(script: Script) -> Agent[Any, str]:
    """Make the team."""

    look_up, reserve, charge = script.tools()

    @tool
    async def ask_first(ctx: RunContext[Any]) -> str:
        """Ask a person."""
        script.act("before")
        answer = await ctx.interrupt("go on?")
        script.act("after")
        return f"answered {answer}"

    def agent(name: str, **options: Any) -> Agent[Any, str]:
        return Agent(name, description=f"Knows {name}.", model=ScriptedModel(script, name), **options)

    tools = [tool(look_up), tool(reserve), tool(effect="once")(charge), ask_first]
    return agent(
        TRIAGE,
        tools=tools,
        handoffs=[agent(BILLING, handoffs=[TRIAGE]), agent(SHIPPING, handoffs=[TRIAGE])],
    )


class Runner:
    """Baton behind the probes."""

    distribution = "batonkit"
    handoffs = "`handoffs=[…]`"

    notes: Mapping[str, str] = {
        "crash": 'with `effect="once"`; a tool without it is run again',
        "interrupt": "what runs inside `ctx.step(…)` runs once",
    }
    missing: Mapping[str, str] = {}

    async def converse(self, script: Script, *messages: str) -> list[str]:
        """Send messages of one thread."""
        async with BatonRunner(team(script), store="memory:") as runner:
            return [str((await runner.run(message, thread="t")).output) for message in messages]

    async def start(self, script: Script, folder: Path) -> None:
        """Run with a store in SQLite."""
        async with BatonRunner(team(script), store=SQLiteStore(folder / "runs.db", lease_seconds=1)) as runner:
            await runner.run("charge 80", run_id="r")

    async def resume(self, script: Script, folder: Path) -> str:
        """Recover the run that no worker drives."""
        async with BatonRunner(team(script), store=SQLiteStore(folder / "runs.db", lease_seconds=1)) as runner:
            while not await runner._repository.store.runnable():  # noqa: ASYNC110 - the lease of another process just expires
                await asyncio.sleep(0.1)
            result = await runner.runs.drive("r")
            asked = [interrupt.payload for interrupt in result.interrupts]
            if asked and asked[0].get("kind") == "unknown_outcome":
                return "resumes, and asks a person whether it acted"
            return "resumes"

    async def interrupt(self, script: Script) -> str:
        """Suspend the run in a tool, and answer."""
        async with BatonRunner(team(script), store="memory:") as runner:
            result = await runner.run("go")
            return str((await runner.resume(result.run_id, "yes")).output)
