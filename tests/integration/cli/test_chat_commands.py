"""`/agents`, `/reset` and `/fork` in `baton chat`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Write = Callable[..., Path]


def test_the_commands_wait_for_the_end_of_a_run(write: Write, terminal: Callable[..., Any]) -> None:
    go = (
        write(
            """
            import asyncio
            from pathlib import Path
            async def slow(request):
                print("ANSWERING", flush=True)
                while not Path("go").exists():
                    await asyncio.sleep(0.01)
                return "Done."
            agent = Agent("Desk", model=ScriptedModel([slow]))
            """
        ).parent
        / "go"
    )
    program = terminal("chat", "desk:agent", is_real=True)
    program.read_until("you › ")
    program.type("go")
    program.read_until("ANSWERING")
    for command in ("/reset", "/agents", "/fork 1"):
        program.type(command)
        program.read_until(f"{command}: the run is in progress; wait until it has ended, or /cancel it")
    go.touch()
    program.read_until("Done.")
    program.read_until("you › ")
    program.type("/help")
    for command in ("/agents", "/fork N", "/reset", "/quit"):
        program.read_until(f"  {command}")
    program.type("/quit")
    assert program.process.wait(timeout=60) == 0
