"""Hooks in runs with handoffs: each is called once, and its interrupts, steps and values are recorded."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from inline_snapshot import snapshot

from batonkit import Agent, AgentContext, ModelError, RunContext, Runner, RunResult, Transfer, agent, handoff, tool
from batonkit.agents import AgentHooks, RunHooks
from batonkit.log import ToolReturned
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.models import ModelRequest, ModelResponse
from batonkit.runs import Interrupt
from batonkit.testing import ScriptedModel, call, transfer_to
from batonkit.testing.transcripts import format_call, format_response

# tests/agents/test_compaction.py tests `on_compaction_failed`, which needs a long history.
RUN_HOOKS = [name for name in dir(RunHooks) if name.startswith("on_") and name != "on_compaction_failed"]
AGENT_HOOKS = [name for name in dir(AgentHooks) if name.startswith("on_") and name != "on_compaction_failed"]


@tool
async def work() -> str:
    """Work."""
    return "worked"


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def set_hooks(hooks: Any, names: Iterable[str], act: Callable[..., Any], *, is_async: bool = False) -> Any:
    """Set all of these hooks to a function that receives the hook's name and arguments."""

    def hook(name: str) -> Any:
        async def async_hook(*arguments: Any) -> None:
            awaitable = act(name, *arguments)
            if awaitable is not None:
                await awaitable

        def sync_hook(*arguments: Any) -> None:
            act(name, *arguments)

        return async_hook if is_async else sync_hook

    for name in names:
        setattr(hooks, name, hook(name))
    return hooks


def format_argument(argument: Any) -> str:
    """Format an argument of a hook."""
    match argument:
        case Agent():
            return argument.name
        case ModelRequest():
            return f"{len(argument.messages)} messages"
        case ModelResponse():
            return format_response(argument.message or AssistantMessage())
        case ToolCall():
            return format_call(argument)
        case ToolReturned():
            return f"{argument.tool_name} -> {argument.content}"
        case Interrupt():
            return str(argument.payload)
        case _:
            return str(argument)


async def run_to_completion(runner: Runner[Any, Any], *, answer: Any = "yes") -> RunResult[Any]:
    """Run a team and resume it with answers until it is completed."""
    live = runner.stream("hi")
    for _ in range(9):
        with suppress(ModelError, ZeroDivisionError):
            await live._drive()
        if live.result.status == "completed":
            return live.result
        live = runner.stream_resume(live.run_id, {question.id: answer for question in live.result.interrupts})
    raise AssertionError("the run does not complete")


# --- all hooks


@pytest.mark.parametrize("is_async", [True, False])
async def test_every_hook_is_called_once_with_its_arguments(is_async: bool) -> None:
    # All hooks, sync or async; they are not called again after a resume or in a replay.
    recorded: list[str] = []

    def record(name: str, ctx: RunContext[Any], *arguments: Any) -> None:
        recorded.append(
            " ".join([name, *map(format_argument, arguments), f"({ctx.agent})" if ctx.agent else ""]).strip()
        )

    def agent_hooks(prefix: str) -> Any:
        def record_with_prefix(name: str, *arguments: Any) -> None:
            record(f"{prefix}.{name}", *arguments)

        return set_hooks(AgentHooks(), AGENT_HOOKS, record_with_prefix, is_async=is_async)

    model = ScriptedModel({"A": [call("work"), call("transfer_to_b")], "B": [call("ask", question="sure?"), "done"]})
    a = Agent("A", tools=[work], handoffs=[Agent("B", tools=[ask], hooks=agent_hooks("b"))], hooks=agent_hooks("a"))
    runner = Runner(a, model=model, hooks=set_hooks(RunHooks(), RUN_HOOKS, record, is_async=is_async))
    result = await run_to_completion(runner)
    await runner.runs.replay(result.events)
    assert [line for line in recorded if line.startswith("on_")] == snapshot(
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
    assert [line for line in recorded if line.startswith("a.")] == snapshot(
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
    assert [line for line in recorded if line.startswith("b.")] == snapshot(
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
async def test_hooks_of_the_run_and_of_the_agent_run_concurrently(is_streamed: bool) -> None:
    # The barriers open only if the hooks run at the same time.
    barriers = {2: asyncio.Barrier(2), 3: asyncio.Barrier(3)}
    called: list[str] = []

    async def wait_at_barrier(name: str, *arguments: Any) -> None:
        called.append(name)
        await barriers[3 if name == "on_handoff" else 2].wait()

    agent_hooks = set_hooks(AgentHooks(), AGENT_HOOKS, wait_at_barrier, is_async=True)
    alone = ("on_run_start", "on_run_end", "on_interrupt")
    run_hooks = set_hooks(RunHooks(), [name for name in RUN_HOOKS if name not in alone], wait_at_barrier, is_async=True)
    model = ScriptedModel({"A": [call("work"), call("transfer_to_b")], "B": ["done"]})
    a = Agent("A", tools=[work], handoffs=[Agent("B", hooks=agent_hooks)], hooks=agent_hooks)
    runner = Runner(a, model=model, hooks=run_hooks)
    async with asyncio.timeout(60):
        if is_streamed:
            async with runner.stream("hi") as live:
                _ = [event async for event in live]
        else:
            await runner.run("hi")
    assert {name: called.count(name) for name in sorted(set(called))} == {
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


async def test_a_hook_that_fails_cancels_the_others() -> None:
    # The run fails with the hook's error, and no task is left.
    ended: list[str] = []
    is_waiting = asyncio.Event()

    class OwnRunHooks(RunHooks):
        async def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            await is_waiting.wait()
            raise PermissionError("not to B")

    class TargetHooks(AgentHooks):
        async def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
            is_waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("target")

    model = ScriptedModel({"A": [call("transfer_to_b")]})
    runner = Runner(Agent("A", handoffs=[Agent("B", hooks=TargetHooks())]), model=model, hooks=OwnRunHooks())
    live = runner.stream("hi")
    with pytest.raises(PermissionError, match="not to B"):
        await live._drive()
    assert (live.result.status, ended) == ("failed", ["target"])
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_no_async_hook_is_left_unawaited_if_a_sync_hook_fails() -> None:
    class OwnRunHooks(RunHooks):
        async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None: ...

    class OwnAgentHooks(AgentHooks):
        def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
            raise ZeroDivisionError

    gc.collect()  # What other tests have left.
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError):
            await Runner(Agent("A", model=ScriptedModel(["never"]), hooks=OwnAgentHooks()), hooks=OwnRunHooks()).run(
                "hi"
            )
        gc.collect()
    assert [str(each.message) for each in warned] == []


@pytest.mark.parametrize("name", [*RUN_HOOKS, *(f"own {name}" for name in AGENT_HOOKS)])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_run_whose_hook_fails_can_be_resumed(name: str, is_async: bool) -> None:
    # The run fails with the hook's error; resumed, it completes and repeats no recorded step.
    failures, done = list[str](), list[str]()

    def fail_once(name: str, *arguments: Any) -> None:
        if not failures:
            failures.append(name)
            raise ZeroDivisionError(name)

    def record(ctx: RunContext[Any]) -> None:
        done.append("on_handoff")

    @tool
    async def work() -> str:
        """Work."""
        done.append("work")
        return "worked"

    owner, _, hook_name = name.rpartition(" ")
    hooks = set_hooks(AgentHooks() if owner else RunHooks(), [hook_name], fail_once, is_async=is_async)
    model = ScriptedModel({"A": [[call("work"), call("transfer_to_b")]], "B": [call("ask", question="?"), "done"]})
    edge = handoff(Agent("B", tools=[ask]), on_handoff=record)
    a = Agent("A", tools=[work], handoffs=[edge], hooks=hooks if owner else None)
    runner = Runner(a, model=model, hooks=None if owner else hooks)
    # The interrupt is recorded before `on_interrupt` is called.
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
    assert [str(error) for error in raised] == failures == [hook_name]
    assert result.output == "done"
    assert result.events[: len(before)] == before  # pyright: ignore[reportPossiblyUnboundVariable]
    assert done == ["work", "on_handoff"]
    assert [request.agent for request in model.requests] == ["A", "B", "B"]


# --- all kinds of transfers


async def test_handoff_hooks_are_called_for_all_kinds_of_transfers() -> None:
    recorded: list[str] = []

    class OwnRunHooks(RunHooks):
        def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            recorded.append(f"{from_agent.name} to {to_agent.name}")

    class TargetHooks(AgentHooks):
        def on_handoff(self, ctx: RunContext[Any], agent: Any, source: Any) -> None:
            recorded.append(f"{agent.name} from {source.name}")

    last = Agent("Last", hooks=TargetHooks())

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
    result = await Runner(root, model=model, hooks=OwnRunHooks(), extra_agents=[parent]).run("hi")
    assert result.output == "thanks"
    assert recorded == [
        "Root to Code",
        "Code to Parent",
        "Parent to Child",
        "Child to Last",
        "Last from Child",
        "Last to Root",
        "Root from Last",
    ]


# --- interrupts, steps and values of hooks


async def test_a_hook_can_interrupt() -> None:
    # B waits for the answer; the hook is not called again later.
    answers: list[Any] = []

    class AskingHooks(RunHooks):
        async def on_handoff(self, ctx: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
            answers.append(await ctx.interrupt(f"to {to_agent.name}?"))

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    runner = Runner(Agent("A", handoffs=[Agent("B", tools=[ask])]), model=model, hooks=AskingHooks())
    first = await runner.run("hi")
    # The transfer is recorded, so B holds control; it starts once the hook has its answer.
    assert ([question.payload for question in first.interrupts], first.agent) == (["to B?"], "B")
    second = await runner.resume(first.run_id, "go")
    assert ([question.payload for question in second.interrupts], second.agent) == (["?"], "B")
    assert (await runner.resume(first.run_id, "yes")).output == "done"
    assert answers == ["go"]


async def test_on_run_start_can_interrupt() -> None:
    answers: list[Any] = []

    class AskingHooks(RunHooks):
        async def on_run_start(self, ctx: RunContext[Any], agent: Any) -> None:
            answers.append(await ctx.interrupt("may I begin?"))

    runner = Runner(Agent("A", model=ScriptedModel(["done"])), hooks=AskingHooks())
    first = await runner.run("hi")
    assert [question.payload for question in first.interrupts] == ["may I begin?"]
    assert (await runner.resume(first.run_id, "go")).output == "done"
    assert answers == ["go"]


# Values set by on_interrupt are not kept: the run has stopped when it is called.
@pytest.mark.parametrize("name", [name for name in RUN_HOOKS if name != "on_interrupt"])
async def test_values_set_by_a_hook_are_recorded(name: str) -> None:
    # They are there after a resume and in a replay.
    recorded: list[str] = []

    def set_value(name: str, ctx: RunContext[Any], *arguments: Any) -> None:
        recorded.append(" ".join([ctx.agent, *map(format_argument, arguments)]))
        ctx.values.set(recorded[-1], True)

    model = ScriptedModel(
        {
            "A": [ModelError("down"), call("ask", question="1"), ModelError("down"), call("transfer_to_b")],
            "B": [ModelError("down"), call("ask", question="2"), "done"],
        }
    )
    a = Agent("A", tools=[ask], handoffs=[Agent("B", tools=[ask])])
    runner = Runner(a, model=model, hooks=set_hooks(RunHooks(), [name], set_value))
    result = await run_to_completion(runner)
    assert recorded
    assert result.values == dict.fromkeys(recorded, True)
    assert (await runner.runs.replay(result.events)).values == result.values


@pytest.mark.parametrize("name", ["on_agent_start", "on_model_start", "on_model_end", "on_handoff", "on_agent_end"])
async def test_a_step_in_a_hook_runs_once(name: str) -> None:
    done: list[str] = []

    async def step(name: str, ctx: RunContext[Any], *arguments: Any) -> None:
        await ctx.step("count", lambda: done.append(name))

    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    a = Agent("A", handoffs=[Agent("B", tools=[ask])])
    runner = Runner(a, model=model, hooks=set_hooks(RunHooks(), [name], step, is_async=True))
    result = await run_to_completion(runner)
    before = len(done)
    await runner.runs.replay(result.events)
    assert len(done) == before > 0


async def test_steps_of_a_hook_and_of_the_agent_are_separate() -> None:
    # A step of a hook has another key than a step of the agent.
    class SteppingHooks(RunHooks):
        async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
            await ctx.step("note", lambda: "the hook's")

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        note = await ctx.step("note", lambda: "the agent's")
        await ctx.interrupt("well?")
        await ctx.say(note)

    runner = Runner(a, hooks=SteppingHooks())
    suspended = await runner.run("hi")
    assert (await runner.resume(suspended.run_id, "yes")).output == "the agent's"


async def test_interrupts_of_a_hook_and_of_the_agent_are_separate() -> None:
    class AskingHooks(RunHooks):
        async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
            await ctx.interrupt("the hook's")

    answers: list[Any] = []

    @agent("A")
    async def a(ctx: AgentContext) -> None:
        answers.append(await ctx.interrupt("the agent's"))

    runner = Runner(a, hooks=AskingHooks())
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
async def test_a_run_does_not_continue_before_the_interrupt_of_a_hook_is_answered(name: str) -> None:
    # A resume without an answer raises the same interrupt.
    answers, ran = list[Any](), list[str]()

    async def ask_person(name: str, ctx: RunContext[Any], *arguments: Any) -> None:
        answers.append(await ctx.interrupt("may I?"))

    @tool
    async def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    model = ScriptedModel({"A": [[call("work"), call("transfer_to_b")]], "B": ["done"]})
    a = Agent("A", tools=[work], handoffs=[Agent("B")])
    runner = Runner(a, model=model, hooks=set_hooks(RunHooks(), [name], ask_person, is_async=True))
    first = await runner.run("hi")
    unanswered = await runner.resume(first.run_id)
    assert [question.id for question in unanswered.interrupts] == [question.id for question in first.interrupts]
    assert (unanswered.status, answers) == ("suspended", [])
    result = unanswered
    while result.status == "suspended":
        result = await runner.resume(first.run_id, {question.id: "yes" for question in result.interrupts})
    assert (result.output, ran, set(answers)) == ("done", ["work"], {"yes"})


async def test_a_hook_that_raises_before_a_tool_raises_again_after_a_resume() -> None:
    # The recorded step of the hook does not stand for its result.
    ran: list[str] = []

    class RefusingHooks(RunHooks):
        async def on_tool_start(self, ctx: RunContext[Any], agent: Any, call: ToolCall) -> None:
            await ctx.step("audit", lambda: "noted")
            raise PermissionError("not allowed")

    @tool
    async def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    runner = Runner(Agent("A", model=ScriptedModel([call("work"), "done"]), tools=[work]), hooks=RefusingHooks())
    live = runner.stream("hi")
    with pytest.raises(PermissionError):
        await live._drive()
    with pytest.raises(PermissionError):
        await runner.resume(live.run_id)
    assert ran == []


async def test_hooks_of_the_same_event_have_separate_interrupts() -> None:
    # Also if their order changes.
    answers: dict[str, Any] = {}
    attempts: list[str] = []

    class OwnRunHooks(RunHooks):
        async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
            attempts.append("tried")
            for _ in range(3 if len(attempts) == 1 else 0):
                await asyncio.sleep(0)
            answers["run"] = await ctx.interrupt("the run's")

    class OwnAgentHooks(AgentHooks):
        async def on_start(self, ctx: RunContext[Any], agent: Any) -> None:
            answers["agent"] = await ctx.interrupt("the agent's")

    runner = Runner(Agent("A", model=ScriptedModel(["done"]), hooks=OwnAgentHooks()), hooks=OwnRunHooks())
    result = await runner.run("hi")
    while result.status == "suspended":
        responses = {question.id: f"answer to {question.payload}" for question in result.interrupts}
        result = await runner.resume(result.run_id, responses)
    assert answers == {"run": "answer to the run's", "agent": "answer to the agent's"}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (RunHooks(), None),
        (None, RunHooks()),
        (RunHooks(), RunHooks()),
    ],
)
async def test_a_run_can_be_resumed_with_other_hooks(first: Any, then: Any) -> None:
    # Hooks are not part of the team, and a log is valid without them.
    a = Agent("A", handoffs=[Agent("B", tools=[ask])])
    model = ScriptedModel({"A": [call("transfer_to_b")], "B": [call("ask", question="?"), "done"]})
    suspended = await Runner(a, model=model, hooks=first).run("hi")
    other = Runner(a, model=model, hooks=then)
    result = await other.resume(await other.runs.load(suspended.events), "yes")
    assert result.output == "done"
    assert (await other.runs.replay(result.events)).output == "done"
