"""Every example runs offline, says that its model is scripted, and prints what it is about."""

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
EXAMPLES = sorted(file for file in FOLDER.glob("*/*.py") if file.parent.name != "deploy")
DEMO = FOLDER / "first_steps" / "demo.py"
MOST_LINES = 60

KEY_LINES = {
    "demo.py": "payments: 1 (80 EUR for order A-17 paid back)",
    "one_agent.py": "Guide: I answer questions about your order, in one sentence.",
    "tools.py": "Shopkeeper: price failed -> quantity must be at least 1",
    "transfer.py": "RouterAgent → WeatherAgent",
    "handoffs.py": "tools of Desk: transfer_to_bookings, escalate",
    "function_returns_agent.py": "Refunds was told: Settle the refund of order A-17.",
    "structured_output.py": "output: Trip(city='Lisbon', nights=3), 270 EUR",
    "streaming.py": "5 pieces of text, 7 events in the log; deltas are not logged",
    "interrupt_and_resume.py": "book_flight ran twice up to the question, the search ran 1 time",
    "approval.py": "completed: A and B are paid back, C is not. Paid: [5.0, 60.0]",
    "your_own_agent.py": "Doorman → Bouncer",
    "history.py": "  UserMessage: For context: [Nurse] `file_of` tool returned result: Ada: allergic to nuts.",
    "retry_and_failover.py": "spare: The spare model answers.",
    "then_and_back.py": "path: Editor → Researcher → Editor → Writer → Checker",
    "triage.py": "Refunds was told: Settle order A-17: refund, priority 1.",
    "redaction.py": "no number or address reached Billing; the log is whole",
    "conditions.py": "gold at 22:00 may reach concierge, mail; is with Concierge",
    "escalation.py": "the case that Third read: First: restarted it; Second: replaced the cable",
    "handing_back.py": "path: Planner → Trains → Planner → Hotels → Planner",
    "tracing.py": "    handoff Desk to Refunds, requested: ('Refunds', 'Billing')",
    "guardrails.py": "80 EUR are on their way. Paid: [80.0]",
    "research_pipeline.py": "Research answers: Bicycle lanes lower the number of accidents, most studies find.",
    "writer_and_critic.py": "active agents: Article, Drafts, Writer, Critic, Writer, Critic, Publisher",
    "market_research.py": "figures: ['8 of 10 want it', '30 EUR']",
    "supervisor.py": "path: Boss → Search → Boss → Maths → Boss",
    "layered_supervisor.py": "Lawyer had the last word: Not a word of this.",
    "trip_planning.py": "3 steps in 2 rounds: Take the ICE at 9:40 (89 EUR) and stay at Pension Ada (70 EUR).",
    "project_manager.py": "It is out. (12 model calls, 61 events)",
    "deep_agent.py": "The report is in report.md. Tides come about twice a day. [1]",
    "survives_a_restart.py": "tuesday: completed, The money is on its way.",
    "threads.py": "Bookings is active: the second run started there, not with Desk",
    "never_twice.py": "completed: Ada has her 100 EUR. The tool ran 1 time.",
    "fork.py": "second: You fly to Rome at 07:10.",
    "crash_laboratory.py": "14 crashes in a run of 9 events, 14 resumes: the same outcome every time",
    "middleware.py": "Billing: The bill is on its way to ada@example.org. (5 model calls)",
    "compaction.py": "1/m4/compact replaced everything up to 1/m2: Orders A-1 to A-2 were delivered.",
    "options_per_run.py": "Help customers. Be brief. [track]",
    "steer_a_conversation.py": "first:    I have read: Red shoes, please. / Blue ones, I mean.",
    "streaming_tools.py": "2 model calls; the answer: 6 letters are in letters.zip",
    "task_with_a_digression.py": 'Desk reads as the result of its call: {"day":"Monday","people":2}',
    "mcp_tools.py": "warehouse_reserve failed: Error executing tool reserve: there are only 3 of lamp",
    "remote_agent.py": "completed: Weather says Rome has been warned.",
    "three_mcp_servers.py": "in the log of git: Say when the call is",
    "http_api.py": "Done: four people at 20:30.",
    "openai_server.py": "Billing: You are welcome!",
    "chat_page.py": "Done: 80 EUR are on their way.",
    "agui_frontend.py": "Red it is: I paint the door.",
    "voice_desk.py": "4600 ms of speech, 1 connection, active: Triage",
    "workers.py": "1000 of 1000 runs completed; exit codes of the workers: [-9, 0, 0]",
    "costs.py": "  Desk → Expert: 2400 tokens, $0.0290",
    "smaller_prompts.py": "the chapters in the last request: [76, 76, 880] characters",
}


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=REPOSITORY,
        # The demo would otherwise fetch a model of 1.1 GB; the others play their scripts anyway.
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
    """The command lines in the docstring of an example."""
    docstring = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    lines = [line.strip() for line in docstring.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(("python ", "baton "))]


def test_every_example_has_a_key_line() -> None:
    names = sorted(example.name for example in EXAMPLES)
    assert names == sorted(KEY_LINES), "add a line that the example prints to KEY_LINES, under a name no other has"


def test_the_index_lists_every_example_in_the_section_of_its_folder() -> None:
    _, *sections = re.split(r"^## ", (FOLDER / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    listed: dict[str, list[str]] = {}
    for section in sections:
        rows = re.findall(r"^\| \[`\w+`\]\((\w+)/(\w+\.py)\)", section, re.MULTILINE)
        folders = re.findall(r"^In \[`(\w+)/`\]", section, re.MULTILINE)
        assert {folder for folder, _ in rows} == {*folders}, "each section is about one folder"
        for folder in folders:
            listed[folder] = sorted(name for _, name in rows)
    expected: dict[str, list[str]] = {}
    for example in EXAMPLES:
        expected.setdefault(example.parent.name, []).append(example.name)
    assert listed == expected, "add the example to the table of its folder in examples/README.md"


def test_no_example_is_outside_the_folders() -> None:
    assert [*FOLDER.glob("*.py")] == []


# An example may fetch a server with npx the first time.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs_and_prints_its_key_line(example: Path) -> None:
    finished = _run(str(example.relative_to(REPOSITORY)))
    if finished.stderr.startswith("this example needs"):
        pytest.skip(finished.stderr.strip())
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    notice = "print the notice first: `print(model.notice)` with scripted_or_real"
    assert lines[0].startswith("scripted model"), f"{notice}, or the same sentence as the other examples"
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
    if finished.stderr.startswith("this example needs"):
        pytest.skip(finished.stderr.strip())
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("model: openai:gpt-4.1; it may behave differently from the script\n")
    assert server.requests, "the example printed the notice without asking the model"


def test_the_index_marks_the_examples_that_need_their_scripts() -> None:
    marked = re.findall(r"\((\w+/\w+\.py)\) †", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert {FOLDER / name for name in marked} == {*EXAMPLES} - {*WITH_ANY_MODEL, DEMO}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_is_one_page(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, f"at most {MOST_LINES} lines"


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if example != DEMO], ids=lambda example: example.stem
)
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
