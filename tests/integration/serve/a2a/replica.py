"""A service in its own process, killed by tests: `python -m tests.integration.serve.a2a.replica PORT FOLDER`."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from batonkit import Agent, Runner, Transfer, agent
from batonkit.agents import AgentContext
from batonkit.messages import text_of
from batonkit.models import Chunk, ModelRequest, ModelResponse, TextChunk
from batonkit.serve.a2a import a2a_app, allow_any_url
from batonkit.stores import SQLiteStore

CHUNKS = [f"{number} " for number in range(400)]
HALF = len(CHUNKS) // 2


class SharedFolder:
    """A folder in which agents record what they did, and wait for files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, name: str) -> None:
        """Record an action."""
        self._add("notes", name)

    def note_stored(self, name: str) -> None:
        """Record that an action is in the log: the code after a step runs once the step is stored."""
        self._add("stored", name)

    def _add(self, file: str, line: str) -> None:
        with (self._folder / file).open("a") as lines:
            lines.write(f"{line}\n")

    async def until(self, name: str) -> None:
        """Wait until this file exists."""
        while not (self._folder / name).exists():
            await asyncio.sleep(0.02)


class CountingModel:
    """A model that streams numbers, and waits in the middle."""

    name = "counting"

    def __init__(self, shared_folder: SharedFolder) -> None:
        self._shared_folder = shared_folder

    async def respond(self, request: ModelRequest) -> AsyncGenerator[Chunk]:
        """Stream the numbers."""
        for chunk in CHUNKS[:HALF]:
            yield TextChunk(chunk)
        self._shared_folder.note("half")
        await self._shared_folder.until("go")
        for chunk in CHUNKS[HALF:]:
            yield TextChunk(chunk)
        yield ModelResponse(stop_reason="stop")


def team(folder: Path) -> Runner:
    """Create a runner with an agent that follows the message, and one that counts."""
    shared_folder = SharedFolder(folder)
    counter = Agent("Counter", description="Counts.", model=CountingModel(shared_folder))

    @agent("Worker", description="Works.", sub_agents=[counter])
    async def worker(ctx: AgentContext) -> Transfer | None:
        wanted = text_of(ctx.messages()[-1].content)
        if wanted == "count":
            return Transfer("Counter")
        if wanted.startswith("ask"):
            answer = await ctx.interrupt("well?")
            await ctx.step("answered", lambda: shared_folder.note(f"{wanted} {answer}"))
            shared_folder.note_stored(f"{wanted} {answer}")
            if wanted == "ask and work":
                await shared_folder.until("go")
        elif wanted == "silent":
            shared_folder.note("silent")
            await asyncio.Event().wait()
        else:
            await ctx.step("begun", lambda: shared_folder.note(wanted))
            shared_folder.note_stored(wanted)
            await ctx.say("begun")
            await shared_folder.until("go")
        await ctx.say("done")
        return None

    return Runner(worker, store=SQLiteStore(folder / "runs.db", lease_seconds=2))


if __name__ == "__main__":
    app = a2a_app(team(Path(sys.argv[2])), push_policy=allow_any_url, push_retry_delays=(0.05, 0.1, 0.2))
    app.run(port=int(sys.argv[1]))
