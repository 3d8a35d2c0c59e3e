"""Known weights, the cache folder, and errors for missing or incomplete weights."""

from pathlib import Path

import pytest

from batonkit.errors import SetupError, WeightsError
from batonkit.models import resolve_model
from batonkit.models.local import LocalModel
from batonkit.models.local.weights import (
    DEFAULT,
    cache_folder,
    kept,
    kept_path,
    known_weights,
    partial_path,
    ready_path,
    removed,
    shown_size,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATON_CACHE_DIR", str(tmp_path))
    models_folder = tmp_path / "models"
    models_folder.mkdir()
    return models_folder


def test_every_part_is_pinned() -> None:
    for weights in known_weights().values():
        assert len(weights.sha256) == 64
        assert len({part.sha256 for part in weights.parts}) == len(weights.parts)
        for part in weights.parts:
            assert len(part.sha256) == 64
            assert part.requirement.count("==") == 1
    assert DEFAULT in known_weights()
    assert shown_size(known_weights()[DEFAULT].size) == "1.1 GB"
    assert shown_size(known_weights()["smollm2"].download_size) == "93 MB"


def test_the_cache_folder_is_the_systems_unless_overridden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == folder
    monkeypatch.delenv("BATON_CACHE_DIR")
    assert cache_folder().parts[-2:] == ("baton", "models")
    assert cache_folder() != folder


def test_missing_weights_raise_an_error_with_the_download_command() -> None:
    with pytest.raises(WeightsError, match=r"not downloaded yet.*\(93 MB\) with: baton models pull smollm2"):
        LocalModel("smollm2")


def test_incomplete_weights_are_not_loaded(folder: Path) -> None:
    kept_path("smollm2", folder).write_bytes(b"half")
    with pytest.raises(WeightsError, match=r"has 4 bytes and should have 98362432; .*baton models rm smollm2"):
        ready_path("smollm2")


def test_an_unknown_name_raises_an_error_with_the_known_names() -> None:
    with pytest.raises(SetupError, match=r"no embedded model `gpt-5`; there are: `qwen2.5-coder`, `smollm2`, or pass"):
        resolve_model("local:gpt-5")


def test_a_path_is_used_unchanged(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"there is no file `.*mine\.gguf`"):
        ready_path(str(tmp_path / "mine.gguf"))
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    assert ready_path(str(tmp_path / "mine.gguf")) == tmp_path / "mine.gguf"
    assert LocalModel(tmp_path / "mine.gguf").name == "local:mine.gguf"


def test_local_without_a_name_is_the_default_model(folder: Path) -> None:
    with kept_path(DEFAULT, folder).open("wb") as file:
        file.truncate(known_weights()[DEFAULT].size)  # A sparse file of that size.
    assert resolve_model("local").name == f"local:{DEFAULT}"
    assert resolve_model("local") is resolve_model(f"local:{DEFAULT}")


def test_downloaded_weights_are_listed_and_removed(folder: Path) -> None:
    partial_path("smollm2", folder).write_bytes(b"a" * 10)
    kept_path(DEFAULT, folder).write_bytes(b"b" * 20)
    assert [(weights.name, size, is_whole) for weights, size, is_whole in kept(folder)] == [
        (DEFAULT, 20, True),
        ("smollm2", 10, False),
    ]
    assert removed("smollm2", folder) == 10
    assert removed(DEFAULT, folder) == 20
    assert [size for _, size, _ in kept(folder)] == [0, 0]
