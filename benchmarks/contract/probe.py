"""Run probes in the environment of a peer: `python -m benchmarks.contract.probe PEER PROBE …` prints JSON at the end.

`PEER start FOLDER` and `PEER resume FOLDER` are the two processes of the crash.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.contract.probes import crash_script, observe


def load_peer(module: str) -> Any:
    """Return the runner of a peer."""
    return importlib.import_module(f"benchmarks.contract.peers.{module}").Runner()


async def observe_all(peer: Any, probes: Sequence[str]) -> dict[str, Any]:
    """Run probes one after the other; return what was observed."""
    outcomes: dict[str, Any] = {}
    for probe in probes:
        outcome = {**asdict(await observe(peer, probe)), "note": peer.notes.get(probe, "")}
        outcomes[probe] = {key: value for key, value in outcome.items() if value}
    return {"version": metadata.version(peer.distribution), "handoffs": peer.handoffs, "probes": outcomes}


def main(module: str, *arguments: str) -> None:
    """Run probes, or one of the processes of the crash."""
    peer = load_peer(module)
    if arguments[0] in ("start", "resume"):
        step, path = arguments[0], Path(arguments[1])
        print(asyncio.run(getattr(peer, step)(crash_script(path), path)) or "")
    else:
        print(json.dumps(asyncio.run(observe_all(peer, arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
