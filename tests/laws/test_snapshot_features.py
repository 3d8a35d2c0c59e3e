"""Features beside which a run continues from a snapshot as it does from its beginning (performance B3)."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import pytest
from tests.laws.snapshots import EverySnapshot, SnapshotStore, check_same, describe, take_often

from baton import (
    Agent,
    AgentHooks,
    AgentOptions,
    Approval,
    BatonError,
    GuardrailVerdict,
    HandoffInputData,
    Limits,
    ModelSettings,
    RunContext,
    RunHooks,
    Runner,
    RunResult,
    RunStream,
    handoff,
    tool,
)
from baton.agents import Compaction, StopAt
from baton.events import Event
from baton.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from baton.middleware import Middleware, model_middleware, tool_middleware
from baton.models import ModelPrice, ModelRequest, ModelResponse, PriceTable
from baton.runner import EventHandler
from baton.runner.result import Interrupt
from baton.runner.summaries import read_summaries
from baton.stores import Store
from baton.testing import ScriptedModel, ScriptStep, call, say

DOWN = RuntimeError("the provider is down")


@dataclass
class Case:
    """A team, and what its models and users say."""

    agent: Agent[Any, Any]
    script: Mapping[str, Sequence[ScriptStep]]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """The options of the runner."""
    run: dict[str, Any] = field(default_factory=dict[str, Any])
    """The arguments of the run."""
    again: dict[str, Any] = field(default_factory=dict[str, Any])
    """The arguments with which it is resumed after it has failed once."""
    answer: Callable[[Interrupt], Any] = lambda _: True


class Effects(list[Any]):
    """The effects of a process outside, and the run that it drives."""

    live: RunStream[Any]
    runner: Runner[Any, Any]


CASES: dict[str, Callable[[Effects], Case]] = {}


def case(make: Callable[[Effects], Case]) -> Callable[[Effects], Case]:
    """Add a case to those that are compared."""
    CASES[make.__name__] = make
    return make


class Process:
    """One process that runs a case."""

    def __init__(self, make: Callable[[Effects], Case], store: Store, past: Sequence[Event] = ()) -> None:
        self.store = store
        self.effects = Effects()
        self.case = make(self.effects)
        self.model = ScriptedModel(self.case.script)
        self.model.fast_forward(past)
        options: dict[str, Any] = {"prices": False, **self.case.options}
        self.runner = take_often(Runner(self.case.agent, model=self.model, store=store, **options))
        self.effects.runner = self.runner

    async def run_to_end(self, *, is_stored: bool) -> RunResult[Any]:
        """Run the case to its end, with answers to all questions."""
        given = {name: value for name, value in self.case.run.items() if not is_stored or name == "agent_options"}
        live: RunStream[Any] = (
            self.runner.stream_resume("r", **given) if is_stored else self.runner.stream("Go.", run_id="r", **given)
        )
        is_again = False
        while True:
            self.effects.live = live
            with suppress(BatonError):
                await live._drive()
            if live.result.status == "suspended":
                answers = {asked.id: self.case.answer(asked) for asked in live.result.interrupts if not asked.deadline}
                values = {"answered": len(self.effects)} if answers else None
                live = self.runner.stream_resume("r", answers or None, values=values)
            elif live.result.status == "cancelled":
                live = self.runner.stream_resume("r")
            elif live.result.status == "failed" and self.case.again and not is_again:
                is_again, live = True, self.runner.stream_resume("r", **self.case.again)
            else:
                return live.result

    async def describe(self, result: RunResult[Any]) -> dict[str, object]:
        """Return everything that the process has done, and what the run has become."""
        seen = [
            (each.agent, [*each.messages], each.instructions, each.tools, each.tool_choice, each.settings)
            for each in self.model.requests
        ]
        summary = await read_summaries(self.store, ["r"])
        return await describe(result, self.runner) | {"seen": seen, "effects": self.effects, "summary": summary}


def _note(effects: Effects) -> Any:
    @tool(in_thread=False)
    def note(ctx: RunContext[Any], text: str) -> str:
        """Note something."""
        effects.append(text)
        ctx.values.set("notes", [*ctx.values.get("notes", ()), text])
        return f"noted {text}; {ctx.usage.model_calls} calls, {ctx.usage.total_tokens} tokens"

    return note


def notes(*texts: str, id: str = "") -> list[ScriptStep]:
    """Return steps that each note a text."""
    return [AssistantMessage("", (ToolCall(id, "note", f'{{"text":"{text}"}}'),)) for text in texts]


class _Counting:
    """Counts the calls of each hook in the values of the run."""

    def __init__(self, effects: Effects, who: str) -> None:
        self._effects, self._who = effects, who

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)
        key = f"{self._who}.{name}"

        def hook(ctx: RunContext[Any], *arguments: Any) -> None:
            self._effects.append(key)
            for each in (key, "calls"):
                ctx.values.set(each, ctx.values.get(each, 0) + 1)

        return hook


class CountingRunHooks(_Counting, RunHooks[Any]): ...


class CountingAgentHooks(_Counting, AgentHooks[Any]): ...


@case
def hooks(effects: Effects) -> Case:
    note = _note(effects)
    b = Agent("B", tools=[note], hooks=CountingAgentHooks(effects, "B"))
    a = Agent("A", tools=[note], handoffs=[b], hooks=CountingAgentHooks(effects, "A"))
    script = {"A": [*notes("1", "2"), call("transfer_to_b")], "B": [*notes("3", "4"), "Done."]}
    return Case(a, script, {"hooks": CountingRunHooks(effects, "run")})


class Reading:
    """An observer that reads the past events of a run at once."""

    @contextmanager
    def observe(self, run_id: str, past: Sequence[Event]) -> Generator[EventHandler]:
        assert [*past] == [*past[:]]
        yield lambda event: None


@case
def hooks_and_observers(effects: Effects) -> Case:
    found = hooks(effects)
    found.options["observers"] = [Reading()]
    return found


@case
def middleware(effects: Effects) -> Case:
    @model_middleware
    async def twice(ctx: Any, request: Any, next: Any) -> Any:
        ctx.values.set("asked", ctx.values.get("asked", 0) + 1)
        first = await next(request)
        if "poor" not in first.message.content:
            return first
        effects.append("again")
        return await next(request)

    @tool_middleware
    async def around(ctx: Any, call: Any, next: Any) -> Any:
        ctx.values.set("called", ctx.values.get("called", 0) + 1)
        effects.append(f"around {call.arguments}")
        return await next(call)

    class Attempts(Middleware):
        async def activation(self, ctx: Any, next: Any) -> Any:
            try:
                return await next()
            except BatonError:
                return await next()

    note = _note(effects)
    c = Agent("C", tools=[note])
    b = Agent("B", tools=[note], handoffs=[c], middleware=[Attempts()])
    a = Agent("A", tools=[note], handoffs=[b], middleware=[twice])
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1"), "poor", *notes("2", "3"), call("transfer_to_b")],
        "B": [*notes("4", "5"), DOWN, *notes("6"), call("transfer_to_c")],
        "C": [*notes("7", "8"), "Done."],
    }
    return Case(a, script, {"middleware": [around]})


@dataclass
class Order:
    """The input of a handoff."""

    order: int


@case
def rich_handoffs(effects: Effects) -> Case:
    def made_up(data: HandoffInputData) -> HandoffInputData:
        if data.run_context is not None:
            data.run_context.values.set("filtered", True)
        made = AssistantMessage("", (ToolCall("made", "note", "{}"),), author="B")
        return data.clone(new_items=(*data.new_items, made, ToolMessage("made", "note", "noted", author="B")))

    async def on_handoff(ctx: RunContext[Any], given: Order) -> None:
        effects.append(given)
        ctx.values.set("order", await ctx.step("order", lambda: given.order))

    def accepts(ctx: RunContext[Any], given: Any) -> bool | str:
        return len(ctx.values.get("notes", ())) > 1 or "too early"

    note = _note(effects)
    b = Agent("B", tools=[note], handoffs=[handoff("A")], accepts=accepts)
    edge = handoff(b, on_handoff=on_handoff, input_type=Order, needs_approval=True, input_filter=made_up)
    a = Agent("A", tools=[note], handoffs=[edge])
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1"), call("transfer_to_b", order=1), *notes("2"), call("transfer_to_b", order=2), *notes("5")],
        "B": [*notes("3", id="made"), *notes("4"), call("transfer_to_a")],
    }
    script["A"] += [call("transfer_to_b", order=3)]
    script["B"] += [*notes("6", id="made"), "Done."]
    return Case(a, script)


@case
def approvals(effects: Effects) -> Case:
    @tool(in_thread=False, needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        effects.append(amount)
        return f"paid {amount}"

    @tool(in_thread=False, effect="once")
    def send(text: str) -> str:
        """Send."""
        effects.append(text)
        return "sent"

    def answer(asked: Interrupt) -> Any:
        effects.append(f"asked {asked.payload['kind']}")
        return Approval(True, always=True) if asked.payload["kind"] == "approval" else {"run_again": True}

    script = [call("pay", amount=1), call("send", text="a"), call("pay", amount=2), [call("pay", amount=3)] * 2]
    return Case(Agent("A", tools=[pay, send]), {"A": [*script, call("send", text="b"), "Done."]}, answer=answer)


@case
def instructions(effects: Effects) -> Case:
    async def say_more(ctx: RunContext[Any]) -> str:
        async def count() -> int:
            effects.append("counted")
            return len(ctx.values.get("notes", ()))

        number = await ctx.step("count", count)
        tone = await ctx.interrupt("which tone?") if number % 2 else "kind"
        ctx.values.set("tone", f"{tone} {number}")
        return f"Be {tone}, {{tone}}, {number}."

    agent = Agent("A", instructions=say_more, template=True, tools=[_note(effects)])
    return Case(agent, {"A": [*notes("1", "2", "3", "4"), "Done."]}, answer=lambda asked: f"curt {asked.id}")


@case
def answers(effects: Effects) -> Case:
    note = _note(effects)
    b = Agent("B", tools=[note], output_type=dict[str, int], output_key="thread:order", tool_choice="required")
    a = Agent("A", tools=[note], handoffs=[handoff(b, return_to="caller")], output_key="last")
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1"), call("transfer_to_b"), *notes("4"), "Done."],
        "B": [*notes("2"), "none", *notes("3"), "still none", '{"order": 1}'],
    }
    return Case(a, script)


@case
def too_many_invalid_answers(effects: Effects) -> Case:
    agent = Agent("A", tools=[_note(effects)], output_type=int)
    return Case(agent, {"A": [*notes("1"), "one", *notes("2"), "two", *notes("3"), "three", *notes("4"), "5"]})


@case
def faults(effects: Effects) -> Case:
    agent = Agent("A", tools=[_note(effects)])
    wrong = [call("no_such_tool"), call("other_tool")]
    return Case(agent, {"A": [*wrong, *notes("1"), *wrong, *notes("2"), call("no_such_tool"), *notes("3"), "Done."]})


@case
def conditions(effects: Effects) -> Case:
    note = _note(effects)

    @tool(in_thread=False, is_enabled=lambda ctx, agent: len(ctx.values.get("notes", ())) % 2 == 1)
    def odd() -> str:
        """Only now and then."""
        effects.append("odd")
        return "odd"

    @tool(in_thread=False)
    def stop() -> str:
        """Stop."""
        return "stopped"

    c = Agent("C", tools=[note, stop], tool_use_behavior=StopAt(["stop"]))
    b = Agent("B", tools=[note, odd], handoffs=[c], tool_use_behavior=lambda ctx, results: None)
    edge = handoff(b, is_enabled=lambda ctx, agent: len(ctx.values.get("notes", ())) > 1)
    a = Agent("A", tools=[note, odd], handoffs=[edge], tool_choice="note")
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1"), call("transfer_to_b"), call("odd"), *notes("2"), call("odd"), call("transfer_to_b")],
        "B": [call("odd"), *notes("3"), call("odd"), call("transfer_to_c")],
        "C": [*notes("4", "5"), [*[call("stop")]], "Not reached."],
    }
    return Case(a, script)


@case
def limits(effects: Effects) -> Case:
    spent = [say("", call("note", text=str(number)), usage=Usage(100, 10)) for number in range(6)]
    prices = PriceTable({"test:scripted": ModelPrice(input=3, output=7)})
    options = {"limits": Limits(tokens=350), "prices": prices}
    return Case(Agent("A", tools=[_note(effects)]), {"A": [*spent, "Done."]}, options, again={"limits": Limits()})


@case
def loops(effects: Effects) -> Case:
    a, b = Agent("A", handoffs=["B"]), Agent("B", handoffs=["A"])
    fallback = Agent("C", tools=[_note(effects)], handoffs=["A"])
    script: dict[str, list[ScriptStep]] = {
        "A": [call("transfer_to_b")] * 20,
        "B": [call("transfer_to_a")] * 20,
        "C": [*notes("1", "2"), call("transfer_to_a")],
    }
    return Case(a, script, {"extra_agents": [b, fallback], "loop_fallback": "C", "limits": Limits(idle_cycles=2)})


@case
def turn_limit(effects: Effects) -> Case:
    agent = Agent("A", tools=[_note(effects)], max_turns=4, on_max_turns="answer")
    return Case(agent, {"A": [*notes("1", "2", "3", "4"), "Enough."]})


@case
def messages(effects: Effects) -> Case:
    note = _note(effects)
    b = Agent("B", tools=[note])
    script = {"A": [*notes("1", "2"), DOWN, *notes("3"), call("transfer_to_b")], "B": [*notes("4", "5"), "Done."]}
    settings = ModelSettings(temperature=0.5)
    again = {"message": "And hurry.", "model_settings": settings, "agent_options": {"B": AgentOptions(max_turns=9)}}
    options = {"A": AgentOptions(instructions="Be quick.", max_turns=7)}
    return Case(Agent("A", tools=[note], handoffs=[b]), script, run={"agent_options": options}, again=again)


@case
def nested_agents(effects: Effects) -> Case:
    note = _note(effects)
    helper, broken = Agent("Helper", tools=[note]), Agent("Broken", tools=[note])
    script: dict[str, list[ScriptStep]] = {
        "A": [call("Helper", request="x"), *notes("2", id="c"), call("Broken", request="y"), *notes("4", id="d")],
        "Helper": [*notes("1", id="c"), "Helped."],
        "Broken": [*notes("3", id="d"), DOWN],
    }
    script["A"] += [*notes("5"), "Done."]
    return Case(Agent("A", tools=[note, helper.as_tool(name="Helper"), broken.as_tool(name="Broken")]), script)


@case
def guardrails(effects: Effects) -> Case:
    def check(ctx: RunContext[Any], value: Any) -> GuardrailVerdict:
        effects.append("checked")
        ctx.values.set("checks", ctx.values.get("checks", 0) + 1)
        return GuardrailVerdict(passed=True)

    @tool(in_thread=False, input_guardrails=[check])
    def safe() -> str:
        """Safe."""
        return "safe"

    note = _note(effects)
    c = Agent("C", tools=[note])
    b = Agent("B", tools=[note], handoffs=[c], input_guardrails=[check], output_guardrails=[check])
    a = Agent("A", tools=[note, safe], handoffs=[b])
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1"), call("safe"), call("transfer_to_b")],
        "B": [*notes("2", "3"), call("transfer_to_c")],
        "C": [*notes("4", "5"), "Done."],
    }
    return Case(a, script)


@case
def history_functions(effects: Effects) -> Case:
    async def choose(ctx: RunContext[Any], entries: Sequence[Any]) -> list[Message]:
        shown = [(entry.author, entry.path, entry.is_answer, str(entry.event)) for entry in entries]
        ctx.values.set("chosen", await ctx.step("chosen", lambda: shown))
        return [entry.message for entry in entries if entry.is_user_input]

    note = _note(effects)
    b = Agent("B", tools=[note], history=choose, handoffs=["A"])
    a = Agent("A", tools=[note], handoffs=[b])
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1", "2"), call("transfer_to_b"), *notes("5"), call("transfer_to_b")],
        "B": [*notes("3", "4"), call("transfer_to_a"), *notes("6"), "Done."],
    }
    return Case(a, script)


@case
def sleep(effects: Effects) -> Case:
    @tool
    async def wait(ctx: RunContext[Any]) -> str:
        """Wait."""
        await ctx.sleep(datetime(2000, 1, 1, tzinfo=UTC))
        effects.append(ctx.idempotency_key)
        return "waited"

    agent = Agent("A", tools=[_note(effects), wait])
    return Case(agent, {"A": [*notes("1"), call("wait"), *notes("2"), [call("wait"), call("wait")], "Done."]})


class Changing:
    """A toolset whose tools change."""

    def __init__(self, effects: Effects) -> None:
        self._effects, self._note = effects, _note(effects)

    async def get_tools(self, ctx: RunContext[Any]) -> Sequence[Any]:
        @tool(in_thread=False, name=f"extra{len(ctx.values.get('notes', ()))}")
        def extra() -> str:
            """Extra."""
            self._effects.append("extra")
            return "extra"

        return [self._note, extra]


@case
def toolsets(effects: Effects) -> Case:
    script = [*notes("1"), call("extra1"), call("extra0"), *notes("2", "3"), call("extra3"), "Done."]
    return Case(Agent("A", tools=[Changing(effects)]), {"A": script})


@case
def cancellation(effects: Effects) -> Case:
    @tool
    async def stop(when: str) -> str:
        """Stop the run."""
        await effects.live.cancel("after_turn" if when == "turn" else "after_response")
        return "stopping"

    script = [*notes("1"), call("stop", when="response"), *notes("2", "3"), call("stop", when="turn"), *notes("4")]
    return Case(Agent("A", tools=[_note(effects), stop]), {"A": [*script, "Done."]})


@case
def steering(effects: Effects) -> Case:
    @tool
    async def shout(text: str) -> str:
        """Let the user say something."""
        await effects.runner.submit(text, thread="t", run_id=text, when_busy="steer")
        return "heard"

    note = _note(effects)
    b = Agent("B", tools=[note, shout])
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1"), call("shout", text="louder"), *notes("2"), call("transfer_to_b")],
        "B": [call("shout", text="softer"), *notes("3", "4"), "Done."],
    }
    return Case(Agent("A", tools=[note, shout], handoffs=[b]), script, run={"thread": "t", "values": {"thread:x": 1}})


@case
def summaries(effects: Effects) -> Case:
    def summarize(request: ModelRequest) -> ModelResponse:
        text = str(request.messages[0].content)
        effects.append("summary")
        if crc32(text.encode()) % 3 == 0:
            raise RuntimeError("no summary")
        return say(f"summary {len(text)}", usage=Usage(7, 3))

    note = _note(effects)
    b = Agent("B", tools=[note])
    spent = [say("", call("note", text=f"{number} " * 9), usage=Usage(40 * number, 5)) for number in range(1, 10)]
    script: dict[str, list[ScriptStep]] = {"A": [*spent[:6], call("transfer_to_b")], "B": [*spent[6:], "Done."]}
    compaction = Compaction(at_tokens=60, keep_last=1, summarizer=ScriptedModel([summarize], cycle=True))
    return Case(Agent("A", tools=[note], handoffs=[b]), script, {"compaction": compaction})


@case
def returned_agents(effects: Effects) -> Case:
    note = _note(effects)
    b = Agent("B", tools=[note], handoffs=["A"])

    @tool(in_thread=False)
    def go() -> Any:
        """Call another agent."""
        effects.append("go")
        return b

    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1", "2"), call("go"), *notes("5"), "Done."],
        "B": [*notes("3", "4"), call("transfer_to_a")],
    }
    return Case(Agent("A", tools=[note, go]), script, {"extra_agents": [b]})


@case
def policies_of_handoffs(effects: Effects) -> Case:
    def last_two(entries: Sequence[Any]) -> list[Message]:
        return [entry.message for entry in entries[-2:]]

    note = _note(effects)
    edges = [handoff("B", history="lineage"), handoff("C", history=last_two)]
    a = Agent("A", tools=[note], handoffs=edges)
    b = Agent("B", tools=[note], handoffs=[handoff("C", history="answers"), handoff("A")])
    c = Agent("C", tools=[note], handoffs=[handoff("A", history="none"), handoff("B", history="verbatim")])
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1", "2"), call("transfer_to_b"), *notes("5", "6"), call("transfer_to_c")],
        "B": [*notes("3"), call("transfer_to_c"), *notes("9", "10"), "Done."],
        "C": [*notes("4"), call("transfer_to_a"), *notes("7", "8"), call("transfer_to_b")],
    }
    return Case(a, script, {"extra_agents": [b, c], "show_transfers": False})


@case
def questions(effects: Effects) -> Case:
    async def ask(ctx: RunContext[Any], what: str) -> str:
        said = await ctx.interrupt(what)
        effects.append((what, said))
        ctx.values.set(what, f"{ctx.values.get(what, '')}{said}")
        return said

    class Curious(RunHooks[Any]):
        async def on_run_start(self, ctx: RunContext[Any], agent: Any) -> None:
            await ask(ctx, "start?")

        async def on_tool_end(self, ctx: RunContext[Any], agent: Any, call: Any, result: Any) -> None:
            await ask(ctx, "end?")

    async def check(ctx: RunContext[Any], value: Any) -> GuardrailVerdict:
        return GuardrailVerdict(passed=bool(await ask(ctx, "passed?")))

    async def is_enabled(ctx: RunContext[Any], agent: Any) -> bool:
        return bool(await ask(ctx, "enabled?"))

    async def choose(ctx: RunContext[Any], entries: Sequence[Any]) -> list[Message]:
        # It is called again for the messages that a resumed run reads.
        return [*[entry.message for entry in entries], UserMessage(await ctx.interrupt("which?"))]

    @tool(in_thread=False, input_guardrails=[check])
    def safe() -> str:
        """Safe."""
        return "safe"

    note = _note(effects)
    b = Agent("B", tools=[note], history=choose)
    a = Agent("A", tools=[note, safe], handoffs=[handoff(b, is_enabled=is_enabled)])
    script: dict[str, list[ScriptStep]] = {
        "A": [*notes("1"), call("safe"), call("transfer_to_b")],
        "B": [*notes("2", "3"), "Done."],
    }
    return Case(a, script, {"hooks": Curious()}, answer=lambda asked: f"yes {len(asked.id)}")


@pytest.mark.parametrize("name", CASES)
async def test_a_run_continues_the_same_beside(name: str) -> None:
    # B3
    store, make = SnapshotStore(), CASES[name]
    with EverySnapshot():
        process = Process(make, store)
        await process.run_to_end(is_stored=False)
        events = await process.runner.events("r")
        assert len(store.taken["r"]) > 1
        for length in range(1, len(events)):
            found: list[dict[str, object]] = []
            for uses_snapshot in (False, True):
                resumed = Process(make, await store.cut("r", length, uses_snapshot=uses_snapshot), events[:length])
                found.append(await resumed.describe(await resumed.run_to_end(is_stored=True)))
            check_same(found)
