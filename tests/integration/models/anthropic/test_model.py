"""Claude through Anthropic's SDK and a real socket."""

import subprocess
import sys


def test_the_sdk_is_not_imported_before_it_is_used() -> None:
    code = (
        "import sys; from batonkit.models import resolve_model; resolve_model('anthropic:claude-opus-5-5'); "
        "assert not {'anthropic', 'httpx2', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
