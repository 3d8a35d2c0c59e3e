"""Supervisors: transfers to workers and back, nesting, errors, interrupts and validation."""

from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.workflows.pattern_parts import ask, fail, resume_in_new_runner

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    Exit,
    Limits,
    ParallelAgent,
    Runner,
    SequentialAgent,
    SetupError,
    agent,
    supervisor,
)
from batonkit.agents import with_guardrails
from batonkit.errors import LimitError, LoopError, ToolFailedError
from batonkit.messages import text_of
from batonkit.testing import ScriptedModel, call, transcript, transfer_to


def worker(name: str, **options: Any) -> Agent[Any, str]:
    return Agent(name, description=f"Does what {name} does.", **options)


def make_supervisor(**options: Any) -> BaseAgent[Any, Any]:
    """Create a supervisor `Boss` with the workers `Search` and `Maths`."""
    workers = [worker("Search", tools=[ask, fail], exit_tool=True), worker("Maths")]
    return supervisor(Agent("Boss", description="Decides."), sub_agents=workers, **options)


def request_texts(model: ScriptedModel, request: int = -1) -> list[str]:
    return [text_of(message.content) for message in model.requests[request].messages]


async def test_control_returns_to_the_supervisor_when_a_worker_finishes() -> None:
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_search"), call("transfer_to_maths"), "That makes 274 m."],
            "Search": ["The bridge is 137 m long."],
            "Maths": ["Twice that is 274 m."],
        }
    )
    result = await Runner(make_supervisor(), model=model).run("How long are two bridges?")
    assert (result.agent, result.output) == ("Boss", "That makes 274 m.")
    assert transcript(result.events) == snapshot(
        [
            'run of Boss started with "How long are two bridges?"',
            "Boss started",
            "Boss: called transfer_to_search({})",
            'Boss: transfer_to_search -> {"assistant":"Search"}',
            "Boss → Search",
            "Boss finished",
            "Search started",
            'Search: said "The bridge is 137 m long."',
            "Search → Boss (returned)",
            "Search finished",
            "Boss started",
            "Boss: called transfer_to_maths({})",
            'Boss: transfer_to_maths -> {"assistant":"Maths"}',
            "Boss → Maths",
            "Boss finished",
            "Maths started",
            'Maths: said "Twice that is 274 m."',
            "Maths → Boss (returned)",
            "Maths finished",
            "Boss started",
            'Boss: said "That makes 274 m."',
            "Boss finished",
            "run completed",
        ]
    )
    assert request_texts(model)[-1] == "For context: [Maths] said: Twice that is 274 m."


async def test_a_worker_cannot_transfer_to_another_worker() -> None:
    # It has no transfer tool, and calling one anyway has no effect.
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_search"), "done"],
            "Search": [[call("transfer_to_maths"), transfer_to("Maths")], "I cannot count."],
        }
    )
    result = await Runner(make_supervisor(), model=model).run("go")
    assert [spec.name for spec in model.requests[1].tools] == ["ask", "fail", "exit"]
    assert [event.path for event in result.events if "Maths" in event.path] == []
    assert result.output == "done"


async def test_an_exit_of_a_worker_ends_nested_supervisors() -> None:
    lead = supervisor(
        Agent("Lead", description="Leads."), sub_agents=[worker("Search", exit_tool=True), worker("Maths")]
    )
    boss = supervisor(Agent("Boss"), sub_agents=[lead])
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_lead")],
            "Lead": [call("transfer_to_search")],
            "Search": [call("exit", final_result="Nothing is left to do.")],
        }
    )
    result = await Runner(boss, model=model).run("go")
    assert (result.agent, result.output) == ("Search", "Nothing is left to do.")
    model.assert_done()


@pytest.mark.parametrize("depth", [1, 2, 7])
async def test_supervisors_can_be_nested_to_any_depth(depth: int) -> None:
    team: BaseAgent[Any, Any] = worker("Layer0")
    script: dict[str, list[Any]] = {"Layer0": ["from the lowest level"]}
    for level in range(1, depth + 1):
        team = supervisor(worker(f"Layer{level}"), sub_agents=[team])
        script[f"Layer{level}"] = [call(f"transfer_to_layer{level - 1}"), f"received at {level}"]
    result = await Runner(team, model=ScriptedModel(script)).run("go")
    path_down = [f"Layer{level}" for level in range(depth, -1, -1)]
    assert result.events[-2].path == (*path_down, *reversed(path_down[:-1]))
    assert result.output == f"received at {depth}"


async def test_workers_can_be_workflows_guarded_agents_and_functions() -> None:
    @agent("Custom", description="A function.")
    async def custom(ctx: AgentContext) -> None:
        await ctx.say("from a function")

    def passes(ctx: Any, read: Any) -> bool:
        return True

    pair = ParallelAgent("Pair", description="Two in parallel.", sub_agents=[worker("Left"), worker("Right")])
    sequence = SequentialAgent("Line", description="One after the other.", sub_agents=[worker("First"), pair])
    boss = supervisor(
        Agent("Boss"), sub_agents=[sequence, with_guardrails(worker("Safe"), input_guardrails=[passes]), custom]
    )
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_line"), call("transfer_to_safe"), call("transfer_to_custom"), "all done"],
            **{name: [f"{name} was here"] for name in ("First", "Left", "Right", "Safe")},
        }
    )
    result = await Runner(boss, model=model).run("go")
    assert result.output == "all done"
    messages = [text for text in request_texts(model) if "said" in text]
    assert messages == [
        "For context: [First] said: First was here.",
        "For context: [Left] said: Left was here.",
        "For context: [Right] said: Right was here.",
        "For context: [Safe] said: Safe was here.",
        "For context: [Custom] said: from a function.",
    ]


async def test_a_supervisor_can_be_a_function_agent() -> None:
    @agent("Function", description="Transfers to both workers.")
    async def from_function(ctx: AgentContext) -> Any:
        from batonkit import Transfer

        authors = [entry.author for entry in ctx._history.entries if entry.author]
        missing = [name for name in ("Search", "Maths") if name not in authors]
        return Transfer(missing[0]) if missing else await ctx.say("both have answered")

    team = supervisor(from_function, sub_agents=[worker("Search"), worker("Maths")])
    result = await Runner(team, model=ScriptedModel({"Search": ["s"], "Maths": ["m"]})).run("go")
    assert result.events[-2].path == ("Function", "Search", "Function", "Maths", "Function")
    assert result.output == "both have answered"


async def test_an_error_of_a_worker_ends_the_run() -> None:
    model = ScriptedModel({"Boss": [call("transfer_to_search")], "Search": [call("fail")]})
    with pytest.raises(ToolFailedError, match="disk full"):
        await Runner(make_supervisor(), model=model).run("go")


async def test_an_error_of_a_worker_is_reported_with_on_error_report(caplog: pytest.LogCaptureFixture) -> None:
    script: dict[str, list[Any]] = {
        "Boss": [call("transfer_to_search"), call("ask", question="Give up?")],
        "Search": [call("fail")],
    }
    models: list[ScriptedModel] = []

    def make() -> Runner[Any, Any]:
        models.append(ScriptedModel(script))
        workers = [worker("Search", tools=[fail])]
        return Runner(supervisor(Agent("Boss", tools=[ask]), sub_agents=workers, on_error="report"), model=models[-1])

    suspended = await make().run("go")
    assert suspended.status == "suspended"
    assert "reported to `Boss`" in caplog.text
    script.update(Boss=["Search is broken; I gave up."], Search=[])
    result = await resume_in_new_runner(make, suspended, {suspended.interrupts[0].id: "yes"})
    assert result.output == "Search is broken; I gave up."
    model = models[-1]
    # The failed worker did not run again, and its messages are removed.
    assert any("[Search] failed: ToolFailedError" in text and "disk full" in text for text in request_texts(model))
    assert not any("called tool: `fail`" in text for text in request_texts(model))


async def test_on_error_applies_to_the_supervisors_own_workers() -> None:
    def make_runner(*, lead: Any, boss: Any) -> Runner[Any, Any]:
        inner = supervisor(worker("Lead"), sub_agents=[worker("Search", tools=[fail])], on_error=lead)
        script = {
            "Boss": [call("transfer_to_lead"), "ended well"],
            "Lead": [call("transfer_to_search"), "it failed"],
            "Search": [call("fail")],
        }
        return Runner(supervisor(Agent("Boss"), sub_agents=[inner], on_error=boss), model=ScriptedModel(script))

    assert (await make_runner(lead="report", boss="raise").run("go")).output == "ended well"
    with pytest.raises(ToolFailedError):
        await make_runner(lead="raise", boss="report").run("go")


async def test_an_exceeded_limit_is_not_reported() -> None:
    model = ScriptedModel({"Boss": [call("transfer_to_search")], "Search": ["found"]}, cycle=True)
    with pytest.raises(LimitError, match="model_calls"):
        await Runner(
            make_supervisor(on_error="report"), model=model, limits=Limits(model_calls=3, idle_cycles=None)
        ).run("go")


async def test_a_worker_without_progress_ends_the_run() -> None:
    model = ScriptedModel({"Boss": [call("transfer_to_search")], "Search": ["found"]}, cycle=True)
    with pytest.raises(LoopError, match="without progress"):
        await Runner(make_supervisor(), model=model).run("go")


async def test_an_interrupt_of_a_worker_can_be_answered_in_a_new_runner() -> None:
    # The new runner has only the encoded log.
    script: dict[str, list[Any]] = {
        "Boss": [call("transfer_to_lead"), "You fly at nine."],
        "Lead": [call("transfer_to_search"), "nine it is"],
        "Search": [call("ask", question="When?"), "at nine"],
    }

    def make() -> Runner[Any, Any]:
        lead = supervisor(worker("Lead"), sub_agents=[worker("Search", tools=[ask])])
        return Runner(supervisor(Agent("Boss"), sub_agents=[lead]), model=ScriptedModel(script))

    suspended = await make().run("go")
    (question,) = suspended.interrupts
    assert question.path == ("Boss", "Lead", "Search")
    script.update(Boss=script["Boss"][1:], Lead=script["Lead"][1:], Search=script["Search"][1:])
    result = await resume_in_new_runner(make, suspended, {question.id: "09:00"})
    assert result.output == "You fly at nine."
    assert result.events[-2].path == ("Boss", "Lead", "Search", "Lead", "Boss")


async def test_a_supervisor_can_be_a_tool() -> None:
    # An exit ends only the call.
    model = ScriptedModel(
        {
            "Clerk": [call("boss", request="How long?"), "It is 137 m long."],
            "Boss": [call("transfer_to_search")],
            "Search": [call("exit", final_result="137 m")],
        }
    )
    result = await Runner(Agent("Clerk", tools=[make_supervisor().as_tool()]), model=model).run("go")
    assert result.output == "It is 137 m long."
    assert "Clerk: boss -> 137 m" in transcript(result.events)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: supervisor(Agent("Boss"), sub_agents=[]), "has no workers"),
        (lambda: supervisor(Agent("Boss"), sub_agents=[Agent("Boss")]), "cannot supervise itself"),
        (lambda: supervisor(Agent("Boss"), sub_agents=["Search"]), "all must be agents"),  # pyright: ignore[reportArgumentType]
        (lambda: supervisor(Agent("Boss"), sub_agents=[Agent("A")], on_error="return"), "`raise`, `report`"),  # pyright: ignore[reportArgumentType]
        (lambda: Runner(supervisor(Agent("Boss"), sub_agents=[Agent("A"), Agent("A")])), "two different agents"),
    ],
)
def test_invalid_workers_are_refused(make: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        make()


async def test_an_exit_of_a_function_agent_ends_the_run() -> None:
    @agent("Stop", description="Stops.")
    async def stop(ctx: AgentContext) -> Exit:
        return Exit("stopped")

    model = ScriptedModel({"Boss": [call("transfer_to_stop")]})
    result = await Runner(supervisor(Agent("Boss"), sub_agents=[stop]), model=model).run("go")
    assert result.output == "stopped"
