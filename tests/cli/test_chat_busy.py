"""`baton chat` takes messages while a run is in progress, and lets the user dismiss a question."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Invoke = Callable[..., Any]

# The tool waits for the file `go`, so that the test decides how long the run is in progress.
SLOW = """
import asyncio
from pathlib import Path

@tool
async def look(ctx: RunContext) -> str:
    ctx.values.set("looked", ctx.values.get("looked", 0) + 1)
    print("LOOKING", flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return f"seen {ctx.values['looked']}"

def told(request):
    return "read: " + " / ".join(str(m.content) for m in request.messages if type(m).__name__ == "UserMessage") + "."

steps = [call("look"), told, told, told]
agent = Agent("Desk", tools=[look], model=ScriptedModel(steps))
"""


def test_lines_of_a_script_are_messages_one_after_the_other(write: Write, baton: Invoke) -> None:
    (write(SLOW).parent / "go").touch()
    shown = baton("chat", "desk:agent", "--when-busy", "steer", input="one\n/steer two\n/queue\n/dismiss\n").output
    assert "read: one." in shown
    assert "read: one / two." in shown
    assert "/queue needs a text" in shown
    assert "no run of this conversation is suspended" in shown


QUESTION = """
@tool
async def ask(ctx: RunContext, about: str) -> str:
    return f"{about}: {await ctx.interrupt(about + '?')}"
def told(request):
    return " and ".join(m.content for m in request.messages if type(m).__name__ == "ToolMessage")
both = say("", call("ask", about="colour"), call("ask", about="size"))
agent = Agent("Desk", tools=[ask], model=ScriptedModel([both, told]))
"""


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ("/dismiss not now\nXL\n", "not now and size: XL"),
        ("red\n/dismiss\n", "colour: red and The user does not want to answer this and has moved on."),
    ],
)
def test_a_question_can_be_dismissed(write: Write, baton: Invoke, lines: str, shown: str) -> None:
    # Dismiss(reason)
    write(QUESTION)
    assert shown in baton("chat", "desk:agent", input=f"go\n{lines}").output


def test_all_questions_of_a_suspended_run_can_be_dismissed(write: Write, baton: Invoke) -> None:
    write(QUESTION)
    thread = ("--store", "runs.db", "--thread", "u42")
    baton("run", "desk:agent", "go", *thread)
    # The end of the script leaves the question open.
    shown = baton("chat", "desk:agent", *thread, input="y\n").output
    assert "not answered; the run stays suspended" in shown
    write(QUESTION.replace("[both, told]", "[told]"), "again.py")
    shown = baton("chat", "again:agent", *thread, input="y\n/help\n/dismiss later\n/dismiss later\n").output
    assert "later and later" in shown


def test_a_question_that_no_call_asks_cannot_be_dismissed(write: Write, baton: Invoke) -> None:
    write(
        """
        class Asker(BaseAgent):
            async def run(self, ctx):
                await ctx.say(await ctx.interrupt("Which?"))
        agent = Asker("Asker", description="Asks.")
        """
    )
    shown = baton("chat", "desk:agent", input="go\n/dismiss\nthis one\n").output
    assert "does not come from a tool call and cannot be dismissed; answer it" in shown
    assert "this one" in shown


def test_several_questions_of_one_call_are_dismissed_together(write: Write, baton: Invoke) -> None:
    write(
        """
        import asyncio
        @tool
        async def ask(ctx: RunContext) -> str:
            answers = await asyncio.gather(ctx.interrupt("colour?"), ctx.interrupt("size?"))
            return " and ".join(answers)
        def told(request):
            return f"It said: {request.messages[-1].content}"
        agent = Agent("Desk", tools=[ask], model=ScriptedModel([call("ask"), told]))
        """
    )
    shown = baton("chat", "desk:agent", input="go\n/dismiss none of it\n").output
    assert "size?" not in shown
    assert "It said: none of it" in shown
