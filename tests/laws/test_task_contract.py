"""The handoff contract for an agent that works on a task: one outcome for every mixture of calls."""

from typing import Literal, TypeAlias

from hypothesis import given, note
from hypothesis import strategies as st
from tests.laws.executions import run_in_loop
from tests.laws.providers import objections

from batonkit import Agent, Runner, handoff, tool
from batonkit.log import TaskEnded, ToolReturned
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.testing import ScriptedModel, call

Kind: TypeAlias = Literal["tool", "final", "unknown", "transfer", "exit", "bad exit", "finish", "bad finish", "cancel"]
CALLS: dict[Kind, ToolCall] = {
    "tool": call("look_up"),
    "final": call("conclude"),
    "unknown": call("no_such_tool"),
    "transfer": call("transfer_to_guest"),
    "exit": call("exit", final_result="exited"),
    "bad exit": call("exit"),
    "finish": call("finish_task", result=7),
    "bad finish": call("finish_task", result="seven"),
    "cancel": call("cancel_task", reason="no time"),
}


@tool
def look_up() -> str:
    """Look something up."""
    return "found"


@tool(return_directly=True)
def conclude() -> str:
    """Conclude."""
    return "concluded"


def expected_outcome(kinds: list[Kind]) -> str:
    """Return what must happen: transfer > exit > finish > cancel > return-directly > the next turn."""
    for kind, outcome in (
        ("transfer", "transfer"),
        ("exit", "exit"),
        ("finish", "finished"),
        ("cancel", "cancelled"),
        ("final", "concluded"),
    ):
        if kind in kinds:
            return outcome
    return "next turn"


@given(kinds=st.lists(st.sampled_from([*CALLS]), min_size=1, max_size=5), text=st.sampled_from(["", "words"]))
def test_every_mixture_of_calls_has_one_outcome(kinds: list[Kind], text: str) -> None:
    note(repr(kinds))
    run_in_loop(_check(kinds, text))


async def _check(kinds: list[Kind], text: str) -> None:
    guest = Agent("Guest", description="visits")
    worker = Agent("Worker", description="works", tools=[look_up, conclude], exit_tool=True, handoffs=[guest])
    desk = Agent("Desk", handoffs=[handoff(worker, return_to="caller", until="finished", result_type=int)])
    response = AssistantMessage(text, tuple(CALLS[kind] for kind in kinds))
    script = {
        "Desk": [call("transfer_to_worker"), "done"],
        "Worker": [response, "next words", "last words"],
        "Guest": ["visited"],
    }
    model = ScriptedModel(script)
    result = await Runner(desk, model=model).run("go")
    assert result.status == "completed"
    for request in model.requests:
        assert objections(request.messages) == []

    outcome = expected_outcome(kinds)
    ended = [event for event in result.events if isinstance(event, TaskEnded)]
    agents = [request.agent for request in model.requests[2:]]
    if outcome == "transfer":
        assert (agents, ended, result.output) == (["Guest", "Worker"], [], "next words")
    elif outcome == "exit":
        assert (agents, [each.outcome for each in ended], result.output) == ([], ["dropped"], "exited")
    elif outcome in ("finished", "cancelled"):
        assert (agents, [each.outcome for each in ended], result.output) == (["Desk"], [outcome], "done")
        assert ended[0].result == (7 if outcome == "finished" else None)
    elif outcome == "concluded":
        assert (agents, ended, result.output) == ([], [], "concluded")
    else:
        assert (agents, ended, result.output) == (["Worker"], [], "next words")

    # Every call has exactly one result; at most one of those that end something or transfer succeeds.
    returned = [event for event in result.events if isinstance(event, ToolReturned) and event.agent == "Worker"]
    results = {event.key.rpartition(".")[2]: event for event in returned if event.key.startswith("2/m1.")}
    assert sorted(results) == [str(position) for position in range(len(kinds))]
    succeeded = [kind for place, kind in enumerate(kinds) if not results[str(place)].is_error]
    assert len([kind for kind in succeeded if kind in ("transfer", "finish", "cancel")]) <= 1
    assert ("exit" in succeeded) == (outcome == "exit")
    assert not {"bad finish", "bad exit", "unknown"} & {*succeeded}
