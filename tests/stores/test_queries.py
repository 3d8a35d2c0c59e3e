"""The statements of the stores in SQL are those that their code names, and each says what it is for."""

import re
from pathlib import Path

import pytest

from batonkit import stores
from batonkit.stores.postgres.store import SQL as POSTGRES
from batonkit.stores.sql_files import split_statements
from batonkit.stores.sqlite.store import SQL as SQLITE

FOLDER = Path(stores.__file__).parent
BACKENDS = {"sqlite": SQLITE, "postgres": POSTGRES}


def _named(backend: str) -> dict[str, str]:
    """Return what follows each name in `queries.sql`: comments and the statement."""
    _, *parts = re.split(
        r"^-- name: (\w+)\n", (FOLDER / backend / "queries.sql").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert len(parts[::2]) == len({*parts[::2]}), "a name is given twice"
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _used_by_code(backend: str) -> set[str]:
    code = "".join(module.read_text(encoding="utf-8") for module in (FOLDER / backend).glob("*.py"))
    assert len(re.findall(r"\bSQL\[", code)) == len(re.findall(r"\bSQL\[[\"']\w+[\"']\]", code)), "a name is computed"
    return {*re.findall(r"\bSQL\[[\"'](\w+)[\"']\]", code)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_query_is_used_and_every_used_query_exists(backend: str) -> None:
    named, used_by_code = _named(backend), _used_by_code(backend)
    used_by_queries = {name for text in named.values() for name in re.findall(r"\{(\w+)\}", text)}
    assert used_by_code <= named.keys()
    assert named.keys() <= used_by_code | used_by_queries
    assert named.keys() <= BACKENDS[backend].keys()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_query_says_what_it_does(backend: str) -> None:
    for name, text in _named(backend).items():
        assert re.match(r"-- [A-Z].*\.\n", text) or re.match(r"-- [A-Z].*\n(-- .*\n)*-- .*\.\n", text), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_queries_have_no_comments_and_no_open_references(backend: str) -> None:
    for name, statement in BACKENDS[backend].items():
        assert statement, name
        assert not re.search(r"--|\{\w+\}", statement), name


def test_a_script_is_split_at_semicolons_that_are_not_in_comments() -> None:
    script = "-- One; two.\nCREATE TABLE a(b);  -- c;\n\nINSERT INTO a\nVALUES (1);\n"
    assert split_statements(script) == ["CREATE TABLE a(b)", "INSERT INTO a\nVALUES (1)"]
