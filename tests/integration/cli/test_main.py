"""The `baton` group: commands are loaded when they are called."""

import subprocess
import sys


def test_help_imports_neither_rich_nor_the_runner() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from batonkit.cli.main import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "print([name for name in sys.modules if name in ('rich', 'batonkit.runs', 'batonkit.agents')])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
