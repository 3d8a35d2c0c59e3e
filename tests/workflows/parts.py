"""Small agents to build workflows of, and what is asserted of nearly every run of one."""

from collections.abc import Callable, Mapping
from typing import Any

from batonkit import AgentContext, BaseAgent, Exit, Runner, RunResult, Transfer, agent
from batonkit.log import AgentResponded, Event, decode_log, encode_log
from batonkit.messages import text_of
from batonkit.runs.result import Interrupt
from batonkit.workflows import BreakLoop


def texts(result: RunResult[Any]) -> list[str]:
    """Everything in the conversation after the input."""
    return [text_of(message.content) for message in result.messages[1:]]


def paths(events: tuple[Event, ...]) -> list[str]:
    """The path of everything that was said, as one word each."""
    return [".".join(event.path) for event in events if isinstance(event, AgentResponded)]


def speaker(name: str, text: str = "", *, then: BreakLoop | Exit | None = None) -> BaseAgent[Any, Any]:
    """Says one thing; its name if nothing else is given."""

    @agent(name, description=name)
    async def speak(ctx: AgentContext) -> BreakLoop | Exit | None:
        await ctx.say(text or name)
        return then

    return speak


def asker(name: str) -> BaseAgent[Any, Any]:
    """Says that it begins, asks a question, and says the answer."""

    @agent(name, description=name)
    async def ask(ctx: AgentContext) -> None:
        await ctx.say(f"{name} begins")
        await ctx.say(f"{name}: {await ctx.interrupt(f'{name}?')}")

    return ask


def writer(name: str, **values: Any) -> BaseAgent[Any, Any]:
    """Writes values; what is None is deleted."""

    @agent(name, description=name)
    async def write(ctx: AgentContext) -> None:
        for key, value in values.items():
            if value is None:
                ctx.values.delete(key)
            else:
                ctx.values.set(key, value)

    return write


def failing(name: str, error: Exception | None = None) -> BaseAgent[Any, Any]:
    """Says something and then fails."""

    @agent(name, description=name)
    async def fail(ctx: AgentContext) -> None:
        await ctx.say(f"{name} tries")
        raise error or ValueError(f"{name} cannot")

    return fail


def passing(name: str, to: BaseAgent[Any, Any]) -> BaseAgent[Any, Any]:
    """Says its name and transfers."""

    @agent(name, description=name, handoffs=[to])
    async def hand_over(ctx: AgentContext) -> Transfer:
        await ctx.say(name)
        return Transfer(to.name)

    return hand_over


def reader(name: str, seen: list[list[str]]) -> BaseAgent[Any, Any]:
    """Notes what it reads, and says its name."""

    @agent(name, description=name)
    async def read(ctx: AgentContext) -> None:
        seen.append([text_of(message.content) for message in ctx.messages()])
        await ctx.say(name)

    return read


def answer_of(question: Interrupt) -> str:
    """The answer that a question gets in these tests."""
    return f"yes to {question.payload}"


async def answered(
    runner: Runner[Any, Any],
    result: RunResult[Any],
    choose: Callable[[tuple[Interrupt, ...]], tuple[Interrupt, ...]] = lambda questions: questions,
) -> RunResult[Any]:
    """The run to its end, with the chosen questions answered at each suspension."""
    while result.status == "suspended":
        answers = {question.id: answer_of(question) for question in choose(result.interrupts)}
        result = await runner.resume(result.run_id, answers)
    return result


async def elsewhere(
    make: Callable[[], Runner[Any, Any]], result: RunResult[Any], answers: Mapping[str, Any] | None = None
) -> RunResult[Any]:
    """The run taken up by another runner that has only the encoded log."""
    runner = make()
    return await runner.resume(await runner.runs.load(decode_log(encode_log(result.events))), answers)


async def check_replay(runner: Runner[Any, Any], result: RunResult[Any]) -> None:
    """The code over its own log, with no effects allowed, must come to the same."""
    replayed = await runner.runs.replay(decode_log(encode_log(result.events)))
    assert replayed.events == result.events
    assert (replayed.output, replayed.values, replayed.messages) == (result.output, result.values, result.messages)
