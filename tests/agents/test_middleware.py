"""Middleware around model calls, tool calls and activations."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from batonkit import (
    Agent,
    AgentHooks,
    Limits,
    ModelSettings,
    RetryModel,
    RunContext,
    Runner,
    ToolResult,
    Transfer,
    agent,
    tool,
)
from batonkit.agents import AgentContext, Compaction, with_guardrails
from batonkit.errors import BatonError, GuardrailTrippedError, LimitError, ModelError, SetupError, ToolError
from batonkit.inspection import usage_by
from batonkit.log import (
    AgentResponded,
    HistoryCompacted,
    ResponseRestarted,
    StepCompleted,
    TextDelta,
    ToolReturned,
    UserMessageAdded,
)
from batonkit.messages import AssistantMessage, ToolCall, Usage, UserMessage
from batonkit.middleware import Middleware, model_middleware, tool_middleware
from batonkit.models import ModelRequest, ModelResponse
from batonkit.realtime import RealtimeAgent, RealtimeRunner
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, ScriptedRealtimeModel, ScriptedStream, assert_survives_crashes, call, say


def one_agent(model: Any, *middleware: Middleware, **options: Any) -> Runner[Any, Any]:
    return Runner(Agent("A", model=model, middleware=middleware, **options))


def answer(text: str) -> ModelResponse:
    return ModelResponse(AssistantMessage(text))


@model_middleware
async def last_message_only(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
    return await next(replace(request, messages=request.messages[-1:]))


@model_middleware
async def shout(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
    response = await next(request)
    return replace(response, message=AssistantMessage(str(response.message.content).upper()))


class Order(Middleware):
    """Records the order in which middleware is entered and left."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name = name
        self.order = order

    async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
        self.order.append(f"+{self.name} model")
        response = await next(request)
        self.order.append(f"-{self.name} model")
        return response

    async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
        self.order.append(f"+{self.name} tool")
        result = await next(call)
        self.order.append(f"-{self.name} tool")
        return result

    async def activation(self, ctx: Any, next: Any) -> Any:
        self.order.append(f"+{self.name} activation")
        action = await next()
        self.order.append(f"-{self.name} activation")
        return action


@tool
async def look(place: str = "") -> str:
    """Look somewhere."""
    return f"seen {place}"


async def test_a_request_can_be_changed_before_the_model_reads_it() -> None:
    model = ScriptedModel(["fine"])
    result = await one_agent(model, last_message_only).run([UserMessage("one"), UserMessage("two")])
    assert [message.content for message in model.requests[0].messages] == ["two"]
    assert [message.content for message in result.messages] == ["one", "two", "fine"]


async def test_the_response_that_middleware_returns_is_recorded() -> None:
    result = await one_agent(ScriptedModel(["fine"]), shout).run("hi")
    assert result.output == "FINE"
    (responded,) = [event for event in result.events if isinstance(event, AgentResponded)]
    assert responded.text == "FINE"


async def test_the_runners_middleware_is_outside_the_agents() -> None:
    order: list[str] = []
    inner = Agent("A", model=ScriptedModel([call("look"), "ok"]), tools=[look], middleware=[Order("agent", order)])
    await Runner(inner, middleware=[Order("runner", order)]).run("hi")
    model_call = ["+runner model", "+agent model", "-agent model", "-runner model"]
    assert order == [
        "+runner activation",
        "+agent activation",
        *model_call,
        "+runner tool",
        "+agent tool",
        "-agent tool",
        "-runner tool",
        *model_call,
        "-agent activation",
        "-runner activation",
    ]


async def test_middleware_can_answer_without_the_model() -> None:
    @model_middleware
    async def closed(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        return answer("We are closed.")

    model = ScriptedModel([])
    result = await Runner(Agent("A", model=model, middleware=[closed]), limits=Limits(model_calls=0)).run("hi")
    assert (result.output, model.requests, result.usage.total.input_tokens) == ("We are closed.", [], 0)


async def test_middleware_can_choose_another_model() -> None:
    other = ScriptedModel(["from the other"], name="other")

    @model_middleware
    async def choose(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        assert request.model is first
        return await next(replace(request, model=other))

    first = ScriptedModel([], name="first")
    result = await one_agent(first, choose).run("hi")
    assert result.output == "from the other"
    (responded,) = [event for event in result.events if isinstance(event, AgentResponded)]
    assert responded.model == "other"


async def test_every_next_counts_as_a_model_call_and_usage_is_summed() -> None:
    @model_middleware
    async def twice(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        await next(request)
        return await next(request)

    usage = Usage(input_tokens=10, output_tokens=1)
    script = [say("one", usage=usage), say("two", usage=usage)]
    result = await one_agent(ScriptedModel(script), twice).run("hi")
    (responded,) = [event for event in result.events if isinstance(event, AgentResponded)]
    assert (responded.text, responded.model_calls, result.usage.total.input_tokens) == ("two", 2, 20)
    with pytest.raises(LimitError):
        await Runner(Agent("A", model=ScriptedModel(script), middleware=[twice]), limits=Limits(model_calls=1)).run(
            "hi"
        )


async def test_middleware_can_read_the_usage_of_the_run() -> None:
    # A resumed run counts recorded calls again, so that the same model is chosen.
    seen: list[tuple[int, int]] = []
    small = ScriptedModel(["from the small one"], name="small")

    @model_middleware
    async def save(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        seen.append((ctx.usage.total_tokens, ctx.usage.model_calls))
        return await next(replace(request, model=small) if ctx.usage.total_tokens > 30 else request)

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return f"{await ctx.interrupt('well?')}: {ctx.usage.output_tokens}"

    used = Usage(input_tokens=10, output_tokens=3)
    # A part with limits of its own reads the usage of the whole run.
    inner = Agent("Helper", description="Helps.", model=ScriptedModel([say("ok", usage=used)]), middleware=[save])
    helper = inner.as_tool("help_out", limits=Limits(model_calls=5))
    large = ScriptedModel([say("", call("help_out", request="x"), usage=used), say("", call("ask"), usage=used)])
    store = MemoryStore()

    def runner() -> Runner[Any, Any]:
        return Runner(Agent("A", model=large, tools=[helper, ask], middleware=[save]), store=store)

    await runner().run("hi", run_id="r")
    result = await runner().resume("r", "fine")
    assert result.output == "from the small one"
    assert seen == [(0, 0), (13, 1), (26, 2), (39, 3)]
    assert [event.content for event in result.events if isinstance(event, ToolReturned)][-1] == "fine: 9"


async def test_limits_count_recorded_model_calls_of_middleware_again_after_a_resume() -> None:
    @model_middleware
    async def twice(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        await next(request)
        return await next(request)

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return await ctx.interrupt("well?")

    model = ScriptedModel(["x", call("ask"), "x", "done"])
    inner = Agent("A", model=model, tools=[ask], middleware=[twice])
    store = MemoryStore()
    suspended = await Runner(inner, store=store, limits=Limits(model_calls=3)).run("hi")
    with pytest.raises(LimitError):
        await Runner(inner, store=store, limits=Limits(model_calls=3)).resume(suspended.run_id, "yes")


async def test_an_error_of_the_model_reaches_the_middleware() -> None:
    @model_middleware
    async def apologise(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        try:
            return await next(request)
        except ModelError as error:
            return answer(f"Sorry: {error}")

    stream = ScriptedStream("half an ans", ModelError("the line is dead"))
    result = await one_agent(ScriptedModel([stream]), apologise).run("hi")
    assert result.output == "Sorry: the line is dead"


async def test_an_error_raised_by_middleware_ends_the_run() -> None:
    @model_middleware
    async def broken(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        raise ZeroDivisionError("oops")

    @tool_middleware
    async def broken_tool(ctx: RunContext, call: ToolCall, next: Any) -> ToolResult:
        raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError):
        await one_agent(ScriptedModel(["x"]), broken).run("hi")
    with pytest.raises(ZeroDivisionError):
        await one_agent(ScriptedModel([call("look"), "x"]), broken_tool, tools=[look]).run("hi")


async def deltas_of(runner: Runner[Any, Any]) -> tuple[list[Any], Any]:
    async with runner.stream("hi") as run:
        deltas = [event async for event in run if isinstance(event, TextDelta | ResponseRestarted)]
    return [delta.text if isinstance(delta, TextDelta) else "restart" for delta in deltas], run.result


async def test_deltas_are_delivered_while_the_response_is_read() -> None:
    @model_middleware
    async def pass_on(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        return await next(request)

    deltas, result = await deltas_of(one_agent(ScriptedModel([ScriptedStream("a", "b")]), pass_on))
    assert (deltas, result.output) == (["a", "b"], "ab")


async def test_a_second_next_restarts_the_stream() -> None:
    @model_middleware
    async def twice(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        await next(request)
        return await next(request)

    deltas, _ = await deltas_of(one_agent(ScriptedModel([ScriptedStream("a"), ScriptedStream("b")]), twice))
    assert deltas == ["a", "restart", "b"]


async def test_a_changed_response_restarts_the_stream() -> None:
    deltas, _ = await deltas_of(one_agent(ScriptedModel([ScriptedStream("a", "b")]), shout))
    assert deltas == ["a", "b", "restart", "AB"]


async def test_middleware_that_holds_deltas_shows_only_what_it_returns() -> None:
    held = model_middleware(holds_deltas=True)(shout.function)  # pyright: ignore
    deltas, _ = await deltas_of(one_agent(ScriptedModel([ScriptedStream("a", "b")]), held))
    assert deltas == ["AB"]


async def test_an_answer_of_the_middleware_itself_is_delivered_as_a_delta() -> None:
    @model_middleware
    async def closed(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        return answer("closed")

    deltas, _ = await deltas_of(one_agent(ScriptedModel([]), closed))
    assert deltas == ["closed"]


class AskAfter(Middleware):
    """Asks a person after the model has responded, and counts the calls of `next`."""

    def __init__(self, calls: Counter[str]) -> None:
        self.calls = calls

    async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
        response = await next(request)
        self.calls["model"] += 1
        ctx.values.set("asked", response.message.content)
        verdict = await ctx.interrupt({"send": response.message.content})
        return response if verdict else answer("withheld")


@pytest.mark.parametrize("verdict", [True, False])
async def test_a_response_is_recorded_before_its_middleware_suspends_the_run(verdict: bool) -> None:
    store, calls = MemoryStore(), Counter[str]()
    model = ScriptedModel([replace(say("draft", usage=Usage(input_tokens=5)), id="r1"), "never"])
    runner = Runner(Agent("A", model=model, middleware=[AskAfter(calls)]), store=store)
    suspended = await runner.run("hi", run_id="r")
    assert [interrupt.payload for interrupt in suspended.interrupts] == [{"send": "draft"}]
    assert suspended.interrupts[0].id == "1/m1/mw:AskAfter/ask1"
    assert [e.key for e in suspended.events if isinstance(e, StepCompleted)] == ["1/m1/mw:AskAfter/next1"]
    result = await Runner(Agent("A", model=model, middleware=[AskAfter(calls)]), store=store).resume("r", verdict)
    assert result.output == ("draft" if verdict else "withheld")
    assert (len(model.requests), result.usage.total.input_tokens, result.values["asked"]) == (1, 5, "draft")
    replayed = await Runner(Agent("A", model=model, middleware=[AskAfter(calls)]), store=store).runs.replay(
        result.events
    )
    assert (replayed.output, calls["model"]) == (result.output, 2)
    assert [e.response_id for e in replayed.events if isinstance(e, AgentResponded)] == ["r1" if verdict else ""]


async def test_middleware_does_not_run_again_for_recorded_calls() -> None:
    order: list[str] = []

    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return await ctx.interrupt("well?")

    model = ScriptedModel([call("look"), call("ask"), "done"])
    inner = Agent("A", model=model, tools=[look, ask], middleware=[Order("m", order)])
    store = MemoryStore()
    await Runner(inner, store=store).run("hi", run_id="r")
    order.clear()
    result = await Runner(inner, store=store).resume("r", "fine")
    # The activation and the suspended tool call run again; recorded calls do not.
    assert order == ["+m activation", "+m tool", "-m tool", "+m model", "-m model", "-m activation"]
    order.clear()
    await Runner(inner).runs.replay(result.events)
    assert order == ["+m activation", "-m activation"]


async def test_middleware_inside_a_repeated_next_has_keys_of_its_own() -> None:
    class Twice(Middleware):
        async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
            await next(request)
            return await next(request)

    class Step(Middleware):
        async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
            await ctx.step("before", lambda: "x")
            return await next(request)

    result = await one_agent(ScriptedModel(["a", "b", "c", "d"]), Twice(), Twice(), Step()).run("hi")
    assert result.status == "completed"
    keys = [event.key for event in result.events if isinstance(event, StepCompleted)]
    assert keys == [
        "1/m1/mw:Step/step:before",
        # Before a step, what the middleware around it has received from `next` is recorded as well.
        "1/m1/mw:Twice#2/next1",
        "1/m1/mw:Step@2.2/step:before",
        "1/m1/mw:Twice/next1",
        "1/m1/mw:Step@1.2/step:before",
        "1/m1/mw:Twice#2@1.2/next1",
        "1/m1/mw:Step@1.2@2.2/step:before",
    ]


async def test_tool_calls_pass_through_middleware_and_handoffs_do_not() -> None:
    seen: list[str] = []

    @tool_middleware
    async def note(ctx: RunContext, call: ToolCall, next: Any) -> ToolResult:
        seen.append(call.name)
        return await next(replace(call, arguments='{"place": "home"}'))

    target = Agent("B", model=ScriptedModel(["ok"]))
    model = ScriptedModel([[call("look", place="away"), call("transfer_to_b")]])
    result = await Runner(Agent("A", model=model, tools=[look], handoffs=[target]), middleware=[note]).run("hi")
    assert (seen, result.agent) == (["look"], "B")
    returned = [event.content for event in result.events if isinstance(event, ToolReturned)]
    assert returned[0] == "seen home"


async def test_middleware_sees_an_exception_of_the_tool_and_may_handle_it() -> None:
    @tool(on_error="raise")
    async def fail() -> str:
        """Fail."""
        raise ZeroDivisionError("broken")

    seen: list[str] = []

    @tool_middleware
    async def watch(ctx: RunContext, call: ToolCall, next: Any) -> ToolResult:
        try:
            return await next(call)
        except BatonError as error:
            seen.append(str(error))
            return ToolResult("handled")

    result = await one_agent(ScriptedModel([call("fail"), "x"]), watch, tools=[fail]).run("hi")
    assert seen
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["handled"]


async def test_a_tool_error_raised_by_middleware_is_read_by_the_model() -> None:
    @tool_middleware
    async def refuse(ctx: RunContext, call: ToolCall, next: Any) -> ToolResult:
        raise ToolError("not today")

    result = await one_agent(ScriptedModel([call("look"), "x"]), refuse, tools=[look]).run("hi")
    (returned,) = [event for event in result.events if isinstance(event, ToolReturned)]
    assert (returned.content, returned.is_error) == ("not today", True)


async def test_a_tool_can_be_called_again_with_steps_of_its_own() -> None:
    taken: list[str] = []

    @tool
    async def flaky(ctx: RunContext) -> str:
        """Fail at first."""
        number = await ctx.step("count", lambda: len(taken))
        taken.append(ctx.idempotency_key)
        if number == 0:
            raise ToolError("try again")
        return "worked"

    @tool_middleware
    async def retry(ctx: RunContext, call: ToolCall, next: Any) -> ToolResult:
        result = await next(call)
        return await next(call) if result.is_error else result

    result = await one_agent(ScriptedModel([call("flaky"), "x"]), retry, tools=[flaky]).run("hi", run_id="r")
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["worked"]
    assert taken == ["r:1/m1.0", "r:1/m1.0/again@1.2"]


async def test_a_once_tool_can_be_called_once_and_its_result_is_recorded_at_once() -> None:
    paid: list[str] = []

    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "paid"

    class CrashAfter(Middleware):
        crashes = True

        async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
            result = await next(call)
            if self.crashes:
                raise ZeroDivisionError
            return result

    class Twice(Middleware):
        async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
            await next(call)
            return await next(call)

    store, middleware = MemoryStore(), CrashAfter()
    inner = Agent("A", model=ScriptedModel([call("pay"), "x"]), tools=[pay], middleware=[middleware])
    with pytest.raises(ZeroDivisionError):
        await Runner(inner, store=store).run("hi", run_id="r")
    middleware.crashes = False
    result = await Runner(inner, store=store).resume("r")
    # No question about the outcome: it is known.
    assert (result.status, paid) == ("completed", ["paid"])
    with pytest.raises(SetupError, match="call next only once"):
        await one_agent(ScriptedModel([call("pay"), "x"]), Twice(), tools=[pay]).run("hi")
    assert paid == ["paid", "paid"]


async def test_approval_is_inside_middleware() -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    @tool_middleware
    async def halve(ctx: RunContext, call: ToolCall, next: Any) -> ToolResult:
        return await next(replace(call, arguments='{"amount": 5}'))

    runner = one_agent(ScriptedModel([call("pay", amount=10), "x"]), halve, tools=[pay])
    suspended = await runner.run("hi")
    assert suspended.interrupts[0].payload["arguments"] == {"amount": 5}
    result = await runner.resume(suspended.run_id, True)
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["paid 5"]


async def test_only_the_arguments_of_a_call_can_be_replaced() -> None:
    @tool_middleware
    async def other(ctx: RunContext, call: ToolCall, next: Any) -> ToolResult:
        return await next(replace(call, name="else"))

    with pytest.raises(SetupError, match="only its arguments can be replaced"):
        await one_agent(ScriptedModel([call("look"), "x"]), other, tools=[look]).run("hi")


class OnError(Middleware):
    """Answers for an agent that failed."""

    async def activation(self, ctx: AgentContext, next: Any) -> Any:
        try:
            return await next()
        except ModelError as error:
            await ctx.say(f"Sorry: {error}")
            return None


async def test_an_activation_that_fails_can_be_handled_and_replays() -> None:
    model = ScriptedModel([call("look"), ModelError("down", model="m", retryable=True)])
    runner = one_agent(model, OnError(), tools=[look])
    result = await runner.run("hi")
    assert (result.output, result.status) == ("Sorry: down", "completed")
    # The messages of the failed attempt are not part of the history.
    assert [message.content for message in result.messages] == ["hi", "Sorry: down"]
    replayed = await one_agent(ScriptedModel([]), OnError(), tools=[look]).runs.replay(result.events)
    assert (replayed.output, replayed.messages) == (result.output, result.messages)


async def test_an_agent_can_be_run_again_by_middleware() -> None:
    class Retry(Middleware):
        async def activation(self, ctx: AgentContext, next: Any) -> Any:
            for _ in range(2):
                try:
                    return await next()
                except ModelError as error:
                    seen.append((error.retryable, str(error)))
            return await next()

    seen: list[tuple[bool, str]] = []
    script: list[Any] = [ModelError("down", retryable=True), call("look"), ModelError("down", retryable=True), "up"]
    runner = one_agent(ScriptedModel(script), Retry(), tools=[look])
    result = await runner.run("hi")
    assert (result.output, [message.content for message in result.messages]) == ("up", ["hi", "up"])
    assert [e.key for e in result.events if isinstance(e, AgentResponded)] == [
        "1/mw:again/2/m1",
        "1/mw:again/3/m1",
    ]
    replayed = await one_agent(ScriptedModel([]), Retry(), tools=[look]).runs.replay(result.events)
    assert replayed.messages == result.messages
    # The replay raises the recorded errors again.
    assert seen == [(True, "down")] * 4


async def test_the_next_run_of_a_thread_reads_nothing_of_a_failed_attempt() -> None:
    class Retry(Middleware):
        async def activation(self, ctx: AgentContext, next: Any) -> Any:
            try:
                return await next()
            except ModelError:
                return await next()

    store = MemoryStore()
    model = ScriptedModel([call("look"), ModelError("down"), "up", "still up"])
    desk = Agent("A", model=model, middleware=[Retry()], tools=[look])
    await Runner(desk, store=store).run("hi", thread="t")
    # Another runner knows the first run from its log alone.
    runner = Runner(desk, store=store)
    await runner.run("and now?", thread="t")
    assert [message.content for message in model.requests[-1].messages] == ["hi", "up", "and now?"]
    assert [message.content for message in await runner.thread("t").messages()] == ["hi", "up", "and now?", "still up"]


async def test_usage_counts_every_model_call_that_middleware_made() -> None:
    class Thrice(Middleware):
        async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: Any) -> ModelResponse:
            await next(request)
            await next(request)
            return await next(request)

    runner = one_agent(ScriptedModel(["a", "b", "c"]), Thrice())
    result = await runner.run("hi")
    assert result.usage.total.model_calls == 3
    assert result.usage.by_agent["A"].model_calls == result.usage.by_model["scripted"].model_calls == 3
    assert [(row.count, row.usage.model_calls) for row in usage_by(result.events, "model")] == [(3, 3)]


async def test_usage_counts_no_model_call_if_middleware_answers() -> None:
    class Answer(Middleware):
        async def model_call(self, ctx: RunContext[Any], request: ModelRequest, next: Any) -> ModelResponse:
            return ModelResponse(AssistantMessage("known"), model="scripted")

    result = await one_agent(ScriptedModel([]), Answer()).run("hi")
    assert result.usage.total.model_calls == 0


async def test_a_failure_that_is_raised_again_is_tried_again_by_a_resume() -> None:
    class Notify(Middleware):
        async def activation(self, ctx: AgentContext, next: Any) -> Any:
            try:
                return await next()
            except ModelError:
                await ctx.step("notify", lambda: notified.append("x"))
                raise

    notified: list[str] = []
    store = MemoryStore()
    inner = Agent("A", model=ScriptedModel([ModelError("down"), "up"]), middleware=[Notify()])
    with pytest.raises(ModelError):
        await Runner(inner, store=store).run("hi", run_id="r")
    result = await Runner(inner, store=store).resume("r")
    assert (result.output, notified) == ("up", ["x"])


async def test_an_error_that_ends_the_run_cannot_be_swallowed_around_an_activation() -> None:
    class Swallow(Middleware):
        async def activation(self, ctx: AgentContext, next: Any) -> Any:
            try:
                return await next()
            except LimitError:
                return None

    inner = Agent("A", model=ScriptedModel([call("look"), "x"]), tools=[look], middleware=[Swallow()])
    with pytest.raises(LimitError):
        await Runner(inner, limits=Limits(model_calls=1)).run("hi")


async def test_middleware_around_an_activation_can_change_output_and_action() -> None:
    class Around(Middleware):
        async def activation(self, ctx: AgentContext, next: Any) -> Any:
            action = await next()
            ctx.values.set("seen", ctx.output)
            ctx.output = "changed"
            return action if ctx.agent == "B" else Transfer("B")

    @agent("B", description="b")
    async def second(ctx: AgentContext) -> None:
        await ctx.say("from B")

    first = Agent("A", model=ScriptedModel(["from A"]), handoffs=[second])
    result = await Runner(first, middleware=[Around()]).run("hi")
    assert (result.agent, result.output, result.values) == ("B", "changed", {"seen": "from B"})


async def test_values_set_by_middleware_survive_a_replay() -> None:
    class SetValues(Middleware):
        async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
            ctx.values.set("model", 1)
            return await next(request)

        async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
            ctx.values.set("tool", 2)
            return await next(call)

    runner = one_agent(ScriptedModel([call("look"), "x"]), SetValues(), tools=[look])
    result = await runner.run("hi")
    replayed = await runner.runs.replay(result.events)
    assert (result.values, replayed.values) == ({"model": 1, "tool": 2},) * 2


def everything(calls: Counter[str]) -> Sequence[Middleware]:
    class Everything(Middleware):
        async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
            await ctx.step("before", lambda: "x")
            response = await next(request)
            ctx.values.set("said", str(response.message.content))
            await ctx.step("after", lambda: "y")
            return response

        async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
            result = await next(call)
            await ctx.step("audit", lambda: result.content)
            return result

        async def activation(self, ctx: Any, next: Any) -> Any:
            await ctx.step("start", lambda: "z")
            return await next()

    return [Everything(), Everything()]


async def test_runs_with_middleware_survive_a_crash_after_every_event() -> None:
    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        return "paid"

    def new_runner(store: Any) -> Runner[Any, Any]:
        target = Agent("B", model=ScriptedModel([call("pay"), "done"]), tools=[pay])
        model = ScriptedModel([[call("look", place="x"), call("look", place="y")], call("transfer_to_b")])
        first = Agent("A", model=model, tools=[look], handoffs=[target])
        return Runner(first, middleware=everything(Counter()), store=store)

    await assert_survives_crashes(new_runner, "hi")


def test_realtime_refuses_middleware_around_model_calls_by_name() -> None:
    model = ScriptedRealtimeModel([])
    with pytest.raises(SetupError, match=r"RealtimeRunner\(\) has middleware `shout` with model_call"):
        RealtimeRunner(RealtimeAgent("A"), model=model, middleware=[shout])
    with pytest.raises(SetupError, match="`A` has middleware `shout` with model_call"):
        RealtimeRunner(RealtimeAgent("A", middleware=[shout]), model=model)


@pytest.mark.parametrize(
    ("middleware", "message"),
    [
        (shout, "give a list"),
        ([Middleware], r"give an object: Middleware\(…\)"),
        ([lambda: None], "@model_middleware"),
    ],
)
def test_a_wrong_middleware_argument_says_what_to_give(middleware: Any, message: str) -> None:
    for make in (lambda: Agent("A", middleware=middleware), lambda: Runner(Agent("A"), middleware=middleware)):
        with pytest.raises(SetupError, match=message):
            make()


async def test_a_wrong_result_of_middleware_says_what_to_return() -> None:
    @model_middleware
    async def text(ctx: RunContext, request: ModelRequest, next: Any) -> Any:
        return "hello"

    @model_middleware
    async def nothing(ctx: RunContext, request: ModelRequest, next: Any) -> Any:
        return await next(None)

    with pytest.raises(SetupError, match="`text` returned 'hello'; give a ModelResponse"):
        await one_agent(ScriptedModel(["x"]), text).run("hi")
    with pytest.raises(SetupError, match="`nothing` passed to next None; give a ModelRequest"):
        await one_agent(ScriptedModel(["x"]), nothing).run("hi")


async def test_parallel_calls_of_next_are_counted_each() -> None:
    @model_middleware(holds_deltas=True)
    async def best_of_three(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        responses = await asyncio.gather(*(next(request) for _ in range(3)))
        return max(responses, key=lambda response: len(response.message.content))

    result = await one_agent(ScriptedModel(["a", "aaa", "aa"]), best_of_three).run("hi")
    (responded,) = [event for event in result.events if isinstance(event, AgentResponded)]
    assert (responded.text, responded.model_calls) == ("aaa", 3)


class HandleOnce(Middleware):
    """Calls the model again after an error, and asks a person about the response."""

    async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
        try:
            response = await next(request)
        except ModelError as error:
            ctx.values.set("seen", str(error))
            response = await next(request)
        await ctx.interrupt(response.message.content)
        return response


async def test_a_failed_next_is_recorded_and_not_tried_again_by_a_resume() -> None:
    store = MemoryStore()
    model = ScriptedModel([ModelError("down", retryable=True), "draft", "never"])
    agent = Agent("A", model=model, middleware=[HandleOnce()])
    suspended = await Runner(agent, store=store).run("hi", run_id="r")
    assert [e.key for e in suspended.events if isinstance(e, StepCompleted)] == [
        "1/m1/mw:HandleOnce/next1",
        "1/m1/mw:HandleOnce/next2",
    ]
    result = await Runner(agent, store=store).resume("r", "fine")
    assert (result.output, len(model.requests), result.values) == ("draft", 2, {"seen": "down"})


async def test_a_failed_next_counts_as_a_model_call_in_the_log() -> None:
    @model_middleware
    async def twice(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        try:
            return await next(request)
        except ModelError:
            return await next(request)

    @model_middleware
    async def around(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        return await next(request)

    for middleware in ([twice], [around, twice], [twice, around]):
        model = ScriptedModel([ModelError("down"), call("look"), ModelError("down"), "x"])
        agent = Agent("A", model=model, tools=[look], middleware=middleware)
        result = await Runner(agent, limits=Limits(model_calls=4)).run("hi")
        assert [e.model_calls for e in result.events if isinstance(e, AgentResponded)] == [2, 2]
        with pytest.raises(LimitError):
            await Runner(agent, limits=Limits(model_calls=3)).runs.replay(result.events)


async def test_a_tool_error_that_middleware_has_seen_is_raised_again_by_a_resume() -> None:
    tried: list[str] = []

    @tool(on_error="raise")
    async def fail() -> str:
        """Fail."""
        tried.append("x")
        raise ZeroDivisionError("broken")

    class AskAndRaise(Middleware):
        async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
            try:
                return await next(call)
            except BatonError:
                await ctx.interrupt("It failed. Go on?")
                return ToolResult("handled")

    store = MemoryStore()
    agent = Agent("A", model=ScriptedModel([call("fail"), "x"]), tools=[fail], middleware=[AskAndRaise()])
    await Runner(agent, store=store).run("hi", run_id="r")
    result = await Runner(agent, store=store).resume("r", "yes")
    assert [event.content for event in result.events if isinstance(event, ToolReturned)] == ["handled"]
    assert tried == ["x"]


async def test_an_error_in_the_middle_of_a_stream_reaches_the_middleware_and_restarts_the_stream() -> None:
    @model_middleware
    async def apologise(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        try:
            return await next(request)
        except ModelError as error:
            return answer(f"Sorry: {error}")

    stream = ScriptedStream("half an ", "ans", ModelError("the line is dead"))
    deltas, result = await deltas_of(one_agent(ScriptedModel([stream]), apologise))
    assert deltas == ["half an ", "ans", "restart", "Sorry: the line is dead"]
    assert result.output == "Sorry: the line is dead"


async def test_middleware_sees_the_whole_request() -> None:
    seen: list[ModelRequest] = []

    @model_middleware
    async def keep(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        seen.append(request)
        return await next(request)

    agent = Agent(
        "A",
        instructions="Be kind.",
        model=ScriptedModel(["3"]),
        model_settings=ModelSettings(temperature=0.5),
        tools=[look],
        output_type=int,
        tool_choice="none",
        middleware=[keep],
    )
    await Runner(agent).run("hi")
    (request,) = seen
    assert (request.instructions, [message.content for message in request.messages]) == ("Be kind.", ["hi"])
    assert ([spec.name for spec in request.tools], request.settings.temperature) == (["look"], 0.5)
    assert (request.output_schema is not None, request.tool_choice, request.agent) == (True, "none", "A")


async def test_middleware_runs_after_the_start_hook_and_before_the_end_hook() -> None:
    order: list[str] = []

    class Noted(AgentHooks):
        async def on_model_start(self, ctx: Any, agent: Any, request: Any) -> None:
            order.append("start hook")

        async def on_model_end(self, ctx: Any, agent: Any, response: Any) -> None:
            order.append(f"end hook: {response.message.content}")

    agent = Agent("A", model=RetryModel(ScriptedModel([ModelError("down", retryable=True), "fine"]), initial_delay=0))
    await Runner(agent.clone(hooks=Noted(), middleware=[Order("m", order), shout])).run("hi")
    assert order[1:-1] == ["start hook", "+m model", "-m model", "end hook: FINE"]


async def test_the_parts_of_a_model_call_come_in_order() -> None:
    # Tool sources, instructions, enablement, steering, compaction, projection, start hook, middleware,
    # model wrappers, record, end hook.
    order: list[str] = []

    def noted(what: str, returned: Any) -> Any:
        order.append(what)
        return returned

    class Source:
        async def get_tools(self, ctx: RunContext) -> Sequence[Any]:
            return noted("tool source", [])

    @tool(is_enabled=lambda ctx, agent: noted("enablement", True))
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return await ctx.interrupt("well?")

    class Noted(AgentHooks):
        async def on_model_start(self, ctx: Any, agent: Any, request: Any) -> None:
            order.append(f"start hook: {[str(message.content) for message in request.messages]}")

        async def on_model_end(self, ctx: Any, agent: Any, response: Any) -> None:
            order.append("end hook")

    class Wrapper:
        name = "wrapper"

        def respond(self, request: ModelRequest) -> Any:
            return noted("model wrapper", model.respond(request))

    @model_middleware
    async def around(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        return noted("-middleware", await next(noted("+middleware", request)))

    model = ScriptedModel([call("look"), call("look"), call("ask"), lambda request: noted("model", "done")])
    desk = Agent(
        "A",
        instructions=lambda ctx: noted("instructions", "Help."),
        model=Wrapper(),
        tools=[look, ask, cast("Any", Source())],
        hooks=Noted(),
        middleware=[around],
        # The message makes the history too long.
        compaction=Compaction(at_tokens=400, keep_last=1, summarizer=lambda ctx, read: noted("compaction", "Short.")),
    )
    runner = Runner(desk)
    suspended = await runner.run("hi " * 400)
    assert "compaction" not in order
    order.clear()
    result = await runner.resume(suspended.run_id, "fine", message="and quickly " * 100)
    *before, start = order[:5]
    assert before == ["tool source", "instructions", "enablement", "compaction"]
    assert start.startswith("start hook: ['")
    assert "Short." in start, "the projection reads the summary"
    assert "and quickly" in start, "the projection reads the message"
    assert order[5:] == ["+middleware", "model wrapper", "model", "-middleware", "end hook"]
    effects = [
        event for event in result.events if isinstance(event, UserMessageAdded | HistoryCompacted | AgentResponded)
    ]
    assert [type(event) for event in effects[-3:]] == [UserMessageAdded, HistoryCompacted, AgentResponded]


async def test_middleware_can_sleep() -> None:
    class Wait(Middleware):
        async def model_call(self, ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
            await ctx.sleep(timedelta(hours=1))
            return await next(request)

        async def activation(self, ctx: Any, next: Any) -> Any:
            await ctx.sleep(timedelta(hours=1))
            return await next()

    runner = one_agent(ScriptedModel(["done"]), Wait())
    around = await runner.run("hi")
    within = await runner.resume(around.run_id, True)
    assert [around.status, within.status] == ["suspended", "suspended"]
    assert (await runner.resume(around.run_id, True)).output == "done"


async def test_the_recorded_response_closes_interrupts_of_its_middleware() -> None:
    class FirstAnswer(Middleware):
        """Asks two people, and takes the answer of the first."""

        async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
            ctx.values.set("asked", True)
            first = await ctx.interrupt("first?")
            return answer(f"said {first}") if first else await next(request)

    store = MemoryStore()
    runner = Runner(Agent("A", model=ScriptedModel([]), middleware=[FirstAnswer()]), store=store)
    suspended = await runner.run("hi", run_id="r")
    assert [interrupt.id for interrupt in suspended.interrupts] == ["1/m1/mw:FirstAnswer/ask1"]
    result = await runner.resume("r", "yes")
    assert (result.output, result.interrupts, result.status) == ("said yes", (), "completed")


async def test_parallel_calls_of_next_survive_crashes() -> None:
    class BestOfTwo(Middleware):
        async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
            responses = cast("list[Any]", await asyncio.gather(next(request), next(request)))
            best: Any = max(responses, key=lambda response: len(response.message.content))
            await ctx.step("chosen", lambda: best.message.content)
            return best

    def new_runner(store: Any) -> Runner[Any, Any]:
        model = ScriptedModel([say("a", call("look")), say("bb", call("look")), "cc", "d"])
        return Runner(Agent("A", model=model, tools=[look], middleware=[BestOfTwo()]), store=store)

    await assert_survives_crashes(new_runner, "hi")


@pytest.mark.parametrize("kind", ["other model", "itself", "changed"])
async def test_parallel_guardrails_pass_before_anything_of_middleware_is_acted_upon(kind: str) -> None:
    seen: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        seen.append("paid")
        return "paid"

    async def refuse(ctx: Any, messages: Any) -> bool:
        seen.append("checked")
        return False

    other = ScriptedModel([ScriptedStream("Paying", call("pay")), "done"])

    @model_middleware
    async def choose(ctx: RunContext, request: ModelRequest, next: Any) -> ModelResponse:
        if kind == "other model":
            return await next(replace(request, model=other))
        if kind == "changed":
            await next(request)
        return ModelResponse(AssistantMessage("Paying", (ToolCall("1", "pay", "{}"),)))

    inner = Agent("A", model=ScriptedModel(["x", "y"]), tools=[pay], middleware=[choose])
    runner = Runner(with_guardrails(inner, input_guardrails=[refuse], mode="parallel"))
    delivered: list[Any] = []
    with pytest.raises(GuardrailTrippedError):
        async with runner.stream("hi") as run:
            delivered += [event async for event in run if isinstance(event, TextDelta)]
    assert (seen, delivered) == (["checked"], [])
