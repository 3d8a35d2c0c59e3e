"""Ceilings on the Python calls that one model call, one handoff and one middleware cost: exact, whatever the machine.

A call is a Python function that is entered, or a coroutine that is resumed. The stub model and the tool are part of it.
If a ceiling is exceeded on purpose, raise it in the same commit; timings are in `benchmarks/`.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable
from types import FrameType
from typing import Any

import pytest

from baton import Agent, Limits, RunContext, Runner, tool
from baton.messages import AssistantMessage, ToolCall
from baton.middleware import NextModelCall, model_middleware
from baton.models import Chunk, CompleteResponse, ModelRequest, ModelResponse

FEW, MANY = 10, 30
LIMITS = Limits(model_calls=None, transfers=None)


class StubModel:
    """A model that gives prepared responses, one after the other."""

    name = "stub"

    def __init__(self, calls: list[ToolCall]) -> None:
        self.messages = [*(AssistantMessage("", (call,)) for call in calls), AssistantMessage("done")]
        self.position = 0

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        message = self.messages[self.position % len(self.messages)]
        self.position += 1
        return CompleteResponse(ModelResponse(message))


@tool
async def step(n: int) -> str:
    """Take a step."""
    return str(n)


@model_middleware
async def pass_through(ctx: RunContext, request: ModelRequest, next: NextModelCall) -> ModelResponse:
    return await next(request)


def make_tool_loop(steps: int, *middleware: Any) -> Runner:
    model = StubModel([ToolCall(f"c{number}", "step", '{"n": 1}') for number in range(steps)])
    agent = Agent("A", tools=[step], max_turns=steps + 1, middleware=middleware)
    return Runner(agent, model=model, limits=LIMITS)


def make_wrapped_tool_loop(steps: int) -> Runner:
    return make_tool_loop(steps, pass_through)


def make_chain(handoffs: int) -> Runner:
    calls = [
        ToolCall(f"c{number}", "transfer_to_agent", f'{{"agent_name": "A{number}"}}')
        for number in range(1, handoffs + 1)
    ]
    agent = Agent(f"A{handoffs}", description="The last one.")
    for number in reversed(range(handoffs)):
        agent = Agent(f"A{number}", description="One of them.", sub_agents=[agent])
    return Runner(agent, model=StubModel(calls), limits=LIMITS)


async def count_calls(run: Callable[[], Awaitable[Any]]) -> Counter[str]:
    """Count the Python calls of a run by function."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            counts[frame.f_code.co_qualname] += 1

    sys.setprofile(count)
    try:
        await run()
    finally:
        sys.setprofile(None)
    return counts


def cost_of_one(make: Callable[[int], Runner]) -> tuple[float, Counter[str]]:
    """Return the calls that one more step costs, and which they are."""

    async def measure(steps: int) -> Counter[str]:
        runner = make(steps)
        await runner.run("Go.")  # Compiles what is compiled once.
        return await count_calls(lambda: runner.run("Go."))

    few, many = asyncio.run(measure(FEW)), asyncio.run(measure(MANY))
    added = many - few
    return added.total() / (MANY - FEW), added


# B6
@pytest.mark.parametrize(
    ("make", "ceiling"),
    [
        pytest.param(make_tool_loop, 18, id="a model call with a tool call"),
        pytest.param(make_wrapped_tool_loop, 20, id="the same with a middleware"),
        pytest.param(make_chain, 30, id="a handoff"),
    ],
)
def test_a_step_costs_few_python_calls(make: Callable[[int], Runner], ceiling: int) -> None:
    cost, added = cost_of_one(make)
    assert cost <= ceiling, f"{cost} calls: {added.most_common()}"
    # A step does not become dearer in the middle of a run.
    assert cost == int(cost), added.most_common()
