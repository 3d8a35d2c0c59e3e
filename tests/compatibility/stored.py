"""Checks of a store that an earlier version has written, whatever its database."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.compatibility.scenarios import RUNS, World, describe, make_runner, with_compaction

from batonkit import Runner
from batonkit.messages import text_of

VERSIONS = sorted(path for path in Path(__file__).parent.iterdir() if (path / "runs.db").exists())
"""The folders of all versions that have been released, and of the next one."""
SCHEMA = "stored_runs"
"""The schema of PostgreSQL that dumps are from."""
STATUSES = {
    "refund": "suspended",
    "cancelled": "cancelled",
    "crashed": "running",
    "charged": "running",
    "failed": "failed",
}
"""The status of each run that has not completed."""

Check = Callable[[str, Path], Awaitable[None]]
"""A check of a store, by its address, and of the folder of its version."""


async def check_logs_are_read_as_before(store: str, folder: Path) -> None:
    async with make_runner(store, World()) as runner:
        for run_id in RUNS:
            read = describe(await runner.runs.events(run_id))
            assert read == (folder / "logs" / f"{run_id}.txt").read_text(encoding="utf-8"), run_id


async def check_runs_are_listed(store: str, folder: Path) -> None:
    async with make_runner(store, World()) as runner:
        page = await runner.runs.list()
        assert {record.run_id: record.status for record in page.records} == {
            run_id: STATUSES.get(run_id, "completed") for run_id in RUNS
        }
        assert await _ids(runner, owner="ann") == {"lookup", "refund"}
        assert await _ids(runner, thread="bob") == {"book-1", "book-2", "book-3"}
        assert await _ids(runner, status=["failed", "suspended"]) == {"failed", "refund"}


async def _ids(runner: Runner[Any, Any], **filters: Any) -> set[str]:
    return {record.run_id for record in (await runner.runs.list(**filters)).records}


async def check_a_suspended_run_is_resumed(store: str, folder: Path) -> None:
    world = World()
    async with make_runner(store, world) as runner:
        result = await runner.resume("refund", True)
        assert (result.status, result.agent, result.output) == ("completed", "Refunds", "Done: 20 EUR for order 7")
        assert result.values["refunded"] == {"order": "7", "euros": 20}
    assert world.effects == ["refund 7"]


async def check_a_crashed_run_is_continued(store: str, folder: Path) -> None:
    world = World()
    async with make_runner(store, world) as runner:
        assert (await runner.runs.drive("crashed")).status == "completed"
        result = await runner.runs.replay("crashed")
        assert result.output == "Desk says: shipped 7 in a box"
    # The box was prepared, and that was recorded, before the crash.
    assert world.effects == ["ship 7"]


async def check_an_unknown_outcome_is_asked_about(store: str, folder: Path) -> None:
    world = World()
    async with make_runner(store, world) as runner:
        driven = await runner.runs.drive("charged")
        assert driven.status == "suspended"
        (question,) = (await runner.resume("charged")).interrupts
        assert question.payload["kind"] == "unknown_outcome"
        result = await runner.resume("charged", {"result": "charged 7"})
        assert result.output == "Desk says: charged 7"
    assert world.effects == []


async def check_completed_runs_are_replayed(store: str, folder: Path) -> None:
    world = World()
    async with make_runner(store, world) as runner:
        for run_id in ("lookup", "answered", "panel", "expert", "book-1", "book-2", "book-3", "forked"):
            result = await runner.runs.replay(run_id)
            assert result.status == "completed", run_id
        compacted = await with_compaction(runner).runs.replay("long-3")
        assert compacted.output.startswith("You said: story 3")
    assert world.effects == []


async def check_threads_are_continued(store: str, folder: Path) -> None:
    async with make_runner(store, World()) as runner:
        assert await runner.thread("bob").active_agent() == "Desk"
        result = await runner.run("hello", thread="bob")
        assert (result.agent, result.output) == ("Desk", "You said: hello")
        messages = [text_of(message.content) for message in await runner.thread("bob").messages()]
        assert [messages[0], *messages[-2:]] == ["book a table", "hello", "You said: hello"]
        assert "Will it be sunny on Monday?" in messages


async def check_summaries_are_read(store: str, folder: Path) -> None:
    async with make_runner(store, World()) as plain:
        runner = with_compaction(plain)
        result = await runner.run("the end", thread="cat", run_id="long-4")
        assert result.output == "You said: the end"
        (request,) = (await runner.runs.requests("long-4")).values()
        texts = [text_of(message.content) for message in request.messages]
        assert any("The user told a story." in text for text in texts)
        assert not any(text.startswith("story 1") for text in texts)


async def check_waiting_messages_are_kept(store: str, folder: Path) -> None:
    async with make_runner(store, World()) as runner:
        (message,) = await runner.thread("ann").waiting()
        assert (message.run_id, message.mode, message.owner) == ("queued", "queue", "ann")


async def check_runs_are_forked(store: str, folder: Path) -> None:
    world = World()
    async with make_runner(store, world) as runner:
        await runner.runs.fork("refund", run_id="again")
        asked = await runner.resume("again", True)
        assert asked.interrupts[0].payload["forked_from"].startswith("refund@")
        assert world.effects == []
        assert (await runner.resume("again", {"run_again": True})).status == "completed"
        assert (await runner.runs.get("refund")).status == "suspended"
    assert world.effects == ["refund 7"]


CHECKS: tuple[Check, ...] = (
    check_logs_are_read_as_before,
    check_runs_are_listed,
    check_a_suspended_run_is_resumed,
    check_a_crashed_run_is_continued,
    check_an_unknown_outcome_is_asked_about,
    check_completed_runs_are_replayed,
    check_threads_are_continued,
    check_summaries_are_read,
    check_waiting_messages_are_kept,
    check_runs_are_forked,
)
