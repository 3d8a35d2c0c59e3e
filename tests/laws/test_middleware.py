"""The handoff contract holds with any middleware, and such runs replay and survive crashes."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize
from msgspec.structs import replace
from tests.laws.executions import Execution, run_in_loop
from tests.laws.plans import RunPlan, Scenario, TeamPlan
from tests.laws.stepped_runs import SteppedRuns
from tests.laws.strategies import runs, scenarios, teams
from tests.laws.test_handoff_contract import HandoffContract

from batonkit.log import decode_log, encode_log
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.middleware import Middleware
from batonkit.models import ModelResponse, ModelSettings

Change: TypeAlias = Literal["none", "request", "text", "calls", "own call", "again", "first", "itself", "steps"]


class RandomMiddleware(Middleware):
    """Changes requests and responses, calls the model again, or answers by itself, depending on the conversation."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes

    def __repr__(self) -> str:
        return f"RandomMiddleware({self.changes})"

    async def model_call(self, ctx: Any, request: Any, next: Any) -> Any:
        change: Change = self.changes[len(request.messages) % len(self.changes)]
        own_call = ToolCall(f"own-{ctx.idempotency_key}", request.tools[0].name if request.tools else "none", "{}")
        match change:
            case "request":
                edited = replace(request, instructions="Edited.", settings=ModelSettings(temperature=0.5))
                return await next(edited)
            case "text":
                response = await next(request)
                return replace(response, message=replace(response.message, content="edited"))
            case "calls":
                response = await next(request)
                return replace(response, message=AssistantMessage("no calls"))
            case "own call":
                response = await next(request)
                calls = (own_call, *response.message.tool_calls)
                return replace(response, message=replace(response.message, tool_calls=calls))
            case "again":
                await next(request)
                return await next(request)
            case "first":
                response = await next(request)
                await next(request)
                return response
            case "itself":
                calls = (own_call,) if len(request.messages) % 2 else ()
                return ModelResponse(AssistantMessage("by itself", calls))
            case "steps":
                await ctx.step("before", lambda: "x")
                response = await next(request)
                await ctx.step("after", lambda: "y")
                return response
            case "none":
                return await next(request)

    async def tool_call(self, ctx: Any, call: Any, next: Any) -> Any:
        if self.changes[0] == "steps":
            await ctx.step("before", lambda: "x")
        result = await next(call)
        if self.changes[-1] == "steps":
            await ctx.step("after", lambda: "y")
        return result

    async def activation(self, ctx: Any, next: Any) -> Any:
        return await next()


random_middleware = st.lists(
    st.lists(st.sampled_from(get_args(Change)), min_size=1, max_size=5).map(RandomMiddleware), min_size=1, max_size=2
)


class HandoffContractWithMiddleware(HandoffContract):
    """Random runs of random teams with middleware around every model call, tool call and activation."""

    @initialize(team=teams(), run=runs, is_streamed=st.booleans(), middleware=random_middleware)
    def begin(self, team: TeamPlan, run: RunPlan, is_streamed: bool, middleware: Sequence[Middleware]) -> None:
        self.runs_under_test = SteppedRuns(team, run, is_streamed=is_streamed, middleware=middleware)


TestHandoffContractWithMiddleware = HandoffContractWithMiddleware.TestCase


def _summary(result: Any) -> tuple[object, ...]:
    return result.status, result._output, result.agent, result.messages, result.values


@given(scenario=scenarios(), middleware=random_middleware)
def test_replaying_a_run_with_middleware_reproduces_it(scenario: Scenario, middleware: list[Middleware]) -> None:
    note(repr((scenario, middleware)))
    execution = Execution(scenario, middleware=middleware)
    result = run_in_loop(execution.run())
    assume(result.status == "completed")
    before = execution.environment.effects.copy(), len(execution.model.requests)
    replayed = run_in_loop(execution.new_runner().runs.replay(result.events))
    assert (execution.environment.effects, len(execution.model.requests)) == before
    assert (replayed.events, _summary(replayed)) == (result.events, _summary(result))


@settings(max_examples=settings().max_examples // 2)  # Each is run again after each of its events.
@given(scenario=scenarios(), middleware=random_middleware)
def test_a_run_with_middleware_can_be_resumed_after_any_event(scenario: Scenario, middleware: list[Middleware]) -> None:
    note(repr((scenario, middleware)))
    execution = Execution(scenario, middleware=middleware)
    result = run_in_loop(execution.run())
    assume(result.status == "completed")
    for length in range(1, len(result.events)):
        note(f"crashed after {length} events, the last being {result.events[length - 1]}")
        recorded = decode_log(encode_log(result.events[:length]))
        resumed = Execution(scenario, middleware=middleware)
        ended = run_in_loop(resumed.resume_from(recorded))
        assert ended.events[:length] == result.events[:length]
        happened = resumed.environment.effects
        assert all(count == 1 for count in happened.values())
        keys = {event.key for event in recorded}
        assert not [key for key in happened if key.partition(":")[2] in keys], "a recorded effect happened again"
