"""`python tests/otel/tables.py`: write the tables of attributes and metrics into the page on tracing."""

from pathlib import Path

from batonkit.otel.attributes import ATTRIBUTES
from batonkit.otel.metrics import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "tracing.md"


def attribute_table() -> str:
    """Return the table of attributes; `*` marks content."""
    rows = [
        f"| `{name}`{' *' if info.is_content else ''} | {info.spans} | {info.description} |"
        for name, info in ATTRIBUTES.items()
    ]
    return "\n".join(["| attribute | spans | value |", "|---|---|---|", *rows])


def metric_table() -> str:
    """Return the table of metrics."""
    rows = [f"| `{name}` | {unit} | {description} |" for name, (unit, description) in METRICS.items()]
    return "\n".join(["| metric | unit | measures |", "|---|---|---|", *rows])


def with_tables(page: str) -> str:
    """Return the page with the current tables between their marks."""
    for name, table in (("attributes", attribute_table()), ("metrics", metric_table())):
        start, end = f"<!-- {name}: generated -->", f"<!-- end of {name} -->"
        before, rest = page.split(start)
        page = f"{before}{start}\n{table}\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
