"""The command `baton graph`: a team as a Mermaid flowchart or a Graphviz digraph.

Thick lines are the tree of sub_agents, thin ones handoffs, dotted ones edges that only code or a function follows. An
arrow at both ends means that control can return. A circle marks an inner agent, such as a step or an agent as tool;
inner agents are drawn in a frame with all agents they can transfer to.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click
from msgspec import Struct

from ..inspection.edges import TeamEdge, edges_of, parts_of, teams_in
from ..realtime import RealtimeRunner
from ..runs import Runner
from ..team import Team
from .cli_errors import TargetError
from .cli_options import QUIET, choice_option, debug, target
from .output import write_data
from .targets import find_target

Format: TypeAlias = Literal["mermaid", "dot"]

_MERMAID = {"tree": "==>", "thin": "-->", "dotted": "-.->", "inside": "--o"}
_DOT = {"tree": "penwidth=2.5", "thin": "", "dotted": "style=dashed", "inside": "arrowhead=odot"}
_MERMAID_CODES = str.maketrans(
    {'"': "#quot;", "#": "#35;", "&": "#amp;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\n": "<br/>", "\r": None}
)
_DOT_CODES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": None})


class _Line(Struct, frozen=True):
    """A line between two agents."""

    source: str
    target: str
    stroke: Literal["tree", "thin", "dotted", "inside"]
    goes_both_ways: bool
    label: str


class _Frame(Struct, frozen=True):
    """Agents that are drawn together: a team, or the inner agents of one agent."""

    owner: str
    names: list[str]
    frames: list["_Frame"]


def load_team(reference: str) -> Team:
    """Load the team that the command line names. Raises SetupError if it does not compile."""
    # `baton check` reports the team's warnings.
    click.get_current_context().meta[QUIET] = True
    found = find_target(reference)
    if isinstance(found, RealtimeRunner):
        return found.text_runner.team
    return found.team if isinstance(found, Runner) else Team.compile(found)


def draw_team(team: Team, style: Format) -> str:
    """Draw a team, with a line break at the end."""
    ids: dict[str, str] = {}
    frame = _frame("", [team], ids)
    teams = teams_in(team)
    lines = _lines(list(dict.fromkeys(edge for each in teams for edge in edges_of(each))))
    lines += _lines_inside(teams)
    return _mermaid(team, frame, ids, lines) if style == "mermaid" else _dot(team, frame, ids, lines)


def _frame(owner: str, teams: Sequence[Team], ids: dict[str, str]) -> _Frame:
    """Collect the agents that have no id yet and number them; inner agents get frames."""
    seats = {name: (seat, team) for team in teams for name, seat in team.members.items() if name not in ids}
    ids |= {name: f"a{number}" for number, name in enumerate(seats, start=len(ids))}
    frames: list[_Frame] = []
    for name, (seat, team) in seats.items():
        inner = _frame(name, [team.inner[part.name] for part in seat.agent.inner_agents()], ids)
        if inner.names:
            frames.append(inner)
    return _Frame(owner, [*seats], frames)


def _lines_inside(teams: Sequence[Team]) -> list[_Line]:
    labels: dict[tuple[str, str], list[str]] = {}
    for team in teams:
        for seat in team.members.values():
            for part in parts_of(seat.agent):
                places = labels.setdefault((part.owner, part.agent), [])
                if part.label not in places:
                    places.append(part.label)
    return [_Line(owner, name, "inside", False, ", ".join(places)) for (owner, name), places in labels.items()]


def _lines(edges: list[TeamEdge]) -> list[_Line]:
    tree = {(edge.source, edge.target): edge for edge in edges if edge.kind in ("sub_agent", "parent")}
    lines: list[_Line] = []
    drawn: set[tuple[str, str]] = set()
    for edge in edges:
        ends = (edge.source, edge.target)
        if tree.get(ends) is not edge:
            lines.append(_line(edge))
        elif ends not in drawn:
            reverse = (edge.target, edge.source)
            goes_back = reverse in tree and edge.source != edge.target
            drawn |= {ends, reverse} if goes_back else {ends}
            # Drawn from the parent, whichever comes first.
            top, below = reverse if goes_back and edge.kind == "parent" else ends
            lines.append(_Line(top, below, "tree", goes_back, ""))
    return lines


def _line(edge: TeamEdge) -> _Line:
    """Draw an edge that is not part of the tree."""
    labels = {"then": "then", "code": "by code", "function": f"{edge.via}()"}
    label = labels.get(edge.kind, edge.via) + edge.describe_return(", ")
    stroke = "dotted" if edge.kind in ("function", "code") else "thin"
    return _Line(edge.source, edge.target, stroke, edge.returns == "caller", label)


def _mermaid(team: Team, frame: _Frame, ids: Mapping[str, str], lines: list[_Line]) -> str:
    output = ["flowchart TD", *_mermaid_nodes(frame, team.root, ids, "    ")]
    for line in lines:
        arrow = ("<" if line.goes_both_ways else "") + _MERMAID[line.stroke]
        label = f'|"{line.label.translate(_MERMAID_CODES)}"|' if line.label else ""
        output.append(f"    {ids[line.source]} {arrow}{label} {ids[line.target]}")
    return "\n".join(output) + "\n"


def _mermaid_nodes(frame: _Frame, root: str, ids: Mapping[str, str], indent: str) -> Iterator[str]:
    for name in frame.names:
        label = f'"{name.translate(_MERMAID_CODES)}"'
        yield f"{indent}{ids[name]}([{label}])" if name == root else f"{indent}{ids[name]}[{label}]"
    for inner in frame.frames:
        yield f'{indent}subgraph in_{ids[inner.owner]}["inside {inner.owner.translate(_MERMAID_CODES)}"]'
        yield from _mermaid_nodes(inner, root, ids, f"{indent}    ")
        yield f"{indent}end"


def _dot(team: Team, frame: _Frame, ids: Mapping[str, str], lines: list[_Line]) -> str:
    output = ["digraph team {", "    node [shape=box];", *_dot_nodes(frame, team.root, ids, "    ")]
    for line in lines:
        options = [f'label="{line.label.translate(_DOT_CODES)}"'] if line.label else []
        options += [_DOT[line.stroke], "dir=both" if line.goes_both_ways else ""]
        options = [option for option in options if option]
        attributes = f" [{', '.join(options)}]" if options else ""
        output.append(f"    {ids[line.source]} -> {ids[line.target]}{attributes};")
    return "\n".join([*output, "}"]) + "\n"


def _dot_nodes(frame: _Frame, root: str, ids: Mapping[str, str], indent: str) -> Iterator[str]:
    for name in frame.names:
        shape = ", style=rounded" if name == root else ""
        yield f'{indent}{ids[name]} [label="{name.translate(_DOT_CODES)}"{shape}];'
    for inner in frame.frames:
        yield f"{indent}subgraph cluster_{ids[inner.owner]} {{"
        yield f'{indent}    label="inside {inner.owner.translate(_DOT_CODES)}";'
        yield from _dot_nodes(inner, root, ids, f"{indent}    ")
        yield f"{indent}}}"


_WRITABLE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command("graph")
@target
@choice_option("--format", "style", ("mermaid", "dot"), "The language of the drawing.")
@click.option("-o", "--output", type=_WRITABLE, help="Write to a file, not to stdout.")
@debug
def graph_command(*, target: str, style: Any, output: Path | None) -> None:
    """Draw a team as a Mermaid or Graphviz graph.

    Thick lines: sub_agents. Thin: handoffs. Dotted: edges that a function or code may follow. An arrow at both ends:
    control can return.

    \b
    Examples:
      baton graph desk:router
      baton graph desk:router --format dot | dot -Tsvg > team.svg
      baton graph desk:router -o team.mmd
    """
    drawing = draw_team(load_team(target), style)
    if output is None:
        write_data(drawing)
    else:
        try:
            output.write_text(drawing, encoding="utf-8")
        except OSError as error:
            raise TargetError(f"--output {output} cannot be written: {error.strerror or error}") from error
