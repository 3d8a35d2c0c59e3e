"""What teams, transfers and reading cost: counted in calls, which are exact, and never in time."""

import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from baton import Agent, AgentContext, BaseAgent, Limits, Runner, Transfer
from baton.agents import HistoryPolicy
from baton.context.history import History
from baton.events import Action, ControlTransferred, Origin
from baton.flow import Team
from baton.flow.history import view_history
from baton.messages import AssistantMessage, UserMessage
from baton.testing import ScriptedModel, call, say, transfer_to

ROUTER = Origin("1", "Router")
WEATHER = Origin("2", "Weather", ROUTER)


def calls_during(work: Callable[[], object]) -> int:
    """How many functions are called while this is done, in Python and in C."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def run_alone(runner: Runner[Any, Any]) -> None:
    """Run to the end without an event loop, so that nothing but the run is counted."""
    live = runner.stream("hi")._drive()
    try:
        live.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited for something")


# --- T11: teams


def star(size: int) -> BaseAgent[Any, Any]:
    """A root with so many children."""
    return Agent("Root", description="r", sub_agents=[Agent(f"N{number}", description="n") for number in range(size)])


def ring(size: int) -> BaseAgent[Any, Any]:
    """So many agents in a circle."""
    agent = Agent(f"N{size - 1}", handoffs=["N0"])
    for number in reversed(range(size - 1)):
        agent = Agent(f"N{number}", handoffs=[agent])
    return agent


def tree(size: int) -> BaseAgent[Any, Any]:
    """Each agent has the next as its only child."""
    agent = Agent(f"N{size - 1}")
    for number in reversed(range(size - 1)):
        agent = Agent(f"N{number}", sub_agents=[agent])
    return agent


@pytest.mark.parametrize("shape", [star, ring, tree])
def test_compiling_a_team_is_linear_in_its_agents(shape: Callable[[int], BaseAgent[Any, Any]]) -> None:
    # T11
    small, large = shape(100), shape(200)
    Team.compile(small)
    Team.compile(large)
    first = calls_during(lambda: Team.compile(small))
    assert first > 100
    assert calls_during(lambda: Team.compile(large)) <= 2.1 * first
    assert len(Team.compile(large).members) in (200, 201)


@pytest.mark.parametrize("shape", [star, ring, tree])
def test_a_team_has_as_many_routes_as_edges(shape: Callable[[int], BaseAgent[Any, Any]]) -> None:
    # T11
    def routes(size: int) -> int:
        return sum(len(seat.edges) for seat in Team.compile(shape(size)).members.values())

    per_agent = 1 if shape is ring else 2
    assert per_agent * 199 <= routes(200) <= per_agent * 201
    assert routes(200) - routes(100) == per_agent * 100


def test_looking_a_team_over_is_linear_too() -> None:
    # T11
    def look_over(size: int) -> int:
        team = Team.compile(ring(size))
        return calls_during(team.findings)

    assert look_over(200) <= 2.1 * look_over(100)


# --- transfers


def ping_pong(transfers: int) -> Runner[Any, Any]:
    """`A` and `B` transfer to each other so many times; then one of them answers."""
    times = [transfer_to("B")] * ((transfers + 1) // 2), [transfer_to("A")] * (transfers // 2)
    model = ScriptedModel({"A": [*times[0], "done"], "B": [*times[1], "done"]}, record=False)
    limits = Limits(model_calls=None, transfers=None, idle_cycles=None)
    return Runner(Agent("A", sub_agents=[Agent("B")]), model=model, limits=limits)


def test_ten_thousand_transfers_cost_ten_times_a_thousand() -> None:
    # T20, DESIGN §4
    few, many = ping_pong(1_000), ping_pong(10_000)
    run_alone(ping_pong(10))
    per_transfer = calls_during(lambda: run_alone(few)) / 1_000
    assert calls_during(lambda: run_alone(many)) / 10_000 <= 1.05 * per_transfer


async def test_ten_thousand_transfers_do_not_recurse() -> None:
    # DESIGN §4: a flat loop, so the stack does not grow; neither running nor resuming nor reading the path recurses.
    depth = sys.getrecursionlimit()
    runner = ping_pong(10_000)
    result = await runner.run("hi")
    assert depth < 10_000
    assert (result.status, result.output) == ("completed", "done")
    assert sum(isinstance(event, ControlTransferred) for event in result.events) == 10_000
    assert len(result.events[-2].path) == 10_001
    assert (await runner.replay(result.events)).output == "done"


# --- T27: what reading costs


async def test_a_rewritten_message_is_made_once_and_shared_by_all_readers() -> None:
    # T27
    names = ["A", "B", "C", "D"]
    steps = {name: [say(f"I am {name}", call(f"transfer_to_{after.lower()}"))] for name, after in pairwise(names)}
    model = ScriptedModel({**steps, "D": ["done"]})
    root: BaseAgent[Any, Any] = Agent("D")
    for name in reversed(names[:-1]):
        root = Agent(name, handoffs=[root])
    await Runner(root, model=model).run("hi")
    of_b, of_c, of_d = (list(request.messages) for request in model.requests[1:])
    assert len(of_b) == 3
    assert all(one is other for one, other in zip(of_b, of_c, strict=False))
    assert all(one is other for one, other in zip(of_c, of_d, strict=False))


def test_views_of_different_activations_share_what_is_rewritten() -> None:
    # T27: also under different policies.
    history = History()
    history.add(UserMessage("hi"), None)
    for number in range(5):
        history.add(AssistantMessage(f"said {number}"), ROUTER)
    views = [
        view_history(history, Origin("7", "X", ROUTER), "rewritten"),
        view_history(history, Origin("8", "Y", ROUTER), "rewritten"),
        view_history(history, Origin("9", "Z", ROUTER), "lineage"),
    ]
    first, *others = [list(view.messages()) for view in views]
    assert len(first) == 6
    for other in others:
        assert all(one is two for one, two in zip(first, other, strict=True))


@pytest.mark.parametrize("policy", ["rewritten", "verbatim", "lineage", "answers", "none"])
def test_building_an_input_is_linear_in_what_is_read(policy: HistoryPolicy) -> None:
    # T27
    def read(entries: int) -> int:
        history = History()
        for number in range(entries):
            history.add(AssistantMessage(f"said {number}"), ROUTER, is_answer=True)
        return calls_during(lambda: view_history(history, WEATHER, policy).messages())

    small, large = read(200), read(400)
    assert large <= 2 * small + 50


def test_reading_on_costs_only_what_is_new() -> None:
    # T27: however long the history is.
    def read_on(entries: int) -> int:
        history = History()
        for number in range(entries):
            history.add(AssistantMessage(f"said {number}"), ROUTER)
        view = view_history(history, WEATHER, "rewritten")
        view.messages()
        history.add(AssistantMessage("one more"), WEATHER)
        view.messages()
        history.add(AssistantMessage("and one"), WEATHER)
        return calls_during(view.messages)

    assert read_on(2000) == read_on(20)


def test_a_window_is_made_without_copying() -> None:
    # T27
    history = History()
    for number in range(1000):
        history.add(AssistantMessage(f"said {number}"), ROUTER)
    view = view_history(history, WEATHER, "rewritten")
    view.messages()
    assert calls_during(view.messages) <= 5


async def test_a_chain_of_agents_costs_the_same_per_hop_however_long() -> None:
    # T27, T20: agents that each speak for the first time read one list in common.
    def chain(length: int) -> int:
        class Link(BaseAgent):
            def __init__(self, number: int) -> None:
                super().__init__(f"L{number}", handoffs=[f"L{number + 1}"] if number < length else [])
                self.number = number

            async def run(self, ctx: AgentContext) -> Action | None:
                assert len(ctx.messages()) == self.number
                await ctx.say(f"{self.number}")
                return Transfer(f"L{self.number + 1}") if self.number < length else None

        links = [Link(number) for number in range(1, length + 1)]
        runner = Runner(links[0], extra_agents=links[1:], limits=Limits(transfers=None))
        return calls_during(lambda: run_alone(runner))

    short, long = chain(50), chain(200)
    assert long <= 4.4 * short
