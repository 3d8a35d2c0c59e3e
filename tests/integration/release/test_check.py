"""The quick part of `make release-check`: what a wheel that is built contains."""

from pathlib import Path
from zipfile import ZipFile

from tests.release.check import (
    build,
    check_wheel,
)


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    (wheel,) = build(tmp_path, "--wheel", "--no-isolation")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    check_wheel(names)
    assert {
        "batonkit/serve/studio/assets/index.html",
        "batonkit/cli/project/desk/team.py.tmpl",
        "batonkit/py.typed",
    } <= set(names)
    assert {
        "batonkit/cli/assistants/SKILL.md",
        "batonkit/stores/sqlite/schema.sql",
        "batonkit/worker/queue_schema.sql",
    } <= set(names)
