"""A thousand runs, three workers, and one of them is killed. The model is scripted: no network, no key.

python examples/production/workers.py
baton check examples/production/workers.py:desk
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from batonkit import Agent, Runner
from batonkit.stores import resolve_store
from batonkit.testing import ScriptedModel

RUNS = 1000
desk = Agent("Desk", instructions="Greet people.", model=ScriptedModel(["Hello."], cycle=True))
runner = Runner(desk, store=resolve_store(os.environ.get("DESK_STORE", "runs.db"), lease_seconds=2))


def start_worker(store: str) -> "subprocess.Popen[bytes]":
    """Start `baton worker` in a process of its own."""
    command = [sys.executable, "-m", "batonkit", "worker", f"{__file__}:runner", "--concurrency", "10"]
    return subprocess.Popen(command, env={**os.environ, "DESK_STORE": store}, stderr=subprocess.DEVNULL)


async def main() -> None:
    print("scripted model: no language model is called")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "runs.db")
        store = resolve_store(path)
        async with runner.clone(store=store) as submitter:
            for number in range(RUNS):
                await submitter.submit("Hi!", owner=f"customer {number % 10}")
            workers = [start_worker(path) for _ in range(3)]
            done, is_killed = 0, False
            while done < RUNS:
                done = (await store.list(status=["completed"], limit=1, count_total=True)).total or 0
                if done >= RUNS // 4 and not is_killed:
                    is_killed = True
                    workers[0].kill()
                    print("one worker was killed with SIGKILL; its runs continue when their leases have expired")
                await asyncio.sleep(0.1)
            for worker in workers[1:]:
                worker.terminate()
            codes = [worker.wait() for worker in workers]
            print(f"{done} of {RUNS} runs completed; exit codes of the workers: {codes}")


if __name__ == "__main__":
    asyncio.run(main())
