"""The command `baton init`: a new project from a template."""

import keyword
import os
import re
import sys
from functools import partial
from importlib.resources import files
from pathlib import Path
from secrets import token_urlsafe

import click

from .._wording import nearest, quote_names
from ..version import __version__
from .cli_errors import TargetError
from .cli_options import debug
from .output import write

_DESK = {
    "{package}/__init__.py": "desk/__init__.py",
    "{package}/team.py": "desk/team.py",
    "{package}/offline.py": "desk/offline.py",
    "{package}/app.py": "desk/app.py",
    "tests/test_team.py": "desk/test_team.py",
    "tests/test_app.py": "desk/test_app.py",
    "pyproject.toml": "desk/pyproject.toml",
    "README.md": "desk/README.md",
    "AGENTS.md": "desk/AGENTS.md",
    "Dockerfile": "desk/Dockerfile",
    ".dockerignore": "desk/dockerignore",
    ".env.example": "desk/env.example",
    ".env": "desk/env",
    ".gitignore": "gitignore",
}
_MINIMAL = {
    "{package}.py": "minimal/agent.py",
    "test_{package}.py": "minimal/test_agent.py",
    "pyproject.toml": "minimal/pyproject.toml",
    ".gitignore": "gitignore",
}
TEMPLATES = {"desk": _DESK, "minimal": _MINIMAL}
"""The files of a project, and the file that each is made of, by template."""
_NEXT = {
    "desk": (
        "\n.env has the token that callers of the web app send, and is not committed",
        "\nnext:",
        "  cd {folder}",
        "  pip install -e '.[dev]'",
        "  pytest",
        "  baton chat {package}.team:runner",
    ),
    "minimal": (
        "\nnext:",
        "  cd {folder}",
        "  pip install -e '.[dev]'",
        "  pytest",
        '  baton run {package}:runner "Where is order A-17?"',
    ),
}
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", re.IGNORECASE)
_TAKEN = ("batonkit", "fastapi", "tests", "uvicorn")
"""Names of modules that the project imports, or has already."""
_PLACEHOLDER = re.compile("PROJECT|PACKAGE|VERSION|NEW_TOKEN")
_PRIVATE = 0o600
"""The mode of the file with the token."""


def write_project(folder: Path, template: str) -> list[Path]:
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
    for path, source in TEMPLATES[template].items():
        relative = Path(path.format(package=package))
        text = (templates / f"{source}.tmpl").read_text(encoding="utf-8")
        file = folder / relative
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # "x": a file that appeared meanwhile is not overwritten either.
            opener = partial(os.open, mode=_PRIVATE) if path == ".env" else None
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


def _check_template(ctx: click.Context, option: click.Parameter, template: str) -> str:
    if template not in TEMPLATES:
        known = quote_names([*TEMPLATES])
        raise click.UsageError(f"there is no template `{template}`; choose from {known}{nearest(template, TEMPLATES)}")
    return template


@click.command("init")
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--template",
    default="desk",
    show_default=True,
    metavar="|".join(TEMPLATES),
    callback=_check_template,
    help="What the project starts with.",
)
@debug
def init_command(*, folder: Path, template: str) -> None:
    """Write a small project: a team and its tests.

    NAME is a new folder, and the name of the project. It answers with fixed rules until you name a model. Nothing is
    overwritten.

    \b
    Templates:
      desk     the support desk of the tutorial: three agents, an approval, tests, a FastAPI app, a Dockerfile.
               Callers of the app need the token that .env gets; git ignores .env, and .env.example explains it.
      minimal  one file with an agent and a tool, and its test

    \b
    Examples:
      baton init support-desk
      baton init ~/work/orders --template minimal
    """
    written = write_project(folder, template)
    for path in written:
        write(f"  {folder / path}")
    for line in _NEXT[template]:
        write(line.format(folder=folder, package=_package_name(folder.resolve().name)))
