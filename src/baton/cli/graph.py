"""`baton graph`: a team as a Mermaid flowchart or a Graphviz digraph.

Thick lines are the tree of sub_agents, thin ones handoffs, dotted ones what only code or a function may follow. An
arrow at both ends means that control can come back: to the parent, or to a caller with returns="caller".
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from ..flow import Team
from ..runner import Runner
from .edges import Edge, edges_of
from .load import load

Format: TypeAlias = Literal["mermaid", "dot"]

_MERMAID = {
    ("tree", False): "==>",
    ("tree", True): "<==>",
    ("thin", False): "-->",
    ("thin", True): "<-->",
    ("dotted", False): "-.->",
    ("dotted", True): "<-.->",
}
_DOT = {"tree": "penwidth=2.5", "thin": "", "dotted": "style=dashed"}
_MERMAID_CODES = str.maketrans(
    {'"': "#quot;", "#": "#35;", "&": "#amp;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\n": "<br/>", "\r": None}
)
_DOT_CODES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": None})


class _Line(Struct, frozen=True):
    """One line between two agents in a drawing."""

    source: str
    target: str
    stroke: Literal["tree", "thin", "dotted"]
    goes_both_ways: bool
    label: str


def team_of(reference: str) -> Team:
    """The team of what the command line names. Raises SetupError if it cannot work as it is written."""
    target = load(reference)
    return target.team if isinstance(target, Runner) else Team.compile(target)


def drawn(team: Team, style: Format) -> str:
    """The team in the language of a drawing program, with a line break at the end."""
    ids = {name: f"a{number}" for number, name in enumerate(team.seats)}
    lines = _lines(edges_of(team))
    return _mermaid(team, ids, lines) if style == "mermaid" else _dot(team, ids, lines)


def _lines(edges: list[Edge]) -> list[_Line]:
    tree = {(edge.source, edge.target): edge for edge in edges if edge.kind in ("sub_agent", "parent")}
    lines: list[_Line] = []
    drawn_already: set[tuple[str, str]] = set()
    for edge in edges:
        ends = (edge.source, edge.target)
        if tree.get(ends) is not edge:
            lines.append(_line(edge))
        elif ends not in drawn_already:
            reverse = (edge.target, edge.source)
            goes_back = reverse in tree and edge.source != edge.target
            drawn_already |= {ends, reverse} if goes_back else {ends}
            # Drawn from the parent, whoever of the two comes first.
            top, below = reverse if goes_back and edge.kind == "parent" else ends
            lines.append(_Line(top, below, "tree", goes_back, ""))
    return lines


def _line(edge: Edge) -> _Line:
    """A line that is not part of the tree."""
    labels: list[str] = []
    if edge.kind == "then":
        labels.append("then")
    elif edge.kind == "code":
        labels.append("by code")
    elif edge.kind == "function":
        labels.append(f"{edge.via}()")
    else:
        labels.append(edge.via)
    if edge.returns == "caller":
        labels.append("and back")
    elif edge.returns != "stay":
        labels.append(f"then {edge.returns}")
    stroke = "dotted" if edge.kind in ("function", "code") else "thin"
    return _Line(edge.source, edge.target, stroke, edge.returns == "caller", ", ".join(labels))


def _mermaid(team: Team, ids: Mapping[str, str], lines: list[_Line]) -> str:
    written = ["flowchart TD"]
    for name, id in ids.items():
        label = f'"{name.translate(_MERMAID_CODES)}"'
        written.append(f"    {id}([{label}])" if name == team.root else f"    {id}[{label}]")
    for line in lines:
        arrow = _MERMAID[line.stroke, line.goes_both_ways]
        label = f'|"{line.label.translate(_MERMAID_CODES)}"|' if line.label else ""
        written.append(f"    {ids[line.source]} {arrow}{label} {ids[line.target]}")
    return "\n".join(written) + "\n"


def _dot(team: Team, ids: Mapping[str, str], lines: list[_Line]) -> str:
    written = ["digraph team {", "    node [shape=box];"]
    for name, id in ids.items():
        shape = ", style=rounded" if name == team.root else ""
        written.append(f'    {id} [label="{name.translate(_DOT_CODES)}"{shape}];')
    for line in lines:
        facts = [f'label="{line.label.translate(_DOT_CODES)}"'] if line.label else []
        facts += [_DOT[line.stroke]] if _DOT[line.stroke] else []
        facts += ["dir=both"] if line.goes_both_ways else []
        attributes = f" [{', '.join(facts)}]" if facts else ""
        written.append(f"    {ids[line.source]} -> {ids[line.target]}{attributes};")
    return "\n".join([*written, "}"]) + "\n"
