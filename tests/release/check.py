"""Check a release: `PYTHONPATH=. python tests/release/check.py [PYTHON …]`, or `make release-check PYTHONS='…'`.

Builds the sdist, and the wheel from it, and checks their metadata and contents. Then, with this Python and each one
that is named: installs the wheel without extras in a new environment, and runs `baton`, and the tests and type checks
of the projects that `baton init` writes there; does the same, without the projects, with the sdist; installs the wheel
as the README says in another environment, and follows the README. The files stay in `dist/`.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

from tests.release.readme import Reader, ReadmeError, extras_in

from batonkit.cli.init import TEMPLATES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "batonkit"
_ASSETS = "src/batonkit/serve/studio/assets"
LICENSES = {
    "LICENSE",
    *(f"{_ASSETS}/{name}" for name in ("licenses.md", "inter-license.txt", "jetbrains-mono-license.txt")),
}
"""The licence files of Baton, and of the libraries and fonts in Studio's page."""
_GENERATED = ("__pycache__", ".pyc")
_STUDIO = """
from importlib.resources import files
page = files("batonkit.serve.studio") / "assets" / "index.html"
assert "<script" in page.read_text(encoding="utf-8"), page
import batonkit
assert "site-packages" in batonkit.__file__, batonkit.__file__
print("Studio's page is installed")
"""


class ReleaseError(Exception):
    """A release that must not be published."""


def build(folder: Path, *options: str) -> list[Path]:
    """Build into a folder; return the files."""
    _run(sys.executable, "-m", "build", "--outdir", str(folder), *options, str(ROOT))
    return sorted(folder.iterdir())


def package_files() -> set[str]:
    """Return the files that the wheel must contain: every file of the package, also what is not Python."""
    files = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    return {name for name in files if not any(part in name for part in _GENERATED)}


def check_wheel(names: Iterable[str]) -> None:
    """Check the names in a wheel. Raises ReleaseError if files of the package are missing, or others are there."""
    names = set(names)
    found = {name for name in names if ".dist-info/" not in name}
    wanted = package_files()
    if "batonkit/serve/studio/assets/index.html" not in wanted:
        raise ReleaseError("Studio's page has not been built: make studio-build")
    if missing := wanted - found:
        raise ReleaseError(f"the wheel lacks {', '.join(sorted(missing))}")
    if more := found - wanted:
        raise ReleaseError(f"the wheel has files that are not part of the package: {', '.join(sorted(more))}")
    declared = {name.partition(".dist-info/licenses/")[2] for name in names}
    if undeclared := LICENSES - declared:
        raise ReleaseError(f"the wheel's metadata lacks the licence files {', '.join(sorted(undeclared))}")


def check_sdist(names: Iterable[str]) -> None:
    """Check the names in an sdist. Raises ReleaseError if something is missing that a build needs."""
    found = {name.partition("/")[2] for name in names}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} | {f"src/{name}" for name in package_files()}
    if missing := wanted - found:
        raise ReleaseError(f"the sdist lacks {', '.join(sorted(missing))}")


def check_changelog(version: str) -> None:
    """Check that the changelog has a section for the version."""
    if f"## [{version}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise ReleaseError(f"CHANGELOG.md has no section [{version}]")


class Installation:
    """A new environment of one Python with a release in it, and an empty folder to use it from."""

    def __init__(self, python: str, requirement: str, folder: Path) -> None:
        folder.mkdir()
        _run(python, "-m", "venv", str(folder / "environment"))
        self.scripts = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
        self.python = str(self.scripts / "python")
        self.work = folder / "work"
        self.work.mkdir()
        self.run("python", "-m", "pip", "install", "--quiet", requirement)

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of the environment."""
        _run(str(self.scripts / program), *arguments, cwd=self.work)


def check_commands(installed: Installation) -> None:
    """Use a release without extras."""
    installed.run("python", "-c", _STUDIO)
    installed.run("baton", "--version")
    # As `uvx batonkit demo` does.
    installed.run("batonkit", "demo")
    installed.run("python", "-m", "batonkit", "--version")


def check_projects(installed: Installation) -> None:
    """Write a project of each template, and run its tests and type checks."""
    for template in TEMPLATES:
        name = f"my-{template}"
        installed.run("baton", "init", name, "--template", template)
        check_project(installed.python, installed.work / name)
    installed.run("python", "-c", "import dotenv  # for uvicorn --env-file")
    installed.run("python", "-m", "pip", "check")


async def check_readme(installed: Installation) -> None:
    """Follow the README from an empty folder."""
    reader = Reader(_readme(), installed.scripts, installed.work)
    try:
        print(await reader.run_program())
        story, _ = await reader.run_commands()
    except ReadmeError as error:
        raise ReleaseError(str(error)) from error
    print(story)


def check_with(python: str, wheel: Path, sdist: Path, folder: Path) -> None:
    """Install a wheel and an sdist with one Python, and use what they install."""
    plain = Installation(python, str(wheel), folder / "wheel")
    check_commands(plain)
    check_projects(plain)
    check_commands(Installation(python, str(sdist), folder / "sdist"))
    extras, *_ = extras_in(_readme())
    with_extras = f"{wheel}[{','.join(sorted(extras))}]"
    asyncio.run(check_readme(Installation(python, with_extras, folder / "readme")))


def _readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def check_project(python: str, folder: Path) -> None:
    """Install a project that `baton init` wrote, with what it says that it needs, and run its tests and type checks."""
    _run(python, "-m", "pip", "install", "--quiet", "--editable", ".[dev]", cwd=folder)
    _run(python, "-m", "pytest", "--quiet", "-W", "error", cwd=folder)
    _run(python, "-m", "pyright", "--pythonpath", python, cwd=folder)


def _run(*command: str, cwd: Path = ROOT) -> None:
    print(f"$ {' '.join(command)}", flush=True)
    hidden = ("PYTHONPATH", "BATON_MODEL", "BATON_STORE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    if subprocess.run(command, cwd=cwd, env=environment, check=False).returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed")


def main(*pythons: str) -> int:
    """Build a release, and check it with this Python and others; return the exit code."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    try:
        check_changelog(version)
        built = build(dist)
        wheel = next(path for path in built if path.suffix == ".whl")
        sdist = next(path for path in built if path.suffix == ".gz")
        with ZipFile(wheel) as archive:
            check_wheel(archive.namelist())
        with tarfile.open(sdist) as archive:
            check_sdist(archive.getnames())
        _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, built))
        for python in (sys.executable, *pythons):
            with tempfile.TemporaryDirectory(prefix="baton-release-") as folder:
                _run(python, "--version")
                check_with(python, wheel, sdist, Path(folder))
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"\n{wheel.name} and {sdist.name} in dist/ can be published")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
