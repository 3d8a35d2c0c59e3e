"""Patterns resumed after every event of their log: nothing runs twice, and the result is the same."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from batonkit import (
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
from batonkit.log import Event, ToolReturned, decode_log, encode_log
from batonkit.log.fold import history_from_log
from batonkit.messages import ToolCall, ToolMessage, text_of
from batonkit.models import ModelRequest
from batonkit.testing import ScriptedModel, call
from batonkit.workflows import (
    GENERAL_PURPOSE,
    ParallelPlan,
    make_executor,
    make_planner,
    make_replanner,
    scratch_file_tools,
)

executed: Counter[str] = Counter()
"""The number of executions of each tool call; cleared before each run."""


@tool
async def do(ctx: RunContext[Any], what: str) -> str:
    """Do something that must not happen twice."""
    executed[ctx.idempotency_key] += 1
    ctx.values.set(f"did {what}", ctx.values.get(f"did {what}", 0) + 1)
    return f"did {what}"


@tool(on_error="raise")
async def fail(ctx: RunContext[Any]) -> str:
    """Write a value and fail."""
    ctx.values.set("failed", True)
    raise OSError("disk full")


def by_turn(*answers: Any) -> Any:
    """Return a model step that selects its answer by the number of tool results in the request."""

    def answer(request: ModelRequest) -> Any:
        turn = sum(isinstance(message, ToolMessage) for message in request.messages)
        return answers[min(turn, len(answers) - 1)]

    return answer


def by_text_read(*answers: tuple[str, Any]) -> Any:
    """Return a model step that gives the answer of the last pair whose text is in the request."""

    def answer(request: ModelRequest) -> Any:
        read = "\n".join(text_of(message.content) for message in request.messages)
        return next(answer_after_text for text, answer_after_text in reversed(answers) if text in read)

    return answer


def execute_step(request: ModelRequest) -> Any:
    """Answer as an executor that calls `do` for its step."""
    what = text_of(request.messages[0].content).rpartition("\n")[2]
    return f"{what} done" if isinstance(request.messages[-1], ToolMessage) else call("do", what=what)


def replan(request: ModelRequest) -> ToolCall:
    """Answer as a replanner that finishes after step `c`."""
    read = text_of(request.messages[0].content)
    return call("respond", response="a, b and c are done") if "c done" in read else call("plan", steps=["c"])


def make_plan_execute() -> tuple[BaseAgent[Any, Any], dict[str, Any]]:
    team = plan_execute(
        name="Trip",
        planner=make_planner(plan_type=ParallelPlan),
        executor=make_executor(tools=[do]),
        replanner=make_replanner(plan_type=ParallelPlan),
        parallel_steps=True,
    )
    script = {"Planner": '{"steps": [["a", "b"], "c"]}', "Executor": execute_step, "Replanner": replan}
    return team, script


def make_supervisor() -> tuple[BaseAgent[Any, Any], dict[str, Any]]:
    pair = ParallelAgent("Pair", sub_agents=[Agent("Left", tools=[do]), Agent("Right", tools=[fail])])
    sequence = SequentialAgent("Line", description="d", sub_agents=[Agent("First", tools=[do]), pair])
    team = supervisor(
        Agent("Boss"),
        sub_agents=[
            sequence,
            Agent("Failing", description="d", tools=[do, fail]),
            Agent("Substitute", description="d", tools=[do]),
        ],
        on_error="report",
    )
    script = {
        "Boss": by_text_read(
            ("go", call("transfer_to_line")),
            ("[Line] failed", call("transfer_to_failing")),
            ("[Failing] failed", call("transfer_to_substitute")),
            ("done instead", "done by the substitute"),
        ),
        "First": by_turn(call("do", what="first"), "first done"),
        "Left": by_turn(call("do", what="left"), "left done"),
        "Right": by_turn(call("fail")),
        "Failing": by_turn(call("do", what="failing"), call("fail")),
        "Substitute": by_turn(call("do", what="substitute"), "done instead"),
    }
    return team, script


def make_deep_agent() -> tuple[BaseAgent[Any, Any], dict[str, Any]]:
    writer = Agent("Writer", description="d", tools=[do, *scratch_file_tools()])
    team = deep_agent(None, [do], [writer], name="Deep", files=True)
    both = [
        call("task", subagent="Writer", description="write"),
        call("task", subagent=GENERAL_PURPOSE, description="dig"),
    ]
    written = call("write_file", path="w.md", content="text")
    script = {
        "Deep": by_turn(call("write_todos", todos=[{"content": "all"}]), both, "", "dug and written"),
        "Writer": by_turn(call("do", what="write"), written, "written"),
        "Deep.general_purpose": by_turn(call("do", what="dig"), call("ls"), "dug"),
    }
    return team, script


def runner_for(make: Callable[[], tuple[BaseAgent[Any, Any], dict[str, Any]]]) -> Runner[Any, Any]:
    team, script = make()
    return Runner(team, model=ScriptedModel({name: [step] for name, step in script.items()}, cycle=True))


@pytest.mark.parametrize("make", [make_plan_execute, make_supervisor, make_deep_agent])
async def test_a_run_can_be_resumed_after_every_event(make: Any) -> None:
    # All state is in the log.
    executed.clear()
    complete = await runner_for(make).run("go")
    assert set(executed.values()) == {1}
    events = decode_log(encode_log(complete.events))
    for length in range(1, len(events)):
        executed.clear()
        runner = runner_for(make)
        result = await runner.resume(await runner.runs.load(events[:length]))
        assert (result.status, result.output) == ("completed", complete.output)
        assert (result.values, _texts(result)) == (complete.values, _texts(complete)), f"after {length} events"
        assert not set(executed) & _recorded(events[:length]), f"executed again after {length} events"
    assert [entry.message for entry in history_from_log(events)] == [*complete.messages]
    replayed = await runner_for(make).runs.replay(events)
    assert (replayed.output, replayed.values) == (complete.output, complete.values)


def _texts(result: RunResult[Any]) -> list[str]:
    """Return the texts of the messages; call ids differ because the script starts again."""
    return [text_of(message.content) for message in result.messages]


def _recorded(events: list[Event]) -> set[str]:
    """Return the idempotency keys of the calls of `do` that have a result."""
    run_id: Any = getattr(events[0], "run_id", "")
    return {f"{run_id}:{event.key}" for event in events if isinstance(event, ToolReturned) and event.tool_name == "do"}
