"""The answer of a run is in its log: said once as a message, and named by the event that completes the run."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    Exit,
    ParallelAgent,
    Runner,
    RunResult,
    SequentialAgent,
    agent,
    handoff,
    then_transfer,
    tool,
)
from batonkit.agents import StopAt
from batonkit.errors import OutputError
from batonkit.log import Action, AgentResponded, Event, RunCompleted
from batonkit.log.codec import decode_log, encode_log
from batonkit.messages import Text, ToolMessage, text_of
from batonkit.runs import output_from_events
from batonkit.testing import ScriptedModel, assert_survives_crashes, call
from batonkit.tools import Approval


class Trip(BaseModel):
    """A trip."""

    city: str


@tool(return_directly=True)
async def direct(text: str) -> str:
    """Answer directly."""
    return f"direct {text}"


@tool
async def look() -> str:
    """Look."""
    return "seen"


def modelled(*steps: Any, name: str = "A", **options: Any) -> Agent[Any, Any]:
    """Make an agent whose model gives these responses."""
    return Agent(name, description="d", model=ScriptedModel(list(steps)), **options)


def leaving(name: str = "A", **options: Any) -> Agent[Any, Any]:
    return modelled(call("exit", final_result="bye"), name=name, exit_tool=True, **options)


def answering_directly(name: str = "A", **options: Any) -> Agent[Any, Any]:
    return modelled(call("direct", text="x"), name=name, tools=[direct], **options)


@agent("Own")
async def own(ctx: AgentContext) -> None:
    """Set an output without saying it."""
    ctx.output = "my own"


@agent("Talker")
async def talker(ctx: AgentContext) -> None:
    """Say the output, then set it."""
    await ctx.say("said once")
    ctx.output = "said once"


@agent("Leaver")
async def leaver(ctx: AgentContext) -> Exit:
    """End the run with a result."""
    return Exit("left")


@agent("Quiet")
async def quiet(ctx: AgentContext) -> None:
    """Say nothing."""


class Around(BaseAgent[Any, Any]):
    """An agent of one's own that runs another one, and answers or leaves as it does."""

    def __init__(self, inner: BaseAgent[Any, Any]) -> None:
        super().__init__("Around")
        self.inner_agent = inner

    def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
        return (self.inner_agent,)

    async def run(self, ctx: AgentContext[Any]) -> Action | None:
        outcome = await ctx.run_agent(self.inner_agent, "0")
        if outcome.action is None:
            ctx.output = outcome.output
        return outcome.action


CASES: dict[str, tuple[Callable[[], BaseAgent[Any, Any]], str]] = {
    "text": (lambda: modelled("plain"), "plain"),
    "exit tool": (leaving, "bye"),
    "direct result": (answering_directly, "direct x"),
    "stop on first": (lambda: modelled(call("look"), tools=[look], tool_use_behavior="stop_on_first"), "seen"),
    "stop at": (lambda: modelled(call("look"), tools=[look], tool_use_behavior=StopAt(["look"])), "seen"),
    "own agent": (lambda: own, "my own"),
    "own agent that says it": (lambda: talker, "said once"),
    "own exit": (lambda: leaver, "left"),
    "sequence": (lambda: SequentialAgent("S", sub_agents=[modelled("one"), modelled("two", name="B")]), "two"),
    "exit in a sequence": (lambda: SequentialAgent("S", sub_agents=[leaving(), own]), "bye"),
    "direct result in a step": (lambda: SequentialAgent("S", sub_agents=[own, answering_directly()]), "direct x"),
    "direct result before a transfer": (
        lambda: then_transfer(answering_directly(handoffs=[quiet]), to="Quiet"),
        "direct x",
    ),
    "answer of an inner agent": (lambda: Around(modelled("inner")), "inner"),
    "direct result of an inner agent": (lambda: Around(answering_directly()), "direct x"),
    "exit of an inner agent": (lambda: Around(leaving()), "bye"),
}
every_case = pytest.mark.parametrize(("make", "text"), CASES.values(), ids=CASES)


def said(events: Any) -> list[str]:
    """Return the texts that agents have said, but for empty ones."""
    return [event.text for event in events if isinstance(event, AgentResponded) and event.text]


def completed(result: RunResult[Any]) -> RunCompleted:
    event = result.events[-1]
    assert isinstance(event, RunCompleted)
    return event


@every_case
async def test_the_answer_is_said_once_and_named_at_the_end(make: Callable[[], BaseAgent[Any, Any]], text: str) -> None:
    runner = Runner(make(), store="memory:")
    result = await runner.run("hi", thread="t")
    assert (result.output, output_from_events(decode_log(encode_log(result.events)))) == (text, text)
    assert said(result.events).count(text) == 1
    (key,) = completed(result).said
    assert said([event for event in result.events if event.key == key]) == [text]
    assert text in [text_of(message.content) for message in await runner.thread("t").messages()]
    replayed = await runner.runs.replay(result.run_id)
    assert (replayed.output, replayed.messages) == (text, result.messages)


@every_case
async def test_no_crash_loses_or_repeats_the_answer(make: Callable[[], BaseAgent[Any, Any]], text: str) -> None:
    await assert_survives_crashes(lambda store: Runner(make(), store=store), "hi")


async def test_the_next_run_reads_the_answer_and_no_exit_call() -> None:
    model = ScriptedModel([call("exit", final_result="bye"), "again"])
    runner = Runner(Agent("A", model=model, exit_tool=True), store="memory:")
    await runner.run("hi", thread="t")
    await runner.run("and?", thread="t")
    assert [text_of(message.content) for message in model.requests[-1].messages] == ["hi", "bye", "and?"]


async def test_the_caller_reads_a_direct_result_once() -> None:
    boss = ScriptedModel([call("transfer_to_b"), "done"])
    team = Agent("A", model=boss, handoffs=[handoff(answering_directly("B"), return_to="caller")])
    await Runner(team).run("hi")
    read = [text_of(message.content) for message in boss.requests[-1].messages]
    assert sum("direct x" in text for text in read) == 1


async def test_parts_of_a_direct_result_are_said_as_parts() -> None:
    @tool(return_directly=True)
    async def parts() -> list[Text]:
        """Answer with parts."""
        return [Text("a"), Text("b")]

    result = await Runner(modelled(call("parts"), tools=[parts])).run("hi")
    assert result.messages[-1].content == (Text("a"), Text("b"))
    assert result.output == output_from_events(result.events) == "a\nb"


async def test_branches_name_all_that_they_have_said() -> None:
    result = await Runner(ParallelAgent("P", sub_agents=[modelled("one"), leaver, own])).run("hi")
    assert sorted(said([event for event in result.events if event.key in completed(result).said])) == ["left"]
    result = await Runner(ParallelAgent("P", sub_agents=[modelled("one"), own])).run("hi")
    assert said([event for event in result.events if event.key in completed(result).said]) == ["one", "my own"]
    assert output_from_events(result.events) == {"A": "one", "Own": "my own"}


async def test_structured_output_is_data_and_what_is_no_json_is_its_repr() -> None:
    result = await Runner(modelled('{"city": "Faro"}', output_type=Trip)).run("hi")
    assert (result.output, output_from_events(result.events)) == (Trip(city="Faro"), {"city": "Faro"})
    assert len(completed(result).said) == 1

    @agent("Odd")
    async def odd(ctx: AgentContext) -> None:
        ctx.output = test_structured_output_is_data_and_what_is_no_json_is_its_repr

    result = await Runner(odd).run("hi")
    assert (result.status, completed(result).said) == ("completed", ())
    assert output_from_events(result.events).startswith("<function test_structured_output")


async def test_an_exit_of_a_typed_agent_is_parsed_and_corrected() -> None:
    wrong, right = call("exit", final_result="Faro"), call("exit", final_result='{"city": "Faro"}')
    result = await Runner(modelled(wrong, right, exit_tool=True, output_type=Trip)).run("hi")
    assert (result.output, output_from_events(result.events)) == (Trip(city="Faro"), {"city": "Faro"})
    assert said(result.events) == ['{"city": "Faro"}']
    refused = next(message for message in result.messages if isinstance(message, ToolMessage))
    assert text_of(refused.content).startswith("Not ended: final_result must be JSON that fits `Trip`")


async def test_an_exit_of_a_typed_agent_is_corrected_a_few_times_only() -> None:
    wrong = call("exit", final_result="Faro")
    with pytest.raises(OutputError, match="Trip"):
        await Runner(modelled(*[wrong] * 9, exit_tool=True, output_type=Trip)).run("hi")


async def test_a_run_without_an_answer_has_no_output() -> None:
    result = await Runner(quiet).run("hi")
    assert (result.output, output_from_events(result.events), completed(result).said) == (None, None, ())
    events: list[Event] = [*result.events[:-1]]
    assert output_from_events(events) is None


async def test_a_log_from_before_answers_were_recorded_is_not_amended() -> None:
    @tool(needs_approval=True)
    async def risky() -> str:
        """Take a risk."""
        return "done"

    back = handoff(answering_directly("B"), return_to="caller")
    team = modelled(call("transfer_to_b"), call("risky"), "end", handoffs=[back], tools=[risky])
    suspended = await Runner(team, store="memory:").run("hi")
    assert said(suspended.events) == ["direct x"]
    old = [event for event in suspended.events if not event.key.endswith("/answer")]
    runner = Runner(team, store="memory:")
    result = await runner.resume(await runner.runs.load(old), Approval(True))
    assert (result.output, said(result.events)) == ("end", ["end"])
    completed = RunCompleted("completed", result.events[-1].origin, 0.0)
    assert output_from_events([*result.events[:-1], completed]) is None


async def test_an_exit_with_an_empty_result_is_an_empty_answer_that_is_not_said() -> None:
    @agent("Leaver")
    async def leave(ctx: AgentContext) -> Exit:
        return Exit("")

    result = await Runner(leave).run("hi")
    assert (result.output, output_from_events(result.events), said(result.events)) == ("", "", [])
