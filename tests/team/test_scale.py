"""The cost of teams, transfers and histories, counted in function calls instead of time."""

import gc
import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from batonkit import Agent, AgentContext, BaseAgent, Limits, Runner, Transfer
from batonkit.log import Action, ControlTransferred, HistoryEntry, Origin
from batonkit.log.history import History
from batonkit.log.views import view_history
from batonkit.messages import AssistantMessage, UserMessage
from batonkit.team import Team
from batonkit.testing import ScriptedModel, call, say, transfer_to

ROUTER = Origin("1", "Router")
WEATHER = Origin("2", "Weather", ROUTER)


def count_calls(function: Callable[[], object]) -> int:
    """Return the number of Python and C functions that are called."""
    count = 0

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    # Hypothesis and others are called at each garbage collection.
    gc.disable()
    sys.setprofile(count_call)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def run_without_event_loop(runner: Runner[Any, Any]) -> None:
    """Run to the end without an event loop, so that only the run is counted."""
    coroutine = runner.stream("hi")._drive()
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the run waited for an event")


# --- teams


def star(size: int) -> BaseAgent[Any, Any]:
    """Create a root with this number of sub-agents."""
    return Agent("Root", description="r", sub_agents=[Agent(f"N{number}", description="n") for number in range(size)])


def ring(size: int) -> BaseAgent[Any, Any]:
    """Create this number of agents in a ring of handoffs."""
    agent = Agent(f"N{size - 1}", handoffs=["N0"])
    for number in reversed(range(size - 1)):
        agent = Agent(f"N{number}", handoffs=[agent])
    return agent


def chain_of_sub_agents(size: int) -> BaseAgent[Any, Any]:
    """Create agents that each have the next one as their only sub-agent."""
    agent = Agent(f"N{size - 1}")
    for number in reversed(range(size - 1)):
        agent = Agent(f"N{number}", sub_agents=[agent])
    return agent


@pytest.mark.parametrize("shape", [star, ring, chain_of_sub_agents])
def test_compiling_a_team_is_linear_in_its_agents(shape: Callable[[int], BaseAgent[Any, Any]]) -> None:
    small, large = shape(100), shape(200)
    Team.compile(small)
    Team.compile(large)
    first = count_calls(lambda: Team.compile(small))
    assert first > 100
    assert count_calls(lambda: Team.compile(large)) <= 2.1 * first
    assert len(Team.compile(large).members) in (200, 201)


@pytest.mark.parametrize("shape", [star, ring, chain_of_sub_agents])
def test_the_number_of_routes_is_linear_in_the_agents(shape: Callable[[int], BaseAgent[Any, Any]]) -> None:
    def routes(size: int) -> int:
        return sum(len(member.edges) for member in Team.compile(shape(size)).members.values())

    per_agent = 1 if shape is ring else 2
    assert per_agent * 199 <= routes(200) <= per_agent * 201
    assert routes(200) - routes(100) == per_agent * 100


def test_the_findings_of_a_team_are_linear_in_its_agents() -> None:
    def calls_for_findings(size: int) -> int:
        team = Team.compile(ring(size))
        return count_calls(team.findings)

    assert calls_for_findings(200) <= 2.1 * calls_for_findings(100)


# --- transfers


def ping_pong(transfers: int) -> Runner[Any, Any]:
    """Create a runner of two agents that transfer to each other this number of times and then answer."""
    steps = [transfer_to("B")] * ((transfers + 1) // 2), [transfer_to("A")] * (transfers // 2)
    model = ScriptedModel({"A": [*steps[0], "done"], "B": [*steps[1], "done"]}, record=False)
    limits = Limits(model_calls=None, transfers=None, idle_cycles=None)
    return Runner(Agent("A", sub_agents=[Agent("B")]), model=model, limits=limits)


def test_the_cost_per_transfer_is_constant() -> None:
    few, many = ping_pong(1_000), ping_pong(10_000)
    run_without_event_loop(ping_pong(10))
    per_transfer = count_calls(lambda: run_without_event_loop(few)) / 1_000
    assert count_calls(lambda: run_without_event_loop(many)) / 10_000 <= 1.05 * per_transfer


async def test_ten_thousand_transfers_do_not_recurse() -> None:
    # Neither running nor replaying nor reading the path recurses.
    depth = sys.getrecursionlimit()
    runner = ping_pong(10_000)
    result = await runner.run("hi")
    assert depth < 10_000
    assert (result.status, result.output) == ("completed", "done")
    assert sum(isinstance(event, ControlTransferred) for event in result.events) == 10_000
    assert len(result.events[-2].path) == 10_001
    assert (await runner.runs.replay(result.events)).output == "done"


# --- reading histories


async def test_a_rewritten_message_is_made_once_and_shared_by_all_readers() -> None:
    names = ["A", "B", "C", "D"]
    steps = {
        name: [say(f"I am {name}", call(f"transfer_to_{successor.lower()}"))] for name, successor in pairwise(names)
    }
    model = ScriptedModel({**steps, "D": ["done"]})
    root: BaseAgent[Any, Any] = Agent("D")
    for name in reversed(names[:-1]):
        root = Agent(name, handoffs=[root])
    await Runner(root, model=model).run("hi")
    read_by_b, read_by_c, read_by_d = (list(request.messages) for request in model.requests[1:])
    assert len(read_by_b) == 3
    assert all(one is other for one, other in zip(read_by_b, read_by_c, strict=False))
    assert all(one is other for one, other in zip(read_by_c, read_by_d, strict=False))


def test_views_of_different_activations_share_rewritten_messages() -> None:
    # Also under different policies.
    history = History()
    history.entries.append(HistoryEntry(UserMessage("hi"), None))
    for number in range(5):
        history.entries.append(HistoryEntry(AssistantMessage(f"said {number}"), ROUTER))
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
def test_reading_a_history_is_linear_in_its_length(policy: str) -> None:
    def calls_for_reading(entries: int) -> int:
        history = History()
        for number in range(entries):
            history.entries.append(HistoryEntry(AssistantMessage(f"said {number}"), ROUTER, is_answer=True))
        return count_calls(lambda: view_history(history, WEATHER, policy).messages())

    small, large = calls_for_reading(200), calls_for_reading(400)
    assert large <= 2 * small + 50


def test_reading_again_costs_only_the_new_messages() -> None:
    # Independent of the length of the history.
    def calls_for_reading_again(entries: int) -> int:
        history = History()
        for number in range(entries):
            history.entries.append(HistoryEntry(AssistantMessage(f"said {number}"), ROUTER))
        view = view_history(history, WEATHER, "rewritten")
        view.messages()
        history.entries.append(HistoryEntry(AssistantMessage("one more"), WEATHER))
        view.messages()
        history.entries.append(HistoryEntry(AssistantMessage("and one"), WEATHER))
        return count_calls(view.messages)

    assert calls_for_reading_again(2000) == calls_for_reading_again(20)


def test_reading_an_unchanged_history_does_not_copy() -> None:
    history = History()
    for number in range(1000):
        history.entries.append(HistoryEntry(AssistantMessage(f"said {number}"), ROUTER))
    view = view_history(history, WEATHER, "rewritten")
    view.messages()
    assert count_calls(view.messages) <= 5


async def test_the_cost_of_a_hop_does_not_grow_with_the_length_of_the_chain() -> None:
    # Agents without own messages share one list of rewritten messages.
    def calls_for_chain(length: int) -> int:
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
        return count_calls(lambda: run_without_event_loop(runner))

    short, long = calls_for_chain(50), calls_for_chain(200)
    assert long <= 4.4 * short
