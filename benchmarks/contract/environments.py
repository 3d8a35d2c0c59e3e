"""The frameworks that the probes run on, and an environment for each, made on demand in `.peers`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contract.probes import PROBES
from benchmarks.peer_sessions import TELEMETRY_OFF

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / ".peers"
BATON = "baton"
SECONDS = 1800
QUIET = {**TELEMETRY_OFF, "AGNO_TELEMETRY": "false"}


@dataclass(frozen=True)
class Environment:
    """A framework."""

    module: str
    """The module of its runner."""
    packages: tuple[str, ...] = ()
    """The packages to install; none for the current environment."""


ENVIRONMENTS = {
    BATON: Environment("baton"),
    "openai-agents": Environment("openai_agents", ("openai-agents",)),
    "langgraph-swarm": Environment("langgraph_swarm", ("langgraph-swarm", "langgraph-checkpoint-sqlite", "langchain")),
    "google-adk": Environment("google_adk", ("google-adk", "aiosqlite", "sqlalchemy")),
    "strands-agents": Environment("strands", ("strands-agents",)),
    "agent-framework": Environment("agent_framework", ("agent-framework-core", "agent-framework-orchestrations")),
    "autogen-agentchat": Environment("autogen", ("autogen-agentchat",)),
    "agno": Environment("agno", ("agno", "sqlalchemy[asyncio]", "aiosqlite")),
    # OpenAI publishes Swarm on GitHub only; this upload to PyPI has the same loop.
    "openai-swarm": Environment("swarm", ("openai-swarm",)),
}


def python_of(name: str, *, upgrade: bool = False) -> str:
    """Return the interpreter of a framework; install it first if needed."""
    environment = ENVIRONMENTS[name]
    return python_with(name, environment.packages, upgrade=upgrade) if environment.packages else sys.executable


def python_with(name: str, packages: Sequence[str], *, upgrade: bool = False) -> str:
    """Return the interpreter of an environment; make it first if needed."""
    folder = FOLDER / name
    python, ready = folder / "bin" / "python", folder / ".ready"
    if upgrade or not ready.exists():
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--upgrade", *packages]
        subprocess.run(install, check=True)
        ready.touch()
    return str(python)


def run_probes(name: str, python: str) -> dict[str, Any]:
    """Run all probes on a framework, in a process of its own; return what was observed."""
    command = [python, "-W", "ignore", "-m", "benchmarks.contract.probe", ENVIRONMENTS[name].module, *PROBES]
    finished = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **QUIET, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    if finished.returncode != 0:
        raise RuntimeError(f"{name}: {finished.stderr.strip()[-2000:]}")
    return json.loads(finished.stdout.splitlines()[-1])
