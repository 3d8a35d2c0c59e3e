"""The pytest fixture of the guide on recorded models, as users run it: recorded once, then replayed without a key."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.architecture.shape import REPOSITORY

TITLED = re.compile(r'^```python title="(?P<name>[a-z_]+\.py)"\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)
PROVIDER = """
from batonkit.models import register_model
from batonkit.testing import ScriptedModel, call

steps = [call("transfer_to_billing"), "You paid 80 EUR."]
register_model("openai", lambda name: ScriptedModel(steps, name=f"openai:{name}"))
"""
KEY = "sk-of-the-test"


def pytest_in(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    hidden = ("BATON_", "PYTEST_", "OPENAI_", "RECORD")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", *options, "."]
    return subprocess.run(
        command, cwd=folder, env={**inherited, **environment}, capture_output=True, text=True, check=False, timeout=300
    )


def test_the_fixture_records_once_and_replays_without_a_key(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "guides" / "record-a-model.md").read_text(encoding="utf-8")
    files = {found["name"]: found["code"] for found in TITLED.finditer(page)}
    assert set(files) == {"conftest.py", "test_desk.py"}
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    (tmp_path / "provider.py").write_text(PROVIDER, encoding="utf-8")

    recorded = pytest_in(tmp_path, "-p", "provider", RECORD="1", OPENAI_API_KEY=KEY)
    assert "1 passed" in recorded.stdout, recorded.stdout
    (cassette,) = (tmp_path / "cassettes").iterdir()
    assert KEY not in cassette.read_text(encoding="utf-8")

    replayed = pytest_in(tmp_path)
    assert "1 passed" in replayed.stdout, replayed.stdout

    (tmp_path / "test_desk.py").write_text(files["test_desk.py"].replace("Hand over", "Give"), encoding="utf-8")
    changed = pytest_in(tmp_path)
    assert "1 failed" in changed.stdout
    assert "Triage asks openai:gpt-5, last message: What did I pay for A-17?" in changed.stdout
    assert "differs in `instructions`" in changed.stdout
