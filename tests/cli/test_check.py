"""`baton check`: the compiled team, findings, and the cost of transfers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batonkit import Agent, BaseAgent, Runner, handoff, then_transfer
from batonkit.agents import AgentContext
from batonkit.inspection.findings import find_endless_cycles, transfer_costs
from batonkit.team import Team

Write = Callable[..., Path]
Invoke = Callable[..., Any]

TEAM = '''
def look_up(what: str) -> str:
    """Look something up."""
    return what
def to_expert():
    """Ask the expert."""
    return expert
expert = Agent("Expert", description="Knows.")
chat = Agent("Chat", description="Chats.")
writer = then_transfer(Agent("Writer", description="Writes.", handoffs=[handoff(chat, return_to="caller")]), to="Chat")
router = Agent("Router", description="Routes.", sub_agents=[chat], tools=[look_up, to_expert], handoffs=[writer])
'''


def test_the_team_is_shown_as_a_tree(write: Write, baton: Invoke) -> None:
    write(TEAM)
    result = baton("check", "desk:router")
    assert result.exit_code == 0
    tree, _, rest = result.stdout.partition("\n\n")
    assert tree.splitlines() == [
        "Router — Routes.",
        "├── tools: look_up, to_expert",
        "├── sub_agent Chat — Chats.",
        "│   └── back to Router",
        "├── handoff Writer (ThenTransfer) — Writes.  [transfer_to_writer]",
        "│   ├── handoff Chat  [transfer_to_chat]  and back",
        "│   └── always then Chat",
        "└── function Expert — Knows.  [to_expert]",
    ]
    assert "(characters / 4)" in rest
    assert rest.rstrip().endswith("no findings")


def test_tools_without_a_description_are_found(write: Write, baton: Invoke) -> None:
    write(
        """
        def look_up(what: str) -> str: return what
        @tool(description="Counts.")
        def count() -> int: return 1
        def to_helper(): return helper
        helper = Agent("Helper", description="Helps.", tools=[look_up])
        router = Agent("Router", tools=[look_up, count, to_helper, helper.as_tool("ask_helper")])
        """
    )
    result = baton("check", "desk:router", "--strict", "--json")
    assert result.exit_code == 1
    why = "has no description: models choose it by its name alone; give its function a docstring"
    assert [finding["text"] for finding in json.loads(result.stdout)["findings"]] == [
        f"the tool `look_up` of `Router` and `Helper` {why}",
        f"the tool `to_helper` of `Router` {why}",
    ]


def test_findings_are_warnings_unless_strict(write: Write, baton: Invoke) -> None:
    write(
        """
        child = Agent("Child")
        runner = Runner(Agent("Root", sub_agents=[child]), extra_agents=[Agent("Guest", sub_agents=[Agent("Aide")])])
        """
    )
    result = baton("check", "desk:runner")
    assert result.exit_code == 0
    assert "warning undescribed: `Child` has no description" in result.stdout
    assert "warning unreachable: `Guest` cannot be reached from `Root`" in result.stdout
    assert "└── unreachable Guest" in result.stdout
    assert "    └── sub_agent Aide" in result.stdout
    # Warnings of the runner's construction are not repeated.
    assert result.stderr == ""
    assert baton("check", "desk:runner", "--strict").exit_code == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            'root = Agent("A", sub_agents=[Agent("B", description="x"), Agent("B")])',
            "two different agents are called `B`",
        ),
        ('root = Agent("A", handoffs=["B"])', "`A` has a handoff to `B`, but the team has no agent of that name"),
        ('root = Agent("")', "Agent needs a name"),
        ('root = Runner(Agent("A", handoffs=["B"]))', "`A` has a handoff to `B`"),
    ],
)
def test_invalid_team_is_an_error(write: Write, baton: Invoke, code: str, message: str) -> None:
    write(code)
    result = baton("check", "desk:root")
    assert result.exit_code == 1
    assert result.stdout.startswith("error ")
    assert message in result.stdout.replace("\n", " ")
    assert "Traceback" not in result.output
    report = json.loads(baton("check", "desk:root", "--json").stdout)
    assert report["root"] is None
    assert report["findings"][0]["level"] == "error"
    assert message in report["findings"][0]["text"]


def test_unknown_target_exits_with_2(write: Write, baton: Invoke) -> None:
    write(TEAM)
    result = baton("check", "desk:rooter")
    assert result.exit_code == 2
    assert "did you mean `router`?" in result.stderr


def test_the_report_as_json(write: Write, baton: Invoke) -> None:
    write(TEAM)
    report = json.loads(baton("check", "desk:router", "--json").stdout)
    assert report["root"] == "Router"
    assert report["findings"] == []
    router, chat = report["agents"][:2]
    assert (router["name"], router["description"], router["type"]) == ("Router", "Routes.", "Agent")
    assert router["tools"] == ["look_up", "to_expert"]
    assert [(edge["kind"], edge["target"], edge["via"]) for edge in router["edges"]] == [
        ("sub_agent", "Chat", "transfer_to_agent"),
        ("handoff", "Writer", "transfer_to_writer"),
        ("function", "Expert", "to_expert"),
    ]
    assert chat["edges"] == [
        {
            "source": "Chat",
            "target": "Router",
            "kind": "parent",
            "via": "transfer_to_agent",
            "returns": None,
            "until": "answered",
        }
    ]
    assert router["estimated_tokens_per_call"]["targets"] == 2
    assert report["agents"][-1]["estimated_tokens_per_call"] is None


def costs_of(root: Agent, name: str) -> tuple[int, int, int, int]:
    cost = transfer_costs(Team.compile(root))[name]
    return cost.targets, cost.now, cost.single_tool, cost.tool_per_target


def test_costs_of_one_tool_and_of_a_tool_per_target() -> None:
    experts = [Agent(f"Expert{n}", description="Knows a great deal about many things. " * 3) for n in range(8)]
    targets, now, single, each = costs_of(Agent("Root", sub_agents=experts), "Root")
    assert (targets, now) == (8, single)
    as_handoffs = costs_of(Agent("Root", handoffs=experts), "Root")
    assert as_handoffs == (8, each, single, each)
    # With several targets, one shared tool is cheaper than a tool for each.
    assert single < each


def test_costs_count_each_offered_target_once() -> None:
    child = Agent("Child", description="d")
    targets, now, single, each = costs_of(Agent("Root", sub_agents=[child], handoffs=[child]), "Root")
    assert targets == 1
    assert now == pytest.approx(single + each, abs=1)
    then = then_transfer(Agent("First"), to="Last")
    assert transfer_costs(Team.compile(then, extra=[Agent("Last")])) == {}


def endless_cycles(root: BaseAgent[Any, Any]) -> list[str]:
    return [finding.text for finding in find_endless_cycles(Team.compile(root))]


def must_transfer(name: str, *targets: Any, **options: Any) -> Agent:
    return Agent(name, description="d", handoffs=targets, tool_choice="required", **options)


def test_a_cycle_of_agents_that_must_transfer_is_found() -> None:
    assert endless_cycles(must_transfer("A", must_transfer("B", "A"))) == [
        "`A`, `B` pass control in a cycle and never end; only a limit stops the run: "
        "`A` must call a tool and has only transfers; `B` must call a tool and has only transfers"
    ]


def test_a_cycle_of_then_transfer_agents_is_found() -> None:
    root = Agent("Root", handoffs=[then_transfer(Agent("A"), to="B"), then_transfer(Agent("B"), to="A")])
    assert endless_cycles(root) == [
        "`A`, `B` pass control in a cycle and never end; only a limit stops the run: "
        "`A` always hands on to `B`; `B` always hands on to `A`"
    ]


def test_a_cycle_of_forced_and_required_tools_is_found() -> None:
    forced = Agent("A", handoffs=["B"], tool_choice="transfer_to_b", tools=[len_of])
    required = Agent("B", handoffs=[forced], tool_choice="required")
    assert len(endless_cycles(required)) == 1
    assert "`A` must call `transfer_to_b`" in endless_cycles(required)[0]


def len_of(text: str) -> int:
    return len(text)


def test_a_return_to_a_caller_that_must_transfer_is_an_endless_cycle() -> None:
    assert endless_cycles(must_transfer("A", handoff(Agent("B"), return_to="caller"))) == [
        "`A`, `B` pass control in a cycle and never end; only a limit stops the run: "
        "`A` must call a tool and has only transfers; `B` ends, but a caller waits for control to return"
    ]


class CustomAgent(BaseAgent[Any, Any]):
    """A custom agent, which may do anything."""

    async def run(self, ctx: AgentContext[Any]) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    "root",
    [
        Agent("A", handoffs=[Agent("B", handoffs=["A"])]),
        must_transfer("A", Agent("B", handoffs=["A"])),
        must_transfer("A", must_transfer("B", "A", tools=[len_of])),
        must_transfer("A", must_transfer("B", "A", exit_tool=True)),
        must_transfer("A", must_transfer("B", "A", Agent("C"))),
        must_transfer("A", then_transfer(CustomAgent("B"), to="A")),
        must_transfer("A", then_transfer(Agent("B", exit_tool=True), to="A")),
        must_transfer("A", handoff(Agent("B"), return_to="C"), handoff(Agent("C"), return_to="caller")),
        Agent("A", handoffs=[handoff(Agent("B"), return_to="caller")]),
        Agent("A", tool_choice="required"),
    ],
    ids=[
        "both may end",
        "one may end",
        "other tools",
        "exit tool",
        "another target",
        "custom code",
        "inner exit tool",
        "returns to an agent that ends",
        "caller that ends",
        "no targets",
    ],
)
def test_a_team_that_can_end_has_no_finding(root: BaseAgent[Any, Any]) -> None:
    assert endless_cycles(root) == []


def test_extra_agents_have_no_findings() -> None:
    """A function may return them at any time, so it is unknown whether a caller waits."""
    guest = Agent("Guest", handoffs=[handoff(Agent("Aide"), return_to="caller")])
    assert find_endless_cycles(Runner(Agent("Root"), extra_agents=[guest]).team) == []


def test_endless_cycles_are_findings(write: Write, baton: Invoke) -> None:
    write(
        """
        b = Agent("B", description="d", handoffs=["A"], tool_choice="required")
        root = Agent("A", description="d", handoffs=[b], tool_choice="required")
        """
    )
    assert "warning no exit: `A`, `B` pass control in a cycle" in baton("check", "desk:root").stdout
    assert baton("check", "desk:root", "--strict").exit_code == 1


NEST = """
digger = Agent("Digger")
left = Agent("Left", handoffs=[Agent("Helper")])
both = ParallelAgent("Both", sub_agents=[left, Agent("Right")])
line = SequentialAgent("Line", description="In order.", sub_agents=[Agent("Outline", tools=[digger.as_tool()]), both])
clerk = Agent("Clerk", description="Files.", tools=[digger.as_tool("dig")])
boss = supervisor(Agent("Boss"), sub_agents=[line, clerk])
"""


def test_inner_agents_are_listed_below_their_owner(write: Write, baton: Invoke) -> None:
    write(NEST)
    result = baton("check", "desk:boss")
    assert result.exit_code == 0
    assert result.stdout.partition("\n\n")[0].splitlines() == [
        "Boss (SupervisorAgent)",
        "├── handoff Line (SequentialAgent) — In order.  [transfer_to_line]  and back",
        "│   ├── step 1 Outline",
        "│   │   ├── tools: digger",
        "│   │   └── agent as tool Digger  [digger]",
        "│   └── step 2 Both (ParallelAgent)",
        "│       ├── branch Left",
        "│       │   └── handoff Helper  [transfer_to_helper]",
        "│       └── branch Right",
        "└── handoff Clerk — Files.  [transfer_to_clerk]  and back",
        "    ├── tools: dig",
        "    └── agent as tool Digger  [dig]",
    ]


def test_findings_in_inner_agents_are_reported_once_with_their_owner(write: Write, baton: Invoke) -> None:
    write(NEST)
    report = json.loads(baton("check", "desk:boss", "--json").stdout)
    assert [(found["kind"], found["agent"], found["inside"]) for found in report["findings"]] == [
        ("undescribed", "Helper", "Both"),
        ("undescribed", "Digger", ""),
    ]
    assert report["findings"][0]["text"].endswith("(inside `Both`)")
    assert "`dig` of `Clerk`" in report["findings"][1]["text"]
    agents = {agent["name"]: agent for agent in report["agents"]}
    assert [*agents] == ["Boss", "Line", "Clerk", "Outline", "Both", "Digger", "Left", "Helper", "Right"]
    assert agents["Line"]["parts"][1] == {"owner": "Line", "agent": "Both", "kind": "step", "label": "step 2"}
    assert agents["Left"]["estimated_tokens_per_call"]["targets"] == 1


def test_nested_cycle_is_found(write: Write, baton: Invoke) -> None:
    write(
        """
        ping = then_transfer(Agent("Ping", description="d", handoffs=["Pong"]), to="Pong")
        pong = then_transfer(Agent("Pong", description="d", handoffs=[ping]), to="Ping")
        line = SequentialAgent("Line", sub_agents=[pong])
        """
    )
    result = baton("check", "desk:line", "--strict")
    assert result.exit_code == 1
    assert "warning no exit:" in result.stdout
    assert "(inside `Line`)" in " ".join(result.stdout.split())


def test_an_agent_used_as_a_tool_is_not_the_root(write: Write, baton: Invoke) -> None:
    write(
        """
        digger = Agent("Digger", description="d")
        clerk = Agent("Clerk", tools=[digger.as_tool()])
        """
    )
    assert baton("check", "desk").stdout.startswith("Clerk\n")


def test_a_task_handoff_is_marked_and_its_target_may_end_the_run(write: Write, baton: Invoke) -> None:
    write("""
    booking = Agent("Booking", description="Books.")
    desk = Agent("Desk", tool_choice="required",
                 handoffs=[handoff(booking, return_to="caller", until="finished")])
    """)
    result = baton("check", "desk:desk")
    assert "handoff Booking — Books.  [transfer_to_booking]  and back when finished" in result.stdout
    # Without a task, Desk and Booking would pass control in a cycle.
    assert "no findings" in result.stdout
