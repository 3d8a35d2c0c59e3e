"""The suite for models: one that is in order passes it, and each broken one trips the check that is meant for it."""

import subprocess
import sys


def test_it_is_said_that_pytest_is_missing_and_only_the_suite_needs_it() -> None:
    program = "import sys; sys.modules['pytest'] = None; import batonkit.testing; import batonkit.testing.conformance"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "batonkit.testing.conformance needs `pytest`, which is not installed: pip install" in finished.stderr
