"""The command `baton init`: a small project with a team, its tests and a web app."""

import keyword
import os
import re
import sys
from functools import partial
from importlib.resources import files
from pathlib import Path
from secrets import token_urlsafe

import click

from ..version import __version__
from .cli_errors import TargetError
from .cli_options import debug
from .output import write

_FILES = {
    "{package}/__init__.py": "__init__.py",
    "{package}/team.py": "team.py",
    "{package}/app.py": "app.py",
    "tests/test_team.py": "test_team.py",
    "tests/test_app.py": "test_app.py",
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "AGENTS.md": "AGENTS.md",
    "Dockerfile": "Dockerfile",
    ".dockerignore": "dockerignore",
    ".env.example": "env.example",
    ".env": "env",
    ".gitignore": "gitignore",
}
"""The files of a project and their templates."""
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", re.IGNORECASE)
_TAKEN = ("batonkit", "fastapi", "tests", "uvicorn")
"""Names of modules that the project imports, or has already."""
_PLACEHOLDER = re.compile("PROJECT|PACKAGE|VERSION|NEW_TOKEN")
_PRIVATE = 0o600
"""The mode of the file with the token."""


def write_project(folder: Path) -> list[Path]:
    """Write the files of a new project.

    Returns:
        The files, relative to the folder.

    Raises:
        TargetError: The name cannot be that of a project, or the folder is not empty.
    """
    folder = folder.expanduser()
    name = folder.resolve().name
    package = _package_name(name)
    _check_is_free(folder)
    values = {"PROJECT": name, "PACKAGE": package, "VERSION": __version__, "NEW_TOKEN": token_urlsafe(32)}
    templates = files("batonkit.cli") / "project"
    written: list[Path] = []
    for path, template in _FILES.items():
        relative = Path(path.format(package=package))
        text = (templates / f"{template}.tmpl").read_text(encoding="utf-8")
        file = folder / relative
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # "x": a file that appeared meanwhile is not overwritten either.
            opener = partial(os.open, mode=_PRIVATE) if template == "env" else None
            with open(file, "x", encoding="utf-8", newline="\n", opener=opener) as opened:
                opened.write(_PLACEHOLDER.sub(lambda found: values[found[0]], text))
        except OSError as error:
            raise TargetError(f"cannot write {file}: {error.strerror or error}") from error
        written.append(relative)
    return written


def _package_name(name: str) -> str:
    """Return the module name of a project. Raises TargetError if it cannot have one."""
    package = name.replace("-", "_").lower()
    works = "use letters, digits, - and _, starting with a letter, such as support-desk"
    if not _NAME.fullmatch(name):
        raise TargetError(f"`{name}` cannot be the name of a Python package; {works}")
    if keyword.iskeyword(package) or package in _TAKEN or package in sys.stdlib_module_names:
        raise TargetError(f"a project called `{name}` would hide the Python module `{package}`; choose another name")
    return package


def _check_is_free(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise TargetError(f"{folder} is a file; nothing was written")
    if folder.is_dir() and (found := sorted(each.name for each in folder.iterdir())):
        some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise TargetError(f"{folder} is not empty ({some}); nothing was written. Choose another name")


@click.command("init")
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
@debug
def init_command(*, folder: Path) -> None:
    """Write a small project: a team, its tests and a web app.

    NAME is a new folder, and the name of the project. It gets a team of two agents, tests with a scripted model, a
    FastAPI app, a Dockerfile, AGENTS.md and pyproject.toml. Callers of the app need the token that .env gets; git
    ignores .env, and .env.example explains it. Nothing is overwritten.

    \b
    Examples:
      baton init support-desk
      baton init ~/work/desk
    """
    written = write_project(folder)
    package = written[0].parent
    for path in written:
        write(f"  {folder / path}")
    for line in (
        "\n.env has the token that callers of the web app send, and is not committed",
        "\nnext:",
        f"  cd {folder}",
        "  pip install -e '.[dev]'",
        "  pytest",
        f"  baton chat {package}.team:triage",
    ):
        write(line)
