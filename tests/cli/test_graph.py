"""`baton graph`: every kind of edge has its own line style, and names are escaped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Write = Callable[..., Path]
Invoke = Callable[..., Any]

TEAM = """
chat = Agent("Chat", description="d")
weather = Agent("Weather", description="d", disallow_transfer_to_parent=True)
expert = Agent("Expert", description="d")
checker = Agent("Checker", description="d")
def to_billing(): return billing
billing = Agent("Billing", description="d")
writer = then_transfer(Agent("Writer", description="d"), to="Checker")
router = Agent("Router", sub_agents=[chat, weather], tools=[to_billing], handoffs=[
    writer,
    handoff(expert, return_to="caller", tool_name_override="ask"),
    handoff(checker, return_to="Chat"),
])
"""


def test_the_graph_in_mermaid(write: Write, baton: Invoke) -> None:
    write(TEAM)
    result = baton("graph", "desk:router")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "flowchart TD",
        '    a0(["Router"])',
        '    a1["Chat"]',
        '    a2["Weather"]',
        '    a3["Writer"]',
        '    a4["Expert"]',
        '    a5["Checker"]',
        '    a6["Billing"]',
        "    a0 <==> a1",
        "    a0 ==> a2",
        '    a0 -->|"transfer_to_writer"| a3',
        '    a0 <-->|"ask, and back"| a4',
        '    a0 -->|"transfer_to_checker, then Chat"| a5',
        '    a0 -.->|"to_billing()"| a6',
        '    a3 -->|"then"| a5',
    ]


def test_the_graph_in_dot(write: Write, baton: Invoke) -> None:
    write(TEAM)
    assert baton("graph", "desk:router", "--format", "dot").stdout.splitlines() == [
        "digraph team {",
        "    node [shape=box];",
        '    a0 [label="Router", style=rounded];',
        '    a1 [label="Chat"];',
        '    a2 [label="Weather"];',
        '    a3 [label="Writer"];',
        '    a4 [label="Expert"];',
        '    a5 [label="Checker"];',
        '    a6 [label="Billing"];',
        "    a0 -> a1 [penwidth=2.5, dir=both];",
        "    a0 -> a2 [penwidth=2.5];",
        '    a0 -> a3 [label="transfer_to_writer"];',
        '    a0 -> a4 [label="ask, and back", dir=both];',
        '    a0 -> a5 [label="transfer_to_checker, then Chat"];',
        '    a0 -> a6 [label="to_billing()", style=dashed];',
        '    a3 -> a5 [label="then"];',
        "}",
    ]


def test_names_cannot_break_the_drawing(write: Write, baton: Invoke) -> None:
    write(
        r"""
        child = Agent("天气 \"quoted\" \\ #1;\r\n<b>&`x`", description="d")
        root = Agent("end", sub_agents=[child])
        """
    )
    mermaid = baton("graph", "desk:root").stdout
    assert '    a1["天气 #quot;quoted#quot; \\ #35;1;<br/>#lt;b#gt;#amp;#96;x#96;"]\n' in mermaid
    dot = baton("graph", "desk:root", "--format", "dot").stdout
    assert '    a1 [label="天气 \\"quoted\\" \\\\ #1;\\n<b>&`x`"];\n' in dot


def test_the_graph_can_be_written_to_a_file(write: Write, baton: Invoke, tmp_path: Path) -> None:
    write('agent = Agent("天气")')
    result = baton("graph", "desk", "-o", "team.mmd")
    assert result.output == ""
    assert (tmp_path / "team.mmd").read_text(encoding="utf-8") == 'flowchart TD\n    a0(["天气"])\n'


def test_a_child_with_a_handoff_to_its_parent_has_both_edges(write: Write, baton: Invoke) -> None:
    write('child = Agent("Child", handoffs=["Root"]); root = Agent("Root", sub_agents=[child])')
    assert baton("graph", "desk:root").stdout.splitlines()[3:] == [
        "    a0 <==> a1",
        '    a1 -->|"transfer_to_root"| a0',
    ]


def test_a_tree_is_drawn_from_the_parent(write: Write, baton: Invoke) -> None:
    write(
        """
        child = Agent("Child", description="d")
        boss = Agent("Boss", description="d", sub_agents=[child])
        root = Agent("Root", handoffs=[child, boss])
        """
    )
    assert "    a2 <==> a1" in baton("graph", "desk:root").stdout.splitlines()


def test_an_edge_that_is_not_offered_to_the_model_is_dotted(write: Write, baton: Invoke) -> None:
    write('root = Agent("Root", handoffs=[Handoff(agent=Agent("Own"), offered_to_model=False)])')
    assert '    a0 -.->|"by code"| a1' in baton("graph", "desk").stdout.splitlines()


def test_extra_agents_of_a_runner_are_drawn(write: Write, baton: Invoke) -> None:
    write('runner = Runner(Agent("A"), extra_agents=[Agent("Guest")])')
    assert '    a1["Guest"]' in baton("graph", "desk").stdout


def test_an_invalid_team_is_a_one_line_error(write: Write, baton: Invoke) -> None:
    write('root = Agent("Root", handoffs=["Unknown"])')
    result = baton("graph", "desk")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: `Root` has a handoff to `Unknown`")


NEST = """
digger = Agent("Digger", description="d")
left = Agent("Left", handoffs=[Agent("Helper", description="d")])
both = ParallelAgent("Both", sub_agents=[left, Agent("Right")])
line = SequentialAgent("Line", description="d", sub_agents=[Agent("Outline", tools=[digger.as_tool()]), both, left])
boss = supervisor(Agent("Boss", tools=[digger.as_tool("dig")]), sub_agents=[line])
"""


def test_inner_agents_are_drawn_in_a_frame(write: Write, baton: Invoke) -> None:
    # Each agent is drawn once, where it is first found, with all edges to it.
    write(NEST)
    result = baton("graph", "desk:boss")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "flowchart TD",
        '    a0(["Boss"])',
        '    a1["Line"]',
        '    subgraph in_a0["inside Boss"]',
        '        a2["Digger"]',
        "    end",
        '    subgraph in_a1["inside Line"]',
        '        a3["Outline"]',
        '        a4["Both"]',
        '        a5["Left"]',
        '        a6["Helper"]',
        '        subgraph in_a4["inside Both"]',
        '            a7["Right"]',
        "        end",
        "    end",
        '    a0 <-->|"transfer_to_line, and back"| a1',
        '    a5 -->|"transfer_to_helper"| a6',
        '    a0 --o|"dig"| a2',
        '    a1 --o|"step 1"| a3',
        '    a1 --o|"step 2"| a4',
        '    a1 --o|"step 3"| a5',
        '    a3 --o|"digger"| a2',
        '    a4 --o|"branch"| a5',
        '    a4 --o|"branch"| a7',
    ]


def test_inner_agents_are_clusters_in_dot(write: Write, baton: Invoke) -> None:
    write(
        """
        line = SequentialAgent("Line \\"1\\"", sub_agents=[Agent("A"), LoopAgent("Loop", sub_agents=[Agent("B")])])
        """
    )
    assert baton("graph", "desk:line", "--format", "dot").stdout.splitlines() == [
        "digraph team {",
        "    node [shape=box];",
        '    a0 [label="Line \\"1\\"", style=rounded];',
        "    subgraph cluster_a0 {",
        '        label="inside Line \\"1\\"";',
        '        a1 [label="A"];',
        '        a2 [label="Loop"];',
        "        subgraph cluster_a2 {",
        '            label="inside Loop";',
        '            a3 [label="B"];',
        "        }",
        "    }",
        '    a0 -> a1 [label="step 1", arrowhead=odot];',
        '    a0 -> a2 [label="step 2", arrowhead=odot];',
        '    a2 -> a3 [label="step 1", arrowhead=odot];',
        "}",
    ]


def test_patterns_are_drawn_with_their_parts(write: Write, baton: Invoke) -> None:
    write(
        """
        from batonkit.workflows import *
        trip = plan_execute(
            name="Trip", description="d", planner=make_planner(), executor=make_executor(), replanner=make_replanner()
        )
        deep = deep_agent(name="Deep", description="d", sub_agents=[Agent("Expert", description="d")])
        boss = supervisor(Agent("Boss"), sub_agents=[trip, deep])
        """
    )
    graph = baton("graph", "desk:boss").stdout
    ids = {line.split('["')[1][:-2]: line.split("[")[0].strip() for line in graph.splitlines() if line.endswith('"]')}
    for owner, label, part in (
        ("Trip", "step 1", "Trip.plan"),
        ("Trip", "step 2", "Trip.loop"),
        ("Trip.loop", "step 1", "Trip.execute"),
        ("Trip.loop", "step 2", "Trip.replan"),
        ("Trip.execute", "inside", "Executor"),
        ("Deep", "task(Expert)", "Expert"),
        ("Deep", "task(general-purpose)", "Deep.general_purpose"),
    ):
        assert f'    {ids[owner]} --o|"{label}"| {ids[part]}\n' in graph


def test_a_folder_that_does_not_exist_is_named(write: Write, baton: Invoke) -> None:
    write('agent = Agent("A")')
    result = baton("graph", "desk:agent", "-o", "no/such/folder/team.mmd")
    assert result.exit_code == 2
    assert result.stderr == "error: --output no/such/folder/team.mmd cannot be written: No such file or directory\n"


def test_a_task_handoff_is_marked(write: Write, baton: Invoke) -> None:
    write("""
    booking = Agent("Booking", description="d")
    desk = Agent("Desk", handoffs=[handoff(booking, return_to="caller", until="finished")])
    """)
    assert (
        '    a0 <-->|"transfer_to_booking, and back when finished"| a1'
        in baton("graph", "desk:desk").stdout.splitlines()
    )
