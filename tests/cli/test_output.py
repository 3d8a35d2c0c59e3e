"""Output of the command line cannot control the terminal."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import batonkit.cli
from batonkit import Agent, Runner
from batonkit._wording import one_line, printable
from batonkit.cli.output import escape_json
from batonkit.stores import MemoryStore, SQLiteStore
from batonkit.testing import ScriptedModel

Write = Callable[..., Path]
Invoke = Callable[..., Any]

UNSAFE = "\x1b[2J\x07\x9b31m\u202egnp\u2066\u2028"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
RUN_ID = "r\x9b2J\u202e"


def desk(write: Write) -> None:
    """Write agents whose answers, errors, questions and names hold control characters."""
    write(
        f"""
        BAD = {UNSAFE!r}
        @tool(needs_approval=True)
        def refund(amount: str) -> str: return amount
        @tool
        async def survey(ctx: RunContext) -> str: return await ctx.interrupt(BAD)
        @tool(name="look_up")
        def look_up() -> str: return BAD
        answering = Agent("Desk", model=ScriptedModel([BAD], cycle=True))
        failing = Agent("Failing", model=ScriptedModel([RuntimeError(BAD)], cycle=True))
        approving = Agent("Asker" + BAD, tools=[refund], model=ScriptedModel([call("refund", amount=BAD)], cycle=True))
        asking = Agent("Asker", tools=[survey], model=ScriptedModel([call("survey")], cycle=True))
        root = Agent("Root" + BAD, description=BAD, handoffs=[Agent("Other" + BAD)])
        twice = Agent("A" + BAD, sub_agents=[Agent("B" + BAD), Agent("B" + BAD)])
        """
    )


COMMANDS = [
    ("run", "desk:answering", "hi", "--json"),
    ("run", "desk:answering", "hi", "--events"),
    ("run", "desk:failing", "hi"),
    ("run", "desk:failing", "hi", "--debug"),
    ("run", "desk:approving", "hi"),
    ("run", "desk:approving", "hi", "--json"),
    ("run", "desk:asking", "hi"),
    ("run", f"desk:{UNSAFE}", "hi"),
    ("run", "desk:answering", "hi", "--value", UNSAFE),
    ("check", "desk:root"),
    ("check", "desk:root", "--json"),
    ("check", "desk:twice"),
    ("runs", "show", UNSAFE, "--store", "no.db"),
    ("runs", "ls", "--store", UNSAFE),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=[" ".join(each[:2] + each[3:]) for each in COMMANDS])
def test_no_command_prints_control_characters(write: Write, baton: Invoke, arguments: tuple[str, ...]) -> None:
    desk(write)
    shown = baton(*arguments)
    assert not RAW.findall(shown.output), shown.output
    assert not RAW.findall(shown.stderr), shown.stderr


@pytest.mark.parametrize("line", ["hi", "hi\nn"])
@pytest.mark.parametrize("name", ["answering", "failing", "approving", "asking"])
def test_chat_prints_no_control_characters(write: Write, baton: Invoke, name: str, line: str) -> None:
    desk(write)
    shown = baton("chat", f"desk:{name}", input=f"{line}\n")
    assert not RAW.findall(shown.output), shown.output


def test_ids_from_a_store_are_sanitised(write: Write, baton: Invoke, tmp_path: Path) -> None:
    # Another program may have written them.
    async def store_run() -> None:
        made = MemoryStore()
        await Runner(Agent("A", model=ScriptedModel([UNSAFE])), store=made).run("hi\u202e", run_id="RUN_ID")
        lines = [line.replace(b'"RUN_ID"', json.dumps(RUN_ID).encode()) for line in await made.load("RUN_ID")]
        store = SQLiteStore(tmp_path / "runs.db")
        await store.create(RUN_ID, lines, thread=f"t\n{UNSAFE}", status="completed")
        await store.close()

    asyncio.run(store_run())
    for arguments in (["ls"], ["ls", "--json"], ["show", RUN_ID], ["show", RUN_ID, "--events"], ["show", RUN_ID]):
        shown = baton("runs", *arguments, "--store", "runs.db")
        assert shown.exit_code == 0
        assert not RAW.findall(shown.output), shown.output
    rows = baton("runs", "ls", "--store", "runs.db").stdout.splitlines()
    assert len(rows) == 2
    listed = json.loads(baton("runs", "ls", "--json", "--store", "runs.db").stdout)
    assert (listed["run_id"], listed["thread"]) == (RUN_ID, f"t\n{UNSAFE}")


def test_a_piped_answer_is_unchanged(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Desk", model=ScriptedModel(["a\\x9bb\\u202ec\\td"]))')
    assert baton("run", "desk:agent", "hi", "--quiet").stdout == "a\x9bb\u202ec\td\n"


@pytest.mark.parametrize("text", [UNSAFE, "tag \U000e0041", "\ufffa", "\x7f", "plain\ttext\n"])
def test_escaped_json_has_the_same_value(text: str) -> None:
    escaped = escape_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(escaped) == text
    assert printable(escaped) == escaped


def test_text_that_is_safe_is_unchanged() -> None:
    text = "Grüße, 你好, שלום, 👩‍💻\tand\nmore"
    assert printable(text) == escape_json(text) == text
    assert one_line("a\nb\tc") == "a␊b c"


def test_commands_write_through_this_module_only() -> None:
    folder = Path(batonkit.cli.__file__).parent
    direct = re.compile(r"click\.echo\(|click\.secho\(|(?<![\w.])print\(|sys\.std(out|err)\.write")
    found = [path.name for path in folder.glob("*.py") if direct.search(path.read_text(encoding="utf-8"))]
    assert found == ["output.py"]
