"""The requests that Studio shows of every example are those that its models received."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = sorted(file for file in (REPOSITORY / "examples").glob("*/*.py") if file.parent.name != "deploy")
NOT_COMPARED = {
    "crash_laboratory.py": "the crash laboratory copies logs between stores; the crash laws compare its requests",
    "voice_desk.py": "in a live conversation no requests are sent",
    "demo.py": "its models are in other processes",
    "workers.py": "its models are in other processes",
}
UNRECORDED = {
    "retry_and_failover.py": 6,  # The calls failed.
    "guardrails.py": 1,  # A guardrail refused the input while the model was called.
    "market_research.py": 1,  # The call failed.
    "project_manager.py": -19,  # The run is continued with `runs.load`, which copies it.
    "fork.py": -1,  # The fork has a request of the run that it was made of.
    "middleware.py": 2,  # Middleware called the model again.
    "compaction.py": 2,  # The calls of the summarizer.
}
"""Requests that were sent and are no response's own, by example; 0 if it is not listed."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if each.name not in NOT_COMPARED], ids=lambda each: each.stem
)
def test_the_requests_of_an_example_are_restored(example: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.integration.inspection.recorded_example", str(example)],
        cwd=REPOSITORY,
        env={**os.environ, "BATON_MODEL": "scripted"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if finished.stderr.startswith("this example needs"):
        pytest.skip(finished.stderr.strip())
    assert finished.returncode == 0, finished.stderr
    compared, sent = [int(word) for word in finished.stdout.splitlines()[-1].split() if word.isdigit()]
    assert compared > 0
    assert sent - compared == UNRECORDED.get(example.name, 0)
