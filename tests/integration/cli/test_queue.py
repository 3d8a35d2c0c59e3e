"""`baton queue`: show, pause and resume."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from batonkit import Agent, Runner
from batonkit.testing import ScriptedModel

Invoke = Callable[..., Any]


def test_a_queue_is_paused_and_resumed(baton: Invoke, postgres_url: str) -> None:
    def call(command: str) -> Any:
        result = baton("queue", command, "--store", postgres_url)
        assert result.exit_code == 0, result.stderr
        return result

    assert call("show").stdout == "running, jobs: none\n"
    assert "paused" in call("pause").stderr
    assert call("show").stdout.startswith("paused")
    call("resume")
    assert call("show").stdout.startswith("running")


async def test_jobs_are_counted(postgres_url: str) -> None:
    from batonkit.worker import PostgresEngine

    runner = Runner(Agent("Desk", model=ScriptedModel([])), store=postgres_url)
    engine = PostgresEngine(runner._require_store("test"))
    assert await engine.count_jobs() == {}
    for _ in range(3):
        await runner.submit("hi")
    assert await engine.count_jobs() == {"todo": 3}
    await runner.close()


def test_other_stores_have_no_queue(baton: Invoke, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "runs.db"
    sqlite3.connect(path).close()
    result = baton("queue", "show", "--store", str(path))
    assert (result.exit_code, "needs a PostgresStore" in result.stderr) == (1, True)
