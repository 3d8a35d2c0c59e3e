"""Write the fixtures of this version: `python -m tests.compatibility.write`.

Until a version is released, write them again after a change of format, and look at the difference. After its release
the folder of a version never changes; a new version gets a new folder, and the tests read all of them.
"""

import asyncio
import re
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests.compatibility.scenarios import RUNS, World, describe, make_runner, play
from tests.compatibility.stored import SCHEMA
from tests.postgres import PROGRAMS, PostgresServer
from tests.realtime.backends import MS_PER_WORD
from tests.realtime.recorder import make_runner as make_live_runner
from tests.realtime.recorder import record_session, unplayed

from batonkit.log import AgentResponded, Event, ResponseTruncated, encode_log
from batonkit.realtime import AudioDelta, RealtimeAgent, RealtimeSettings
from batonkit.testing import ScriptedRealtimeModel
from batonkit.version import __version__


async def write_sqlite(target: Path) -> dict[str, list[Event]]:
    """Write a small file with the runs; return their logs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        await play(str(path))
        async with make_runner(str(path), World()) as runner:
            logs = {run_id: [*await runner.runs.events(run_id)] for run_id in RUNS}
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
        connection.close()
        target.write_bytes(path.read_bytes())
    return logs


def write_postgres(target: Path) -> None:
    """Write a dump of a schema with the runs."""
    server = PostgresServer()
    try:
        server.start()
        server.execute(f"CREATE SCHEMA {SCHEMA}")
        asyncio.run(play(f"{server.url}&options={quote(f'-csearch_path={SCHEMA}', safe='')}"))
        options = ["--no-owner", "--no-privileges", "--inserts", f"--schema={SCHEMA}"]
        command = [PROGRAMS / "pg_dump", *options, server.url]
        dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    finally:
        server.remove()
    # Comments name versions of programs, and lines with a backslash are for psql only.
    lines = [line for line in dumped.splitlines() if line and not re.match(r"--|\\", line)]
    target.write_text("\n".join([*lines, ""]), encoding="utf-8")


async def talk() -> list[Event]:
    """Return the log of a live session whose user interrupts a response."""
    model = ScriptedRealtimeModel(["One two three four", "Yes?"], ms_per_word=MS_PER_WORD)
    runner = make_live_runner(RealtimeAgent("Voice"), model, settings=RealtimeSettings())
    async with record_session(runner.connect(playback=unplayed(), run_id="voice")) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_for_response()
        recorder.session.playback.played(recorder.of_type(AudioDelta)[0].item_id, 600)
        await recorder.session.interrupt()
        await recorder.wait_for(ResponseTruncated)
        await recorder.session.send_text("Go on")
        await recorder.wait_for(AgentResponded, 2)
    return [*recorder.session.log.events]


def main() -> None:
    """Write all fixtures."""
    folder = Path(__file__).parent / __version__
    shutil.rmtree(folder, ignore_errors=True)
    logs = folder / "logs"
    logs.mkdir(parents=True)
    written = asyncio.run(write_sqlite(folder / "runs.db"))
    written["voice"] = asyncio.run(talk())
    for name, events in written.items():
        (logs / f"{name}.jsonl").write_bytes(encode_log(events))
        (logs / f"{name}.txt").write_text(describe(events), encoding="utf-8")
    write_postgres(folder / "runs.sql")
    print(f"{len(written)} logs, runs.db and runs.sql in {folder.name}/")


if __name__ == "__main__":
    main()
