"""Custom agents: effects made through their context happen once, wherever the run crashes."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hypothesis import given
from hypothesis import strategies as st
from tests.laws.executions import run_in_loop

from batonkit import BaseAgent, Exit, Limits, Runner, RunResult, Transfer
from batonkit.agents import AgentContext
from batonkit.errors import LimitError
from batonkit.log import Event, InterruptAnswered, StepCompleted, decode_log, encode_log
from batonkit.messages import text_of

Operation: TypeAlias = tuple[Literal["say", "step", "ask", "write", "delete"], int]

_NAMES = ("A", "B")
_MAX_TRANSFERS = 3
_operations: st.SearchStrategy[Operation] = st.tuples(
    st.sampled_from(["say", "step", "ask", "write", "delete"]), st.integers(0, 2)
)


@dataclass(frozen=True)
class Program:
    """The operations of an agent in each activation, and the action it ends with."""

    operations: tuple[Operation, ...]
    ending: Literal["none", "exit", "A", "B"] = "none"


_programs = st.builds(
    Program, st.lists(_operations, max_size=5).map(tuple), st.sampled_from(["none", "A", "B", "exit"])
)


class Worker(BaseAgent[Any, Any]):
    """An agent that executes its program and counts the steps that were really taken."""

    def __init__(self, name: str, program: Program, steps_taken: Counter[str]) -> None:
        super().__init__(name, description=name, handoffs=list(_NAMES))
        self.program = program
        self.steps_taken = steps_taken

    async def run(self, ctx: AgentContext[Any]) -> Transfer | Exit | None:
        for operation, number in self.program.operations:
            await self._do(ctx, operation, number)
        match self.program.ending:
            case "none":
                return None
            case "exit":
                return Exit("over")
            case name:
                return Transfer(name)

    async def _do(self, ctx: AgentContext[Any], operation: str, number: int) -> None:
        key = f"k{number}"
        match operation:
            case "say":
                await ctx.say(f"{self.name} {number} {ctx.values.get(key)}")
            case "step":
                ctx.values.set(key, await ctx.step(f"s{number}", lambda: self._take_step(ctx, number)))
            case "ask":
                ctx.values.set(key, await ctx.interrupt({"number": number}))
            case "write":
                ctx.values.set(key, [self.name, number])
            case _:
                ctx.values.delete(key)

    def _take_step(self, ctx: AgentContext[Any], number: int) -> int:
        self.steps_taken[f"{ctx.idempotency_key}/s{number}"] += 1
        return self.steps_taken.total()


class CustomTeam:
    """A team of two workers and its runs."""

    def __init__(self, programs: tuple[Program, Program]) -> None:
        self.steps_taken: Counter[str] = Counter()
        self._root, self._other = (
            Worker(name, program, self.steps_taken) for name, program in zip(_NAMES, programs, strict=True)
        )

    def runner(self) -> Runner[Any, Any]:
        return Runner(self._root, extra_agents=[self._other], limits=Limits(transfers=_MAX_TRANSFERS, idle_cycles=None))

    async def run(self) -> RunResult[Any] | None:
        """Run to the end; None if the agents transfer in circles."""
        runner = self.runner()
        try:
            return await self._answer_all(runner, await runner.run("go", run_id="r"))
        except LimitError:
            return None

    async def resume_from(self, events: list[Event]) -> RunResult[Any]:
        runner = self.runner()
        return await self._answer_all(runner, await runner.resume(await runner.runs.load(events)))

    async def _answer_all(self, runner: Runner[Any, Any], result: RunResult[Any]) -> RunResult[Any]:
        while result.status == "suspended":
            (question,) = result.interrupts
            answered = sum(isinstance(event, InterruptAnswered) for event in result.events)
            result = await runner.resume("r", {question.id: f"answer {answered + 1}"})
        return result


def _expected(programs: tuple[Program, Program]) -> tuple[list[str], dict[str, Any], str | None]:
    """Compute the expected responses, values and output without a log."""
    said: list[str] = []
    values: dict[str, Any] = {}
    asked = stepped = 0
    name: str = "A"
    output: str | None = None  # An agent that says nothing leaves the previous answer
    while True:
        program = programs[_NAMES.index(name)]
        for operation, number in program.operations:
            key = f"k{number}"
            match operation:
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
        if program.ending == "exit":
            return [*said, "over"], values, "over"
        if program.ending == "none":
            return said, values, output
        name = program.ending


@given(programs=st.tuples(_programs, _programs))
def test_custom_agents_survive_a_crash_after_every_event(programs: tuple[Program, Program]) -> None:
    team = CustomTeam(programs)
    result = run_in_loop(team.run())
    if result is None:
        return
    said = [text_of(message.content) for message in result.messages[1:]]
    assert (said, result.values, result.output) == _expected(programs)
    assert team.steps_taken.total() == sum(isinstance(event, StepCompleted) for event in result.events)

    for length in range(1, len(result.events)):
        recorded = decode_log(encode_log(result.events[:length]))
        resumed = CustomTeam(programs)
        resumed.steps_taken["before the crash"] = sum(isinstance(event, StepCompleted) for event in recorded)
        ended = run_in_loop(resumed.resume_from(recorded))

        assert _summary(ended) == _summary(result)
        assert resumed.steps_taken.total() == team.steps_taken.total(), "a step was repeated or skipped"


@given(programs=st.tuples(_programs, _programs))
def test_replaying_custom_agents_reproduces_the_run(programs: tuple[Program, Program]) -> None:
    team = CustomTeam(programs)
    result = run_in_loop(team.run())
    if result is None:
        return
    before = team.steps_taken.copy()

    replayed = run_in_loop(team.runner().runs.replay(result.events))

    assert team.steps_taken == before
    assert replayed.events == result.events
    assert _summary(replayed) == _summary(result)


def _summary(result: RunResult[Any]) -> tuple[object, ...]:
    return result.status, result._output, result.agent, result.messages, result.values
