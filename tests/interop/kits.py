"""Run the programs on the page about other kits with these kits: `make interop`.

Each kit is installed in its environment in `.peers/`, where the migration pages have it too; its models are scripted.
An agent of the kit must survive crashes inside a Baton team, and a Baton team must answer as a tool of the kit.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.interop.migration import REPOSITORY, python_of

PAGE = REPOSITORY / "docs" / "guides" / "other-kits.md"
KITS = ("pydantic-ai", "openai-agents", "langgraph")
FENCE = re.compile(
    r'^``` ?(?:\{\.python \.no-run \.(?P<mark>[a-z-]+)\}|python title="(?P<file>[a-z.]+)")\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
ANSWERS = {"member": "It is sunny in Rome.", "tool": "A-17 was delivered on Monday."}
FORKS = """
from batonkit.log import StepCompleted


async def resume_from_every_event() -> None:
    runner = new_runner("memory:")
    first = await runner.run("How is Rome?", thread="ada")
    second = await runner.run("And tomorrow?", thread="ada")
    assert (second.agent, READ[-1]) == ("Weather", 3), (second.agent, READ)
    events = list(first.events)
    (recorded,) = [number for number, event in enumerate(events, start=1) if isinstance(event, StepCompleted)]
    for at in range(1, len(events)):
        model = ScriptedModel({"Triage": [call("transfer_to_weather")]})
        model.fast_forward(events[:at])
        resuming, asked = runner.clone(model=model), len(READ)
        result = await resuming.resume(await resuming.runs.fork(first.run_id, at=at))
        assert (result.output, len(READ) - asked) == (first.output, 0 if at >= recorded else 1), at
    print(first.output)


asyncio.run(resume_from_every_event())
"""


def run(python: Path, program: str, files: dict[str, str]) -> str:
    """Run a program in a folder with these files, where `baton` is ours; return the last line that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**files, "program.py": program}.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            [python, "program.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{program}\n\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    """Run both programs of each kit; exit with an error if one fails or prints another answer."""
    fences = {
        found["mark"] or found["file"]: found["code"] for found in FENCE.finditer(PAGE.read_text(encoding="utf-8"))
    }
    for kit in KITS:
        script = (REPOSITORY / "tests" / "interop" / "peers" / f"kit_{kit.replace('-', '_')}.py").read_text()
        programs = {
            "member": script + fences[f"member-{kit}"] + fences["crashes"] + FORKS,
            "tool": script + fences[f"tool-{kit}"],
        }
        for name, program in programs.items():
            answer = run(python_of(kit), program, {"desk.py": fences["desk.py"]})
            print(f"{kit}, {name}: {answer}", flush=True)
            if answer != ANSWERS[name]:
                raise SystemExit(f"expected: {ANSWERS[name]}")


if __name__ == "__main__":
    main()
