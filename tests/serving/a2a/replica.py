"""A service in a process of its own: `python -m tests.serving.a2a.replica PORT FOLDER`. Killed by tests."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from baton import Agent, Runner, Transfer, agent
from baton.agents import AgentContext
from baton.messages import text_of
from baton.models import Chunk, ModelRequest, ModelResponse, TextChunk
from baton.serving.a2a import a2a_app, allow_any_url

PIECES = [f"{number} " for number in range(400)]
HALF = len(PIECES) // 2


class Desk:
    """What agents do here: they note it in a file, and wait for files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, what: str) -> None:
        """Write down that it was done."""
        with (self._folder / "notes").open("a") as notes:
            notes.write(f"{what}\n")

    async def until(self, what: str) -> None:
        """Return when it is allowed."""
        while not (self._folder / what).exists():
            await asyncio.sleep(0.02)


class Counting:
    """A model that counts aloud, and at one half waits."""

    name = "counting"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def respond(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        """Count."""
        for piece in PIECES[:HALF]:
            yield TextChunk(piece)
        self._desk.note("half")
        await self._desk.until("go")
        for piece in PIECES[HALF:]:
            yield TextChunk(piece)
        yield ModelResponse(stop_reason="stop")


def team(folder: Path) -> Runner:
    """An agent that does what it is told, and one that counts."""
    desk = Desk(folder)
    counter = Agent("Counter", description="Counts.", model=Counting(desk))

    @agent("Worker", description="Works.", sub_agents=[counter])
    async def worker(ctx: AgentContext) -> Transfer | None:
        wanted = text_of(ctx.messages()[-1].content)
        if wanted == "count":
            return Transfer("Counter")
        if wanted.startswith("ask"):
            answer = await ctx.interrupt("well?")
            await ctx.step("answered", lambda: desk.note(f"{wanted} {answer}"))
            if wanted == "ask and work":
                await desk.until("go")
        elif wanted == "silent":
            desk.note("silent")
            await asyncio.Event().wait()
        else:
            await ctx.step("begun", lambda: desk.note(wanted))
            await ctx.say("begun")
            await desk.until("go")
        await ctx.say("done")
        return None

    return Runner(worker, store=folder / "runs.db", lease_seconds=2)


if __name__ == "__main__":
    app = a2a_app(team(Path(sys.argv[2])), push_policy=allow_any_url, push_retry_delays=(0.05, 0.1, 0.2))
    app.run(port=int(sys.argv[1]))
