"""One process that resumes each run whose id it reads, and says what came of it: `python -m tests.soak.racer`."""

import asyncio
import sys
from pathlib import Path

from tests.soak.orders import Ledger
from tests.soak.worker import runner_for

from baton.errors import BatonError
from baton.stores import resolve_store


async def race(url: str, path: Path) -> None:
    """Resume what is asked for, with yes for an answer."""
    loop = asyncio.get_running_loop()
    async with runner_for(resolve_store(url), Ledger(path)) as runner:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                told = (await runner.resume(line.strip(), True)).status
            except BatonError as error:
                told = type(error).__name__
            sys.stdout.write(f"{told}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(race(sys.argv[1], Path(sys.argv[2])))
