"""`baton run`: only the answer on stdout, everything else on stderr, and an exit code for each status."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batonkit.log import RunCancelled

Write = Callable[..., Path]
Invoke = Callable[..., Any]


ASKING = """
    @tool(needs_approval=True)
    def refund(amount: int) -> str: return "paid"
    model = ScriptedModel([call("refund", amount=30)], cycle=True)
    agent = Agent("Desk", tools=[refund], model=model)
"""


def test_a_suspended_run_names_the_database_of_its_runner(write: Write, baton: Invoke, postgres_url: str) -> None:
    write(f"{ASKING}    runner = Runner(agent, store={postgres_url!r})")
    lines = baton("run", "desk:runner", "hi", "-q").stderr.splitlines()
    assert re.fullmatch(
        rf"answer with `baton runs resume \S+ desk:runner --store '?{re.escape(postgres_url)}'?`", lines[-1]
    )
    command = shlex.split(lines[-1].split("`")[1])[1:]
    assert baton(*command, "--answer", "1/m1.0/ask1=n").exit_code == 3, "the scripted model asks again"


def test_a_suspended_run_does_not_show_the_password_of_its_store(
    write: Write, baton: Invoke, postgres_url: str
) -> None:
    # The server of the tests trusts every user, so that any password is right.
    secret = f"{postgres_url.replace('://postgres@', '://postgres:s3cret@')}&password=s3cret"
    write(f"{ASKING}    runner = Runner(agent, store={secret!r})")
    for command in (("desk:runner",), ("desk:agent", "--store", secret)):
        result = baton("run", command[0], "hi", "-q", *command[1:])
        assert result.exit_code == 3
        assert "s3cret" not in result.output
        resume, note = result.stderr.splitlines()[-2:]
        assert postgres_url in resume
        assert note == "the password of the store is not shown: add it to the URL, or set PGPASSWORD"


@pytest.mark.parametrize("form", ["--json", "--events"])
def test_ctrl_c_cancels_the_run_and_exits_with_130(write: Write, terminal: Callable[..., Any], form: str) -> None:
    write('import asyncio; agent = Agent("Desk", model=ScriptedModel([ScriptedStream("so", asyncio.Event())]))')
    program = terminal("run", "desk:agent", "hi", form)
    program.read_until("● Desk")
    program.press_ctrl_c()
    code, rest = program.leave()
    assert code == 130
    assert "cancelled" in rest
    last = rest.splitlines()[-1]
    if form == "--json":
        assert json.loads(last)["status"] == "cancelled"
    else:
        assert json.loads(last)["type"] == RunCancelled.__name__


def test_warnings_are_one_line(write: Write, terminal: Callable[..., Any]) -> None:
    write(
        """
        @tool
        def broken() -> str: raise ValueError("no such thing")
        child = Agent("Child")
        agent = Agent("Desk", tools=[broken], sub_agents=[child], model=ScriptedModel([call("broken"), "Sorry."]))
        """
    )
    code, result_of_command = terminal("run", "desk:agent", "hi").leave()
    assert code == 0
    assert "warning: `Child` has no description" in result_of_command
    assert "✗ broken: " in result_of_command
    assert "Traceback" not in result_of_command
    code, result_of_command = terminal("run", "desk:agent", "hi", "--quiet").leave()
    assert result_of_command == "Sorry.\n"
