"""Sync functions in worker threads. Nothing here sleeps: events say when to go on."""

import os
import subprocess
import sys

import pytest

HANGS = """
import asyncio, threading
from batonkit.tools.worker_threads import in_thread
async def main():
    running = asyncio.create_task(in_thread(threading.Event().wait, "hang", grace=0.01))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
asyncio.run(main())
print("ended")
"""

FORKS = """
import asyncio, os
from batonkit.tools.worker_threads import in_thread
asyncio.run(in_thread(lambda: 1, "before"))
child = os.fork()
if child == 0:
    asyncio.run(asyncio.wait_for(in_thread(lambda: 2, "after"), 10))
    os._exit(0)
print("ended" if os.waitpid(child, 0)[1] == 0 else "child failed")
"""


def printed_by(program: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def test_a_function_that_hangs_does_not_keep_the_program_from_ending() -> None:
    assert printed_by(HANGS) == "ended\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_does_not_wait_for_threads_of_its_parent() -> None:
    assert printed_by(FORKS) == "ended\n"
