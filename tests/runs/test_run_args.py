"""Keyword arguments: misspelt ones are refused by name, and public objects show only what users can use."""

from typing import Any

import pytest

from batonkit import Agent, Runner, SetupError
from batonkit.runs import BackgroundRunner, RunArgs
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel


def make_runner(**options: Any) -> Runner[Any, Any]:
    return Runner(Agent("A", model=ScriptedModel(["hello"])), **options)


async def test_every_method_that_starts_a_run_names_itself_and_the_nearest_argument() -> None:
    runner = make_runner(store="memory:")
    background = BackgroundRunner(runner)
    wrong: Any = {"treadh": "t"}
    message = r"%s\(\) has no argument `treadh`; did you mean `thread`\?"
    with pytest.raises(SetupError, match=message % "Runner.run"):
        await runner.run("hi", **wrong)
    with pytest.raises(SetupError, match=message % "Runner.submit"):
        await runner.submit("hi", **wrong)
    with pytest.raises(SetupError, match=message % "Runner.run_sync"):
        runner.run_sync("hi", **wrong)
    with pytest.raises(SetupError, match=message % "Runner.stream"):
        runner.stream("hi", **wrong)
    with pytest.raises(SetupError, match=message % "BackgroundRunner.start"):
        await background.start("hi", **wrong)


async def test_run_args_can_be_passed_on() -> None:
    args: RunArgs = {"run_id": "r1", "values": {"x": 1}, "owner": "ada"}
    store = MemoryStore()
    result = await make_runner(store=store).run("hi", **args)
    record = await store.record("r1")
    assert (result.run_id, result.values) == ("r1", {"x": 1})
    assert record is not None
    assert record.owner == "ada"


def test_an_unknown_argument_of_runner_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SetupError, match=r"Runner has no argument `modell`; did you mean `model`\?"):
        make_runner(modell="x")
    with pytest.raises(SetupError, match=r"Runner has no argument `zzz`; its arguments are: `agent`, `model`, "):
        make_runner(zzz=1)


async def test_submit_refuses_a_context() -> None:
    with pytest.raises(
        SetupError, match=r"cannot store a context; pass it to `drive`, or give Runner\(context_factory=…\)"
    ):
        await make_runner(store="memory:").submit("hi", context=object())


async def test_an_unknown_filter_of_list_is_refused() -> None:
    wrong: Any = {"ownr": "ada"}
    with pytest.raises(SetupError, match=r"list\(\) has no argument `ownr`; did you mean `owner`\?"):
        await MemoryStore().list(**wrong)


def _public(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


async def test_public_objects_show_only_public_attributes() -> None:
    runner = make_runner(store="memory:")
    assert _public(runner.stream("hi")) == {"cancel", "events", "result", "run_id", "wait"}
    assert _public(runner.thread("t")) == {
        *("active_agent", "delete", "events", "id", "messages", "open_tasks", "runs", "trim", "waiting"),
    }
    assert _public(BackgroundRunner(runner)) == {
        *("cancel", "close", "drain", "is_driving", "release_all", "resume", "runner", "start", "start_recovery"),
        *("subscribe", "take_over"),
    }
    assert _public(runner) == {
        *(
            "clone",
            "close",
            "resume",
            "resume_sync",
            "run",
            "run_sync",
            "runs",
            "stream",
            "stream_resume",
            "submit",
            "team",
            "thread",
        ),
    }
    assert _public(runner.runs) == {
        *(
            "answer",
            "cancel",
            "delete",
            "drive",
            "events",
            "fork",
            "get",
            "list",
            "load",
            "replay",
            "requests",
            "retry",
        ),
        *("stream_drive", "watch"),
    }


async def test_reprs() -> None:
    runner = Runner(Agent("A", model=ScriptedModel(["hello"]), sub_agents=[Agent("B")]), store="memory:")
    stream = runner.stream("hi", run_id="r1")
    assert repr(runner) == "Runner('A', 2 agents, store=MemoryStore())"
    assert repr(make_runner()) == "Runner('A', 1 agent)"
    assert repr(runner.thread("t")) == "Thread('t')"
    assert repr(BackgroundRunner(make_runner())) == "BackgroundRunner(Runner('A', 1 agent), driving=0)"
    assert repr(stream) == "RunStream('r1', not started)"
    await stream._drive()
    assert repr(stream) == "RunStream('r1', completed)"
