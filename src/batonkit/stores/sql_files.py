"""Read the .sql files beside the modules of a store."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import LiteralString, cast

_COMMENT = re.compile(r"--.*")
_QUERY = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_REFERENCE = re.compile(r"\{(\w+)\}")


def read_sql(module: str, name: str) -> str:
    """Return the text of a file beside a module, which passes its `__file__`."""
    return Path(module).with_name(name).read_text(encoding="utf-8")


def split_statements(script: str) -> list[str]:
    """Return the statements of a script without its comments."""
    statements = [statement.strip() for statement in _COMMENT.sub("", script).split(";")]
    return [statement for statement in statements if statement]


def load_queries(module: str, **constants: str) -> Mapping[str, LiteralString]:
    """Return the queries of `queries.sql` beside a module by name, without their comments.

    A query begins with a line `-- name: NAME`. In braces, a query may contain the names of queries above it and of
    constants.
    """
    known = {**constants}
    _, *parts = _QUERY.split(read_sql(module, "queries.sql"))
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        known[name] = _REFERENCE.sub(lambda found: known[found[1]], _COMMENT.sub("", text)).strip()
    # The text comes from a file of this package, never from users.
    return cast("Mapping[str, LiteralString]", known)
