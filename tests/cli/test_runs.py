"""`baton runs`, and `--store` and `--thread` of the other commands."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from batonkit import Agent, Runner
from batonkit.log import RunStarted, decode_log
from batonkit.runs.stored.recovery import UNDRIVABLE_NOTE
from batonkit.stores import SUMMARY_NOTE, Lease, SQLiteStore
from batonkit.testing import ScriptedModel
from batonkit.worker.deaths import PARKED_NOTE

Write = Callable[..., Path]
Invoke = Callable[..., Any]

DESK = """
from typing import Any

@tool(needs_approval=True)
async def refund(order: str, amount: float) -> str:
    "Pay money back."
    return f"{amount:.2f} EUR paid back"

@tool
async def choose(ctx: RunContext[Any]) -> str:
    "Ask which colour."
    return f"{await ctx.interrupt({'question': 'Which colour?'})}"

def answer(request):
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return f"Done: {last.content}"
    if last.content == "refund":
        return [call("refund", order="A", amount=5), call("choose")]
    return f"{len(request.messages)} messages, the last: {last.content}"

model = ScriptedModel([answer], cycle=True)
agent = Agent("Clerk", tools=[refund, choose], model=model)
runner = Runner(agent)
other = Runner(agent.clone(tools=[choose]))
"""


@pytest.fixture
def suspended(write: Write, baton: Invoke) -> str:
    """Create a suspended run in runs.db with two open interrupts; return its id."""
    write(DESK)
    result = baton("run", "desk:runner", "refund", "--store", "runs.db", "--json")
    assert result.exit_code == 3
    return json.loads(result.stdout)["run_id"]


def test_runs_are_listed_with_their_tokens_and_cost(write: Write, baton: Invoke) -> None:
    write("""
    known, unknown = say("Hi", usage=Usage(900, 100, cost=0.25)), say("Hi", usage=Usage(50, 5))
    cheap = Runner(Agent("Clerk", model=ScriptedModel([known], name="x:known", cycle=True)))
    other = Runner(Agent("Clerk", model=ScriptedModel([unknown], name="x:unknown", cycle=True)))
    """)
    for target in ("cheap", "cheap", "other"):
        assert baton("run", f"desk:{target}", "hi", "--store", "runs.db").exit_code == 0
    listed = baton("runs", "ls", "--store", "runs.db", "--cost").stdout.splitlines()
    assert listed[0].split() == ["RUN", "STATUS", "THREAD", "EVENTS", "UPDATED", "TOKENS", "COST"]
    assert [line.split("  ")[-1].strip() for line in listed[1:4]] == ["1 call of unknown cost", "$0.25", "$0.25"]
    assert listed[4] == "total: 2,055 tokens, $0.5 + 1 call of unknown cost"
    rows = baton("runs", "ls", "--store", "runs.db", "--cost", "--json").stdout.splitlines()
    assert [json.loads(row)["usage"]["cost"] for row in rows] == [0, 0.25, 0.25]
    assert "COST" not in baton("runs", "ls", "--store", "runs.db").stdout


def test_ls_reads_no_logs_and_the_notes_of_all_runs_at_once(baton: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Sequence[str]] = []
    read_notes = SQLiteStore.read_notes

    async def count_reads(store: SQLiteStore, run_ids: Sequence[str], name: str) -> Mapping[str, bytes]:
        reads.append((name, *run_ids))
        return await read_notes(store, run_ids, name)

    async def create_runs() -> None:
        store = SQLiteStore("runs.db")
        for run_id in ("r0", "r1"):
            notes = {SUMMARY_NOTE: b'{"usage":{"input_tokens":7}}', PARKED_NOTE: b"it killed its workers"}
            await store.create(run_id, [b"no log"], status="failed", notes=notes)
        await store.create("r2", [b"no log"], notes={SUMMARY_NOTE: b"{}", UNDRIVABLE_NOTE: b"no such team"})
        await store.close()

    asyncio.run(create_runs())
    monkeypatch.setattr(SQLiteStore, "read_notes", count_reads)
    lines = baton("runs", "ls", "--store", "runs.db", "--cost").stdout.splitlines()
    assert reads == [(UNDRIVABLE_NOTE, "r2"), (PARKED_NOTE, "r1", "r0"), (SUMMARY_NOTE, "r2", "r1", "r0")]
    assert [line for line in lines if "could not be driven" in line] == [
        "  could not be driven: no such team",
        *["  could not be driven: it killed its workers"] * 2,
    ]
    assert lines[-1] == "total: 14 tokens, no cost"


def test_suspended_stored_run_prints_the_resume_command(write: Write, baton: Invoke) -> None:
    write(DESK)
    result = baton("run", "desk:runner", "refund", "--store", "runs.db", "--thread", "u42")
    assert result.exit_code == 3
    assert result.stderr.splitlines()[-4:-1] == [
        "the run is suspended; open interrupts:",
        '  1/m1.0/ask1  Clerk: allow refund(order="A", amount=5)?',
        '  1/m1.1/ask1  Clerk: {"question":"Which colour?"} (about choose())',
    ]
    assert " desk:runner --store runs.db`" in result.stderr
    assert "answer with `baton runs resume " in result.stderr


def test_ls_lists_the_newest_first(suspended: str, baton: Invoke) -> None:
    baton("run", "desk:agent", "hello", "--store", "runs.db", "--thread", "u42")
    lines = baton("runs", "ls", "--store", "runs.db").stdout.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "THREAD", "EVENTS", "UPDATED"]
    assert [line.split()[1:4] for line in lines[1:]] == [["completed", "u42", "5"], ["suspended", "-", "7"]]
    assert lines[2].startswith(suspended)

    output = baton("runs", "ls", "--store", "runs.db", "--status", "suspended", "--json").stdout.splitlines()
    assert [json.loads(line)["run_id"] for line in output] == [suspended]
    assert json.loads(output[0])["is_driven"] is False
    assert "--limit 2 to see more" in baton("runs", "ls", "--store", "runs.db", "--limit", "1").stderr
    assert baton("runs", "ls", "--store", "runs.db", "--thread", "unknown").output == "no matching runs\n"


def test_ls_marks_runs_without_a_worker(write: Write, baton: Invoke) -> None:
    write(DESK)

    async def create_runs() -> None:
        store = SQLiteStore("runs.db")
        await store.create("left", [b'{"format":1}'])
        await store.create("driven", [b'{"format":1}'], worker="other", ttl=3600)
        await store.close()

    asyncio.run(create_runs())
    table = baton("runs", "ls", "--store", "runs.db").stdout
    assert "left    running, no worker" in table
    assert "driven  running   " in table
    result = baton("runs", "rm", "--store", "runs.db", "driven", "--yes")
    assert (result.exit_code, "is running" in result.stderr) == (1, True)


def test_show_prints_the_conversation_and_open_interrupts(suspended: str, baton: Invoke) -> None:
    lines = baton("runs", "show", "--store", "runs.db", suspended).stdout.splitlines()
    assert lines[0].startswith(f"run {suspended} · suspended · ")
    assert lines[1:] == [
        "› refund",
        "● Clerk",
        '  ▸ refund(order="A", amount=5)',
        "  ▸ choose()",
        '  ? allow refund(order="A", amount=5)?',
        '  ? {"question":"Which colour?"} (about choose())',
        'open interrupt 1/m1.0/ask1: allow refund(order="A", amount=5)?',
        'open interrupt 1/m1.1/ask1: {"question":"Which colour?"} (about choose())',
        "used: 1 model call",
    ]


def test_show_can_print_numbered_events_or_the_log(suspended: str, baton: Invoke) -> None:
    numbered = baton("runs", "show", "--store", "runs.db", suspended, "--events").stdout.splitlines()
    assert numbered[0] == '1  run: run of Clerk started with "refund"'
    assert numbered[-1].startswith("7  suspended6: ")
    log = decode_log(baton("runs", "show", "--store", "runs.db", suspended, "--json").stdout_bytes)
    assert isinstance(log[0], RunStarted)
    assert (log[0].run_id, len(log)) == (suspended, 7)
    assert baton("runs", "show", "--store", "runs.db", suspended, "--json", "--events").exit_code == 2


def test_resume_accepts_answers_as_options(suspended: str, baton: Invoke) -> None:
    answers = ("--answer", "1/m1.0/ask1=n too dear", "--answer", "1/m1.1/ask1=green")
    result = baton("runs", "resume", "--store", "runs.db", suspended, "desk:runner", *answers)
    assert (result.exit_code, result.stdout) == (0, "Done: green\n")
    assert "too dear" in result.stderr
    again = baton("runs", "resume", "--store", "runs.db", suspended, "desk:runner")
    assert (again.exit_code, "is completed" in again.stderr) == (1, True)


def test_resume_asks_for_missing_answers(suspended: str, baton: Invoke) -> None:
    result = baton("runs", "resume", "--store", "runs.db", suspended, "desk:runner", "--quiet", input="y\ngreen\n")
    assert (result.exit_code, result.stdout) == (0, "Done: green\n")


def test_resume_leaves_unanswered_interrupts_open(suspended: str, baton: Invoke) -> None:
    unanswered = baton("runs", "resume", "--store", "runs.db", suspended, "desk:runner")
    assert (unanswered.exit_code, unanswered.stdout) == (3, "")
    half = baton("runs", "resume", "--store", "runs.db", suspended, "desk:runner", "--answer", "1/m1.0/ask1=y")
    assert half.exit_code == 3
    assert "◂ refund: 5.00 EUR paid back" in half.stderr
    assert half.stderr.count("? Clerk: {") == 1
    # With one open interrupt, the id can be omitted.
    rest = baton("runs", "resume", "--store", "runs.db", suspended, "desk:runner", "--answer", "red", "--json")
    output = json.loads(rest.stdout)
    assert (output["status"], output["output"]) == ("completed", "Done: red")


def test_resume_refuses_invalid_answers(suspended: str, baton: Invoke) -> None:
    def resume_with(*arguments: str) -> tuple[int, str]:
        result = baton("runs", "resume", "--store", "runs.db", *arguments)
        return result.exit_code, result.stderr

    code, text = resume_with(suspended, "desk:runner", "--answer", "9/ask1=y")
    assert (code, "with one of: `1/m1.0/ask1`, `1/m1.1/ask1`" in text) == (1, True)
    code, text = resume_with(suspended, "desk:runner", "--answer", "1/m1.0/ask1=yes please")
    assert (code, "is not a clear answer to 1/m1.0/ask1" in text) == (1, True)
    code, text = resume_with("unknown", "desk:runner")
    assert (code, "there is no run `unknown`" in text) == (2, True)
    code, text = resume_with(suspended, "desk:unknown")
    assert (code, "has no `unknown`" in text) == (2, True)
    code, text = resume_with(suspended, "desk:other", "--answer", "1/m1.0/ask1=y", "--answer", "1/m1.1/ask1=red")
    assert code == 1
    assert "Clerk" in text


@pytest.fixture
def killed(write: Write) -> Lease:
    """Create a run in runs.db whose process was killed: its lease is valid for another hour."""
    write(DESK)

    async def create_run() -> Lease:
        store = SQLiteStore("runs.db")
        run_id = await Runner(Agent("Clerk"), store=store).submit("hi")
        lease = await store.acquire(run_id, "dead", ttl=3600)
        await store.close()
        return lease

    return asyncio.run(create_run())


def test_resume_of_a_run_that_a_worker_drives_says_that_it_may_be_dead(killed: Lease, baton: Invoke) -> None:
    result = baton("runs", "resume", "--store", "runs.db", killed.run_id, "desk:runner")
    assert result.exit_code == 1
    assert f"run `{killed.run_id}` is driven by another worker: worker `dead` holds its lease for" in result.stderr
    assert "if its process has died, --wait waits until the run is free" in result.stderr


def test_resume_waits_until_no_worker_drives_the_run(
    killed: Lease, baton: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def release(seconds: float) -> None:
        store = SQLiteStore("runs.db")
        await store.release(killed)
        await store.close()

    monkeypatch.setattr("batonkit.cli.runs.sleep", release)
    arguments = ("--store", "runs.db", killed.run_id, "desk:runner", "--wait", "--accept-changes", "--quiet")
    result = baton("runs", "resume", *arguments)
    assert (result.exit_code, result.stdout) == (0, "1 messages, the last: hi\n")
    waiting = [line for line in result.stderr.splitlines() if line.startswith(f"waiting for run {killed.run_id}: ")]
    assert len(waiting) == 1


def test_fork_creates_a_new_run(suspended: str, baton: Invoke) -> None:
    answers = ("--answer", "1/m1.0/ask1=y", "--answer", "1/m1.1/ask1=green")
    baton("runs", "resume", "--store", "runs.db", suspended, "desk:runner", *answers)
    edits = ("--edit", "1/m1.0/ask1!=true", "--edit", "1/m1.1/ask1!=blue")
    forked = baton("runs", "fork", "--store", "runs.db", suspended, *edits, "--run-id", "second")
    assert forked.stdout == "second\n"
    result = baton("runs", "resume", "--store", "runs.db", "second", "desk:runner", "--quiet")
    assert result.stdout == "Done: blue\n"
    assert f"forked from {suspended}@" in baton("runs", "show", "--store", "runs.db", "second").stdout

    early = baton("runs", "fork", "--store", "runs.db", suspended, "--at", "1").stdout.strip()
    assert len(baton("runs", "show", "--store", "runs.db", early, "--events").stdout.splitlines()) == 1
    for wrong, output in (
        (("--at", "99"), "it can be forked at 1 to"),
        (("--edit", "1/m9=x"), "has no event `1/m9`"),
        (("--edit", "nothing"), "write --edit KEY=VALUE"),
    ):
        refused = baton("runs", "fork", "--store", "runs.db", suspended, *wrong)
        assert refused.exit_code in (1, 2)
        assert output in refused.stderr


def test_rm_deletes_only_confirmed_existing_runs(suspended: str, baton: Invoke) -> None:
    assert "pass --yes" in baton("runs", "rm", "--store", "runs.db", suspended).stderr
    both = baton("runs", "rm", "--store", "runs.db", suspended, "unknown", "--yes")
    assert (both.exit_code, "there is no run `unknown`" in both.stderr) == (2, True)
    assert suspended in baton("runs", "ls", "--store", "runs.db").stdout
    assert baton("runs", "rm", "--store", "runs.db", suspended, "--yes").stderr == f"deleted run {suspended}\n"
    assert baton("runs", "ls", "--store", "runs.db").stderr == "no runs\n"


@pytest.mark.parametrize(
    ("store", "output"),
    [
        ("nothing.db", "there is no store `nothing.db`"),
        ("sqlite:///nothing.db", "there is no store `sqlite:///nothing.db`"),
        ("memory:", "lost when the program ends"),
        ("redis://here", "there is no store for redis: addresses"),
        ("desk.py", "not an SQLite database"),
    ],
)
def test_invalid_store_is_refused_and_not_created(write: Write, baton: Invoke, store: str, output: str) -> None:
    folder = write(DESK).parent
    result = baton("runs", "ls", "--store", store)
    assert result.exit_code in (1, 2)
    assert output in result.stderr
    assert [found.name for found in folder.iterdir() if found.suffix == ".db"] == []


def test_a_thread_needs_a_store(write: Write, baton: Invoke) -> None:
    write(DESK)
    result = baton("run", "desk:agent", "hello", "--thread", "u42")
    assert (result.exit_code, "pass --store as well" in result.stderr) == (2, True)


def test_chat_continues_a_thread(write: Write, baton: Invoke) -> None:
    write(DESK)
    thread = ("--store", "runs.db", "--thread", "u42")
    first = baton("chat", "desk:agent", *thread, input="hello\nagain\n").stdout.splitlines()
    assert first[0] == "thread u42, 0 runs so far"
    assert "3 messages, the last: again" in first
    second = baton("chat", "desk:agent", *thread, input="still there?\n").stdout.splitlines()
    assert second[0] == "thread u42, 2 runs so far"
    assert "5 messages, the last: still there?" in second


def test_chat_offers_to_resume_a_suspended_run(write: Write, baton: Invoke) -> None:
    write(DESK)
    thread = ("--store", "runs.db", "--thread", "u42")
    baton("run", "desk:agent", "refund", *thread)
    unanswered_output = baton("chat", "desk:agent", *thread, input="y\n").stdout
    assert "not answered; the run stays suspended" in unanswered_output
    result = baton("chat", "desk:agent", *thread, input="y\ny\ngreen\nand now?\n").stdout
    assert "Done: green" in result
    assert "6 messages, the last: and now?" in result


def test_chat_can_cancel_the_suspended_run(write: Write, baton: Invoke) -> None:
    write(DESK)
    thread = ("--store", "runs.db", "--thread", "u42")
    baton("run", "desk:agent", "refund", *thread)
    result = baton("chat", "desk:agent", *thread, input="n\nhello\n").stdout.splitlines()
    assert "it is now cancelled" in result
    assert any(line.endswith("the last: hello") for line in result)
    table = baton("runs", "ls", "--store", "runs.db", "--thread", "u42").stdout.splitlines()
    assert [line.split()[1] for line in table[1:]] == ["completed", "cancelled"]


def test_chat_with_a_store_creates_a_thread(write: Write, baton: Invoke) -> None:
    write(DESK)
    first = baton("chat", "desk:agent", "--store", "runs.db", input="hello\n").stdout.splitlines()[0]
    thread = first.removeprefix("thread ").partition(",")[0]
    assert "1 run so far" in baton("chat", "desk:agent", "--store", "runs.db", "--thread", thread, input="").stdout


def test_show_prints_the_error_of_a_failed_run(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Clerk", model=ScriptedModel([RuntimeError("the wire is cut")]))')
    assert baton("run", "desk:agent", "hello", "--store", "runs.db").exit_code == 1
    run_id = baton("runs", "ls", "--store", "runs.db").stdout.splitlines()[1].split()[0]
    shown = baton("runs", "show", run_id, "--store", "runs.db").stdout.splitlines()
    assert "✗ ModelError: the model `scripted` of `Clerk` raised RuntimeError: the wire is cut" in shown


def test_ls_says_why_a_run_could_not_be_driven(write: Write, baton: Invoke) -> None:
    write('agent = Agent("Clerk", model=ScriptedModel(["Hi."]))')

    async def leave_undrivable() -> None:
        store = SQLiteStore("runs.db")
        await Runner(Agent("Clerk", model=ScriptedModel(["Hi."])), store=store).submit("hello", run_id="r")
        await store.put_note("r", "undrivable", b"TeamChangedError: the team has changed\x1b[2J")
        await store.close()

    asyncio.run(leave_undrivable())
    lines = baton("runs", "ls", "--store", "runs.db").stdout.splitlines()
    assert "running, no worker" in lines[1]
    assert lines[2].startswith("  could not be driven: TeamChangedError: the team has changed")
    assert "\x1b" not in lines[2]
    (shown,) = baton("runs", "ls", "--store", "runs.db", "--json").stdout.splitlines()
    assert json.loads(shown)["undrivable"].startswith("TeamChangedError")
