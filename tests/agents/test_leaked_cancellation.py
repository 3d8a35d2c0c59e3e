"""A CancelledError that user code lets out although no one cancelled the run: a failure of that code."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.agents.guardrail_fakes import run_to_failure
from tests.waiting import forever

from batonkit import Agent, AgentContext, Middleware, RunContext, RunHooks, Runner, agent, tool
from batonkit.errors import GuardrailFailedError, ModelError, RunError, ToolFailedError
from batonkit.log import Action, ToolReturned
from batonkit.models import Chunk, ModelRequest, TextChunk
from batonkit.testing import ScriptedModel, call
from batonkit.tools import Final


async def await_cancelled_task() -> str:
    """Await a task that this function has cancelled itself."""
    task = asyncio.create_task(forever())
    task.cancel()
    await task
    return "never"


@tool
async def search(query: str) -> str:
    """Search."""
    return await await_cancelled_task()


@tool(name="search")
async def stream_search(query: str) -> AsyncIterator[str | Final[str]]:
    """Search."""
    yield "searching"
    yield Final(await await_cancelled_task())


@tool(name="search", timeout=60)
async def limited_search(query: str) -> str:
    """Search."""
    return await await_cancelled_task()


@agent("Searcher", description="Searches.")
async def searcher(ctx: AgentContext) -> None:
    """Search."""
    await await_cancelled_task()


@pytest.mark.parametrize("searching", [search, stream_search, limited_search, searcher.as_tool("search")])
@pytest.mark.parametrize("count", [1, 2])
async def test_a_tool_that_lets_out_a_cancellation_has_failed(searching: Any, count: int) -> None:
    arguments = {"request": "x"} if "request" in searching.spec.parameters["properties"] else {"query": "x"}
    model = ScriptedModel([[call("search", **arguments)] * count, "I found nothing."])
    result = await Runner(Agent("Desk", model=model, tools=[searching])).run("hi")
    assert (result.status, result.output) == ("completed", "I found nothing.")
    returned = [event for event in result.events if isinstance(event, ToolReturned)]
    assert [event.is_error for event in returned] == [True] * count
    assert "it awaited something that was cancelled, though the run was not" in str(returned[0].content)


async def test_the_error_policy_of_the_tool_applies() -> None:
    @tool(on_error="raise")
    async def look() -> str:
        """Look."""
        return await await_cancelled_task()

    error, result = await run_to_failure(Runner(Agent("Desk", model=ScriptedModel([call("look")]), tools=[look])))
    assert isinstance(error, ToolFailedError)
    assert result.status == "failed"


async def test_an_agent_that_lets_out_a_cancellation_fails_the_run() -> None:
    error, result = await run_to_failure(Runner(searcher))
    assert isinstance(error, RunError)
    assert str(error).startswith("`Searcher` ended with CancelledError")
    assert result.status == "failed"


async def test_a_guardrail_that_lets_out_a_cancellation_has_failed() -> None:
    async def check(ctx: RunContext[Any], value: Any) -> bool:
        return bool(await await_cancelled_task())

    desk = Agent("Desk", model=ScriptedModel(["hi"]), input_guardrails=[check])
    error, _ = await run_to_failure(Runner(desk))
    assert isinstance(error, GuardrailFailedError)


async def test_a_model_that_lets_out_a_cancellation_has_failed() -> None:
    class Leaking:
        name = "leaking"

        async def respond(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            yield TextChunk("x")
            await await_cancelled_task()

    error, result = await run_to_failure(Runner(Agent("Desk", model=Leaking())))
    assert isinstance(error, ModelError)
    assert result.status == "failed"


class LeakingHooks(RunHooks):
    """Hooks that let out a cancellation at the start of an agent."""

    async def on_agent_start(self, ctx: RunContext[Any], agent: Any) -> None:
        await await_cancelled_task()


class LeakingMiddleware(Middleware):
    """Middleware that lets out a cancellation."""

    async def activation(self, ctx: AgentContext[Any], next: Any) -> Action | None:
        await await_cancelled_task()
        return await next()


@pytest.mark.parametrize("options", [{"hooks": LeakingHooks()}, {"middleware": [LeakingMiddleware()]}])
async def test_hooks_and_middleware_that_let_out_a_cancellation_fail_the_run(options: dict[str, Any]) -> None:
    error, result = await run_to_failure(Runner(Agent("Desk", model=ScriptedModel(["hi"])), **options))
    assert isinstance(error, RunError)
    assert result.status == "failed"


async def test_a_tool_that_is_really_cancelled_still_cancels_the_run() -> None:
    is_called = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        is_called.set()
        await forever()
        return "never"

    runner = Runner(Agent("Desk", model=ScriptedModel([[call("wait"), call("wait")]]), tools=[wait]))
    async with runner.stream("hi") as run:
        await is_called.wait()
        await run.cancel()
    assert run.result.status == "cancelled"
    assert not [event for event in run.result.events if isinstance(event, ToolReturned)]
