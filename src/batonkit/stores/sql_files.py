"""Read the .sql files beside the modules of a store."""

import re
from pathlib import Path

_COMMENT = re.compile(r"--.*")


def read_sql(module: str, name: str) -> str:
    """Return the text of a file beside a module, which passes its `__file__`."""
    return Path(module).with_name(name).read_text(encoding="utf-8")


def split_statements(script: str) -> list[str]:
    """Return the statements of a script without its comments."""
    statements = [statement.strip() for statement in _COMMENT.sub("", script).split(";")]
    return [statement for statement in statements if statement]
