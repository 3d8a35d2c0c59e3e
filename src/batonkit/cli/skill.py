"""The command `baton skill`: what coding assistants should know about Baton, printed or added to a project."""

from importlib.resources import files
from pathlib import Path

import click

from .cli_errors import TargetError
from .cli_options import debug
from .output import write

_SKILL = Path(".claude/skills/batonkit/SKILL.md")
_AGENTS = Path("AGENTS.md")
_START, _END = "<!-- batonkit:start -->", "<!-- batonkit:end -->"
"""The lines of AGENTS.md around our section; everything outside of them is the user's."""


def _read(name: str) -> str:
    return (files("batonkit.cli") / "assistants" / name).read_text(encoding="utf-8")


def with_section(text: str, section: str) -> str:
    """Return the text of AGENTS.md with our section in place of an older one, or at its end.

    Raises:
        TargetError: The text has only one of the lines that mark the section, or has them in the wrong order.
    """
    marked = f"{_START}\n{section.strip()}\n{_END}"
    before, start, rest = text.partition(_START)
    _, end, after = rest.partition(_END)
    if start and end:
        return f"{before}{marked}{after}"
    if start or _END in text:
        raise TargetError(
            f"AGENTS.md must have both lines {_START} and {_END}, in this order, or neither. "
            "Nothing was written to it; remove the lines that are left, and install again"
        )
    separator = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{separator}{marked}\n"


def install(folder: Path) -> list[Path]:
    """Write the skill and the section of AGENTS.md into a project; return the files."""
    skill = folder / _SKILL
    agents = folder / _AGENTS
    try:
        # As bytes, so that line endings stay as they are.
        text = agents.read_bytes().decode("utf-8") if agents.exists() else ""
        changed = with_section(text, _read("AGENTS.md"))
        skill.parent.mkdir(parents=True, exist_ok=True)
        skill.write_text(_read("SKILL.md"), encoding="utf-8", newline="\n")
        agents.write_bytes(changed.encode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"cannot add the skill to {folder}: {error}") from error
    return [skill, agents]


@click.command("skill")
@click.argument("folder", default=".", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--install", "installs", is_flag=True, help="Add it to the project in FOLDER instead of printing it.")
@debug
def skill_command(*, folder: Path, installs: bool) -> None:
    """Print what coding assistants should know about Baton, or add it to a project.

    --install writes .claude/skills/batonkit/SKILL.md, and a marked section into AGENTS.md in FOLDER, by default the
    current one. What you wrote in AGENTS.md stays as it is; installing again updates the section and the skill.

    \b
    Examples:
      baton skill
      baton skill --install
      baton skill --install ~/work/desk
    """
    if not installs:
        write(_read("SKILL.md").rstrip())
        return
    for path in install(folder):
        write(f"  {path}")
