"""Write what coding assistants should know about Baton from the docs: `python -m tools.skill.generate`.

The templates beside this file have marks: a fence mark is replaced with the one Python fence of the docs that contains
its text, so that every program is one that is tested, and an include mark with another file.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEMPLATES = Path(__file__).parent
WRITTEN = ROOT / "src" / "batonkit" / "cli" / "assistants"
NAMES = ("SKILL.md", "AGENTS.md")
SITE = "https://baton-adk.github.io/baton"
_MARK = re.compile(r"^<!-- (?P<kind>fence|include): (?P<text>.+) -->$", re.MULTILINE)
_FENCE = re.compile(r"^```python[^\n`]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def generate(name: str) -> str:
    """Return the text of a file, made of its template."""
    return _MARK.sub(_replace, (TEMPLATES / name).read_text(encoding="utf-8"))


def _replace(mark: re.Match[str]) -> str:
    if mark["kind"] == "include":
        return (TEMPLATES / mark["text"]).read_text(encoding="utf-8").strip()
    page, code = _find_fence(mark["text"])
    address = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
    link = SITE if address == "index" else f"{SITE}/{address}"
    return f"```python\n{code}```\n\nMore: <{link}/>"


def _find_fence(text: str) -> tuple[Path, str]:
    found = [
        (page, fence["code"])
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for fence in _FENCE.finditer(page.read_text(encoding="utf-8"))
        if text in fence["code"]
    ]
    if len(found) != 1:
        pages = ", ".join(page.name for page, _ in found) or "none"
        raise SystemExit(f"tools/skill/SKILL.md wants the one fence with {text!r}, but these pages have one: {pages}")
    return found[0]


def main() -> None:
    """Write the files into the package."""
    WRITTEN.mkdir(exist_ok=True)
    for name in NAMES:
        (WRITTEN / name).write_text(generate(name), encoding="utf-8")


if __name__ == "__main__":
    main()
