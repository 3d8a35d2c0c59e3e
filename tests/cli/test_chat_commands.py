"""`/agents`, `/reset` and `/fork` in `baton chat`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Invoke = Callable[..., Any]

TEAM = """
def told(request):
    said = [str(m.content) for m in request.messages if type(m).__name__ == "UserMessage"]
    return "read: " + " / ".join(text for text in said if not text.startswith("For context")) + "."

billing = Agent("Billing", description="Knows bills.", model=ScriptedModel([told], cycle=True))
router = Agent("Router", description="Routes.", sub_agents=[billing],
               model=ScriptedModel([transfer_to("Billing")], cycle=True))
"""


def test_agents_shows_who_gets_the_next_message(write: Write, baton: Invoke) -> None:
    write(TEAM)
    shown = baton("chat", "desk:router", input="/agents\nmy bill\n/agents\n").output.splitlines()
    assert shown[:2] == ["→ Router — Routes.", "  Billing — Knows bills."]
    assert shown[-3:-1] == ["  Router — Routes.", "→ Billing — Knows bills."]


@pytest.mark.parametrize("store", [(), ("--store", "runs.db", "--thread", "u42")])
def test_reset_starts_a_new_conversation(write: Write, baton: Invoke, store: tuple[str, ...]) -> None:
    write(TEAM)
    shown = baton("chat", "desk:router", *store, input="one\n/reset\ntwo\n").output
    assert "read: one." in shown
    assert "read: two." in shown
    assert shown.count("● Router") == 2
    assert "a new conversation" in shown
    assert ("--thread u42 continues the other one" in shown) == bool(store)


def test_reset_drops_values_but_keeps_those_of_the_command_line(write: Write, baton: Invoke) -> None:
    write(
        """
        @tool
        def note(ctx: RunContext) -> str:
            ctx.values.set("notes", [*ctx.values["notes"], "x"])
            return f"notes: {ctx.values['notes']}"
        agent = Agent("Desk", tools=[note], model=ScriptedModel([call("note"), "Done."], cycle=True))
        """
    )
    shown = baton("chat", "desk:agent", "--value", "notes=[]", input="go\ngo\n/reset\ngo\n").output
    assert [line for line in shown.splitlines() if "◂" in line] == [
        "  ◂ note: notes: ['x']",
        "  ◂ note: notes: ['x', 'x']",
        "  ◂ note: notes: ['x']",
    ]


@pytest.mark.parametrize("store", [(), ("--store", "runs.db", "--thread", "u42")])
def test_fork_continues_in_a_copy(write: Write, baton: Invoke, store: tuple[str, ...]) -> None:
    # The copy has the messages and the active agent; nothing is executed again.
    write(TEAM)
    shown = baton("chat", "desk:router", *store, input="one\ntwo\n/fork 1\nthree\n/fork\nfour\n").output
    answers = [line for line in shown.splitlines() if line.startswith("read:")]
    assert answers == ["read: one.", "read: one / two.", "read: one / three.", "read: one / three / four."]
    assert shown.count("● Router") == 1
    assert shown.count("a copy of the conversation") == 2
    if store:
        # The original is unchanged.
        again = baton("chat", "desk:router", *store, input="five\n").output
        assert "thread u42, 2 runs so far" in again
        assert "read: one / two / five." in again


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ("/fork\n", "this conversation has no messages"),
        ("one\n/fork 2\n", "this conversation has 1 message"),
        ("one\n/fork 1\nagain\n", "read: again."),
        ("one\n/fork x\n", "/fork x: write how many messages to leave out, such as /fork 1"),
    ],
)
def test_forks_of_short_conversations(write: Write, baton: Invoke, lines: str, shown: str) -> None:
    write(TEAM)
    assert shown in baton("chat", "desk:router", input=lines).output


def test_a_run_that_has_not_completed_is_not_forked(write: Write, baton: Invoke) -> None:
    write(
        """
        agent = Agent("Desk", model=ScriptedModel(["Hello.", RuntimeError("no line"), "Back."]))
        """
    )
    shown = baton("chat", "desk:agent", "--store", "runs.db", input="one\ntwo\n/fork\n/fork 1\nthree\n").output
    assert "is failed; a conversation can be forked after a completed run" in shown
    assert "a copy of the conversation" in shown
    assert "Back." in shown


def test_a_conversation_of_another_team_is_not_forked(write: Write, baton: Invoke) -> None:
    write(TEAM)
    store = ("--store", "runs.db", "--thread", "u42")
    baton("chat", "desk:router", *store, input="one\n")
    write(
        TEAM.replace('"Routes."', '"Routes.", tools=[tool(lambda: "x", name="more", description="More.")]'), "other.py"
    )
    result = baton("chat", "other:router", *store, input="/fork\ntwo\n")
    assert result.exit_code == 1
    assert "began with a different team" in result.output
    assert "a copy of the conversation" not in result.output
    assert "read: one / two." in result.output
