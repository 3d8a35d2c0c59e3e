"""Strings such as `provider:name` resolve to models; invalid ones raise a `SetupError`."""

import subprocess
import sys


def test_importing_the_package_loads_neither_pydantic_nor_metadata_nor_a_provider() -> None:
    code = (
        "import sys, batonkit.models; print([m for m in "
        "('pydantic', 'importlib.metadata', 'openai', 'anthropic', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
