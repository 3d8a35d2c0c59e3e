"""Modules that `import batonkit` and a first team load. `python -m benchmarks` measures time and memory."""

import json
import subprocess
import sys

import pytest

HEAVY = frozenset(
    {
        *("pydantic", "pydantic_core", "griffe", "rich", "click", "pygments"),
        *("openai", "anthropic", "google", "mistralai", "litellm"),
        *("httpx", "requests", "aiohttp", "starlette", "fastapi", "uvicorn", "websockets"),
        *("procrastinate", "temporalio"),
        *("sqlite3", "asyncpg", "psycopg", "redis", "opentelemetry", "mcp", "a2a"),
        *("pytest", "hypothesis", "multiprocessing"),
    }
)
NOT_EVEN_YET = frozenset({"asyncio", "msgspec", "typing_extensions", "dataclasses", "inspect", "logging", "json"})
"""Modules that `import batonkit` alone must not load; names are loaded on first use."""

NOT_FOR_A_FIRST_RUN = frozenset(
    {
        *("email", "urllib", "json", "difflib", "random", "secrets", "hashlib"),
        *(
            "batonkit.models.retry",
            "batonkit.models.provider_errors",
            "batonkit.stores.addresses",
            "batonkit.team.requests",
        ),
        *(
            "batonkit.runs.answers",
            "batonkit.runs.background.background_runner",
            "batonkit.runs.stored.driving",
            "batonkit.runs.stored.repository",
        ),
        *("batonkit.runs.threads.thread", "batonkit.runs.threads.waiting"),
    }
)
"""Modules that a run without a store does not need; each is loaded when it is used first."""

_A_TEAM = """
from batonkit import Agent, Limits, RunContext, Runner, handoff, tool
from batonkit.testing import ScriptedModel
weather = Agent("Weather", description="Knows the weather.")
runner = Runner(Agent("Router", description="Routes.", sub_agents=[weather]), model=ScriptedModel(["Hi."]))
assert runner.run_sync("Hello").output == "Hi."
"""


_A_FIRST_RUN = """
import asyncio
from batonkit import Agent, Runner, tool
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.models import CompleteResponse, ModelResponse

@tool
async def step(n: int) -> str:
    'Take a step.'
    return str(n)

class Stub:
    name = "stub"

    def respond(self, request):
        calls = (ToolCall("c", "step", '{"n": 1}'),) if len(request.messages) == 1 else ()
        return CompleteResponse(ModelResponse(AssistantMessage("" if calls else "done", calls)))

assert asyncio.run(Runner(Agent("A", tools=[step]), model=Stub()).run("Go.")).output == "done"
"""


def _loaded_by(code: str) -> set[str]:
    return {name.partition(".")[0] for name in _modules_loaded_by(code)}


def _modules_loaded_by(code: str) -> set[str]:
    program = f"{code}\nimport sys as _sys; print(*_sys.modules, sep=chr(10))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules, sep=chr(10))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(finished.stdout.split()) - set(before.stdout.split())


def test_import_baton_loads_next_to_nothing() -> None:
    loaded = _loaded_by("import batonkit")
    assert "batonkit" in loaded
    assert loaded & (HEAVY | NOT_EVEN_YET) == set()


def test_a_first_team_without_tools_loads_nothing_heavy() -> None:
    loaded = _loaded_by(_A_TEAM)
    assert "msgspec" in loaded
    assert loaded & HEAVY == set()


def test_a_first_run_loads_only_what_it_needs() -> None:
    loaded = _modules_loaded_by(_A_FIRST_RUN)
    assert "batonkit.runs.stream" in loaded
    assert loaded & (HEAVY | NOT_FOR_A_FIRST_RUN) == set()


@pytest.mark.parametrize(
    "package",
    [
        "errors",
        "messages",
        "log",
        "context",
        "models",
        "tools",
        "handoffs",
        "stores",
        "otel",
        "mcp",
        "serve",
        "worker",
    ],
)
def test_no_package_loads_anything_heavy(package: str) -> None:
    assert _loaded_by(f"import batonkit.{package}") & HEAVY == set()


def test_the_command_line_answers_for_its_version_without_loading_a_run() -> None:
    program = (
        "import json, sys; from click.testing import CliRunner; from batonkit.cli.main import main; "
        "said = CliRunner().invoke(main, ['--version']).output; print(json.dumps([said, *sys.modules]))"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said, *loaded = json.loads(finished.stdout)
    assert said.startswith("baton, version ")
    assert not {"batonkit.runs", "pydantic", "rich"} & set(loaded)
