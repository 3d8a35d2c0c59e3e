"""Both READMEs have the same sections, code, tables and links, and state the versions that the package states."""

import re
import tomllib

import pytest
import yaml
from tests.architecture.shape import REPOSITORY
from tests.architecture.test_fences import FENCE

ENGLISH = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CHINESE = (REPOSITORY / "README.zh.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]


def _prose(text: str) -> str:
    return FENCE.sub("", text)


def test_both_readmes_have_the_same_code() -> None:
    fences = [match.group(0) for match in FENCE.finditer(ENGLISH)]
    assert len(fences) >= 3
    assert [match.group(0) for match in FENCE.finditer(CHINESE)] == fences


@pytest.mark.parametrize(
    "pattern",
    [r"^(#+) ", r"^\|(?=-)(.*)$", r"\]\(([^)]+\.(?:svg|png|py))\)"],
    ids=["headings", "tables", "pictures"],
)
def test_both_readmes_have_the_same_structure(pattern: str) -> None:
    found = re.findall(pattern, _prose(ENGLISH), re.MULTILINE)
    assert found
    assert re.findall(pattern, _prose(CHINESE), re.MULTILINE) == found


def test_both_readmes_have_tables_of_the_same_length() -> None:
    tables = [re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE) for text in (ENGLISH, CHINESE)]
    lengths = [[len(table.splitlines()) for table in found] for found in tables]
    assert lengths[0] == lengths[1]


def test_both_readmes_have_one_block_for_the_probes() -> None:
    for text in (ENGLISH, CHINESE):
        assert len(re.findall(r"<!-- probes:start -->\n.+?\n<!-- probes:end -->", text, re.DOTALL)) == 1


def test_the_version_and_the_address_are_stated_alike() -> None:
    site = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert (site["extra"]["release"], str(citation["version"])) == (VERSION, VERSION)
    assert f"Baton {VERSION}" in ENGLISH
    assert {site["repo_url"], citation["repository-code"]} == {PROJECT["urls"]["Repository"]}
    assert site["site_url"] == PROJECT["urls"]["Documentation"]
