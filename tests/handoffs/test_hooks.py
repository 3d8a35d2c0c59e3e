"""Hooks around a handover: every point, in every manner, all at once, once; and what they do counts."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from inline_snapshot import snapshot

from baton import Agent, AgentContext, ModelError, RunContext, Runner, RunResult, Transfer, agent, handoff, tool
from baton.agents import AgentHooks, RunHooks
from baton.events import ToolReturned
from baton.messages import AssistantMessage, ToolCall
from baton.models import ModelRequest, ModelResponse
from baton.runner import Interrupt
from baton.testing import ScriptedModel, call, transfer_to
from baton.testing.transcripts import format_call, format_response

OF_RUN = [name for name in dir(RunHooks) if name.startswith("on_")]
OF_AGENT = [name for name in dir(AgentHooks) if name.startswith("on_")]


@tool
async def work() -> str:
    """Work."""
    return "worked"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def hooked(hooks: Any, names: Iterable[str], act: Callable[..., Any], *, is_async: bool = False) -> Any:
    """The hooks, with all of these doing the same, which is told its name and what it is given."""

    def hook(name: str) -> Any:
        async def later(*given: Any) -> None:
            done = act(name, *given)
            if done is not None:
                await done

        def at_once(*given: Any) -> None:
            act(name, *given)

        return later if is_async else at_once

    for name in names:
        setattr(hooks, name, hook(name))
    return hooks


def shown(given: Any) -> str:
    """What a hook is given, in a word."""
    match given:
        case Agent():
            return given.name
        case ModelRequest():
            return f"{len(given.messages)} messages"
        case ModelResponse():
            return format_response(given.message or AssistantMessage())
        case ToolCall():
            return format_call(given)
        case ToolReturned():
            return f"{given.tool_name} -> {given.content}"
        case Interrupt():
            return str(given.payload)
        case _:
            return str(given)


async def driven(runner: Runner[Any, Any], *, answer: Any = "yes") -> RunResult[Any]:
    """The run, taken up again with answers until it is completed."""
    live = runner.stream("hi")
    for _ in range(9):
        with suppress(ModelError, ZeroDivisionError):
            await live._drive()
        if live.result.status == "completed":
            return live.result
        live = runner.stream_resume(live.run_id, {question.id: answer for question in live.result.interrupts})
    raise AssertionError("it never ends")


# --- all points


@pytest.mark.parametrize("is_async", [True, False])
async def test_every_point_is_told_once_with_what_it_is_about(is_async: bool) -> None:
    # H12: the full set; sync or async; none again after a resume or in a replay.
    told: list[str] = []

    def note(name: str, ctx: RunContext[Any], *given: Any) -> None:
        told.append(" ".join([name, *map(shown, given), f"({ctx.agent})" if ctx.agent else ""]).strip())

    def own(whose: str) -> Any:
        def note_own(name: str, *given: Any) -> None:
            note(f"{whose}.{name}", *given)

        return hooked(AgentHooks(), OF_AGENT, note_own, is_async=is_async)

    model = ScriptedModel({"A": [call("work"), call("transfer_to_b")], "B": [call("ask", question="sure?"), "done"]})
    a = Agent("A", tools=[work], handoffs=[Agent("B", tools=[ask], hooks=own("b"))], hooks=own("a"))
    runner = Runner(a, model=model, hooks=hooked(RunHooks(), OF_RUN, note, is_async=is_async))
    result = await driven(runner)
    await runner.replay(result.events)
    assert [line for line in told if line.startswith("on_")] == snapshot(
        [
            "on_run_start A",
            "on_agent_start A (A)",
            "on_model_start A 1 messages (A)",
            "on_model_end A called work({}) (A)",
            "on_tool_start A work({}) (A)",
            "on_tool_end A work({}) work -> worked (A)",
            "on_model_start A 3 messages (A)",
            "on_model_end A called transfer_to_b({}) (A)",
            "on_handoff A B (A)",
            "on_agent_end A None (A)",
            "on_agent_start B (B)",
            "on_model_start B 5 messages (B)",
            'on_model_end B called ask({"question":"sure?"}) (B)',
            'on_tool_start B ask({"question":"sure?"}) (B)',
            "on_interrupt sure?",
            'on_tool_end B ask({"question":"sure?"}) ask -> yes (B)',
            "on_model_start B 7 messages (B)",
            'on_model_end B said "done" (B)',
            "on_agent_end B done (B)",
            "on_run_end B done",
        ]
    )
    assert [line for line in told if line.startswith("a.")] == snapshot(
        [
            "a.on_start A (A)",
            "a.on_model_start A 1 messages (A)",
            "a.on_model_end A called work({}) (A)",
            "a.on_tool_start A work({}) (A)",
            "a.on_tool_end A work({}) work -> worked (A)",
            "a.on_model_start A 3 messages (A)",
            "a.on_model_end A called transfer_to_b({}) (A)",
            "a.on_handoff B A (A)",
            "a.on_end A None (A)",
        ]
    )
    assert [line for line in told if line.startswith("b.")] == snapshot(
        [
            "b.on_handoff B A (A)",
            "b.on_start B (B)",
            "b.on_model_start B 5 messages (B)",
            'b.on_model_end B called ask({"question":"sure?"}) (B)',
            'b.on_tool_start B ask({"question":"sure?"}) (B)',
            'b.on_tool_end B ask({"question":"sure?"}) ask -> yes (B)',
            "b.on_model_start B 7 messages (B)",
            'b.on_model_end B said "done" (B)',
            "b.on_end B done (B)",
        ]
    )


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_the_hooks_of_the_run_and_of_the_agent_run_at_once(is_streamed: bool) -> None:
    # H12: none of them would end if they ran one after the other.
    meetings = {2: asyncio.Barrier(2), 3: asyncio.Barrier(3)}
    met: list[str] = []

    async def meet(name: str, *given: Any) -> None:
        met.append(name)
        await meetings[3 if name == "on_handoff" else 2].wait()

    own = hooked(AgentHooks(), OF_AGENT, meet, is_async=True)
    alone = ("on_run_start", "on_run_end", "on_interrupt")
    shared = hooked(RunHooks(), [name for name in OF_RUN if name not in alone], meet, is_async=True)
    model = ScriptedModel({"A": [call("work"), call("transfer_to_b")], "B": ["done"]})
    a = Agent("A", tools=[work], handoffs=[Agent("B", hooks=own)], hooks=own)
    runner = Runner(a, model=model, hooks=shared)
    async with asyncio.timeout(20):
        if is_streamed:
            async with runner.stream("hi") as live:
                _ = [event async for event in live]
        else:
            await runner.run("hi")
    assert {name: met.count(name) for name in sorted(set(met))} == {
        "on_agent_end": 2,
        "on_agent_start": 2,
        "on_end": 2,
        "on_handoff": 3,
        "on_model_end": 6,
        "on_model_start": 6,
        "on_start": 2,
        "on_tool_end": 2,
        "on_tool_start": 2,
    }


async def test_one_that_fails_takes_the_others_along() -> None:
    # H12: its own error ends the run, and nothing is left running.
    ended: list[str] = []
    begun = asyncio.Event()

    class OfRun(RunHooks):
        async def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            await begun.wait()
            raise PermissionError("not to B")

    class OfTarget(AgentHooks):
        async def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("target")

    model = ScriptedModel({"A": [call("transfer_to_b")]})
    runner = Runner(Agent("A", handoffs=[Agent("B", hooks=OfTarget())]), model=model, hooks=OfRun())
    live = runner.stream("hi")
    with pytest.raises(PermissionError, match="not to B"):
        await live._drive()
    assert (live.result.status, ended) == ("failed", ["target"])
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_sync_one_that_fails_leaves_no_async_one_unawaited() -> None:
    # H12
    class OfRun(RunHooks):
        async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None: ...

    class OfAgent(AgentHooks):
        def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
            raise ZeroDivisionError

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError):
            await Runner(Agent("A", model=ScriptedModel(["never"]), hooks=OfAgent()), hooks=OfRun()).run("hi")
        gc.collect()
    assert [str(each.message) for each in warned] == []


@pytest.mark.parametrize("name", [*OF_RUN, *(f"own {name}" for name in OF_AGENT)])
@pytest.mark.parametrize("is_async", [True, False])
async def test_one_that_fails_leaves_a_log_from_which_the_run_goes_on(name: str, is_async: bool) -> None:
    # H12, H13: the run ends with the hook's own error; resumed, it finishes and repeats nothing that was recorded.
    failures, done = list[str](), list[str]()

    def fail_once(name: str, *given: Any) -> None:
        if not failures:
            failures.append(name)
            raise ZeroDivisionError(name)

    def note(ctx: RunContext[Any]) -> None:
        done.append("on_handoff")

    @tool
    async def work() -> str:
        """Work."""
        done.append("work")
        return "worked"

    owner, _, point = name.rpartition(" ")
    hooks = hooked(AgentHooks() if owner else RunHooks(), [point], fail_once, is_async=is_async)
    model = ScriptedModel({"A": [[call("work"), call("transfer_to_b")]], "B": [call("ask", question="?"), "done"]})
    edge = handoff(Agent("B", tools=[ask]), on_handoff=note)
    a = Agent("A", tools=[work], handoffs=[edge], hooks=hooks if owner else None)
    runner = Runner(a, model=model, hooks=None if owner else hooks)
    # A question is asked before the hook that is told of it.
    live = runner.stream("hi")
    raised: list[BaseException] = []
    for _ in range(4):
        try:
            await live._drive()
        except ZeroDivisionError as error:
            raised.append(error)
            before = live.result.events
        if live.result.status == "completed":
            break
        live = runner.stream_resume(live.run_id, {question.id: "yes" for question in live.result.interrupts})
    result = live.result
    assert [str(error) for error in raised] == failures == [point]
    assert result.output == "done"
    assert result.events[: len(before)] == before  # pyright: ignore[reportPossiblyUnboundVariable]
    assert done == ["work", "on_handoff"]
    assert [request.agent for request in model.requests] == ["A", "B", "B"]


# --- handovers of every kind


async def test_hooks_are_told_of_handovers_through_every_door() -> None:
    # H12
    told: list[str] = []

    class OfRun(RunHooks):
        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            told.append(f"{from_agent.name} to {to_agent.name}")

    class OfTarget(AgentHooks):
        def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
            told.append(f"{agent.name} from {source.name}")

    last = Agent("Last", hooks=OfTarget())

    def to_last() -> Agent:
        """Go on."""
        return last

    child = Agent("Child", tools=[to_last])

    @agent("Code", handoffs=[handoff("Parent")])
    async def code(ctx: AgentContext) -> Transfer:
        return Transfer("Parent")

    root = Agent("Root", handoffs=[handoff(code, return_to="caller"), "Last"])
    parent = Agent("Parent", sub_agents=[child])
    model = ScriptedModel(
        {
            "Root": [call("transfer_to_code"), "thanks"],
            "Parent": [transfer_to("Child")],
            "Child": [call("to_last")],
            "Last": ["here you are"],
        }
    )
    result = await Runner(root, model=model, hooks=OfRun(), extra_agents=[parent]).run("hi")
    assert result.output == "thanks"
    assert told == [
        "Root to Code",
        "Code to Parent",
        "Parent to Child",
        "Child to Last",
        "Last from Child",
        "Last to Root",
        "Root from Last",
    ]


# --- what hooks do


async def test_a_hook_may_ask_a_person() -> None:
    # H12, DESIGN §6: the handover waits for the answer; later it is not asked again.
    answers: list[Any] = []

    class Careful(RunHooks):
        async def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            answers.append(await ctx.interrupt(f"to {to_agent.name}?"))

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    runner = Runner(Agent("A", handoffs=[Agent("B", tools=[ask])]), model=model, hooks=Careful())
    first = await runner.run("hi")
    assert ([question.payload for question in first.interrupts], first.agent) == (["to B?"], "A")
    second = await runner.resume(first.run_id, "go")
    assert ([question.payload for question in second.interrupts], second.agent) == (["?"], "B")
    assert (await runner.resume(first.run_id, "yes")).output == "done"
    assert answers == ["go"]


async def test_a_hook_at_the_start_may_ask_a_person() -> None:
    # H12, DESIGN §6
    answers: list[Any] = []

    class Careful(RunHooks):
        async def on_run_start(self, ctx: RunContext[Any], agent: Any) -> None:
            answers.append(await ctx.interrupt("may I begin?"))

    runner = Runner(Agent("A", model=ScriptedModel(["done"])), hooks=Careful())
    first = await runner.run("hi")
    assert [question.payload for question in first.interrupts] == ["may I begin?"]
    assert (await runner.resume(first.run_id, "go")).output == "done"
    assert answers == ["go"]


# What on_interrupt writes is not kept: the run has stopped when it is told.
@pytest.mark.parametrize("name", [name for name in OF_RUN if name != "on_interrupt"])
async def test_what_a_hook_writes_is_recorded(name: str) -> None:
    # H12, H17, D5: it is there after a resume, and in a replay.
    told: list[str] = []

    def write(name: str, ctx: RunContext[Any], *given: Any) -> None:
        told.append(" ".join([ctx.agent, *map(shown, given)]))
        ctx.values.set(told[-1], True)

    model = ScriptedModel(
        {
            "A": [ModelError("down"), call("ask", question="1"), ModelError("down"), call("transfer_to_b")],
            "B": [ModelError("down"), call("ask", question="2"), "done"],
        }
    )
    a = Agent("A", tools=[ask], handoffs=[Agent("B", tools=[ask])])
    runner = Runner(a, model=model, hooks=hooked(RunHooks(), [name], write))
    result = await driven(runner)
    assert told
    assert result.values == dict.fromkeys(told, True)
    assert (await runner.replay(result.events)).values == result.values


@pytest.mark.parametrize("name", ["on_agent_start", "on_model_start", "on_model_end", "on_handoff", "on_agent_end"])
async def test_what_a_hook_does_in_a_step_is_done_once(name: str) -> None:
    # H12, D5
    done: list[str] = []

    async def step(name: str, ctx: RunContext[Any], *given: Any) -> None:
        await ctx.step("count", lambda: done.append(name))

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    a = Agent("A", handoffs=[Agent("B", tools=[ask])])
    runner = Runner(a, model=model, hooks=hooked(RunHooks(), [name], step, is_async=True))
    result = await driven(runner)
    before = len(done)
    await runner.replay(result.events)
    assert len(done) == before > 0


async def test_a_step_of_a_hook_is_not_one_of_the_agent() -> None:
    # H12, D5: the hook is not told again, and the agent's steps are still its own.
    class Stepping(RunHooks):
        async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
            await ctx.step("note", lambda: "the hook's")

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        note = await ctx.step("note", lambda: "the agent's")
        await ctx.interrupt("well?")
        await ctx.say(note)

    runner = Runner(a, hooks=Stepping())
    suspended = await runner.run("hi")
    assert (await runner.resume(suspended.run_id, "yes")).output == "the agent's"


async def test_a_question_of_a_hook_is_not_one_of_the_agent() -> None:
    # H12, D1, D5
    class Asking(RunHooks):
        async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
            await ctx.interrupt("the hook's")

    answers: list[Any] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        answers.append(await ctx.interrupt("the agent's"))

    runner = Runner(a, hooks=Asking())
    result = await runner.run("hi")
    for payload in ("the hook's", "the agent's"):
        assert [question.payload for question in result.interrupts] == [payload]
        result = await runner.resume(result.run_id, f"answer to {payload}")
    assert answers == ["answer to the agent's"]


@pytest.mark.parametrize(
    "name",
    [
        *("on_run_start", "on_agent_start", "on_model_start", "on_handoff", "on_agent_end", "on_run_end"),
        *("on_tool_start", "on_tool_end", "on_model_end"),
    ],
)
async def test_nothing_goes_on_before_a_hooks_question_is_answered(name: str) -> None:
    # H12, D1, D4, DESIGN §6: at every point; a resume without an answer asks the same again.
    answers, ran = list[Any](), list[str]()

    async def careful(name: str, ctx: RunContext[Any], *given: Any) -> None:
        answers.append(await ctx.interrupt("may I?"))

    @tool
    async def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    model = ScriptedModel({"A": [[call("work"), call("transfer_to_b")]], "B": ["done"]})
    a = Agent("A", tools=[work], handoffs=[Agent("B")])
    runner = Runner(a, model=model, hooks=hooked(RunHooks(), [name], careful, is_async=True))
    first = await runner.run("hi")
    again = await runner.resume(first.run_id)
    assert [question.id for question in again.interrupts] == [question.id for question in first.interrupts]
    assert (again.status, answers) == ("suspended", [])
    result = again
    while result.status == "suspended":
        result = await runner.resume(first.run_id, {question.id: "yes" for question in result.interrupts})
    assert (result.output, ran, set(answers)) == ("done", ["work"], {"yes"})


async def test_a_hook_that_refuses_a_tool_refuses_it_also_after_a_resume() -> None:
    # H12, H13: what the hook recorded is not the hook's consent.
    ran: list[str] = []

    class Guard(RunHooks):
        async def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
            await ctx.step("audit", lambda: "noted")
            raise PermissionError("not allowed")

    @tool
    async def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    runner = Runner(Agent("A", model=ScriptedModel([call("work"), "done"]), tools=[work]), hooks=Guard())
    live = runner.stream("hi")
    with pytest.raises(PermissionError):
        await live._drive()
    with pytest.raises(PermissionError):
        await runner.resume(live.run_id)
    assert ran == []


async def test_the_hooks_of_one_point_have_questions_of_their_own() -> None:
    # H12, D1: whichever of them is quicker this time.
    answers: dict[str, Any] = {}
    tries: list[str] = []

    class OfRun(RunHooks):
        async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
            tries.append("tried")
            for _ in range(3 if len(tries) == 1 else 0):
                await asyncio.sleep(0)
            answers["run"] = await ctx.interrupt("the run's")

    class OfAgent(AgentHooks):
        async def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
            answers["agent"] = await ctx.interrupt("the agent's")

    runner = Runner(Agent("A", model=ScriptedModel(["done"]), hooks=OfAgent()), hooks=OfRun())
    result = await runner.run("hi")
    while result.status == "suspended":
        given = {question.id: f"answer to {question.payload}" for question in result.interrupts}
        result = await runner.resume(result.run_id, given)
    assert answers == {"run": "answer to the run's", "agent": "answer to the agent's"}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (RunHooks(), None),
        (None, RunHooks()),
        (RunHooks(), RunHooks()),
    ],
)
async def test_a_run_may_be_taken_up_with_other_hooks(first: Any, then: Any) -> None:
    # H12, D5: hooks listen; they are no part of the team, and a log is sound without them.
    a = Agent("A", handoffs=[Agent("B", tools=[ask])])
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    suspended = await Runner(a, model=model, hooks=first).run("hi")
    other = Runner(a, model=model, hooks=then)
    result = await other.resume(other.load_log(suspended.events), "yes")
    assert result.output == "done"
    assert (await other.replay(result.events)).output == "done"
