"""Every example runs offline, says that its model is scripted, and does what its lesson says."""

import ast
import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.shape import REPOSITORY
from tests.servers import OpenAIServer

from batonkit.messages import ToolCall, ToolMessage
from batonkit.models import ModelRequest
from batonkit.testing import call

FOLDER = REPOSITORY / "examples"
EXAMPLES = sorted(FOLDER.glob("*/[0-9][0-9]_*.py"), key=lambda example: example.name)
MOST_LINES = 60

KEY_LINES = {
    "00_demo.py": "It is 25 °C in Beijing right now: a good day for a walk in the hutongs.",
    "01_one_agent.py": "Guide: I answer questions about your order, in one sentence.",
    "02_tools.py": "Shopkeeper: price failed -> quantity must be at least 1",
    "03_transfer.py": "RouterAgent → WeatherAgent",
    "04_handoffs.py": "tools of Desk: transfer_to_bookings, escalate",
    "05_function_returns_agent.py": "Refunds was told: Settle the refund of order A-17.",
    "06_structured_output.py": "output: Trip(city='Lisbon', nights=3), 270 EUR",
    "07_streaming.py": "5 pieces of text, 7 events in the log; deltas are not logged",
    "08_interrupt_and_resume.py": "book_flight ran twice up to the question, the search ran 1 time",
    "09_approval.py": "completed: A and B are paid back, C is not. Paid: [5.0, 60.0]",
    "10_your_own_agent.py": "Doorman → Bouncer",
    "11_history.py": "  UserMessage: For context: [Nurse] `file_of` tool returned result: Ada: allergic to nuts.",
    "12_retry_and_failover.py": "spare: The spare model answers.",
    "13_then_and_back.py": "path: Editor → Researcher → Editor → Writer → Checker",
    "14_triage.py": "Refunds was told: Settle order A-17: refund, priority 1.",
    "15_redaction.py": "no number or address reached Billing; the log is whole",
    "16_conditions.py": "gold at 22:00 may reach concierge, mail; is with Concierge",
    "17_escalation.py": "the case that Third read: First: restarted it; Second: replaced the cable",
    "18_handing_back.py": "path: Planner → Trains → Planner → Hotels → Planner",
    "19_tracing.py": "    handoff Desk to Refunds, requested: ('Refunds', 'Billing')",
    "20_guardrails.py": "80 EUR are on their way. Paid: [80.0]",
    "21_research_pipeline.py": "Research answers: Bicycle lanes lower the number of accidents, most studies find.",
    "22_writer_and_critic.py": "active agents: Article, Drafts, Writer, Critic, Writer, Critic, Publisher",
    "23_market_research.py": "figures: ['8 of 10 want it', '30 EUR']",
    "24_supervisor.py": "path: Boss → Search → Boss → Maths → Boss",
    "25_layered_supervisor.py": "Lawyer had the last word: Not a word of this.",
    "26_trip_planning.py": "3 steps in 2 rounds: Take the ICE at 9:40 (89 EUR) and stay at Pension Ada (70 EUR).",
    "27_project_manager.py": "It is out. (12 model calls, 61 events)",
    "28_deep_agent.py": "The report is in report.md. Tides come about twice a day. [1]",
    "29_survives_a_restart.py": "tuesday: completed, The money is on its way.",
    "30_threads.py": "Bookings is active: the second run started there, not with Desk",
    "31_never_twice.py": "completed: Ada has her 100 EUR. The tool ran 1 time.",
    "32_fork.py": "second: You fly to Rome at 07:10.",
    "33_crash_laboratory.py": "14 crashes in a run of 9 events, 14 resumes: the same outcome every time",
    "34_middleware.py": "Billing: The bill is on its way to ada@example.org. (5 model calls)",
    "35_compaction.py": "1/m4/compact replaced everything up to 1/m2: Orders A-1 to A-2 were delivered.",
    "36_options_per_run.py": "Help customers. Be brief. [track]",
    "37_steer_a_conversation.py": "first:    I have read: Red shoes, please. / Blue ones, I mean.",
    "38_streaming_tools.py": "2 model calls; the answer: 6 letters are in letters.zip",
    "39_task_with_a_digression.py": 'Desk reads as the result of its call: {"day":"Monday","people":2}',
    "40_mcp.py": "warehouse_reserve failed: Error executing tool reserve: there are only 3 of lamp",
    "41_a2a.py": "completed: Weather says Rome has been warned.",
    "42_three_mcp_servers.py": "in the log of git: Say when the call is",
    "43_http_api.py": "Done: four people at 20:30.",
    "44_ag_ui.py": "Red it is: I paint the door.",
    "45_voice_desk.py": "4600 ms of speech, 1 connection, active: Triage",
    "46_workers.py": "1000 of 1000 runs completed; exit codes of the workers: [-9, 0, 0]",
    "47_costs.py": "  Desk → Expert: 2400 tokens, $0.0290",
    "48_smaller_prompts.py": "the chapters in the last request: [76, 76, 880] characters",
}


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=REPOSITORY,
        # The demo would otherwise fetch a model of 1.1 GB; lessons play their scripts anyway.
        env={**os.environ, "BATON_MODEL": "scripted", **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _example_of(schema: dict[str, Any]) -> Any:
    """Return a value that fits a JSON schema of a tool or an answer."""
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _example_of(schema["anyOf"][0])
    if "properties" in schema:
        return {name: _example_of(each) for name, each in schema["properties"].items()}
    simple: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return simple.get(schema.get("type", ""), "x")


def _any_model(request: ModelRequest) -> str | ToolCall:
    """Respond as a model that knows no script: call the first tool once, then answer."""
    if request.output_schema is not None:
        return json.dumps(_example_of(request.output_schema.schema))
    tools = [spec for spec in request.tools if not spec.name.startswith("transfer_to")]
    has_called = any(isinstance(message, ToolMessage) for message in request.messages)
    return call(tools[0].name, **_example_of(tools[0].parameters)) if tools and not has_called else "Fine."


def _commands_in(example: Path) -> list[list[str]]:
    """The command lines in the docstring of a lesson."""
    docstring = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    lines = [line.strip() for line in docstring.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(("python ", "baton "))]


def test_every_example_has_a_key_line() -> None:
    assert [example.name for example in EXAMPLES] == list(KEY_LINES), "add a line that the lesson prints to KEY_LINES"


def test_the_index_lists_every_example_in_the_section_of_its_folder() -> None:
    _, *sections = re.split(r"^## ", (FOLDER / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    listed: dict[str, list[str]] = {}
    for section in sections:
        lessons = re.findall(r"\((\w+)/([0-9]{2}_\w+\.py)\)", section)
        folders = re.findall(r"^In \[`(\w+)/`\]", section, re.MULTILINE)
        assert {folder for folder, _ in lessons} == {*folders}, "each section is about one folder"
        for folder in folders:
            listed[folder] = [name for _, name in lessons]
    expected: dict[str, list[str]] = {}
    for example in EXAMPLES:
        expected.setdefault(example.parent.name, []).append(example.name)
    assert listed == expected, "add the lesson to the table in examples/README.md, in the order of the numbers"


def test_no_example_is_outside_the_folders() -> None:
    assert [*FOLDER.glob("*.py")] == []


# A lesson may fetch a server with npx the first time.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs_and_shows_its_lesson(example: Path) -> None:
    finished = _run(str(example.relative_to(REPOSITORY)))
    if finished.stderr.startswith("this lesson needs"):
        pytest.skip(finished.stderr.strip())
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    notice = "print the notice first: `print(model.notice)` with scripted_or_real"
    assert lines[0].startswith("scripted model"), f"{notice}, or the same sentence as the other lessons"
    assert KEY_LINES[example.name] in lines
    assert "Traceback" not in finished.stderr


WITH_ANY_MODEL = [example for example in EXAMPLES if "scripted_or_real" in example.read_text(encoding="utf-8")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", WITH_ANY_MODEL, ids=lambda example: example.stem)
async def test_an_example_runs_with_the_model_that_the_environment_names(example: Path) -> None:
    async with OpenAIServer([_any_model], cycle=True) as server:
        address = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": server.api_key}
        finished = await asyncio.to_thread(
            _run, str(example.relative_to(REPOSITORY)), BATON_MODEL="openai:gpt-4.1", **address
        )
    if finished.stderr.startswith("this lesson needs"):
        pytest.skip(finished.stderr.strip())
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("model: openai:gpt-4.1; it may behave differently from the script\n")
    assert server.requests, "the lesson printed the notice without asking the model"


def test_the_index_says_which_lessons_need_their_scripts() -> None:
    text = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    sentence = text.partition("all lessons except ")[2].partition(" ask a real model")[0]
    ranges = re.findall(r"(\d+)(?: to (\d+))?", sentence)
    named = {number for first, last in ranges for number in range(int(first), int(last or first) + 1)}
    assert named == {int(example.name[:2]) for example in EXAMPLES[1:] if example not in WITH_ANY_MODEL}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_is_one_page(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, f"at most {MOST_LINES} lines"


@pytest.mark.parametrize("example", EXAMPLES[1:], ids=lambda example: example.stem)
def test_the_commands_in_its_docstring_work(example: Path) -> None:
    (python, script), *others = _commands_in(example)
    assert (python, script) == ("python", str(example.relative_to(REPOSITORY)))
    checks = f"add a line `baton check {script}:AGENT` to the docstring"
    assert any(command[:2] == ["baton", "check"] for command in others), checks
    for _, verb, target, *rest in others:
        assert target.startswith(f"{script}:")
        strict = ["--strict"] if verb == "check" else []
        finished = _run("-m", "batonkit", verb, target, *rest, *strict)
        assert finished.returncode == 0, finished.stdout + finished.stderr
