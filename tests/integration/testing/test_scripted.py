"""A scripted model plays what it was told, and says clearly when it cannot."""

import subprocess
import sys

from batonkit.messages import ToolCall

WAVE, BOW = ToolCall("a", "wave"), ToolCall("b", "bow")


def test_the_package_works_without_pytest() -> None:
    code = "import sys, batonkit.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
