"""The README, followed as it is printed: its program, its installation and its commands."""

import sys
import tomllib
from pathlib import Path

from tests.architecture.shape import REPOSITORY
from tests.release.readme import Reader, commands_in, extras_in
from tools.terminal.story import ANSWER

from batonkit.log import decode_lines
from batonkit.stores import SQLiteStore
from batonkit.testing import transcript

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
SCRIPTS = Path(sys.executable).parent


async def test_the_program_waits_for_approval_is_killed_and_pays_once(tmp_path: Path) -> None:
    printed = await Reader(README, SCRIPTS, tmp_path).run_program()
    assert "allow refund" in printed
    assert ANSWER in printed
    store = SQLiteStore(tmp_path / "runs.db")
    (run,) = (await store.list()).records
    events = decode_lines(await store.load(run.run_id))
    assert [line for line in transcript(events) if "refund ->" in line] == [
        "Refunds: refund -> 80 EUR for order A-17 paid back"
    ]


async def test_the_commands_tell_the_story_and_show_it_in_studio(tmp_path: Path) -> None:
    story, page = await Reader(README, SCRIPTS, tmp_path).run_commands()
    assert "payments: 1 (80 EUR for order A-17 paid back)" in story
    assert "<script" in page


def test_the_installation_has_what_the_other_lines_need() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    first, *_ = commands_in(README)
    assert first.startswith("pip install ")
    # From a checkout and from the package index; Studio needs `serving`, the model of the program `openai`.
    assert extras_in(README) == [{"openai", "serving"}, {"openai", "serving"}]
    assert {"openai", "serving"} <= set(project["optional-dependencies"])
    assert f"{project['name']}[" in first
