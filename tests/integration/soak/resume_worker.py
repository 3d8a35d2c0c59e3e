"""Resume each run whose id is read, and print the outcome: `python -m tests.integration.soak.resume_worker`."""

import asyncio
import sys
from pathlib import Path

from tests.integration.soak.orders import EffectLog
from tests.integration.soak.worker import make_runner

from batonkit.errors import BatonError
from batonkit.stores import resolve_store


async def resume_runs(url: str, log_path: Path) -> None:
    """Resume runs and approve their interrupts."""
    loop = asyncio.get_running_loop()
    async with make_runner(resolve_store(url), EffectLog(log_path)) as runner:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                outcome = (await runner.resume(line.strip(), True)).status
            except BatonError as error:
                outcome = type(error).__name__
            sys.stdout.write(f"{outcome}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(resume_runs(sys.argv[1], Path(sys.argv[2])))
