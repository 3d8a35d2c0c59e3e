"""A supervisor gives work away and gets the floor back; nothing else leads from worker to worker."""

from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.patterns.team_work import ask, fail, taken_up

from baton import (
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
from baton.agents import with_guardrails
from baton.errors import LimitError, LoopError, ToolFailedError
from baton.messages import text_of
from baton.testing import ScriptedModel, call, transcript, transfer_to


def worker(name: str, **facts: Any) -> Agent[Any, str]:
    return Agent(name, description=f"Does what {name} does.", **facts)


def desk(**options: Any) -> BaseAgent[Any, Any]:
    """`Boss` over `Search` and `Maths`."""
    workers = [worker("Search", tools=[ask, fail], exit_tool=True), worker("Maths")]
    return supervisor(Agent("Boss", description="Decides."), sub_agents=workers, **options)


def told(model: ScriptedModel, request: int = -1) -> list[str]:
    return [text_of(message.content) for message in model.requests[request].messages]


async def test_workers_return_to_the_supervisor_when_they_are_done() -> None:
    # P1
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_search"), call("transfer_to_maths"), "That makes 274 m."],
            "Search": ["The bridge is 137 m long."],
            "Maths": ["Twice that is 274 m."],
        }
    )
    result = await Runner(desk(), model=model).run("How long are two bridges?")
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
    assert told(model)[-1] == "For context: [Maths] said: Twice that is 274 m.."


async def test_a_worker_has_no_way_to_a_sibling() -> None:
    # P1: it is offered no transfer at all, and one that it asks for all the same does not happen.
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_search"), "done"],
            "Search": [[call("transfer_to_maths"), transfer_to("Maths")], "I cannot count."],
        }
    )
    result = await Runner(desk(), model=model).run("go")
    assert [spec.name for spec in model.requests[1].tools] == ["ask", "fail", "exit"]
    assert [event.path for event in result.events if "Maths" in event.path] == []
    assert result.output == "done"


async def test_a_workers_exit_ends_the_whole_nest() -> None:
    # P1
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
async def test_layers_nest_to_any_depth_and_unwind_one_by_one(depth: int) -> None:
    # P1
    team: BaseAgent[Any, Any] = worker("Layer0")
    script: dict[str, list[Any]] = {"Layer0": ["from the ground"]}
    for level in range(1, depth + 1):
        team = supervisor(worker(f"Layer{level}"), sub_agents=[team])
        script[f"Layer{level}"] = [call(f"transfer_to_layer{level - 1}"), f"heard at {level}"]
    result = await Runner(team, model=ScriptedModel(script)).run("go")
    down = [f"Layer{level}" for level in range(depth, -1, -1)]
    assert result.events[-2].path == (*down, *reversed(down[:-1]))
    assert result.output == f"heard at {depth}"


async def test_workers_may_be_workflows_wrapped_or_of_somebodys_own() -> None:
    # P1
    @agent("Own", description="Own code.")
    async def own(ctx: AgentContext) -> None:
        await ctx.say("from my own code")

    def passes(ctx: Any, read: Any) -> bool:
        return True

    pair = ParallelAgent("Pair", description="Two at once.", sub_agents=[worker("Left"), worker("Right")])
    line = SequentialAgent("Line", description="One after the other.", sub_agents=[worker("First"), pair])
    boss = supervisor(Agent("Boss"), sub_agents=[line, with_guardrails(worker("Safe"), input_guardrails=[passes]), own])
    model = ScriptedModel(
        {
            "Boss": [call("transfer_to_line"), call("transfer_to_safe"), call("transfer_to_own"), "all done"],
            **{name: [f"{name} was here"] for name in ("First", "Left", "Right", "Safe")},
        }
    )
    result = await Runner(boss, model=model).run("go")
    assert result.output == "all done"
    said = [text for text in told(model) if "said" in text]
    assert said == [
        "For context: [First] said: First was here.",
        "For context: [Left] said: Left was here.",
        "For context: [Right] said: Right was here.",
        "For context: [Safe] said: Safe was here.",
        "For context: [Own] said: from my own code.",
    ]


async def test_a_supervisor_may_be_code() -> None:
    # P1
    @agent("Code", description="Asks both, whatever happens.")
    async def code(ctx: AgentContext) -> Any:
        from baton import Transfer

        heard = [entry.author for entry in ctx._history.entries if entry.author]
        missing = [name for name in ("Search", "Maths") if name not in heard]
        return Transfer(missing[0]) if missing else await ctx.say("both were heard")

    team = supervisor(code, sub_agents=[worker("Search"), worker("Maths")])
    result = await Runner(team, model=ScriptedModel({"Search": ["s"], "Maths": ["m"]})).run("go")
    assert result.events[-2].path == ("Code", "Search", "Code", "Maths", "Code")
    assert result.output == "both were heard"


async def test_a_workers_error_ends_the_run() -> None:
    # P1
    model = ScriptedModel({"Boss": [call("transfer_to_search")], "Search": [call("fail")]})
    with pytest.raises(ToolFailedError, match="disk full"):
        await Runner(desk(), model=model).run("go")


async def test_a_workers_error_is_reported_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    # P1
    script: dict[str, list[Any]] = {
        "Boss": [call("transfer_to_search"), call("ask", question="Give up?")],
        "Search": [call("fail")],
    }
    models: list[ScriptedModel] = []

    def make() -> Runner[Any, Any]:
        models.append(ScriptedModel(script))
        workers = [worker("Search", tools=[fail])]
        return Runner(supervisor(Agent("Boss", tools=[ask]), sub_agents=workers, on_error="report"), model=models[-1])

    stopped = await make().run("go")
    assert stopped.status == "suspended"
    assert "reported to `Boss`" in caplog.text
    script.update(Boss=["Search is broken; I gave up."], Search=[])
    result = await taken_up(make, stopped, {stopped.interrupts[0].id: "yes"})
    assert result.output == "Search is broken; I gave up."
    spent = models[-1]
    # The failed worker did not try again, and what it had said is gone.
    assert any("[Search] failed: ToolFailedError" in text and "disk full" in text for text in told(spent))
    assert not any("called tool: `fail`" in text for text in told(spent))


async def test_each_layer_decides_for_its_own_workers() -> None:
    # P1
    def team(*, lead: Any, boss: Any) -> Runner[Any, Any]:
        below = supervisor(worker("Lead"), sub_agents=[worker("Search", tools=[fail])], on_error=lead)
        script = {
            "Boss": [call("transfer_to_lead"), "ended well"],
            "Lead": [call("transfer_to_search"), "it failed"],
            "Search": [call("fail")],
        }
        return Runner(supervisor(Agent("Boss"), sub_agents=[below], on_error=boss), model=ScriptedModel(script))

    assert (await team(lead="report", boss="raise").run("go")).output == "ended well"
    with pytest.raises(ToolFailedError):
        await team(lead="raise", boss="report").run("go")


async def test_limits_are_not_errors_to_report() -> None:
    model = ScriptedModel({"Boss": [call("transfer_to_search")], "Search": ["found"]}, cycle=True)
    with pytest.raises(LimitError, match="model_calls"):
        await Runner(desk(on_error="report"), model=model, limits=Limits(model_calls=3, idle_cycles=None)).run("go")


async def test_a_worker_who_brings_nothing_new_is_noticed() -> None:
    model = ScriptedModel({"Boss": [call("transfer_to_search")], "Search": ["found"]}, cycle=True)
    with pytest.raises(LoopError, match="without progress"):
        await Runner(desk(), model=model).run("go")


async def test_a_workers_question_suspends_and_the_answer_comes_back_to_it() -> None:
    # P1, A3: through a written log, in a fresh runner.
    script: dict[str, list[Any]] = {
        "Boss": [call("transfer_to_lead"), "You fly at nine."],
        "Lead": [call("transfer_to_search"), "nine it is"],
        "Search": [call("ask", question="When?"), "at nine"],
    }

    def make() -> Runner[Any, Any]:
        lead = supervisor(worker("Lead"), sub_agents=[worker("Search", tools=[ask])])
        return Runner(supervisor(Agent("Boss"), sub_agents=[lead]), model=ScriptedModel(script))

    stopped = await make().run("go")
    (question,) = stopped.interrupts
    assert question.path == ("Boss", "Lead", "Search")
    script.update(Boss=script["Boss"][1:], Lead=script["Lead"][1:], Search=script["Search"][1:])
    result = await taken_up(make, stopped, {question.id: "09:00"})
    assert result.output == "You fly at nine."
    assert result.events[-2].path == ("Boss", "Lead", "Search", "Lead", "Boss")


async def test_a_supervisor_as_a_tool() -> None:
    # A1, P1: the whole nest is one call; an exit in it stays inside.
    model = ScriptedModel(
        {
            "Clerk": [call("boss", request="How long?"), "It is 137 m long."],
            "Boss": [call("transfer_to_search")],
            "Search": [call("exit", final_result="137 m")],
        }
    )
    result = await Runner(Agent("Clerk", tools=[desk().as_tool()]), model=model).run("go")
    assert result.output == "It is 137 m long."
    assert "Clerk: boss -> 137 m" in transcript(result.events)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: supervisor(Agent("Boss"), sub_agents=[]), "has no workers"),
        (lambda: supervisor(Agent("Boss"), sub_agents=[Agent("Boss")]), "cannot supervise itself"),
        (lambda: supervisor(Agent("Boss"), sub_agents=["Search"]), "all must be agents"),  # pyright: ignore[reportArgumentType]
        (lambda: supervisor(Agent("Boss"), sub_agents=[Agent("A")], on_error="return"), "`raise`, `report`"),  # pyright: ignore[reportArgumentType]
        (lambda: Runner(supervisor(Agent("Boss"), sub_agents=[Agent("A"), Agent("A")])), "two different agents"),
    ],
)
def test_what_cannot_work_is_said_at_once(make: Any, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        make()


async def test_an_exit_of_code_ends_the_nest() -> None:
    # P1
    @agent("Stop", description="Stops.")
    async def stop(ctx: AgentContext) -> Exit:
        return Exit("stopped")

    model = ScriptedModel({"Boss": [call("transfer_to_stop")]})
    result = await Runner(supervisor(Agent("Boss"), sub_agents=[stop]), model=model).run("go")
    assert result.output == "stopped"
