"""Starts a session per peer with the interpreter that has the peers installed, and reads back what it measured."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.contender import Contender
from benchmarks.timing import Effort, Gap, Measurement

REPOSITORY = Path(__file__).resolve().parent.parent

# Each library is measured at its quietest: nobody pays for telemetry here.
TELEMETRY_OFF = {
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}


@dataclass(frozen=True, slots=True)
class Session:
    """The report of one peer's interpreter; `version` is empty if the peer is not installed there."""

    peer: str
    version: str = ""
    measurements: list[Measurement] = field(default_factory=list[Measurement])
    gaps: list[Gap] = field(default_factory=list[Gap])


def peer_session(python: str, peer: Contender, workload_names: Sequence[str], effort: Effort) -> Session:
    if not is_installed(python, peer):
        return Session(peer.name)
    command = [python, "-W", "ignore", "-m", "benchmarks.session", peer.name]
    command += [",".join(workload_names), json.dumps(asdict(effort))]
    finished = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | TELEMETRY_OFF, capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        last_line = (finished.stderr.strip() or "no output").splitlines()[-1]
        return Session(peer.name, "?", [], [Gap(name, peer.name, last_line, is_error=True) for name in workload_names])
    report = json.loads(finished.stdout.splitlines()[-1])
    return Session(
        peer.name,
        report["version"],
        [Measurement(**cell) for cell in report["measurements"]],
        [Gap(**gap) for gap in report["gaps"]],
    )


def is_installed(python: str, peer: Contender) -> bool:
    question = f"from importlib import metadata; metadata.version({peer.distribution!r})"
    return subprocess.run([python, "-c", question], capture_output=True, check=False).returncode == 0
