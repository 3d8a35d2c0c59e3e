"""The text for coding assistants is made of the docs, and up to date, and its programs run."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.architecture.test_fences import fences_in
from tools.skill.generate import NAMES, WRITTEN, generate


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_what_the_docs_make_of_its_template(name: str) -> None:
    written = (WRITTEN / name).read_text(encoding="utf-8")
    assert written == generate(name), "the docs have changed; run: python -m tools.skill.generate"


def test_each_program_runs_alone_because_assistants_copy_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (WRITTEN / "SKILL.md").read_text(encoding="utf-8")
    for line, code in fences_in(text):
        # Annotations are looked up in the module that a function says it is from.
        module = ModuleType("program")
        monkeypatch.setitem(sys.modules, "program", module)
        exec(compile("\n" * (line - 1) + code, "SKILL.md", "exec"), vars(module))


def test_the_skill_is_short_and_has_ten_programs() -> None:
    text = (WRITTEN / "SKILL.md").read_text(encoding="utf-8")
    assert text.startswith("---\nname: batonkit\ndescription: ")
    assert len(re.findall(r"^```python$", text, re.MULTILINE)) == 10
    # About 4,000 tokens: an assistant reads all of it.
    assert len(text) < 16_000
    assert "<!--" not in text
