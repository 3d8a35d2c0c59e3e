"""SQLite files that released versions have written."""

import shutil
from pathlib import Path

import pytest
from tests.compatibility.stored import CHECKS, VERSIONS, Check


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_file_of_an_earlier_version(check: Check, folder: Path, tmp_path: Path) -> None:
    copy = shutil.copy(folder / "runs.db", tmp_path)

    await check(str(copy), folder)
