"""Runs over a strict local server, with both APIs, streamed and not."""

import subprocess
import sys


def test_http_clients_are_imported_lazily() -> None:
    program = (
        "import sys; from batonkit.models import resolve_model; resolve_model('openai:gpt-5')\n"
        "print(sorted({'aiohttp', 'openai', 'httpx2', 'httpx'} & sys.modules.keys()))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"
