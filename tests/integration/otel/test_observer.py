"""Spans built by the real SDK while a run is driven, or exported from its log."""

import subprocess
import sys


def test_untraced_run_does_not_import_opentelemetry() -> None:
    program = (
        "import sys; from batonkit import Agent, Runner; import batonkit.otel; "
        "from batonkit.testing import ScriptedModel; "
        "assert Runner(Agent('A'), model=ScriptedModel(['Hi.'])).run_sync('Hello').output == 'Hi.'; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
