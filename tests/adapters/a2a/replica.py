"""A service in a process of its own: `python -m tests.adapters.a2a.replica PORT FOLDER`. Killed by tests."""

import asyncio
import sys
from pathlib import Path

from baton import Runner, agent
from baton.adapters.a2a import serve_a2a
from baton.agents import AgentContext
from baton.messages import text_of


def team(folder: Path) -> Runner:
    """An agent that does what it is told, and notes what it has done."""

    def note(what: str) -> None:
        with (folder / "notes").open("a") as notes:
            notes.write(f"{what}\n")

    @agent("Worker", description="Works.")
    async def worker(ctx: AgentContext) -> None:
        wanted = text_of(ctx.messages()[-1].content)
        if wanted.startswith("ask"):
            answer = await ctx.interrupt("well?")
            await ctx.step("answered", lambda: note(f"{wanted} {answer}"))
            while wanted == "ask and work" and not (folder / "go").exists():
                await asyncio.sleep(0.02)
        elif wanted == "silent":
            await asyncio.Event().wait()
        else:
            await ctx.step("begun", lambda: note(wanted))
            await ctx.say("begun")
            while not (folder / "go").exists():
                await asyncio.sleep(0.02)
        await ctx.say("done")

    return Runner(worker, store=folder / "runs.db", lease=2)


if __name__ == "__main__":
    serve_a2a(team(Path(sys.argv[2]))).run(port=int(sys.argv[1]))
