"""Options of one run: model, settings, and options of single agents."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from batonkit import Agent, AgentOptions, ModelSettings, RunContext, Runner, SequentialAgent, agent, handoff, tool
from batonkit.agents import AgentContext, with_guardrails
from batonkit.errors import BatonError, SetupError, TurnLimitError
from batonkit.log import AgentResponded, RunResumed, RunStarted, ToolReturned, decode_log, encode_log
from batonkit.messages import AssistantMessage
from batonkit.models import Chunk, ModelRequest, ModelResponse, register_model
from batonkit.runs import BackgroundRunner
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
    result = await runner.run("hi", model="echo:other", model_settings=ModelSettings(temperature=0.9))
    assert result.output == "other: Be brief. {'temperature': 0.9, 'top_p': 0.1, 'seed': 3} ['weather', 'time']"
    assert (await runner.run("hi")).output.startswith("own: Be brief. {'temperature': 0.5")


async def test_options_of_an_agent_override_those_of_the_run() -> None:
    billing = Agent("Billing", instructions="Bill.", model=Echo("own"), tools=[news, time])
    runner = Runner(SequentialAgent("Both", sub_agents=[desk(), billing]))
    options = AgentOptions(
        model="echo:billing", model_settings=ModelSettings(seed=2), instructions="Refund.", tools=["news"], max_turns=2
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


async def test_tools_are_named_and_keep_the_order_of_the_names() -> None:
    options = AgentOptions(instructions="I am Desk.", tools=["time", "weather"])
    assert (
        await Runner(desk()).run("hi", agent_options={"Desk": options})
    ).output == "own: I am Desk. {} ['time', 'weather']"


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


async def test_options_are_recorded_as_json() -> None:
    result = await Runner(desk()).run(
        "hi",
        model_settings=ModelSettings(seed=1),
        agent_options={"Desk": AgentOptions(model="echo:b", instructions="Short.", tools=["time"], max_turns=3)},
    )
    assert started(result.events).options == {
        "": {"model_settings": {"seed": 1}},
        "Desk": {"model": "echo:b", "instructions": "Short.", "tools": ["time"], "max_turns": 3},
    }
    assert started((await Runner(desk()).run("hi")).events).options == {}


KEYS = ModelSettings(seed=1, extra_headers={"x-key": "s3cret"}, extra_body={"k": "s3cret"})


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (
            {"model": Echo()},
            r"recorded as data; give the name of a model .* or use runner\.clone\(model=…\)",
        ),
        ({"model_settings": KEYS}, r"with `extra_headers`, `extra_body`, .* use runner\.clone\(model_settings=…\)"),
    ],
)
@pytest.mark.parametrize("store", [None, "memory:"])
async def test_an_object_is_refused_and_a_clone_suggested(args: Any, told: str, store: str | None) -> None:
    runner = Runner(asking_desk(), store=store)
    first = await runner.run("hi")
    for use in (
        lambda: runner.run("hi", **args),
        lambda: runner.submit("hi", **args),
        lambda: runner.resume(first.run_id, "yes", **args),
        lambda: BackgroundRunner(runner).start("hi", **args),
    ):
        with pytest.raises(SetupError, match=told) as caught:
            await use()
        assert "s3cret" not in str(caught.value)
    with pytest.raises(SetupError, match=told):
        AgentOptions(**args)


async def test_a_clone_takes_the_objects_that_options_refuse() -> None:
    runner = Runner(Agent("Desk", instructions="Be brief.", tools=[ask, time]), model=Asking("a"))
    first = await runner.run("hi")
    twin = runner.clone(model=Asking("object"), model_settings=KEYS)
    result = await twin.resume(first.run_id, "yes")
    assert result.output.startswith("object: Be brief. {'seed': 1, 'extra_headers'")
    assert "s3cret" not in str(encode_log(result.events[:1]))


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


async def test_runs_of_a_thread_do_not_inherit_options() -> None:
    runner = Runner(desk())
    first = await runner.run("hi", thread="t", agent_options={"Desk": AgentOptions(instructions="Once.")})
    second = await runner.run("again", thread="t")
    assert first.output.startswith("own: Once.")
    assert second.output.startswith("own: Be brief.")
    assert started(second.events).options == {}


async def test_submit_records_options(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    runner = Runner(desk(), store=store)
    run_id = await runner.submit("hi", model="echo:submitted", agent_options={"Desk": AgentOptions(tools=["time"])})
    assert (await Runner(desk(), store=store).runs.drive(run_id)).status == "completed"
    answered = [event for event in await runner.runs.events(run_id) if isinstance(event, AgentResponded)]
    assert answered[0].text == "submitted: Be brief. {} ['time']"


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
        ({"Desk": AgentOptions(tools=["time", "time"])}, r"`Desk` has two tools called `time`"),
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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_turns": 0}, r"AgentOptions\(max_turns=0\) is too low"),
        ({"tools": "time"}, r"AgentOptions\(tools=.time.\) is not a list"),
        ({"tools": [3]}, r"AgentOptions\(\) has 3 in tools, but .* give names of the agent's own tools"),
        ({"tools": [time]}, r"in tools, but the options of a run are recorded as data; .*agent\.clone\(tools=\[…\]\)"),
        ({"instructions": 3}, r"AgentOptions\(\) has instructions=3; give a string or None"),
        ({"instructions": str}, r"a function as instructions, .*Runner\(agent\.clone\(instructions=…\)\)"),
        ({"model": 3}, r"AgentOptions\(\) has model=3, but the options of a run are recorded as data"),
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
