"""Options of one run: model, settings, and options of single agents."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unfinished import recover

from batonkit import Agent, AgentOptions, ModelSettings, RunContext, Runner, SequentialAgent, agent, handoff, tool
from batonkit.agents import AgentContext, with_guardrails
from batonkit.errors import BatonError, MissingOptionsError, SetupError, TurnLimitError
from batonkit.events import AgentResponded, RunResumed, RunStarted, ToolReturned, decode_log, encode_log
from batonkit.messages import AssistantMessage
from batonkit.models import Chunk, ModelRequest, ModelResponse, register_model
from batonkit.runner import BackgroundRunner
from batonkit.stores import SQLiteStore
from batonkit.testing import ScriptedModel, assert_survives_crashes, call


class Echo:
    """A model that answers with what it was asked."""

    def __init__(self, name: str = "echo") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer with the name of the model, the instructions, the settings and the tools."""
        self.requests.append(request)
        settings = {
            name: value for name in request.settings.__struct_fields__ if (value := getattr(request.settings, name))
        }
        text = f"{self.name}: {request.instructions} {settings} {[spec.name for spec in request.tools]}"
        yield ModelResponse(AssistantMessage(text), None, "stop", self.name)


@pytest.fixture(autouse=True)
def models() -> None:
    """Register the models of these tests; other tests may have registered the same names."""
    register_model("echo", Echo)
    register_model("asking", Asking)


@tool
async def weather(city: str) -> str:
    """Return the weather."""
    return f"sunny in {city}"


@tool
async def time() -> str:
    """Return the time."""
    return "noon"


@tool
async def ask(ctx: RunContext) -> str:
    """Ask a person."""
    return str(await ctx.interrupt("?"))


@tool
async def news() -> str:
    """Return the news."""
    return "none"


def desk(**options: Any) -> Agent:
    return Agent("Desk", instructions="Be brief.", model=Echo("own"), tools=[weather, time], **options)


def started(events: Sequence[Any]) -> RunStarted:
    assert isinstance(events[0], RunStarted)
    return events[0]


async def test_a_model_and_settings_are_for_all_agents_of_one_run() -> None:
    # They override those of the agents.
    runner = Runner(
        desk(model_settings=ModelSettings(temperature=0.5, top_p=0.1)), model_settings=ModelSettings(seed=3)
    )
    assert (await runner.run("hi")).output == (
        "own: Be brief. {'temperature': 0.5, 'top_p': 0.1, 'seed': 3} ['weather', 'time']"
    )
    result = await runner.run("hi", model=Echo("other"), model_settings=ModelSettings(temperature=0.9))
    assert result.output == "other: Be brief. {'temperature': 0.9, 'top_p': 0.1, 'seed': 3} ['weather', 'time']"
    assert (await runner.run("hi")).output.startswith("own: Be brief. {'temperature': 0.5")


async def test_options_of_an_agent_override_those_of_the_run() -> None:
    billing = Agent("Billing", instructions="Bill.", model=Echo("own"))
    runner = Runner(SequentialAgent("Both", sub_agents=[desk(), billing]))
    options = AgentOptions(
        model="echo:billing", model_settings=ModelSettings(seed=2), instructions="Refund.", tools=[news], max_turns=2
    )
    result = await runner.run(
        "hi", model="echo:all", model_settings=ModelSettings(seed=1, top_k=5), agent_options={"Billing": options}
    )
    assert [event.text for event in result.events if isinstance(event, AgentResponded)] == [
        "all: Be brief. {'top_k': 5, 'seed': 1} ['weather', 'time']",
        "billing: Refund. {'top_k': 5, 'seed': 2} ['news']",
    ]


async def test_runs_at_the_same_time_do_not_share_options() -> None:
    # Compiled agents are cached per runner, and never with the options of a run.
    runner = Runner(desk())
    changed = runner.stream("hi", agent_options={"Desk": AgentOptions(instructions="Changed.", tools=[])})
    plain = runner.stream("hi")
    async with changed as one, plain as two:
        async for _ in one:
            pass
        async for _ in two:
            pass
    assert one.result.output == "own: Changed. {} []"
    assert two.result.output == "own: Be brief. {} ['weather', 'time']"
    assert (await runner.run("hi")).output == two.result.output


async def test_instructions_may_be_a_function_and_tools_may_be_named() -> None:
    options = AgentOptions(instructions=lambda ctx: f"I am {ctx.agent}.", tools=["time", news])
    assert (
        await Runner(desk()).run("hi", agent_options={"Desk": options})
    ).output == "own: I am Desk. {} ['time', 'news']"


async def test_max_turns_holds_for_the_run() -> None:
    runner = Runner(Agent("A", model=ScriptedModel([call("time")], cycle=True), tools=[time], on_max_turns="error"))
    with pytest.raises(TurnLimitError, match="2"):
        await runner.run("hi", agent_options={"A": AgentOptions(max_turns=2)})


async def test_wrapped_and_nested_agents_have_options() -> None:
    # Agents inside guardrails, as tools and as steps.
    def accept(ctx: RunContext, value: Any) -> bool:
        return True

    expert = with_guardrails(Agent("Expert", model=Echo("own")), input_guardrails=[accept], mode="parallel")
    steps = [call("expert", request="?"), "done"]
    runner = Runner(Agent("Desk", model=ScriptedModel(steps), tools=[expert.as_tool("expert")]))
    result = await runner.run("hi", agent_options={"Expert": AgentOptions(model="echo:new", instructions="Think.")})
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["new: Think. {} []"]


async def test_an_agent_may_be_a_tool_in_one_run_only() -> None:
    # Also one that hands off to another, inside a nested agent.
    deep = Agent("Deep", description="Deep.", model=ScriptedModel(["from deep"], cycle=True))
    extra = Agent("Extra", model=ScriptedModel([call("transfer_to_deep")], cycle=True), handoffs=[deep])
    inner = Agent("Inner", model=ScriptedModel([call("extra", request="?"), "inner done"], cycle=True))
    outer = Agent("Outer", model=ScriptedModel([call("inner", request="?"), "outer done"], cycle=True))
    runner = Runner(outer.clone(tools=[inner.as_tool("inner")]))
    options = {"Inner": AgentOptions(tools=[extra.as_tool("extra")])}
    result = await runner.run("hi", agent_options=options)
    assert [event.content for event in result.events if isinstance(event, ToolReturned)][-2:] == [
        "from deep",
        "inner done",
    ]
    assert (await Runner(outer.clone(tools=[inner.as_tool("inner")])).runs.replay(result.events)).output == "outer done"
    assert "Extra" not in runner.team.inner


async def test_json_is_recorded_and_other_options_by_name() -> None:
    # API keys and headers are never recorded.
    secret = ModelSettings(
        seed=1, extra_headers={"x-key": "s3cret"}, extra_body={"k": "s3cret"}, extra_query={"key": "s3cret"}
    )
    result = await Runner(desk()).run(
        "hi",
        model=Echo("object"),
        model_settings=secret,
        agent_options={"Desk": AgentOptions(model="echo:b", instructions="Short.", tools=["time"], max_turns=3)},
    )
    assert started(result.events).options == {
        "": {
            "model_settings": {"seed": 1},
            "not_recorded": [
                "model",
                "model_settings.extra_headers",
                "model_settings.extra_query",
                "model_settings.extra_body",
            ],
        },
        "Desk": {"model": "echo:b", "instructions": "Short.", "tools": ["time"], "max_turns": 3},
    }
    assert "s3cret" not in str(encode_log(result.events[:1]))
    functions = AgentOptions(instructions=lambda ctx: "x", tools=[news], model_settings=secret)
    result = await Runner(desk()).run("hi", agent_options={"Desk": functions})
    assert started(result.events).options == {
        "Desk": {
            "model_settings": {"seed": 1},
            "not_recorded": [
                *[f"model_settings.{name}" for name in ("extra_headers", "extra_query", "extra_body")],
                "instructions",
                "tools",
            ],
        }
    }
    assert "s3cret" not in str(encode_log(result.events[:1]))
    assert started((await Runner(desk()).run("hi")).events).options == {}


def asking_desk() -> Agent:
    return Agent("Desk", instructions="Be brief.", model=ScriptedModel([call("ask")]), tools=[ask, time])


class Asking(Echo):
    """A model that calls `ask` first, and then echoes."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Call the tool, or answer."""
        if any(isinstance(message, AssistantMessage) for message in request.messages):
            async for chunk in super().respond(request):
                yield chunk
        else:
            async for chunk in ScriptedModel([call("ask")]).respond(request):
                yield chunk


RECORDABLE = AgentOptions(model="asking:a", model_settings=ModelSettings(seed=7), instructions="New.", tools=["ask"])


@pytest.mark.parametrize("is_stored", [True, False])
async def test_another_process_resumes_with_the_recorded_options(is_stored: bool, tmp_path: Path) -> None:
    def new_runner() -> Runner:
        return Runner(asking_desk(), store=SQLiteStore(tmp_path / "runs.db") if is_stored else None)

    first = await new_runner().run("hi", agent_options={"Desk": RECORDABLE})
    second = new_runner()
    if not is_stored:
        await second.runs.load(decode_log(encode_log(first.events)))
    result = await second.resume(first.run_id, "yes")
    assert result.output == "a: New. {'seed': 7} ['ask']"
    assert (await new_runner().runs.replay(result.events)).output == result.output
    forked = await second.runs.fork(first.events)
    assert (await second.resume(forked, "yes")).output == result.output


async def test_a_resume_in_one_process_needs_no_objects(tmp_path: Path) -> None:
    for store in (None, str(tmp_path / "runs.db")):
        runner = Runner(asking_desk(), store=store)
        first = await runner.run("hi", model=Asking("object"))
        assert (await runner.resume(first.run_id, "yes")).output == "object: Be brief. {} ['ask', 'time']"


async def test_a_resume_without_the_objects_is_refused_and_names_the_arguments() -> None:
    secret = ModelSettings(extra_headers={"x": "y"}, seed=4)
    first = await Runner(asking_desk()).run(
        "hi", model=Asking("object"), agent_options={"Desk": AgentOptions(tools=[ask, news], model_settings=secret)}
    )

    async def other_process() -> Runner:
        runner = Runner(asking_desk())
        await runner.runs.load(first.events)
        return runner

    with pytest.raises(MissingOptionsError) as caught:
        await (await other_process()).resume(first.run_id, "yes")
    assert caught.value.missing == (("", "model"), ("Desk", "model_settings.extra_headers"), ("Desk", "tools"))
    assert (
        f"resume('{first.run_id}', model=…, "
        "agent_options={'Desk': AgentOptions(model_settings=ModelSettings(extra_headers=…), tools=…)})"
    ) in str(caught.value)
    given = {"Desk": AgentOptions(model_settings=ModelSettings(extra_headers={"x": "z"}))}
    with pytest.raises(MissingOptionsError, match=r"agent_options=\{'Desk': AgentOptions\(tools=…\)\}\)") as caught:
        await (await other_process()).resume(first.run_id, "yes", model="asking:b", agent_options=given)
    assert caught.value.missing == (("Desk", "tools"),)

    runner = await other_process()
    given = {"Desk": AgentOptions(tools=[ask, time], model_settings=ModelSettings(extra_headers={"x": "z"}))}
    result = await runner.resume(first.run_id, "yes", model="asking:b", agent_options=given)
    assert result.output == "b: Be brief. {'seed': 4, 'extra_headers': {'x': 'z'}} ['ask', 'time']"


async def test_options_given_on_resume_are_recorded_and_hold_afterwards(tmp_path: Path) -> None:
    # A run whose model is down continues with another one, also after one more restart.
    store = str(tmp_path / "runs.db")
    two_questions = Agent("Desk", model=ScriptedModel([]), tools=[ask])

    class Twice(Echo):
        async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            """Ask twice, then answer."""
            done = sum(isinstance(message, AssistantMessage) for message in request.messages)
            source = super() if done == 2 else ScriptedModel([call("ask")])
            async for chunk in source.respond(request):
                yield chunk

    register_model("twice", Twice)
    first = await Runner(two_questions, store=store).run("hi", model="twice:a", model_settings=ModelSettings(seed=1))
    second = await Runner(two_questions, store=store).resume(first.run_id, "yes", model="twice:b")
    (resumed,) = [event for event in second.events if isinstance(event, RunResumed)]
    assert resumed.options == {"": {"model": "twice:b", "model_settings": {"seed": 1}}}
    third = Runner(two_questions, store=store)
    forked = await third.runs.fork(second.run_id)
    for run_id in (first.run_id, forked):
        assert (await third.resume(run_id, "yes")).output == "b:  {'seed': 1} ['ask']"


async def test_a_replay_needs_no_objects() -> None:
    model = ScriptedModel([call("extra"), call("ask"), "done"])

    @tool
    async def extra() -> str:
        """Do more."""
        return "more"

    runner = Runner(Agent("A", tools=[ask]))
    options = {"A": AgentOptions(tools=[ask, extra], instructions=lambda ctx: "x")}
    first = await runner.run("hi", model=model, agent_options=options)
    result = await runner.resume(first.run_id, "yes")
    other = Runner(Agent("A", tools=[ask]))
    assert (await other.runs.replay(first.events)).status == "suspended"
    assert (await other.runs.replay(result.events)).output == "done"


async def test_runs_of_a_thread_do_not_inherit_options() -> None:
    runner = Runner(desk())
    first = await runner.run("hi", thread="t", agent_options={"Desk": AgentOptions(instructions="Once.")})
    second = await runner.run("again", thread="t")
    assert first.output.startswith("own: Once.")
    assert second.output.startswith("own: Be brief.")
    assert started(second.events).options == {}


async def test_submit_records_options_and_refuses_what_a_store_cannot_hold(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    runner = Runner(desk(), store=store)
    run_id = await runner.submit("hi", model="echo:submitted", agent_options={"Desk": AgentOptions(tools=["time"])})
    assert (await Runner(desk(), store=store).runs.drive(run_id)).status == "completed"
    answered = [event for event in await runner.runs.events(run_id) if isinstance(event, AgentResponded)]
    assert answered[0].text == "submitted: Be brief. {} ['time']"
    options = {"Desk": AgentOptions(tools=[news], model_settings=ModelSettings(extra_headers={"a": "b"}))}
    with pytest.raises(SetupError) as caught:
        await runner.submit("hi", model=Echo(), agent_options=options)
    for name in ("`model`", "`agent_options['Desk'].tools`", "`agent_options['Desk'].model_settings.extra_headers`"):
        assert name in str(caught.value)
    assert [record.run_id for record in (await runner.thread("x").runs())] == []


async def test_submit_does_not_need_the_provider_of_the_worker() -> None:
    # Only the process that drives the run resolves the model.
    runner = Runner(desk(), store="memory:")
    await runner.submit("hi", model="elsewhere:large")
    with pytest.raises(SetupError, match="elsewhere"):
        await runner.run("hi", model="elsewhere:large")


async def test_background_runs_and_sync_runs_have_options() -> None:
    background = BackgroundRunner(Runner(desk(), store="memory:"))
    run_id = await background.start("hi", model="echo:background")
    events = [event async for _, event in background.subscribe(run_id)]
    assert [event.text for event in events if isinstance(event, AgentResponded)] == [
        "background: Be brief. {} ['weather', 'time']"
    ]
    await background.drain()


def test_run_sync_has_options() -> None:
    assert Runner(desk()).run_sync("hi", model="echo:sync").output.startswith("sync: ")


async def test_a_run_that_needs_objects_is_not_taken_over_by_recovery(tmp_path: Path, caplog: Any) -> None:
    # The run stays as it is, and the reason says how to resume it.
    store = str(tmp_path / "runs.db")
    first = await Runner(asking_desk(), store=store).run("hi", model=Asking("object"))
    other = Runner(asking_desk(), store=store)
    await other.runs.answer(first.run_id, "yes")
    assert await recover(other) == {first.run_id: "running"}
    assert f"resume('{first.run_id}', model=…)" in caplog.text
    assert (await other.resume(first.run_id, model="asking:b")).output.startswith("b: ")


@agent("Code")
async def code(ctx: AgentContext) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"Dsk": AgentOptions()}, r"options for 'Dsk', but the team has no such agent; the team has: .*mean `Desk`"),
        ({3: AgentOptions()}, r"options for 3, but the team has no such agent"),
        ({"Code": AgentOptions()}, r"options for `Code`, but it is a FunctionAgent; only an Agent has them"),
        ({"Desk": {"model": "echo:x"}}, r"agent_options has \{'model': 'echo:x'\} for `Desk`; give AgentOptions\(…\)"),
        ({"Desk": AgentOptions(tools=["tme"])}, r"the tool `tme`, which `Desk` does not have; .*mean `time`"),
        ({"Desk": AgentOptions(tools=[time, time])}, r"`Desk` has two tools called `time`"),
        (
            {"Desk": AgentOptions(tools=[tool(news.function, name="transfer_to_code")])},
            r"gives `Desk` a tool `transfer_to_code`, but a handoff of it has that name",
        ),
        ([AgentOptions()], r"agent_options=.*; give a dict"),
    ],
)
async def test_wrong_options_are_refused_before_the_run_starts(options: Any, told: str) -> None:
    runner = Runner(desk(handoffs=[handoff(code)]), store="memory:")
    for start in (runner.run, runner.submit, BackgroundRunner(runner).start):
        with pytest.raises(SetupError, match=told):
            await start("hi", agent_options=options)
    with pytest.raises(SetupError, match=told):
        runner.stream("hi", agent_options=options)


async def test_an_agent_as_a_tool_must_not_have_the_name_of_another() -> None:
    twin = Agent("Desk", model=Echo())
    with pytest.raises(SetupError, match="another agent has that name"):
        await Runner(desk()).run("hi", agent_options={"Desk": AgentOptions(tools=[twin.as_tool("twin")])})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_turns": 0}, r"AgentOptions\(max_turns=0\) is too low"),
        ({"tools": "time"}, r"AgentOptions\(tools=.time.\) is not a list"),
        ({"tools": [3]}, r"`AgentOptions` has 3 in tools"),
        ({"instructions": 3}, r"AgentOptions\(instructions=…\) is 3; give a function"),
        ({"model": 3}, r"the model for `AgentOptions` is an int"),
        ({"model_settings": {}}, r"AgentOptions\(\) has model_settings=\{\}; give ModelSettings"),
        ({"modell": "x"}, r"AgentOptions has no argument `modell`; did you mean `model`"),
    ],
)
def test_wrong_fields_are_refused(options: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        AgentOptions(**options)


@pytest.mark.parametrize("wrong", [{"model": 3}, {"model_settings": {}}, {"agent_options": 3}])
async def test_wrong_arguments_are_refused(wrong: Any) -> None:
    runner = Runner(asking_desk(), store="memory:")
    with pytest.raises(SetupError):
        await runner.run("hi", **wrong)
    first = await runner.run("hi")
    with pytest.raises(BatonError):
        await runner.resume(first.run_id, "yes", **wrong)


async def test_runs_with_recorded_options_survive_crashes_after_every_event() -> None:
    # The crashed run is driven on by a process that was given no options.
    options = {"Desk": AgentOptions(model="asking:a", instructions="New.", tools=["ask"], max_turns=5)}

    def new_runner(store: Any) -> Runner:
        return Runner(asking_desk(), store=store)

    report = await assert_survives_crashes(new_runner, "go", answers="yes", agent_options=options)
    assert report.crashes >= report.events
