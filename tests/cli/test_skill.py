"""`baton skill` prints what coding assistants should know, and adds it to a project without touching what is there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Invoke = Callable[..., Any]
SKILL = ".claude/skills/batonkit/SKILL.md"


def test_the_skill_is_printed(baton: Invoke, tmp_path: Path) -> None:
    printed = baton("skill").output
    assert printed.startswith("---\nname: batonkit\n")
    assert "## Mistakes to avoid" in printed
    assert list(tmp_path.iterdir()) == []


def test_it_is_installed_in_an_empty_project(baton: Invoke, tmp_path: Path) -> None:
    result = baton("skill", "--install")
    assert (result.exit_code, result.output.split()) == (0, [SKILL, "AGENTS.md"])
    assert (tmp_path / SKILL).read_text(encoding="utf-8").strip() == baton("skill").output.strip()
    agents = (tmp_path / "AGENTS.md").read_text(encoding="utf-8")
    assert agents.startswith("<!-- batonkit:start -->\n## Baton\n")
    assert agents.endswith("\n<!-- batonkit:end -->\n")


def test_the_text_of_the_user_in_agents_md_stays(baton: Invoke, tmp_path: Path) -> None:
    agents = tmp_path / "AGENTS.md"
    agents.write_bytes(b"# Mine\r\n\r\nUse tabs.\r\n")
    baton("skill", "--install")
    first = agents.read_bytes()
    assert first.startswith(b"# Mine\r\n\r\nUse tabs.\r\n\n<!-- batonkit:start -->\n")

    older = first.replace(b"## Baton", b"## Baton of last year") + b"\nMore of mine.\n"
    agents.write_bytes(older)
    baton("skill", "--install")
    assert agents.read_bytes() == first + b"\nMore of mine.\n"


def test_another_folder_can_be_named(baton: Invoke, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    assert baton("skill", "--install", "desk").exit_code == 0
    assert (tmp_path / "desk" / SKILL).is_file()
    assert not (tmp_path / "AGENTS.md").exists()
    missing = baton("skill", "--install", "none")
    assert missing.exit_code == 2
    assert "'none' does not exist" in missing.output


@pytest.mark.parametrize(
    "text",
    ["<!-- batonkit:start -->\nA.", "A.\n<!-- batonkit:end -->", "<!-- batonkit:end -->\n<!-- batonkit:start -->"],
)
def test_a_damaged_section_is_not_repaired(baton: Invoke, tmp_path: Path, text: str) -> None:
    (tmp_path / "AGENTS.md").write_text(text)
    result = baton("skill", "--install")
    assert result.exit_code == 2
    assert "AGENTS.md must have both lines" in result.output
    assert (tmp_path / "AGENTS.md").read_text() == text
    assert not (tmp_path / SKILL).exists()


def test_an_agents_md_that_cannot_be_read_is_an_error(baton: Invoke, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes(b"\xff\xfe")
    result = baton("skill", "--install")
    assert result.exit_code == 2
    assert "cannot add the skill to ." in result.output
    assert (tmp_path / "AGENTS.md").read_bytes() == b"\xff\xfe"
