"""`baton models`: download, list and remove weights."""

from pathlib import Path

import pytest
from tests.cli.programs import Invoke

from batonkit.models.local.weights import known_weights


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATON_CACHE_DIR", str(tmp_path))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def test_ls_lists_models_and_downloads(baton: Invoke, folder: Path) -> None:
    (folder / "smollm2.gguf.partial").write_bytes(b"0" * 3_000_000)
    result = baton("models", "ls").stdout
    assert "local:qwen2.5-coder" in result
    assert "3 MB so far" in result
    assert str(folder) in result.replace("\n", "")


def test_weights_are_removed(baton: Invoke, folder: Path) -> None:
    (folder / "smollm2.gguf").write_bytes(b"0" * 3_000_000)
    assert baton("models", "rm", "smollm2").stdout == "removed smollm2: 3 MB\n"
    assert not (folder / "smollm2.gguf").exists()
    assert baton("models", "rm", "smollm2").stdout == "smollm2 has not been downloaded\n"


def test_existing_weights_are_not_downloaded_again(baton: Invoke, folder: Path) -> None:
    (folder / "smollm2.gguf").write_bytes(b"here")
    result = baton("models", "pull", "smollm2")
    assert result.exit_code == 0
    assert "downloading" not in result.stdout


@pytest.mark.parametrize("verb", ["pull", "rm"])
def test_an_unknown_name_is_an_error_with_the_known_names(baton: Invoke, verb: str) -> None:
    result = baton("models", verb, "gpt-5")
    assert result.exit_code == 1
    assert f"there are: `{'`, `'.join(known_weights())}`" in result.stderr
