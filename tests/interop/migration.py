"""Run the programs on the migration pages with the framework that they are for, and then ours: `make interop`.

Each framework is installed in an environment of its own, in `.peers/`. Its models are replaced by a script.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = REPOSITORY / "docs" / "migration"
PEERS = REPOSITORY / ".peers"
BATON = ["--editable", str(REPOSITORY)]
"""For the programs of other kits that have Baton inside."""
PACKAGES = {
    "openai-agents": ["openai-agents", *BATON],
    "swarm": ["openai-swarm", "openai<2"],
    "langgraph": ["langgraph-swarm", "langgraph-checkpoint-sqlite", "langchain", "langchain-mcp-adapters", *BATON],
    "langgraph-swarm": ["langgraph-swarm", "langchain"],
    "autogen": ["autogen-agentchat", "autogen-ext[openai]"],
    "google-adk": ["google-adk"],
    "pydantic-ai": ["pydantic-ai-slim[mcp]", *BATON],
}
BEFORE = re.compile(
    r"^``` \{\.python \.no-run \.before-(?P<peer>[a-z-]+)\}\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
AFTER = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ANSWER = "The money is on its way."


def python_of(peer: str) -> Path:
    """Return the interpreter of a framework's environment, which is created if it is missing."""
    folder = PEERS / f"migration-{peer}"
    python = folder / "bin" / "python"
    ready, packages = folder / ".ready", " ".join(PACKAGES[peer])
    if not ready.exists() or ready.read_text() != packages:
        print(f"installing {packages}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES[peer]], check=True)
        ready.write_text(packages)
    return python


def last_line(python: Path, program: str) -> str:
    """Run a program in an empty folder and return the last line that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(program, encoding="utf-8")
        done = subprocess.run([python, file], cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{program}\n\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    """Run both programs of each page; exit with an error if one prints another answer."""
    for page in sorted(PAGES.glob("from-*.md")):
        text = page.read_text(encoding="utf-8")
        before = BEFORE.search(text)
        if before is None:
            print(f"{page.name}: no program that can run here")
            continue
        script = (REPOSITORY / "tests" / "interop" / "peers" / f"{before['peer'].replace('-', '_')}.py").read_text()
        programs = {"before": (python_of(before["peer"]), script + before["code"])}
        if before["peer"] == "swarm":
            changed = before["code"].replace("from swarm import", "from batonkit.swarm import")
            programs["after"] = (Path(sys.executable), script + changed)
        elif (after := AFTER.search(text, before.end())) is not None:
            programs["after"] = (Path(sys.executable), after["code"])
        for name, (python, program) in programs.items():
            answer = last_line(python, program)
            print(f"{page.name}, {name}: {answer}")
            if answer != ANSWER:
                raise SystemExit(f"expected: {ANSWER}")


if __name__ == "__main__":
    main()
