"""Links between pages lead somewhere, every page is in the navigation, and named commands exist."""

import re
from pathlib import Path

import pytest
from tests.architecture.shape import REPOSITORY

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), REPOSITORY / "examples" / "README.md"])
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")

FILE = re.compile(r"(?:/blob/main|raw\.githubusercontent\.com/baton-adk/baton/main)/([^)#\s\"]+)")
SITE = re.compile(r"https://baton-adk\.github\.io/baton/([^)#\s\"]*)")


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+\s+(.+)$", text, re.MULTILINE)
    named = re.findall(r"^#+\s.*\{#([\w-]+)\}$", text, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings} | {*named}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        has_anchors = target.suffix == ".md"
        is_lost = not target.exists() or (has_anchors and link["anchor"] and link["anchor"] not in _anchors(target))
        if is_lost:
            broken.append(link.group(0))
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_to_files_of_the_repository_lead_somewhere(page: Path) -> None:
    named = FILE.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_to_the_site_lead_somewhere(page: Path) -> None:
    named = SITE.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not _is_page(path)] == []


def _is_page(path: str) -> bool:
    """Return whether a path of the site is one of a page: `guides/`, `guides/studio/` or the empty one."""
    docs = REPOSITORY / "docs"
    is_folder = not path or path.endswith("/")
    return is_folder and ((docs / path / "index.md").exists() or (docs / f"{path.rstrip('/')}.md").exists())


def test_pages_of_the_site_are_told_from_others() -> None:
    assert [_is_page(path) for path in ("", "guides/", "guides/studio/")] == [True] * 3
    assert [_is_page(path) for path in ("guides/studio", "guides/studio.md", "guides/nothing/")] == [False] * 3


def test_every_page_is_in_the_navigation() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    docs = REPOSITORY / "docs"
    missing = [name for page in docs.rglob("*.md") if (name := str(page.relative_to(docs))) not in navigation]
    assert missing == []


def test_the_make_commands_that_are_named_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)\b", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{page.name} names {named - targets}"


def test_pages_speak_of_no_machine() -> None:
    local = re.compile(r"/(?:home|root|work|Users|tmp/[a-z])\b")
    found = [f"{page.name}: {match.group(0)}" for page in PAGES if (match := local.search(page.read_text("utf-8")))]
    assert found == []
