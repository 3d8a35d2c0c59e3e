"""The options of task handoffs and the tools that end a task."""

from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, Runner, SetupError, handoff, tool
from batonkit.a2a import RemoteAgent
from batonkit.handoffs.tasks import TaskResultParser, make_task_tools
from batonkit.team.team import Team, diff_fingerprints, team_fingerprint
from batonkit.testing import ScriptedModel, call
from batonkit.tools import Toolset


class Node(BaseModel):
    value: int
    children: "list[Node]" = []


class Booking(BaseModel):
    day: str
    people: int


def task(target: Any, **options: Any) -> Any:
    given: dict[str, Any] = {"return_to": "caller", "until": "finished", **options}
    return handoff(target, **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"return_to": None}, r'until="finished" of the handoff to `B` needs to know where .*; add return_to="caller"'),
        ({"until": "finishd"}, r"until of the handoff to `B` is 'finishd'; .*; did you mean `finished`\?"),
        ({"until": "answered", "result_type": int}, r'result_type of the handoff to `B` .*; add until="finished"'),
        ({"untill": "finished"}, r"handoff has no argument `untill`; did you mean `until`\?"),
        ({"result_type": Toolset}, "the result_type of the handoff to `B` is"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Runner(Agent("A", handoffs=[task(Agent("B"), **options)]))


@pytest.mark.parametrize("name", ["finish_task", "cancel_task"])
def test_a_target_with_a_tool_of_the_same_name_is_refused(name: str) -> None:
    @tool(name=name)
    def own() -> str:
        """Do something else."""
        return ""

    with pytest.raises(SetupError, match=f"`A` has a handoff to `B` .*, but `B` has a tool called `{name}`"):
        Runner(Agent("A", handoffs=[task(Agent("B", tools=[own]))]))
    with pytest.raises(SetupError, match=f"`B` has a tool called `{name}`; give it another name"):
        Runner(Agent("A", handoffs=[task(Agent("B", handoffs=[handoff("A", tool_name_override=name)]))]))
    # Without a task the name is free.
    Runner(Agent("A", handoffs=[Agent("B", tools=[own])]))


async def test_a_toolset_with_a_tool_of_the_same_name_is_refused_in_the_run() -> None:
    @tool
    def finish_task() -> str:
        """Do something else."""
        return ""

    class Tools:
        async def get_tools(self, ctx: Any) -> list[Any]:
            return [finish_task]

    model = ScriptedModel({"A": [call("transfer_to_b")]})
    runner = Runner(Agent("A", handoffs=[task(Agent("B", tools=[Tools()]))]), model=model)
    with pytest.raises(SetupError, match="`B` works on a task and has a tool called `finish_task`"):
        await runner.run("hi")


def test_an_agent_of_another_service_cannot_have_a_task() -> None:
    with pytest.raises(SetupError, match="an agent of another service cannot finish a task; leave out until"):
        Runner(Agent("A", handoffs=[task(RemoteAgent("https://example.org", name="B"))]))


def test_the_fingerprint_of_a_team_has_the_tasks() -> None:
    with_task = team_fingerprint(Team.compile(Agent("A", handoffs=[task(Agent("B"))])))
    without = team_fingerprint(Team.compile(Agent("A", handoffs=[handoff(Agent("B"), return_to="caller")])))
    assert with_task["A"] == "Agent; to B until finished"
    assert diff_fingerprints(without, with_task) == ["~ `A` was (Agent; to B), is (Agent; to B until finished)"]


@pytest.mark.parametrize(
    ("kind", "arguments", "result"),
    [
        (int, '{"result": 3}', 3),
        (list[int] | None, '{"result": null}', None),
        (Booking, '{"result": {"day": "Monday", "people": 2}}', {"day": "Monday", "people": 2}),
        (Node, '{"result": {"value": 1}}', {"value": 1, "children": []}),
        (dict[str, int], '{"result": {"a": 1}}', {"a": 1}),
    ],
)
def test_results_are_validated_and_kept_as_json(kind: Any, arguments: str, result: Any) -> None:
    tools = make_task_tools("A", "A", TaskResultParser("B", kind))
    assert tools.parse_result(arguments) == result
    (finish, cancel) = tools.specs
    assert [*finish.parameters["properties"]] == ["result"]
    assert [*cancel.parameters["properties"]] == ["reason"]
    # A type that strict schemas cannot express is validated all the same.
    assert finish.strict is (kind != dict[str, int])


@pytest.mark.parametrize("arguments", ["", "null", "[]", "{}", '{"result": NaN}', '{"result"', '{"result": "x"}'])
def test_invalid_results_are_described(arguments: str) -> None:
    with pytest.raises(ValueError, match=r"arguments must be|the result: Input should be"):
        make_task_tools("A", "A", TaskResultParser("B", int)).parse_result(arguments)


def test_a_result_without_a_type_is_text() -> None:
    tools = make_task_tools("A", "C", None)
    assert tools.parse_result('{"result": "done"}') == "done"
    with pytest.raises(ValueError, match="arguments must be"):
        tools.parse_result('{"result": 3}')
    assert tools.parse_reason("") == tools.parse_reason("{}") == ""
    with pytest.raises(ValueError, match=r'arguments must be \{"reason": "…"\}'):
        tools.parse_reason("nope")
