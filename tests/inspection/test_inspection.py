"""Usage by agent, edge, model and tool; comparisons of runs; what a handoff changes in what an agent reads."""

from typing import Any

import pytest
from msgspec.structs import replace

from batonkit import Agent, Runner, handoff, tool
from batonkit.errors import ModelError, SetupError
from batonkit.handoffs.filters import remove_all_tools
from batonkit.inspection.comparison import compare_runs
from batonkit.inspection.policies import estimate_policies
from batonkit.inspection.shown_requests import view_compared
from batonkit.inspection.teams import describe_team
from batonkit.inspection.usage import merge_usage, usage_by
from batonkit.log import RunResumed
from batonkit.messages import Usage, estimate_tokens
from batonkit.testing import ScriptedModel, call, say


@tool
def find_order(order: str) -> str:
    """Look up an order.

    Args:
        order: The order.
    """
    if order == "X":
        raise ValueError("no such order")
    return f"{order}: a lamp"


def _runner(steps: dict[str, list[Any]], **options: Any) -> Runner[Any, Any]:
    refunds = Agent("Refunds", description="Pays back.", instructions="You pay back.", tools=[find_order])
    desk = Agent("Desk", instructions="You route.", tools=[find_order], handoffs=[handoff(refunds, **options)])
    return Runner(desk, model=ScriptedModel(steps), store="memory:")


def _steps() -> dict[str, list[Any]]:
    return {
        "Desk": [
            say("", call("find_order", order="A-1"), usage=Usage(10, 1)),
            say("", call("transfer_to_refunds"), usage=Usage(20, 2)),
        ],
        "Refunds": [say("", call("find_order", order="X"), usage=Usage(30, 3)), say("Paid.", usage=Usage(40, 4))],
    }


async def test_usage_is_grouped_by_agent_edge_model_and_tool() -> None:
    runner = _runner(_steps())
    result = await runner.run("refund A-1")
    events = await runner.runs.events(result.run_id)

    agents = {row.name: (row.count, row.usage.input_tokens) for row in usage_by(events, "agent")}
    assert agents == {"Desk": (2, 30), "Refunds": (2, 70)}
    (edge,) = usage_by(events, "edge")
    assert (edge.name, edge.count, edge.failures, edge.usage.output_tokens) == ("Desk → Refunds", 1, 0, 7)
    (model,) = usage_by(events, "model")
    assert (model.count, model.usage.total_tokens) == (4, 110)
    (by_tool,) = usage_by(events, "tool")
    assert (by_tool.name, by_tool.count, by_tool.failures) == ("find_order", 2, 1)
    (both,) = merge_usage([usage_by(events, "edge"), usage_by(events, "edge")])
    assert (both.count, both.usage.output_tokens) == (2, 14)
    for log in (events, []):
        with pytest.raises(SetupError, match=r"usage_by\(by=…\) is 'agents'; it can be: .*did you mean `agent`"):
            usage_by(log, "agents")  # pyright: ignore[reportArgumentType]


async def test_failures_of_an_agent_are_errors_of_its_tools_and_failed_runs() -> None:
    steps: dict[str, list[Any]] = {**_steps(), "Refunds": [call("find_order", order="X"), ModelError("overloaded")]}
    runner = _runner(steps)
    with pytest.raises(ModelError):
        await runner.run("refund A-1", run_id="failed")
    rows = usage_by(await runner.runs.events("failed"), "agent")
    assert {row.name: (row.count, row.failures) for row in rows} == {"Desk": (2, 0), "Refunds": (1, 2)}


@pytest.mark.parametrize("policy", ["rewritten", "verbatim", "lineage", "answers", "none"])
async def test_the_estimate_for_the_policy_of_a_run_is_what_its_agents_read(policy: Any) -> None:
    runner = _runner(_steps(), history=policy)
    result = await runner.run("refund A-1")
    events, requests = await runner.runs.events(result.run_id), await runner.runs.requests(result.run_id)
    estimates = {each.policy: each.tokens for each in estimate_policies(events)}
    read = sum(estimate_tokens([each for each in request.messages if each]) for request in requests.values())
    assert estimates[policy] == read
    assert estimates["none"] < estimates["verbatim"]


async def test_two_runs_are_compared_up_to_the_first_difference() -> None:
    runner = _runner({"Desk": ["Hello.", "Bye."], "Refunds": []})
    first, second = await runner.run("hi", run_id="a"), await runner.run("hi", run_id="b")
    ours, theirs = await runner.runs.events("a"), await runner.runs.events("b")
    compared = compare_runs(("a", ours), ("b", theirs))
    assert (compared.first.output, compared.second.output) == (first.output, second.output) == ("Hello.", "Bye.")
    assert type(ours[compared.shared]).__name__ == "AgentResponded"
    assert compared.differs_in == ("message",)
    same = compare_runs(("a", ours), ("a", ours))
    assert (same.shared, same.differs_in) == (len(ours), ())
    # A fork that is run an hour later has not taken an hour.
    later = [replace(event, timestamp=event.timestamp + 3600) for event in ours[2:]]
    resumed = RunResumed("resumed1", ours[0].origin, later[0].timestamp)
    forked = compare_runs(("a", ours), ("b", [*ours[:2], resumed, *later]))
    assert forked.second.seconds == pytest.approx(forked.first.seconds, abs=1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["same", "rewritten", "rewritten", "rewritten", "rewritten"]),
        ({"history": "verbatim"}, ["same"] * 5),
        ({"history": "none"}, ["same", *["withheld"] * 4]),
        ({"input_filter": remove_all_tools}, ["same", *["withheld"] * 4]),
    ],
)
async def test_a_handoff_says_what_the_receiver_got_of_each_message(
    options: dict[str, Any], expected: list[str]
) -> None:
    runner = _runner(_steps(), **options)
    result = await runner.run("refund A-1")
    requests, events = await runner.runs.requests(result.run_id), await runner.runs.events(result.run_id)
    view = view_compared(requests, events, "1/to/m1" if "1/to/m1" in requests else [*requests][2])
    assert view.agent == "Refunds"
    assert view.handoff is not None
    assert [each.mark for each in view.handoff.messages if each.mark != "added"] == expected
    assert (view.handoff.sender, view.handoff.removed_tools) == ("Desk", ("transfer_to_refunds",))
    assert view.cache is not None
    assert view.cache.breaks_at == "tools"
    assert view.tokens == view.handoff.tokens_after > 0


async def test_requests_of_one_agent_keep_the_cache_prefix() -> None:
    runner = _runner(_steps())
    result = await runner.run("refund A-1")
    requests, events = await runner.runs.requests(result.run_id), await runner.runs.events(result.run_id)
    second = view_compared(requests, events, [*requests][1])
    assert second.handoff is None
    assert second.cache is not None
    assert (second.cache.breaks_at, second.cache.messages) == ("none", 1)
    assert 0 < second.cache.tokens < second.tokens


def test_a_team_is_described_with_tools_edges_and_findings() -> None:
    silent = Agent("Silent")
    team = Runner(Agent("Desk", tools=[find_order], handoffs=[silent])).team
    described = describe_team(team)
    desk = described.agents[0]
    assert (described.root, desk.name, desk.tools) == ("Desk", "Desk", ("find_order",))
    assert [(edge.target, edge.kind) for edge in desk.edges] == [("Silent", "handoff")]
    assert [(finding.kind, finding.agent) for finding in described.findings] == [("undescribed", "Silent")]
