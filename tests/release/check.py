"""Check a release: `PYTHONPATH=. python tests/release/check.py`, or `make release-check`.

Builds the sdist, and the wheel from it; checks their metadata and contents; installs the wheel without extras in a new
environment, and runs `baton`, and the tests and type checks of the projects that `baton init` writes there; installs it
as the README says in another one, and follows the README. The files stay in `dist/`.
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

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "batonkit"
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
    found = {name for name in names if ".dist-info/" not in name}
    wanted = package_files()
    assets = {name for name in wanted if name.startswith("batonkit/serve/studio/assets/")}
    if "batonkit/serve/studio/assets/index.html" not in assets:
        raise ReleaseError("Studio's page has not been built: make studio-build")
    if missing := wanted - found:
        raise ReleaseError(f"the wheel lacks {', '.join(sorted(missing))}")
    if more := found - wanted:
        raise ReleaseError(f"the wheel has files that are not part of the package: {', '.join(sorted(more))}")


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


def check_installed(wheel: Path, folder: Path) -> None:
    """Install a wheel in a new environment, and use it from an empty folder."""
    scripts = _install(str(wheel), folder / "environment")
    python = str(scripts / "python")
    work = folder / "work"
    work.mkdir()
    _run(python, "-c", _STUDIO, cwd=work)
    _run(str(scripts / "baton"), "--version", cwd=work)
    # As `uvx batonkit demo` does.
    _run(str(scripts / "batonkit"), "demo", cwd=work)
    _run(python, "-m", "batonkit", "--version", cwd=work)
    for template in ("minimal", "desk"):
        _run(str(scripts / "baton"), "init", f"my-{template}", "--template", template, cwd=work)
        check_project(python, work / f"my-{template}")
    _run(python, "-c", "import dotenv  # for uvicorn --env-file", cwd=work)
    _run(python, "-m", "pip", "check")


async def check_readme(wheel: Path, folder: Path) -> None:
    """Install a wheel with the extras that the README names, and follow the README from an empty folder."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    extras, *_ = extras_in(readme)
    scripts = _install(f"{wheel}[{','.join(sorted(extras))}]", folder / "reader")
    work = folder / "reading"
    work.mkdir()
    reader = Reader(readme, scripts, work)
    try:
        print(await reader.run_program())
        story, _ = await reader.run_commands()
    except ReadmeError as error:
        raise ReleaseError(str(error)) from error
    print(story)


def _install(requirement: str, folder: Path) -> Path:
    """Install into a new environment; return the folder of its scripts."""
    _run(sys.executable, "-m", "venv", str(folder))
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    _run(str(scripts / "python"), "-m", "pip", "install", "--quiet", requirement)
    return scripts


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


def main() -> int:
    """Build and check a release; return the exit code."""
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
        with tempfile.TemporaryDirectory(prefix="baton-release-") as folder:
            check_installed(wheel, Path(folder))
            asyncio.run(check_readme(wheel, Path(folder)))
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"\n{wheel.name} and {sdist.name} in dist/ can be published")
    return 0


if __name__ == "__main__":
    sys.exit(main())
