"""`baton graph`: a team as a Mermaid flowchart or a Graphviz digraph.

Thick lines are the tree of sub_agents, thin ones handoffs, dotted ones what only code or a function may follow. An
arrow at both ends means that control can come back: to the parent, or to a caller with returns="caller". A circle at
the end leads to an agent that works inside another, such as a step or an agent that is a tool; those are drawn in a
frame of their own, with all whom they can transfer to.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from ..flow import Team
from ..realtime import RealtimeRunner
from ..runner import Runner
from .edges import TeamEdge, edges_of, parts_of
from .targets import find

Format: TypeAlias = Literal["mermaid", "dot"]

_MERMAID = {
    ("tree", False): "==>",
    ("tree", True): "<==>",
    ("thin", False): "-->",
    ("thin", True): "<-->",
    ("dotted", False): "-.->",
    ("dotted", True): "<-.->",
    ("inside", False): "--o",
}
_DOT = {"tree": "penwidth=2.5", "thin": "", "dotted": "style=dashed", "inside": "arrowhead=odot"}
_MERMAID_CODES = str.maketrans(
    {'"': "#quot;", "#": "#35;", "&": "#amp;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\n": "<br/>", "\r": None}
)
_DOT_CODES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": None})


class _Line(Struct, frozen=True):
    """One line between two agents in a drawing."""

    source: str
    target: str
    stroke: Literal["tree", "thin", "dotted", "inside"]
    goes_both_ways: bool
    label: str


class _Frame(Struct, frozen=True):
    """Agents that are drawn together: a whole team, or all who work inside one agent."""

    owner: str
    names: list[str]
    frames: list["_Frame"]


def team_of(reference: str) -> Team:
    """The team of what the command line names. Raises SetupError if it cannot work as it is written."""
    target = find(reference)
    if isinstance(target, RealtimeRunner):
        return target.text_runner.team
    return target.team if isinstance(target, Runner) else Team.compile(target)


def drawn(team: Team, style: Format) -> str:
    """The team in the language of a drawing program, with a line break at the end."""
    frame = _frame("", [team], set())
    ids = {name: f"a{number}" for number, name in enumerate(_names_in(frame))}
    teams = [team, *(inner for _, inner in team.nested())]
    lines = _lines(list(dict.fromkeys(edge for each in teams for edge in edges_of(each))))
    lines += _lines_inside(teams)
    return _mermaid(team, frame, ids, lines) if style == "mermaid" else _dot(team, frame, ids, lines)


def _frame(owner: str, teams: Sequence[Team], seen: set[str]) -> _Frame:
    """Everybody in these teams who has not been drawn yet, and frames for those who work inside them."""
    seats = {name: (seat, team) for team in teams for name, seat in team.members.items() if name not in seen}
    seen.update(seats)
    frames: list[_Frame] = []
    for name, (seat, team) in seats.items():
        inner = _frame(name, [team.inner[part.name] for part in seat.agent.inner_agents()], seen)
        if inner.names:
            frames.append(inner)
    return _Frame(owner, [*seats], frames)


def _names_in(frame: _Frame) -> Iterator[str]:
    yield from frame.names
    for inner in frame.frames:
        yield from _names_in(inner)


def _lines_inside(teams: Sequence[Team]) -> list[_Line]:
    labels: dict[tuple[str, str], list[str]] = {}
    for team in teams:
        for seat in team.members.values():
            for part in parts_of(seat.agent):
                known = labels.setdefault((part.owner, part.agent), [])
                if part.label not in known:
                    known.append(part.label)
    return [_Line(owner, name, "inside", False, ", ".join(known)) for (owner, name), known in labels.items()]


def _lines(edges: list[TeamEdge]) -> list[_Line]:
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


def _line(edge: TeamEdge) -> _Line:
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
    elif edge.returns is not None:
        labels.append(f"then {edge.returns}")
    stroke = "dotted" if edge.kind in ("function", "code") else "thin"
    return _Line(edge.source, edge.target, stroke, edge.returns == "caller", ", ".join(labels))


def _mermaid(team: Team, frame: _Frame, ids: Mapping[str, str], lines: list[_Line]) -> str:
    written = ["flowchart TD", *_mermaid_nodes(frame, team.root, ids, "    ")]
    for line in lines:
        arrow = _MERMAID[line.stroke, line.goes_both_ways]
        label = f'|"{line.label.translate(_MERMAID_CODES)}"|' if line.label else ""
        written.append(f"    {ids[line.source]} {arrow}{label} {ids[line.target]}")
    return "\n".join(written) + "\n"


def _mermaid_nodes(frame: _Frame, root: str, ids: Mapping[str, str], indent: str) -> Iterator[str]:
    for name in frame.names:
        label = f'"{name.translate(_MERMAID_CODES)}"'
        yield f"{indent}{ids[name]}([{label}])" if name == root else f"{indent}{ids[name]}[{label}]"
    for inner in frame.frames:
        yield f'{indent}subgraph in_{ids[inner.owner]}["inside {inner.owner.translate(_MERMAID_CODES)}"]'
        yield from _mermaid_nodes(inner, root, ids, f"{indent}    ")
        yield f"{indent}end"


def _dot(team: Team, frame: _Frame, ids: Mapping[str, str], lines: list[_Line]) -> str:
    written = ["digraph team {", "    node [shape=box];", *_dot_nodes(frame, team.root, ids, "    ")]
    for line in lines:
        facts = [f'label="{line.label.translate(_DOT_CODES)}"'] if line.label else []
        facts += [_DOT[line.stroke]] if _DOT[line.stroke] else []
        facts += ["dir=both"] if line.goes_both_ways else []
        attributes = f" [{', '.join(facts)}]" if facts else ""
        written.append(f"    {ids[line.source]} -> {ids[line.target]}{attributes};")
    return "\n".join([*written, "}"]) + "\n"


def _dot_nodes(frame: _Frame, root: str, ids: Mapping[str, str], indent: str) -> Iterator[str]:
    for name in frame.names:
        shape = ", style=rounded" if name == root else ""
        yield f'{indent}{ids[name]} [label="{name.translate(_DOT_CODES)}"{shape}];'
    for inner in frame.frames:
        yield f"{indent}subgraph cluster_{ids[inner.owner]} {{"
        yield f'{indent}    label="inside {inner.owner.translate(_DOT_CODES)}";'
        yield from _dot_nodes(inner, root, ids, f"{indent}    ")
        yield f"{indent}}}"
