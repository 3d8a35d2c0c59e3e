"""Whatever event was the last to be recorded: the run goes on from there, does nothing twice, and ends the same."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from baton import (
    Agent,
    BaseAgent,
    ParallelAgent,
    RunContext,
    Runner,
    RunResult,
    SequentialAgent,
    deep_agent,
    plan_execute,
    supervisor,
    tool,
)
from baton.events import Event, ToolReturned, decode_log, encode_log
from baton.flow.log_history import history_from_log
from baton.messages import ToolCall, ToolMessage, text_of
from baton.models import ModelRequest
from baton.patterns import (
    GENERAL_PURPOSE,
    ParallelPlan,
    make_executor,
    make_planner,
    make_replanner,
    scratch_file_tools,
)
from baton.testing import ScriptedModel, call

done: Counter[str] = Counter()
"""What was done outside, by call: reset before each run."""


@tool
async def do(ctx: RunContext[Any], what: str) -> str:
    """Do something that must not be done twice."""
    done[ctx.idempotency_key] += 1
    ctx.values.set(f"did {what}", ctx.values.get(f"did {what}", 0) + 1)
    return f"did {what}"


@tool(on_error="raise")
async def fail(ctx: RunContext[Any]) -> str:
    """Fail, having written something."""
    ctx.values.set("failed", True)
    raise OSError("disk full")


def in_turns(*answers: Any) -> Any:
    """Answers that depend on nothing but how many results of tools the agent has read since it got the floor."""

    def answer(request: ModelRequest) -> Any:
        turn = sum(isinstance(message, ToolMessage) for message in request.messages)
        return answers[min(turn, len(answers) - 1)]

    return answer


def heard(*rules: tuple[str, Any]) -> Any:
    """The answer of the last rule whose words the agent has read."""

    def answer(request: ModelRequest) -> Any:
        read = "\n".join(text_of(message.content) for message in request.messages)
        return next(given for words, given in reversed(rules) if words in read)

    return answer


def step_of(request: ModelRequest) -> Any:
    """An executor that does its step."""
    what = text_of(request.messages[0].content).rpartition("\n")[2]
    return f"{what} done" if isinstance(request.messages[-1], ToolMessage) else call("do", what=what)


def replanned(request: ModelRequest) -> ToolCall:
    """A replanner that is content after `c`."""
    read = text_of(request.messages[0].content)
    return call("respond", response="a, b and c are done") if "c done" in read else call("plan", steps=["c"])


def planning() -> tuple[BaseAgent[Any, Any], dict[str, Any]]:
    team = plan_execute(
        name="Trip",
        planner=make_planner(plan_type=ParallelPlan),
        executor=make_executor(tools=[do]),
        replanner=make_replanner(plan_type=ParallelPlan),
        parallel_steps=True,
    )
    script = {"Planner": '{"steps": [["a", "b"], "c"]}', "Executor": step_of, "Replanner": replanned}
    return team, script


def supervising() -> tuple[BaseAgent[Any, Any], dict[str, Any]]:
    pair = ParallelAgent("Pair", sub_agents=[Agent("Left", tools=[do]), Agent("Right", tools=[fail])])
    line = SequentialAgent("Line", description="d", sub_agents=[Agent("First", tools=[do]), pair])
    team = supervisor(
        Agent("Boss"),
        sub_agents=[
            line,
            Agent("Clumsy", description="d", tools=[do, fail]),
            Agent("Hand", description="d", tools=[do]),
        ],
        on_error="report",
    )
    script = {
        "Boss": heard(
            ("go", call("transfer_to_line")),
            ("[Line] failed", call("transfer_to_clumsy")),
            ("[Clumsy] failed", call("transfer_to_hand")),
            ("by hand", "done, by hand"),
        ),
        "First": in_turns(call("do", what="first"), "first done"),
        "Left": in_turns(call("do", what="left"), "left done"),
        "Right": in_turns(call("fail")),
        "Clumsy": in_turns(call("do", what="clumsy"), call("fail")),
        "Hand": in_turns(call("do", what="hand"), "done by hand"),
    }
    return team, script


def digging() -> tuple[BaseAgent[Any, Any], dict[str, Any]]:
    writer = Agent("Writer", description="d", tools=[do, *scratch_file_tools()])
    team = deep_agent(None, [do], [writer], name="Deep", files=True)
    both = [
        call("task", subagent="Writer", description="write"),
        call("task", subagent=GENERAL_PURPOSE, description="dig"),
    ]
    written = call("write_file", path="w.md", content="text")
    script = {
        "Deep": in_turns(call("write_todos", todos=[{"content": "all"}]), both, "", "dug and written"),
        "Writer": in_turns(call("do", what="write"), written, "written"),
        "Deep.general_purpose": in_turns(call("do", what="dig"), call("ls"), "dug"),
    }
    return team, script


def runner_for(make: Callable[[], tuple[BaseAgent[Any, Any], dict[str, Any]]]) -> Runner[Any, Any]:
    team, script = make()
    return Runner(team, model=ScriptedModel({name: [step] for name, step in script.items()}, cycle=True))


@pytest.mark.parametrize("make", [planning, supervising, digging])
async def test_a_run_goes_on_from_any_event(make: Any) -> None:
    # P1, P2, P3: no state outside the log.
    done.clear()
    whole = await runner_for(make).run("go")
    assert set(done.values()) == {1}
    events = decode_log(encode_log(whole.events))
    for length in range(1, len(events)):
        done.clear()
        runner = runner_for(make)
        result = await runner.resume(runner.load_log(events[:length]))
        assert (result.status, result.output) == ("completed", whole.output)
        assert (result.values, _texts(result)) == (whole.values, _texts(whole)), f"after {length} events"
        assert not set(done) & _recorded(events[:length]), f"done again after {length} events"
    assert [entry.message for entry in history_from_log(events)] == [*whole.messages]
    replayed = await runner_for(make).replay(events)
    assert (replayed.output, replayed.values) == (whole.output, whole.values)


def _texts(result: RunResult[Any]) -> list[str]:
    """What was said: a script that starts over gives calls other ids."""
    return [text_of(message.content) for message in result.messages]


def _recorded(events: list[Event]) -> set[str]:
    """The calls of `do` that have their result, as the tool names them."""
    run_id: Any = getattr(events[0], "run_id", "")
    return {f"{run_id}:{event.key}" for event in events if isinstance(event, ToolReturned) and event.tool_name == "do"}
