"""Tables of the recorded outcomes: the whole one, and the short ones of docs/compare.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks.contract.environments import ENVIRONMENTS, REPOSITORY

RECORDED = Path(__file__).with_name("results.json")
PAGE = REPOSITORY / "docs" / "compare.md"
Results: TypeAlias = dict[str, Any]

TITLES = {
    "two_tools_two_transfers": "two tools and two transfers in one response",
    "tool_beside_transfer": "a tool beside a transfer",
    "two_transfers": "two transfers",
    "unknown_target": "a transfer to an agent that does not exist",
    "ping_pong": "two agents that transfer to each other for ever",
    "target_reads": "what the target reads",
    "next_message": "who answers the next message",
    "crash": "crash right after a side effect",
    "interrupt": "a tool that asks a person in its middle",
}


class Column(NamedTuple):
    """A column of the short table: the outcome of a probe in a word or a number."""

    heading: str
    probe: str
    patterns: Mapping[str, str]
    """What to show for an outcome that has this pattern; the first one found counts."""

    def cell(self, peer: Mapping[str, Any]) -> str:
        """Return the cell of a framework.

        Raises:
            ValueError: No pattern is for this outcome.
        """
        outcome: str = peer["probes"][self.probe]["short"]
        for pattern, shown in {**self.patterns, "^no such feature": "–"}.items():
            if found := re.search(pattern, outcome):
                return found.expand(shown)
        raise ValueError(f"the column `{self.heading}` has no pattern for `{outcome}`; add it to contract/table.py")


_MIXTURE = "two_tools_two_transfers"
MIXTURE = (
    Column("tools run", _MIXTURE, {r"(\d+/\d+) tools run": r"\1"}),
    Column("control goes to", _MIXTURE, {r"control: (.+?)(?: \(varies\))?;": r"\1"}),
    Column("results read", _MIXTURE, {r"(\d+/\d+) results read": r"\1"}),
    Column("valid history", _MIXTURE, {r"\bvalid history": "✓", r"\binvalid history": "✗"}),
)
"""The outcome of two tools and two transfers in one response."""
SITUATIONS = (
    Column(
        "ping-pong: calls until it stops",
        "ping_pong",
        {r"^stops after (\d+)": r"\1", r"^not stopped within (\d+)": r"> \1"},
    ),
    Column("next message goes to", "next_message", {"^the target": "target", "^the first agent": "first agent"}),
    Column("crash right after a side effect", "crash", {"^acts once": "1x", "^acts twice": "2x"}),
    Column("code before a question", "interrupt", {r"runs (\d+) times": r"\1x"}),
)
"""Loops, conversations, crashes and questions."""


def load() -> Results:
    """Return the recorded results."""
    return json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {"date": "", "peers": {}}


def save(results: Results) -> None:
    """Record results, in the order of the environments."""
    results["peers"] = {name: results["peers"][name] for name in ENVIRONMENTS if name in results["peers"]}
    RECORDED.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def full_table(results: Results) -> str:
    """Return every probe with the outcome and details of each framework."""
    blocks: list[str] = []
    for probe, title in TITLES.items():
        lines = [f"{title}"]
        for name, peer in results["peers"].items():
            outcome = peer["probes"][probe]
            lines.append(f"  {name + ' ' + peer['version']:<26} {outcome['short']}")
            lines += [f"  {'':<26} ({outcome[key]})" for key in ("detail", "note") if key in outcome]
        blocks.append("\n".join(lines))
    versions = f"{results['date']}; how each team is made:"
    made = [f"  {name:<26} {peer['handoffs']}" for name, peer in results["peers"].items()]
    return "\n\n".join([*blocks, "\n".join([versions, *made])])


def short_table(results: Results, columns: Sequence[Column]) -> str:
    """Return a Markdown table with one row for each framework, whose name links to its outcomes in full."""
    headings = " | ".join(column.heading for column in columns)
    rows = [f"| | {headings} |", f"|---{'|:-:' * len(columns)}|"]
    for name, peer in results["peers"].items():
        cells = [f"[{name}](#{name}) {peer['version']}", *(column.cell(peer) for column in columns)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def outcome_list(results: Results) -> str:
    """Return the outcomes as Markdown, in sentences: one heading for each framework."""
    blocks: list[str] = []
    for name, peer in results["peers"].items():
        lines = [f"### {name}", "", f"Version {peer['version']}; {peer['handoffs']}.", ""]
        lines += [f"- **{title}:** {_sentence(peer['probes'][probe])}" for probe, title in TITLES.items()]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _sentence(outcome: Mapping[str, str]) -> str:
    is_missing = outcome["short"] == "no such feature"
    explanation = outcome.get("detail" if is_missing else "note")
    return f"{outcome['short']} ({explanation})" if explanation else outcome["short"]


def write_page(results: Results, page: Path = PAGE) -> None:
    """Write the tables and sentences between their markers.

    Raises:
        ValueError: The page has no such markers.
    """
    text = page.read_text(encoding="utf-8")
    for name, block in blocks_of(results).items():
        start, end = markers(name)
        before, found, rest = text.partition(start)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise ValueError(f"{page.name} has no `{start}` with a `{end}` after it")
        text = f"{before}{start}\n\n{block}\n\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def blocks_of(results: Results) -> dict[str, str]:
    """Return what the page shows, by the name of its markers."""
    return {
        "mixture": short_table(results, MIXTURE),
        "situations": short_table(results, SITUATIONS),
        "outcomes": outcome_list(results),
    }


def markers(name: str) -> tuple[str, str]:
    """Return the comments before and after a block."""
    return f"<!-- {name}:start -->", f"<!-- {name}:end -->"
