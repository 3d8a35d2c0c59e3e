"""Agents as tools: input, output, limits, interrupts and what the caller sees."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from tests.loop_clock import FrozenLoopClock
from tests.waiting import forever
from tests.workflows.parts import answered, asker, check_replay, elsewhere, failing, paths, speaker, texts, writer

from batonkit import (
    Agent,
    AgentContext,
    Approval,
    BaseAgent,
    Exit,
    Limits,
    LoopAgent,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    SetupError,
    agent,
    handoff,
    then_transfer,
    tool,
)
from batonkit.agents import AgentToolResult, with_guardrails
from batonkit.errors import LimitError
from batonkit.log import AgentResponded, ControlTransferred, Event, InterruptRaised, TextDelta, ToolReturned
from batonkit.messages import AssistantMessage, Message, ToolCall, Usage, text_of
from batonkit.models import ModelRequest
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call, say, transcript, transfer_to
from batonkit.workflows import BreakLoop


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def runner_with_tool(
    inner: BaseAgent[Any, Any], steps: list[Any], others: dict[str, list[Any]], **options: Any
) -> Runner[Any, Any]:
    """Create a runner whose root agent has the inner agent as a tool."""
    model = ScriptedModel({"Desk": steps, **others}, stream=options.pop("stream", False))
    limits = options.pop("run_limits", None)
    return Runner(Agent("Desk", tools=[inner.as_tool(**options)]), model=model, limits=limits)


def recording_step(seen: list[list[str]]) -> Any:
    """Return a model step that records the texts of its request and answers "ok"."""

    def record(request: ModelRequest) -> str:
        seen.append([text_of(message.content) for message in request.messages])
        return "ok"

    return record


def tool_results(events: tuple[Event, ...]) -> list[tuple[str, str, bool]]:
    """Return the agent, text and error flag of each tool result."""
    return [(each.agent, text_of(each.content), each.is_error) for each in events if isinstance(each, ToolReturned)]


# --- input


async def test_the_request_becomes_the_user_message() -> None:
    seen: list[list[str]] = []
    runner = runner_with_tool(
        Agent("Helper"), [call("helper", request="find it"), "thanks"], {"Helper": [recording_step(seen)]}
    )
    result = await runner.run("hello")
    assert seen == [["find it"]]
    assert texts(result) == ["", "ok", "thanks"], "messages of the inner agent are not in the caller's history"
    assert paths(result.events) == ["Desk", "Desk.Helper", "Desk"]
    await check_replay(runner, result)


def test_the_tool_is_named_after_the_agent_unless_given() -> None:
    helper = Agent("My Helper", description="Helps.")
    spec = helper.as_tool().spec
    assert (spec.name, spec.description, spec.strict) == ("my_helper", "Helps.", True)
    assert spec.parameters["required"] == ["request"]
    named = helper.as_tool("aid", "Aids.").spec
    assert (named.name, named.description) == ("aid", "Aids.")


@pytest.mark.parametrize("arguments", ["{}", "", "[]", '{"request": 5}', "not json", '{"request": null}'])
async def test_invalid_arguments_are_returned_to_the_model_as_an_error(arguments: str) -> None:
    runner = runner_with_tool(Agent("Helper"), [ToolCall("c1", "helper", arguments), "sorry"], {"Helper": ["never"]})
    result = await runner.run("hello")
    ((_, text, is_error),) = tool_results(result.events)
    assert is_error
    assert text.startswith("The arguments of `helper` do not fit: ")
    assert paths(result.events) == ["Desk", "Desk"]


@dataclass
class Order:
    item: str
    count: int


async def test_arguments_are_validated_by_the_input_type_and_passed_as_json() -> None:
    steps = [call("helper", item="tea", count="two"), call("helper", item="tea", count=2), "thanks"]
    seen: list[list[str]] = []
    runner = runner_with_tool(Agent("Helper"), steps, {"Helper": [recording_step(seen)]}, input_type=Order)
    result = await runner.run("hello")
    (_, problem, is_error), (_, answer, _) = tool_results(result.events)
    assert (is_error, answer, seen) == (True, "ok", [['{"item":"tea","count":2}']])
    assert "count" in problem


async def test_an_input_type_that_is_not_an_object_is_wrapped() -> None:
    tool = Agent("Helper").as_tool(input_type=list[int])
    assert list(tool.spec.parameters["properties"]) == ["input"]


CALL = "For context: [Desk] said: let me see. [Desk] called tool: `note` with arguments: {}."
POLICIES: dict[Any, list[str]] = {
    "none": ["now"],
    "rewritten": ["hello", CALL, "For context: [Desk] `note` tool returned result: noted.", "now"],
    "verbatim": ["hello", "let me see", "noted", "now"],
    "answers": ["hello", "now"],
}


@pytest.mark.parametrize("policy", list(POLICIES))
async def test_the_history_policy_decides_which_messages_of_the_caller_it_reads(policy: Any) -> None:
    # Without the turn that calls it, which has not finished.
    @tool
    async def note() -> str:
        """Note."""
        return "noted"

    seen: list[list[str]] = []
    steps = [say("let me see", call("note")), say("asking", call("helper", request="now")), "thanks"]
    model = ScriptedModel({"Desk": steps, "Helper": [recording_step(seen)]})
    runner = Runner(Agent("Desk", tools=[note, Agent("Helper").as_tool(history=policy)]), model=model)
    result = await runner.run("hello")
    assert seen == [POLICIES[policy]]
    await check_replay(runner, result)


async def test_the_history_can_be_lineage_or_a_function() -> None:
    seen: list[list[str]] = []

    def inputs(entries: Any) -> list[Message]:
        return [entry.message for entry in entries if entry.is_user_input]

    tools = [Agent("One").as_tool(history="lineage"), Agent("Two").as_tool(history=inputs)]
    model = ScriptedModel(
        {
            "Desk": [call("one", request="1"), call("two", request="2"), "end"],
            "One": [recording_step(seen)],
            "Two": [recording_step(seen)],
        }
    )
    steps = SequentialAgent("S", sub_agents=[speaker("a"), Agent("Desk", tools=tools)])
    await Runner(steps, model=model).run("hello")
    assert seen == [["hello", "For context: [a] said: a.", "1"], ["hello", "2"]]


# --- output


async def test_structured_output_is_returned_as_json() -> None:
    helper = Agent("Helper", output_type=Order)
    runner = runner_with_tool(helper, [call("helper", request="x"), "ok"], {"Helper": ['{"item": "tea", "count": 2}']})
    assert tool_results((await runner.run("hi")).events)[0][1] == '{"item":"tea","count":2}'


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (speaker("T", "one", then=Exit("the end")), "the end"),
        (speaker("T", "one", then=Exit()), "one"),
        (speaker("T", "one", then=BreakLoop()), "one"),
        (writer("T", x=1), "done"),
        (SequentialAgent("T", sub_agents=[speaker("a"), writer("quiet", x=1)]), "a"),
        (ParallelAgent("T", sub_agents=[speaker("a"), speaker("b")]), '{"a":"a","b":"b"}'),
        (LoopAgent("T", sub_agents=[speaker("a", then=BreakLoop())]), "a"),
    ],
)
async def test_every_kind_of_agent_can_be_a_tool(inner: BaseAgent[Any, Any], expected: str) -> None:
    # Exit and break stay inside.
    runner = runner_with_tool(inner, [call("t", request="x"), "and on"], {})
    result = await runner.run("hi")
    assert tool_results(result.events)[-1] == ("Desk", expected, False)
    assert (result.output, result.agent) == ("and on", "Desk")
    await check_replay(runner, result)


async def test_an_output_extractor_makes_the_result() -> None:
    def upper(inner_result: AgentToolResult) -> str:
        return inner_result.output.upper()

    async def as_dict(inner_result: AgentToolResult) -> dict[str, Any]:
        return {"who": inner_result.agent, "said": [text_of(each.content) for each in inner_result.messages]}

    inner = SequentialAgent("T", sub_agents=[speaker("a"), speaker("b")])
    for extract, expected in ((upper, "B"), (as_dict, '{"who":"T","said":["a","b"]}')):
        runner = runner_with_tool(inner, [call("t", request="x"), "ok"], {}, output_extractor=extract)
        assert tool_results((await runner.run("hi")).events)[0][1] == expected


async def test_an_error_in_the_output_extractor_is_returned_to_the_calling_model() -> None:
    def extract(inner_result: AgentToolResult) -> str:
        raise KeyError("nothing there")

    result = await runner_with_tool(speaker("T"), [call("t", request="x"), "ok"], {}, output_extractor=extract).run(
        "hi"
    )
    assert tool_results(result.events) == [("Desk", "KeyError: 'nothing there'", True)]


async def test_an_error_in_the_agent_is_returned_to_the_calling_model() -> None:
    inner = SequentialAgent("T", sub_agents=[writer("w", x=1), failing("f")])
    runner = runner_with_tool(inner, [call("t", request="x"), "never mind"], {})
    result = await runner.run("hi")
    assert tool_results(result.events) == [("Desk", "[T] failed: ValueError: f cannot", True)]
    assert (result.output, result.values) == ("never mind", {"x": 1})
    await check_replay(runner, result)


# --- handoffs, interrupts, events and values


async def test_the_caller_stays_active_after_a_handoff_inside() -> None:
    router = Agent("Router", sub_agents=[Agent("Expert", description="knows")], description="routes")
    runner = runner_with_tool(
        router, [call("router", request="x"), "so it is"], {"Router": [transfer_to("Expert")], "Expert": ["42"]}
    )
    result = await runner.run("hi")
    assert paths(result.events) == ["Desk", "Desk.Router", "Desk.Router.Expert", "Desk"]
    assert (texts(result), result.agent) == (["", "42", "so it is"], "Desk")
    assert [event.target for event in result.events if isinstance(event, ControlTransferred)] == ["Expert"]
    await check_replay(runner, result)


async def test_an_interrupt_suspends_the_run_and_its_answer_reaches_the_same_call() -> None:
    taken: list[str] = []

    @agent("first")
    async def first(ctx: AgentContext) -> None:
        await ctx.step("take", lambda: taken.append("first") or 1)

    def make() -> Runner[Any, Any]:
        chat = Agent("Chat", tools=[ask])
        inner = SequentialAgent("T", sub_agents=[first, chat, speaker("last")])
        return runner_with_tool(
            inner, [call("t", request="x"), "done"], {"Chat": [call("ask", question="sure?"), "asked"]}
        )

    runner = make()
    result = await runner.run("hi")
    (question,) = result.interrupts
    assert question.path == ("Desk", "T", "first", "Chat")
    assert question.id == "1/m1.0/1/1/1/m1.0/ask1", "caller, call, and position inside the call"
    for resumed in (
        await runner.resume(result.run_id, "yes"),
        await elsewhere(_runner_after_the_first_step, result, {question.id: "yes"}),
    ):
        assert (resumed.output, taken) == ("done", ["first"])
        assert tool_results(resumed.events) == [("Chat", "yes", False), ("Desk", "last", False)]
        await check_replay(make(), resumed)


def _runner_after_the_first_step() -> Runner[Any, Any]:
    @agent("first")
    async def first(ctx: AgentContext) -> None:
        await ctx.step("take", lambda: 1 / 0)

    inner = SequentialAgent("T", sub_agents=[first, Agent("Chat", tools=[ask]), speaker("last")])
    return runner_with_tool(inner, ["done"], {"Chat": ["asked"]})


async def test_stream_events_decides_whether_inner_events_are_delivered() -> None:
    def runner_with(events: Any) -> Runner[Any, Any]:
        chat = Agent("Chat", tools=[ask])
        steps = {"Chat": [call("ask", question="sure?"), "a word inside"]}
        return runner_with_tool(chat, [call("chat", request="x"), "a word"], steps, stream_events=events, stream=True)

    for events in (True, False):
        runner, received = runner_with(events), list[Any]()
        async with runner.stream("hi") as run:
            received += [event async for event in run]
        async with runner.stream_resume(run.run_id, "yes") as run:
            received += [event async for event in run]
        inside = [event for event in received if event.agent == "Chat"]
        logged = [event for event in run.result.events if event.agent == "Chat"]
        deltas = "".join(event.text for event in inside if isinstance(event, TextDelta))
        # Interrupts are always delivered; otherwise they could not be answered.
        if events:
            assert deltas == "a word inside"
            assert [event for event in inside if isinstance(event, Event)] == logged
        else:
            assert deltas == ""
            assert [type(event).__name__ for event in inside] == ["InterruptRaised", "InterruptAnswered"]
        assert "a word" in "".join(event.text for event in received if isinstance(event, TextDelta))
        assert sum(isinstance(event, AgentResponded) for event in logged) == 2


@pytest.mark.parametrize("events", [True, False])
async def test_inner_events_are_stored_even_if_not_delivered(events: Any) -> None:
    # Another process resumes the run.
    store = MemoryStore()

    def runner(**steps: list[Any]) -> Runner[Any, Any]:
        chat = Agent("Chat", tools=[ask]).as_tool(stream_events=events)
        return Runner(Agent("Desk", tools=[chat]), model=ScriptedModel(steps), store=store)

    first = runner(Desk=[call("chat", request="x")], Chat=[call("ask", question="sure?")])
    async with first.stream("hi", run_id="r") as run:
        received = [event async for event in run]
    assert run.result.status == "suspended"
    delivered = sum(isinstance(event, AgentResponded) and event.agent == "Chat" for event in received)
    assert delivered == (1 if events else 0)
    second = runner(Desk=["done"], Chat=["asked"])
    result = await second.resume("r", "yes")
    assert tool_results(result.events) == [("Chat", "yes", False), ("Desk", "asked", False)]
    assert result.output == "done"


async def test_values_are_shared_in_both_directions_but_history_is_not() -> None:
    @agent("T")
    async def inner(ctx: AgentContext) -> None:
        await ctx.say(f"found {ctx.values['x']}, read {len(ctx.messages())}")
        ctx.values.set("x", "changed")
        ctx.values.delete("y")

    @tool
    async def peek(ctx: RunContext) -> str:
        """Look."""
        return f"{ctx.values.get('x')} {ctx.values.get('y')}"

    model = ScriptedModel({"Desk": [call("t", request="q"), call("peek"), call("ask", question="?"), "end"]})
    runner = Runner(Agent("Desk", tools=[inner.as_tool(), peek, ask]), model=model)
    result = await runner.run("hi", values={"x": "mine", "y": "yours"})
    assert [text for _, text, _ in tool_results(result.events)] == ["found mine, read 1", "changed None"]
    result = await answered(runner, result)
    assert result.values == {"x": "changed"}
    await check_replay(runner, result)


# --- limits


async def test_reaching_the_limits_of_the_tool_ends_only_the_call() -> None:
    inner = LoopAgent("T", sub_agents=[Agent("Chat")])
    options = {"limits": Limits(model_calls=2), "run_limits": Limits(model_calls=10)}
    runner = runner_with_tool(inner, [call("t", request="x"), "enough"], {"Chat": ["1", "2", "3"]}, **options)
    result = await runner.run("hi")
    ((_, text, is_error),) = tool_results(result.events)
    assert (is_error, result.output) == (True, "enough")
    assert text.startswith(
        "[T] failed: LimitError: an agent called as a tool reached its limit of 2 model_calls at Desk"
    )


async def test_calls_count_against_the_limits_of_every_enclosing_call_and_of_the_run() -> None:
    # Also a call with limits inside a call with limits.
    innermost = Agent("C").as_tool(limits=Limits(model_calls=5))
    inner = Agent("B", tools=[innermost]).as_tool(limits=Limits(model_calls=2))
    steps = {"A": [call("b", request="x"), "a"], "B": [call("c", request="y"), "never"], "C": ["c1", "c2"]}
    result = await Runner(Agent("A", tools=[inner]), model=ScriptedModel(steps)).run("hi")
    assert [(agent_name, is_error) for agent_name, _, is_error in tool_results(result.events)] == [
        ("B", False),
        ("A", True),
    ]
    steps = {"A": [call("b", request="x"), "a"], "B": [call("c", request="y"), "b"], "C": ["c"]}
    runner = Runner(Agent("A", tools=[inner]), model=ScriptedModel(steps), limits=Limits(model_calls=3))
    with pytest.raises(LimitError, match="the run reached its limit of 3 model_calls"):
        await runner.run("hi")


@pytest.mark.parametrize("limits", [Limits(tokens=10), Limits(cost=0.5), Limits(transfers=0), Limits(seconds=60)])
async def test_every_kind_of_limit_applies_to_the_tool(limits: Limits) -> None:
    clock = FrozenLoopClock()

    @tool
    async def wait() -> str:
        """Wait, if there is a time limit."""
        if limits.seconds is not None:
            clock.advance(limits.seconds)
            await forever()
        return "waited"

    inner = Agent("T", tools=[wait], sub_agents=[Agent("U", description="u")], description="t")
    used = Usage(input_tokens=8, output_tokens=8, cost=1.0)
    steps = [say("", call("wait"), usage=used), transfer_to("U")]
    runner = runner_with_tool(inner, [call("t", request="x"), "end"], {"T": steps, "U": ["u"]}, limits=limits)
    result = await runner.run("hi")
    text = next(text for agent_name, text, is_error in tool_results(result.events) if agent_name == "Desk" and is_error)
    (exceeded,) = [name for name in ("tokens", "cost", "transfers", "seconds") if f" {name} at Desk" in text]
    assert getattr(limits, exceeded) is not None
    assert result.output == "end"


async def test_the_usage_of_a_call_counts_after_a_resume() -> None:
    steps = [call("helper", request="1"), call("helper", request="2"), call("ask", question="?"), "end"]
    for allowed in (6, 5):
        runner = Runner(
            Agent("Desk", tools=[Agent("Helper").as_tool(), ask]),
            model=ScriptedModel({"Desk": steps, "Helper": ["one", "two"]}),
            limits=Limits(model_calls=allowed),
        )
        result = await runner.run("hi")
        if allowed == 6:
            assert (await answered(runner, result)).output == "end"
        else:
            with pytest.raises(LimitError, match="5 model_calls"):
                await answered(runner, result)


async def test_the_usage_of_an_ignored_branch_counts_after_a_resume() -> None:
    bad = SequentialAgent("Bad", sub_agents=[Agent("Chat"), failing("f")])
    parallel = ParallelAgent("P", sub_agents=[bad, asker("a")], on_error="ignore")
    model = ScriptedModel({"Chat": ["used"], "Last": ["never"]})
    runner = Runner(
        SequentialAgent("S", sub_agents=[parallel, Agent("Last")]), model=model, limits=Limits(model_calls=1)
    )
    result = await runner.run("go")
    with pytest.raises(LimitError, match="1 model_calls"):
        await answered(runner, result)


# --- concurrent calls


def ask_for_request(request: ModelRequest) -> ToolCall:
    """Call `ask` with the text of the request."""
    return call("ask", question=text_of(request.messages[0].content))


def say_result(request: ModelRequest) -> str:
    """Say the result of the tool."""
    return f"got {text_of(request.messages[-1].content)}"


def fetch_expert(request: ModelRequest) -> ToolCall:
    """Call `fetch` with the text of the request."""
    return call("fetch", topic=text_of(request.messages[0].content))


async def test_concurrent_calls_of_one_agent_are_separate() -> None:
    chat = Agent("Chat", tools=[ask])
    model = ScriptedModel(
        {
            "Desk": [[call("chat", request="one"), call("chat", request="two")], "both"],
            "Chat": [ask_for_request] * 2 + [say_result] * 2,
        }
    )
    runner = Runner(Agent("Desk", tools=[chat.as_tool()]), model=model)
    result = await runner.run("hi")
    assert sorted(question.payload for question in result.interrupts) == ["one", "two"]
    assert len({question.id for question in result.interrupts}) == 2
    two = next(question for question in result.interrupts if question.payload == "two")
    result = await runner.resume(result.run_id, {two.id: "2"})
    assert [question.payload for question in result.interrupts] == ["one"]
    result = await runner.resume(result.run_id, "1")
    assert texts(result) == ["", "got 1", "got 2", "both"]
    await check_replay(runner, result)


async def test_concurrent_calls_do_not_mix_up_agents_that_functions_return() -> None:
    @tool
    async def fetch(topic: str) -> BaseAgent[Any, Any]:
        """Fetch an expert."""
        await asyncio.sleep(0)
        return speaker("Expert", f"expert in {topic}")

    model = ScriptedModel(
        {
            "Desk": [[call("chat", request="tea"), call("chat", request="wine")], "both"],
            "Chat": [fetch_expert] * 2,
        }
    )
    result = await Runner(Agent("Desk", tools=[Agent("Chat", tools=[fetch]).as_tool()]), model=model).run("hi")
    assert texts(result) == ["", "expert in tea", "expert in wine", "both"]


async def test_a_resumed_call_sees_values_written_by_concurrent_calls() -> None:
    @agent("T")
    async def inner(ctx: AgentContext) -> None:
        await ctx.interrupt("?")
        await ctx.say(f"x is {ctx.values.get('x')}")

    @tool
    async def write(ctx: RunContext) -> str:
        """Write."""
        ctx.values.set("x", 2)
        return "written"

    model = ScriptedModel({"Desk": [[call("t", request="x"), call("write")], "end"]})
    runner = Runner(Agent("Desk", tools=[inner.as_tool(), write]), model=model)
    result = await answered(runner, await runner.run("hi"))
    assert texts(result)[1:3] == ["x is 2", "written"]
    await check_replay(runner, result)


async def test_one_agent_can_be_a_step_a_tool_and_a_sub_agent() -> None:
    both = Agent("Both", description="b")
    boss = Agent("Boss", tools=[both.as_tool()], sub_agents=[both], description="c")
    model = ScriptedModel(
        {"Both": ["as step", "as tool", "as child"], "Boss": [call("both", request="x"), transfer_to("Both")]}
    )
    runner = Runner(SequentialAgent("S", sub_agents=[both, boss]), model=model)
    result = await runner.run("hi")
    assert paths(result.events) == ["S.Both", "S.Both.Boss", "S.Both.Boss.Both", "S.Both.Boss", "S.Both.Boss.Both"]
    assert [len(request.tools) for request in model.requests if request.agent == "Both"] == [0, 0, 1]
    await check_replay(runner, result)


# --- approval, wrappers


async def test_a_call_can_need_approval() -> None:
    runner = runner_with_tool(asker("T"), [call("t", request="x"), "end"], {}, needs_approval=True)
    result = await runner.run("hi")
    (question,) = result.interrupts
    assert question.payload == {"kind": "approval", "tool": "t", "arguments": {"request": "x"}}
    result = await runner.resume(result.run_id, Approval(True, arguments={"request": "y"}))
    result = await answered(runner, result)
    assert tool_results(result.events) == [("Desk", "T: yes to T?", False)]
    await check_replay(runner, result)


async def test_a_rejected_call_does_not_run_the_agent() -> None:
    asked: list[str] = []

    def needs_approval(ctx: RunContext, arguments: dict[str, Any]) -> bool:
        asked.append(arguments["request"])
        return True

    runner = runner_with_tool(
        speaker("T"), [call("t", request="x"), call("t", wrong=1), "end"], {}, needs_approval=needs_approval
    )
    result = await runner.run("hi")
    result = await runner.resume(result.run_id, {"approved": False, "reason": "not now"})
    assert [is_error for _, _, is_error in tool_results(result.events)] == [True, True]
    assert (asked, paths(result.events)) == (["x"], ["Desk", "Desk", "Desk"])


async def test_a_guarded_agent_can_be_a_tool() -> None:
    def no_secrets(ctx: RunContext, output: str) -> bool:
        return "secret" not in output

    model = {"T": ["a secret"]}
    runner = runner_with_tool(
        with_guardrails(Agent("T"), output_guardrails=[no_secrets]), [call("t", request="x"), "sorry"], model
    )
    result = await runner.run("hi")
    ((_, text, is_error),) = tool_results(result.events)
    assert is_error
    assert text.startswith("[T] failed: GuardrailTrippedError: guardrail `no_secrets` stopped the output of `T`")
    assert result.output == "sorry"


async def test_an_agent_with_then_transfer_can_be_a_tool() -> None:
    inner = then_transfer(Agent("T", handoffs=[speaker("Next")]), to="Next")
    runner = runner_with_tool(inner, [call("t", request="x"), "end"], {"T": ["first"]})
    result = await runner.run("hi")
    assert tool_results(result.events)[-1] == ("Desk", "Next", False)
    assert paths(result.events) == ["Desk", "Desk.T", "Desk.T", "Desk.T.Next", "Desk"]
    await check_replay(runner, result)


# --- nesting


async def test_interrupts_of_deeply_nested_agents_can_be_answered_in_any_order() -> None:
    # A parallel in a loop in a sequence in a tool, with transfers; the last interrupt is answered first.
    leaf = Agent("Leaf", description="l", tools=[ask])
    router = Agent("Router", description="r", sub_agents=[leaf])
    loop = LoopAgent("L", sub_agents=[ParallelAgent("P", sub_agents=[router, asker("a")])], max_iterations=2)
    pre = Agent("Pre", handoffs=[handoff(asker("b"), return_to="caller")])
    model = {
        "Pre": [call("transfer_to_b"), "pre"],
        "Router": [transfer_to("Leaf")] * 2,
        "Leaf": [call("ask", question="leaf?"), "leaf"] * 2,
    }
    runner = runner_with_tool(
        SequentialAgent("T", sub_agents=[pre, loop, speaker("z")]), [call("t", request="x"), "end"], model
    )
    result = await runner.run("hi")
    asked: list[str] = []
    while result.status == "suspended":
        question = result.interrupts[-1]
        asked.append(".".join(question.path))
        result = await runner.resume(result.run_id, {question.id: "yes"})
    assert asked == [
        "Desk.T.Pre.b",
        *("Desk.T.Pre.L.P.a", "Desk.T.Pre.L.P.Router.Leaf"),
        *("Desk.T.Pre.L.P.P.a", "Desk.T.Pre.L.P.P.Router.Leaf"),
    ]
    assert (result.output, result.interrupts, texts(result)) == ("end", (), ["", "z", "end"])
    keys = [event.key for event in result.events]
    assert len(keys) == len(set(keys))
    assert sum(isinstance(event, InterruptRaised) for event in result.events) == 5
    await check_replay(runner, result)


async def test_messages_of_nested_calls_are_not_in_the_callers_messages() -> None:
    inner = Agent("B", tools=[Agent("C").as_tool()])
    runner = runner_with_tool(inner, [call("b", request="x"), "a"], {"B": [call("c", request="y"), "b"], "C": ["c"]})
    result = await runner.run("hi")
    said = [message for message in result.messages if isinstance(message, AssistantMessage)]
    assert [(len(message.tool_calls), text_of(message.content)) for message in said] == [(1, ""), (0, "a")]
    assert transcript(result.events)[2:8] == [
        'Desk: called b({"request":"x"})',
        "B started",
        'B: called c({"request":"y"})',
        "C started",
        'C: said "c"',
        "C finished",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"events": "loud"}, "as_tool has no argument `events`; did you mean `stream_events`?"),
        (
            {"history": "all"},
            "history of T.as_tool() is 'all'; it can be: `rewritten`, `verbatim`, `lineage`, `answers`, `none`",
        ),
        ({"output_extractor": "text"}, "output_extractor of T.as_tool() is 'text'; give a function of AgentToolResult"),
        ({"limits": 3}, "limits of T.as_tool() is 3; give Limits(…)"),
        ({"needs_approval": "yes"}, "has needs_approval='yes'"),
    ],
)
def test_invalid_arguments_of_as_tool_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError) as caught:
        speaker("T").as_tool(**options)
    assert message in str(caught.value)


async def test_a_function_tool_cannot_call_an_agent_that_is_not_in_the_team() -> None:
    hidden = speaker("Hidden").as_tool()

    @tool
    async def call_hidden(ctx: RunContext) -> str:
        """Call an agent outside the team."""
        return str((await hidden.call(ctx, '{"request": "x"}')).content)

    runner = Runner(Agent("Desk", tools=[call_hidden]), model=ScriptedModel([call("call_hidden"), "end"]))
    with pytest.raises(
        SetupError, match=r"`Desk` runs FunctionAgent\('Hidden'\) inside it, but its inner_agents\(\) do not list it"
    ):
        await runner.run("hi")
