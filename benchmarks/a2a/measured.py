"""Streams of several lengths from a server in another process, in turn, each read to its end and checked."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx

from benchmarks.a2a.cost import StreamCost

LENGTHS = (200, 1000, 3000)


def stream_costs(rounds: int) -> list[StreamCost]:
    """Measure streams of each length; the first round warms up and does not count."""
    costs = {tokens: StreamCost(tokens) for tokens in LENGTHS}
    with _server() as url, httpx.Client(base_url=url, timeout=60, headers={"A2A-Version": "1.0"}) as client:
        for number in range(rounds + 1):
            for tokens in LENGTHS:
                before = float(client.get("/cpu").text)
                chunks = _streamed(client, tokens)
                used = float(client.get("/cpu").text) - before
                if number:
                    costs[tokens].cpu_seconds.append(used)
                    costs[tokens].chunks.append(chunks)
    return [*costs.values()]


def _streamed(client: httpx.Client, tokens: int) -> int:
    """Have so many tokens streamed; how many chunks they came in."""
    message = {"messageId": f"m{tokens}", "role": "ROLE_USER", "parts": [{"text": str(tokens)}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
    chunks, state = [""], ""
    with client.stream("POST", "/", json=call) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                told: dict[str, Any] = json.loads(line.removeprefix("data: "))["result"]
                update = told.get("artifactUpdate")
                if update is not None:
                    text = "".join(part.get("text", "") for part in update["artifact"].get("parts", ()))
                    chunks = [*chunks, text] if update.get("append") else ["", text]
                state = told.get("statusUpdate", {}).get("status", {}).get("state", state)
    if state != "TASK_STATE_COMPLETED" or "".join(chunks) != "".join(f"{each} " for each in range(tokens)):
        raise AssertionError(
            f"{tokens} tokens ended {state or 'without an end'} with {len(''.join(chunks))} characters"
        )
    return len(chunks) - 1


@contextmanager
def _server() -> Generator[str]:
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as folder:
        command = [sys.executable, "-m", "benchmarks.a2a.server", folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield f"http://127.0.0.1:{int(process.stdout.readline())}"
            finally:
                process.stdin.close()
