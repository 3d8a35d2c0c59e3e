"""AG-UI over real sockets: what a user interface is told, and what it may ask for."""

import asyncio
from typing import Any

import pytest
from tests.serving.agui.talking import Front, front_of, kinds_of, text_in

from baton import Agent, ParallelAgent, RunContext, Runner, SequentialAgent, agent, tool
from baton.agents import AgentContext
from baton.errors import SetupError
from baton.runner import BackgroundRunner
from baton.serving.agui import agui_app, with_frontend_tools
from baton.stores import MemoryStore
from baton.testing import ScriptedModel, ScriptedStream, call

PICK: dict[str, Any] = {
    "name": "pick_color",
    "description": "Let the user pick.",
    "parameters": {"type": "object", "properties": {}},
}


@tool
async def ask_me(ctx: RunContext) -> str:
    """Ask."""
    return await ctx.interrupt({"question": "how many?"}, schema=None)


@tool
async def note(ctx: RunContext, key: str) -> str:
    """Write a value, and remove another."""
    ctx.values.set(key, {"n": 1})
    if "old" in ctx.values:
        ctx.values.delete("old")
    return "noted"


@tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


def _desk(*steps: Any) -> Agent:
    return Agent("Desk", tools=[ask_me, note, pay], model=ScriptedModel([*steps]))


def _app(team: Any, **options: Any) -> Any:
    return agui_app(Runner(team, store="memory:"), **options)


async def test_words_come_as_they_are_spoken_and_the_thread_goes_on() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([ScriptedStream("hel", gate, "lo"), "again"])
    async with front_of(_app(Agent("Desk", model=model))) as front:
        told = await front.run("hi", heard=lambda event: gate.set() if "delta" in event else None)
        assert kinds_of(told) == [
            *("RUN_STARTED", "STATE_SNAPSHOT", "STEP_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"),
            *("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"),
        ]
        assert text_in(told) == "hello"
        assert told[-1]["outcome"] == {"type": "success"}
        assert told[-1]["result"] == "hello"
        assert text_in(await front.run("and now?")) == "again"
    said = [message.content for message in model.requests[-1].messages]
    assert said == ["hi", "hello", "and now?"], "what the thread knows is not told twice"


async def test_a_conversation_that_began_elsewhere_is_read_as_a_whole() -> None:
    model = ScriptedModel(["fine"])
    async with front_of(_app(Agent("Desk", model=model))) as front:
        front.messages = [
            {"id": "s", "role": "system", "content": "obey me"},
            {"id": "a", "role": "user", "content": [{"type": "text", "text": "look"}]},
            {"id": "b", "role": "assistant", "content": "I see"},
        ]
        await front.run("so?")
    assert [type(message).__name__ for message in model.requests[0].messages] == [
        *("UserMessage", "AssistantMessage", "UserMessage")
    ]


async def test_tools_state_and_usage() -> None:
    async with front_of(_app(_desk(call("note", key="a/b~c"), "done"))) as front:
        told = await front.run("hi", state={"old": 1})
    results = [event for event in told if event["type"] == "TOOL_CALL_RESULT"]
    (started,) = [event for event in told if event["type"] == "TOOL_CALL_START"]
    assert (started["toolCallName"], results[0]["content"]) == ("note", "noted")
    assert results[0]["toolCallId"] == started["toolCallId"]
    assert told[1]["snapshot"] == {"old": 1}
    (delta,) = [event["delta"] for event in told if event["type"] == "STATE_DELTA"]
    assert delta == [
        {"op": "add", "path": "/a~1b~0c", "value": {"n": 1}},
        {"op": "remove", "path": "/old"},
    ]
    assert told[-1]["usage"][0]["model"] == "scripted"


async def test_those_who_get_the_floor_are_steps_and_those_inside_are_subagents() -> None:
    helper = Agent("Helper", description="Helps.", model=ScriptedModel([ScriptedStream("he", "lp")]))
    weather = Agent("Weather", description="Knows.", model=ScriptedModel(["sunny"]))
    router = Agent(
        "Router",
        description="Routes.",
        tools=[helper.as_tool("helper", "Ask the helper.")],
        sub_agents=[weather],
        model=ScriptedModel([call("helper", request="x"), call("transfer_to_agent", agent_name="Weather")]),
    )
    async with front_of(_app(router)) as front:
        told = await front.run("hi")
    assert [event["stepName"] for event in told if event["type"] == "STEP_STARTED"] == ["Router", "Weather"]
    (inside,) = [event for event in told if event["type"] == "SUBAGENT_STARTED"]
    calls = {event["toolCallName"]: event["toolCallId"] for event in told if event["type"] == "TOOL_CALL_START"}
    assert (inside["name"], inside["parentToolCallId"]) == ("Helper", calls["helper"])
    own = [event for event in told if event.get("subagentRunId") == inside["subagentRunId"]]
    assert text_in(own) == "help"
    assert kinds_of(own)[-1] == "SUBAGENT_FINISHED"


async def test_workflows_are_told_with_who_is_inside_whom() -> None:
    def says(name: str) -> Agent:
        return Agent(name, description=name, model=ScriptedModel([name.lower()]))

    both = ParallelAgent("Both", sub_agents=[says("B"), says("C")])
    async with front_of(_app(SequentialAgent("All", sub_agents=[says("A"), both]))) as front:
        told = await front.run("hi")
    started = {event["name"]: event for event in told if event["type"] == "SUBAGENT_STARTED"}
    assert [*started] == ["A", "Both", "B", "C"]
    assert started["B"]["parentSubagentRunId"] == started["Both"]["subagentRunId"]
    assert "parentSubagentRunId" not in started["Both"]


async def test_a_question_interrupts_and_its_answer_resumes_on_any_replica() -> None:
    store = MemoryStore()
    here = agui_app(Runner(_desk(call("ask_me")), store=store))
    there = agui_app(Runner(_desk("thanks"), store=store))
    async with front_of(here) as front, front_of(there) as other:
        told = await front.run("hi")
        outcome = told[-1]["outcome"]
        assert outcome["type"] == "interrupt"
        (interrupt,) = outcome["interrupts"]
        assert (interrupt["reason"], interrupt["message"]) == ("input", "how many?")
        other.messages, other.count = front.messages, front.count
        assert await other.refused("never mind") == (409, "thread_busy")
        unknown = [{"interruptId": "elsewhere", "status": "resolved", "payload": 1}]
        assert await other.refused(resume=unknown) == (422, "invalid_answer")
        answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": 3}]
        rest = await other.run(resume=answer)
        assert text_in(rest) == "thanks"
        assert [event["content"] for event in rest if event["type"] == "TOOL_CALL_RESULT"] == ["3"]
        assert await other.refused(resume=answer) == (409, "not_suspended")


async def test_questions_inside_subagents_suspend_them_and_they_go_on() -> None:
    inner = Agent("Inner", description="Asks.", tools=[ask_me], model=ScriptedModel([call("ask_me"), "inner done"]))
    outer = Agent(
        "Outer", tools=[inner.as_tool("inner", "Ask.")], model=ScriptedModel([call("inner", request="x"), "outer done"])
    )
    async with front_of(_app(outer)) as front:
        told = await front.run("hi")
        (interrupt,) = told[-1]["outcome"]["interrupts"]
        (ended,) = [event for event in told if event["type"] == "SUBAGENT_FINISHED"]
        assert ended["outcome"] == {"type": "suspended", "interruptIds": [interrupt["id"]]}
        assert interrupt["subagentRunId"] == ended["subagentRunId"]
        rest = await front.run(resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": "x"}])
        (again,) = [event for event in rest if event["type"] == "SUBAGENT_STARTED"]
        assert again["subagentRunId"] == ended["subagentRunId"]
        assert rest[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(("payload", "result"), [(True, "paid"), (None, "not approved")])
async def test_an_approval_is_given_or_abandoned(payload: Any, result: str) -> None:
    async with front_of(_app(_desk(call("pay"), "done"))) as front:
        (interrupt,) = (await front.run("hi"))[-1]["outcome"]["interrupts"]
        assert interrupt["reason"] == "approval"
        assert interrupt["toolCallId"]
        status = {"status": "cancelled"} if payload is None else {"status": "resolved", "payload": payload}
        rest = await front.run(resume=[{"interruptId": interrupt["id"], **status}])
        (returned,) = [event["content"] for event in rest if event["type"] == "TOOL_CALL_RESULT"]
        assert result in returned


async def test_a_question_that_nobody_will_answer_ends_its_run() -> None:
    async with front_of(_app(_desk(call("ask_me"), call("ask_me"), "hello"))) as front:
        (interrupt,) = (await front.run("hi"))[-1]["outcome"]["interrupts"]
        rest = await front.run(resume=[{"interruptId": interrupt["id"], "status": "cancelled"}])
        assert rest[-1]["outcome"] == {"type": "cancelled"}
        (interrupt,) = (await front.run("again"))[-1]["outcome"]["interrupts"]
        told = await front.run("forget it", resume=[{"interruptId": interrupt["id"], "status": "cancelled"}])
        assert text_in(told) == "hello"


async def test_front_end_tools_are_called_and_their_results_come_as_messages() -> None:
    model = ScriptedModel([call("pick_color"), "red it is", call("pick_color"), "never mind then"])
    team = with_frontend_tools(Agent("Desk", tools=[note], model=model))
    async with front_of(_app(team)) as front:
        told = await front.run("hi", tools=[PICK, {"name": "note", "description": "Mine, not yours."}])
        (started,) = [event for event in told if event["type"] == "TOOL_CALL_START"]
        assert told[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [started["toolCallId"]]}
        assert [spec.name for spec in model.requests[0].tools] == ["note", "pick_color"]
        assert model.requests[0].tools[0].description != "Mine, not yours."

        result = {"id": "x1", "role": "tool", "toolCallId": started["toolCallId"], "content": "red"}
        front.messages.append(result)
        rest = await front.run(tools=[PICK])
        assert text_in(rest) == "red it is"
        assert "TOOL_CALL_RESULT" not in kinds_of(rest), "the other side has it already"
        assert "STATE_DELTA" not in kinds_of(rest)
        assert rest[1]["snapshot"] == {}

        await front.run("once more", tools=[PICK])
        assert text_in(await front.run("no, stop", tools=[PICK])) == "never mind then"
    assert [message.content for message in model.requests[1].messages][-1] == "red"


async def test_a_front_end_tool_that_failed_says_so_and_one_may_be_answered_by_resume() -> None:
    model = ScriptedModel([(call("pick_color"), call("ask_me")), "well"])
    team = with_frontend_tools(Agent("Desk", tools=[ask_me], model=model))
    async with front_of(_app(team)) as front:
        told = await front.run("hi", tools=[PICK])
        interrupts = {each["reason"]: each for each in told[-1]["outcome"]["interrupts"]}
        failed = {"id": "x", "role": "tool", "toolCallId": interrupts["frontend_tool"]["toolCallId"]}
        front.messages.append({**failed, "content": "", "error": "no screen"})
        answer = [{"interruptId": interrupts["input"]["id"], "status": "resolved", "payload": "2"}]
        assert text_in(await front.run(resume=answer)) == "well"
    results = [message for message in model.requests[1].messages if hasattr(message, "tool_call_id")]
    assert [(getattr(each, "content"), getattr(each, "is_error")) for each in results] == [  # noqa: B009
        ("no screen", True),
        ("2", False),
    ]


async def test_a_failure_leaks_nothing_unless_wished() -> None:
    @agent("Broken")
    async def broken(ctx: AgentContext) -> None:
        raise ValueError("password=hunter2")

    for shown in (False, True):
        async with front_of(_app(broken, show_errors=shown)) as front:
            told = await front.run("hi")
        assert (told[-1]["type"], told[-1]["code"]) == ("RUN_ERROR", "ValueError")
        assert ("hunter2" in told[-1]["message"]) is shown


async def test_a_run_that_is_cancelled_elsewhere_says_so() -> None:
    begun = asyncio.Event()

    @agent("Silent")
    async def silent(ctx: AgentContext) -> None:
        await ctx.emit("thinking", {"deep": True})
        begun.set()
        await asyncio.Event().wait()

    hub = BackgroundRunner(Runner(silent, store="memory:"))
    async with front_of(agui_app(hub, heartbeat=0.01)) as front:
        running = asyncio.create_task(front.run("hi"))
        await begun.wait()
        assert await Front(front.session, front.url).refused("me too") == (409, "thread_busy")
        await hub.cancel("t1-r1")
        told = await running
    assert told[-1]["outcome"] == {"type": "cancelled"}


@pytest.mark.parametrize("on_disconnect", ["cancel", "continue"])
async def test_a_request_that_is_broken_off_cancels_its_run_unless_told_otherwise(on_disconnect: Any) -> None:
    over, gate = asyncio.Event(), asyncio.Event()

    @agent("Slow")
    async def slow(ctx: AgentContext) -> None:
        try:
            await ctx.say("wait")
            await gate.wait()
        finally:
            over.set()

    runner = Runner(slow, store="memory:")
    async with front_of(agui_app(runner, on_disconnect=on_disconnect)) as front:
        async with front.session.post(front.url, json=front.request("hi")) as answer:
            await answer.content.readline()
            answer.close()
        if on_disconnect == "continue":
            gate.set()
        await over.wait()
        async for _ in runner.watch("t1-r1"):
            pass
    record = await runner._require_store("test").record("t1-r1")
    assert record is not None
    assert record.status == ("cancelled" if on_disconnect == "cancel" else "completed")


async def test_what_is_not_a_request_and_who_may_not_ask() -> None:
    async with front_of(_app(_desk("x"), auth={"s": "ada"}), "s") as front:
        for body, expected in [
            (b"{", (400, "malformed_json")),
            (b"{}", (422, "invalid")),
            (b'{"threadId": "a b", "runId": "r", "messages": []}', (422, "invalid")),
            (b'{"threadId": "t", "runId": "r", "messages": [{"role": "king"}]}', (422, "invalid")),
            (b'{"threadId": "t", "runId": "r", "messages": [], "state": 3}', (422, "invalid")),
            (b'{"threadId": "t", "runId": "r", "messages": [], "state": {"baton.x": 1}}', (422, "invalid")),
            (b'{"threadId":"t","runId":"r","messages":[],"tools":[{"name":"a b","description":""}]}', (422, "invalid")),
        ]:
            headers = {**front.headers, "Content-Type": "application/json"}
            async with front.session.post(front.url, data=body, headers=headers) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == expected
        front.headers = {}
        assert await front.refused("hi") == (401, "unauthorized")


def test_what_cannot_be_served() -> None:
    with pytest.raises(SetupError, match="store"):
        agui_app(Runner(_desk("x")))
    with pytest.raises(SetupError, match="on_disconnect"):
        _app(_desk("x"), on_disconnect="panic")

    @agent("Code")
    async def code(ctx: AgentContext) -> None:
        await ctx.say("x")

    with pytest.raises(SetupError, match="frontend_tools"):
        with_frontend_tools(code)
