"""Agents of one's own: what they do through their context is done once, whenever the run crashes (D5, D8, D13)."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hypothesis import given
from hypothesis import strategies as st
from tests.laws.play import in_loop

from baton import BaseAgent, Exit, Limits, Runner, RunResult, Transfer
from baton.agents import AgentContext
from baton.errors import LimitError
from baton.events import Event, InterruptAnswered, StepCompleted, decode_log, encode_log
from baton.messages import text_of

Deed: TypeAlias = tuple[Literal["say", "step", "ask", "write", "delete"], int]

_NAMES = ("A", "B")
_MOST_TRANSFERS = 3
_deeds: st.SearchStrategy[Deed] = st.tuples(
    st.sampled_from(["say", "step", "ask", "write", "delete"]), st.integers(0, 2)
)


@dataclass(frozen=True)
class Program:
    """What an agent does each time it has the floor, and how it gives it up."""

    deeds: tuple[Deed, ...]
    ending: Literal["none", "exit", "A", "B"] = "none"


_programs = st.builds(Program, st.lists(_deeds, max_size=5).map(tuple), st.sampled_from(["none", "A", "B", "exit"]))


class Worker(BaseAgent[Any, Any]):
    """Does what its program says, and counts how often steps were really taken."""

    def __init__(self, name: str, program: Program, taken: Counter[str]) -> None:
        super().__init__(name, description=name, handoffs=list(_NAMES))
        self.program = program
        self.taken = taken

    async def run(self, ctx: AgentContext[Any]) -> Transfer | Exit | None:
        for deed, number in self.program.deeds:
            await self._do(ctx, deed, number)
        match self.program.ending:
            case "none":
                return None
            case "exit":
                return Exit("over")
            case name:
                return Transfer(name)

    async def _do(self, ctx: AgentContext[Any], deed: str, number: int) -> None:
        key = f"k{number}"
        match deed:
            case "say":
                await ctx.say(f"{self.name} {number} {ctx.values.get(key)}")
            case "step":
                ctx.values.set(key, await ctx.step(f"s{number}", lambda: self._take(ctx, number)))
            case "ask":
                ctx.values.set(key, await ctx.interrupt({"number": number}))
            case "write":
                ctx.values.set(key, [self.name, number])
            case _:
                ctx.values.delete(key)

    def _take(self, ctx: AgentContext[Any], number: int) -> int:
        self.taken[f"{ctx.idempotency_key}/s{number}"] += 1
        return self.taken.total()


class Works:
    """One team of workers, and its runs."""

    def __init__(self, programs: tuple[Program, Program]) -> None:
        self.taken: Counter[str] = Counter()
        self._root, self._other = (
            Worker(name, program, self.taken) for name, program in zip(_NAMES, programs, strict=True)
        )

    def runner(self) -> Runner[Any, Any]:
        return Runner(
            self._root, extra_agents=[self._other], limits=Limits(transfers=_MOST_TRANSFERS, idle_cycles=None)
        )

    async def run(self) -> RunResult[Any] | None:
        """The whole run; None if it goes round in circles."""
        runner = self.runner()
        try:
            return await self._answered(runner, await runner.run("go", run_id="r"))
        except LimitError:
            return None

    async def take_up(self, events: list[Event]) -> RunResult[Any]:
        runner = self.runner()
        return await self._answered(runner, await runner.resume(runner.load_log(events)))

    async def _answered(self, runner: Runner[Any, Any], result: RunResult[Any]) -> RunResult[Any]:
        while result.status == "suspended":
            (question,) = result.interrupts
            answered = sum(isinstance(event, InterruptAnswered) for event in result.events)
            result = await runner.resume("r", {question.id: f"answer {answered + 1}"})
        return result


def _expected(programs: tuple[Program, Program]) -> tuple[list[str], dict[str, Any], str | None]:
    """What is said, what is in the values and what comes out of it, worked out with no log at all."""
    said: list[str] = []
    values: dict[str, Any] = {}
    asked = stepped = 0
    name, output = "A", None
    while True:
        program, output = programs[_NAMES.index(name)], None
        for deed, number in program.deeds:
            key = f"k{number}"
            match deed:
                case "say":
                    output = f"{name} {number} {values.get(key)}"
                    said.append(output)
                case "step":
                    stepped += 1
                    values[key] = stepped
                case "ask":
                    asked += 1
                    values[key] = f"answer {asked}"
                case "write":
                    values[key] = [name, number]
                case "delete":
                    values.pop(key, None)
        if program.ending in ("none", "exit"):
            return said, values, "over" if program.ending == "exit" else output
        name = program.ending


@given(programs=st.tuples(_programs, _programs))
def test_own_agents_survive_a_crash_after_every_event(programs: tuple[Program, Program]) -> None:
    works = Works(programs)
    result = in_loop(works.run())
    if result is None:
        return
    said = [text_of(message.content) for message in result.messages[1:]]
    assert (said, result.values, result.output) == _expected(programs)
    assert works.taken.total() == sum(isinstance(event, StepCompleted) for event in result.events)

    for length in range(1, len(result.events)):
        recorded = decode_log(encode_log(result.events[:length]))
        after = Works(programs)
        after.taken["before the crash"] = sum(isinstance(event, StepCompleted) for event in recorded)
        ended = in_loop(after.take_up(recorded))

        assert _what_counts(ended) == _what_counts(result)
        assert after.taken.total() == works.taken.total(), "a step was taken again, or never"


@given(programs=st.tuples(_programs, _programs))
def test_own_agents_are_replayed_as_they_were(programs: tuple[Program, Program]) -> None:
    works = Works(programs)
    result = in_loop(works.run())
    if result is None:
        return
    before = works.taken.copy()

    replayed = in_loop(works.runner().replay(result.events))

    assert works.taken == before
    assert replayed.events == result.events
    assert _what_counts(replayed) == _what_counts(result)


def _what_counts(result: RunResult[Any]) -> tuple[object, ...]:
    return result.status, result._output, result.agent, result.messages, result.values
