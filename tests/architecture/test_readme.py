"""Both READMEs are short, have the same structure, code and links, work on the package index, and state the version."""

import re
import tomllib

import pytest
import yaml
from tests.architecture.shape import REPOSITORY
from tests.architecture.test_fences import FENCE, fences_in

ENGLISH = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CHINESE = (REPOSITORY / "README.zh.md").read_text(encoding="utf-8")
BOTH = pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["English", "Chinese"])
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]
IMAGES = REPOSITORY / "docs" / "images"
MOST_WORDS = 700


def _prose(text: str) -> str:
    return FENCE.sub("", text)


def _links(text: str) -> list[str]:
    """Return the targets of links and pictures in order."""
    return [a or b for a, b in re.findall(r"\]\(([^)]+)\)|(?:href|src)=\"([^\"]+)\"", _prose(text))]


def _words(text: str) -> list[str]:
    """Return the words that a reader sees, without code blocks, addresses and the rules of tables."""
    seen = re.sub(r"<[^>]*>|\]\([^)]*\)", " ", _prose(text))
    return [word for word in seen.split() if re.search(r"\w", word)]


def test_both_readmes_have_the_same_code() -> None:
    fences = [match.group(0) for match in FENCE.finditer(ENGLISH)]
    assert [fence.partition("\n")[0] for fence in fences] == ["```python", "```sh", "```sh"]
    assert [match.group(0) for match in FENCE.finditer(CHINESE)] == fences


@BOTH
def test_a_checkout_needs_two_commands(text: str) -> None:
    assert f"`git clone {PROJECT['urls']['Repository']}`" in text
    *_, commands = [match.group(0).splitlines()[1:-1] for match in FENCE.finditer(text)]
    assert [command.partition("#")[0].split() for command in commands] == [["make", "demo"], ["make", "test"]]
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert {"demo:", "test:"} <= {line.split(" ")[0] for line in makefile.splitlines()}


@pytest.mark.parametrize("pattern", [r"^(#+) ", r"^\|(?=-)(.*)$", r"^(- \*\*)", r"(width=\S+)"])
def test_both_readmes_have_the_same_structure(pattern: str) -> None:
    found = re.findall(pattern, _prose(ENGLISH), re.MULTILINE)
    assert found
    assert re.findall(pattern, _prose(CHINESE), re.MULTILINE) == found


def test_both_readmes_have_the_same_links() -> None:
    # The Chinese one leads to the Chinese pages of the docs, and each to the other one.
    def chinese(link: str) -> str:
        page = link.replace("README.md", "README.zh.md").replace("/baton/zh/", "/baton/")
        return page.replace("/get-started/quick-tour/", "/get-started/")

    assert [chinese(link) for link in _links(CHINESE)] == [chinese(link) for link in _links(ENGLISH)]


@BOTH
def test_links_are_absolute_so_that_they_work_on_the_package_index(text: str) -> None:
    links = _links(text)
    assert len(links) > 30
    assert [link for link in links if not link.startswith("https://")] == []


def test_a_reader_is_done_after_700_words() -> None:
    assert 300 < len(_words(ENGLISH)) <= MOST_WORDS


def test_words_are_counted_as_a_reader_sees_them() -> None:
    text = '<p a="b c">**One** [two three](https://x.y/z)</p>\n| – | four |\n|---|:-:|\n```sh\nls -l\n```\n'
    assert _words(text) == ["**One**", "[two", "three", "four"]


@BOTH
def test_there_is_one_table_of_five_rows(text: str) -> None:
    (table,) = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    headings, _, *rows = table.splitlines()
    assert f"| Baton {VERSION} |" in headings
    assert len(rows) == 5


@BOTH
def test_five_reasons_have_one_link_each(text: str) -> None:
    section = next(part for part in text.split("\n## ") if "`assert_survives_crashes`" in part)
    reasons = section.partition("\n- ")[2].partition("\n\n")[0].split("\n- ")
    assert [len(_links(reason)) for reason in reasons] == [1] * 5


def test_the_program_has_about_14_lines() -> None:
    ((_, program),) = fences_in(ENGLISH)
    assert len(program.splitlines()) <= 16
    for feature in ("needs_approval=True", 'effect="once"', "handoffs=[", 'store="runs.db"'):
        assert feature in program


@pytest.mark.parametrize("name", ["resumed.svg", "terminal.svg"])
def test_the_pictures_show_the_command_of_the_readme(name: str) -> None:
    picture = (IMAGES / name).read_text(encoding="utf-8")
    assert "`baton chat desk:runner --thread lamp`" in ENGLISH
    for shown in ("$ baton chat desk:runner --thread lamp", "Killed", "80 EUR for order A-17 paid back"):
        assert f"{shown}</text>" in picture.replace("refund: ", ""), "run: make pictures"


def test_the_first_frame_of_the_animation_shows_a_command() -> None:
    picture = (IMAGES / "terminal.svg").read_text(encoding="utf-8")
    first = re.search(r'<g class="s"[^>]*>(.*?)</g>', picture)
    assert first is not None
    rows = re.findall(r'href="#(r\d+)"', first[1])
    drawn = "".join(re.findall(rf'<g id="{rows[0]}">(.*?)</g>', picture))
    assert "$ baton chat desk:runner" in drawn
    assert "animation" not in (IMAGES / "resumed.svg").read_text(encoding="utf-8")


def test_the_version_and_the_address_are_stated_alike() -> None:
    site = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert (site["extra"]["release"], str(citation["version"])) == (VERSION, VERSION)
    assert f"Baton {VERSION}" in (REPOSITORY / "docs" / "compare.md").read_text(encoding="utf-8")
    assert {site["repo_url"], citation["repository-code"]} == {PROJECT["urls"]["Repository"]}
    assert site["site_url"] == PROJECT["urls"]["Documentation"]
