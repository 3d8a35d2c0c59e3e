"""The site: diagrams are drawn from their sources, and no page loads anything from another origin."""

import re
from pathlib import Path

import pytest
from tests.architecture.shape import REPOSITORY
from tools.diagrams.draw import COLORS, FOLDER, picture_of, source_hash

DOCS = REPOSITORY / "docs"
MOST_PAGES = 88
DIAGRAMS = sorted(FOLDER.glob("*.mmd"))


@pytest.mark.parametrize("source", DIAGRAMS, ids=lambda source: source.stem)
def test_diagrams_are_drawn_from_their_sources_and_shown(source: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    for theme in COLORS:
        picture = picture_of(source, theme)
        assert f"source: {source_hash(source)}" in picture.read_text(encoding="utf-8"), "run `make pictures`"
        assert f"{picture.name}#only-{theme}" in pages


def test_pages_load_nothing_from_another_origin() -> None:
    loaded = re.compile(r"""!\[[^\]]*\]\(https?:|(?:src|srcset)=["']https?:|@import|url\(["']?https?:""")
    files = [
        *DOCS.rglob("*.md"),
        *DOCS.rglob("*.css"),
        *DOCS.rglob("*.svg"),
        *(REPOSITORY / "tools/theme").rglob("*.html"),
    ]
    found = [str(file.relative_to(REPOSITORY)) for file in files if loaded.search(file.read_text(encoding="utf-8"))]
    assert found == []


def test_the_theme_asks_no_other_service() -> None:
    site = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    source = (REPOSITORY / "tools/theme/partials/source.html").read_text(encoding="utf-8")
    assert "  font: false\n" in site, "otherwise fonts come from Google"
    assert "superfences.fence_code_format" not in site, "a mermaid fence makes the theme load Mermaid from a CDN"
    assert "<a href" in source
    assert 'data-md-component="source">' not in source, "with it the theme asks api.github.com"


def test_the_site_has_few_pages() -> None:
    pages = list(DOCS.rglob("*.md"))
    assert len(pages) <= MOST_PAGES, "merge pages: each should be one topic that readers search for"


def test_every_guide_is_in_the_index() -> None:
    index = (DOCS / "guides" / "index.md").read_text(encoding="utf-8")
    missing = [page.name for page in (DOCS / "guides").glob("*.md") if f"({page.name})" not in index]
    assert missing == ["index.md"]
