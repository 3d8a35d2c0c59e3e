"""OpenAI Agents SDK: a `Model` subclass that answers from the script; tracing is switched off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from agents import Agent, FunctionTool, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from benchmarks.contender import RunOnce
from benchmarks.script import Script
from benchmarks.workloads import INSTRUCTIONS, QUESTION, Outcome, Reply, Workload

set_tracing_disabled(True)

MAX_TURNS = 10_000


class StubModel(Model):
    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **options: Any
    ) -> ModelResponse:
        reply = self.reply_to(input)
        return ModelResponse(output=output_items(reply), usage=Usage(requests=1), response_id=None)

    async def stream_response(
        self, system_instructions: str | None, input: Any, *args: Any, **options: Any
    ) -> AsyncIterator[Any]:
        reply = self.reply_to(input)
        number = 0
        for number, delta in enumerate(reply.deltas):
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=delta,
                item_id="message",
                logprobs=[],
                output_index=0,
                sequence_number=number,
                type="response.output_text.delta",
            )
        yield ResponseCompletedEvent(response=completed(reply), sequence_number=number + 1, type="response.completed")

    def reply_to(self, items: Any) -> Reply:
        history = [items] if isinstance(items, str) else items
        if not self.script.reads_results:
            return self.script.next(len(history))
        last = history[-1]
        result = last["output"] if isinstance(last, dict) and last.get("type") == "function_call_output" else ""
        return self.script.after(result, len(history))


def output_items(reply: Reply) -> list[Any]:
    if reply.target is not None:
        return [tool_call(reply.calls[0].id, f"transfer_to_{reply.target.lower()}", "{}")]
    if reply.calls:
        return [tool_call(call.id, call.name, call.arguments) for call in reply.calls]
    content = ResponseOutputText(annotations=[], text=reply.text, type="output_text")
    return [
        ResponseOutputMessage(id="message", content=[content], role="assistant", status="completed", type="message")
    ]


def tool_call(call_id: str, name: str, arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(call_id=call_id, name=name, arguments=arguments, type="function_call")


def completed(reply: Reply) -> Response:
    return Response(
        id="response",
        created_at=0,
        model="stub",
        object="response",
        output=output_items(reply),
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )


def build_agents(workload: Workload, script: Script) -> Agent[Any]:
    model = StubModel(script)
    tools: list[FunctionTool] = []
    if workload.shape in ("tool_loop", "parallel_tools"):
        tools = [function_tool(script.step_tool(), name_override="step")]
    agents = [Agent(name=name, instructions=INSTRUCTIONS, model=model, tools=tools) for name in workload.agents]
    for agent, following in pairwise(agents):
        agent.handoffs = [following]
    if workload.shape == "ping_pong":
        agents[1].handoffs = [agents[0]]
    return agents[0]


def prepare(workload: Workload, script: Script) -> RunOnce:
    first = build_agents(workload, script)

    async def run_once() -> Outcome:
        result = await Runner.run(first, QUESTION, max_turns=MAX_TURNS)
        return Outcome(result.final_output, result.last_agent.name)

    async def stream_once() -> Outcome:
        pieces: list[str] = []
        result = Runner.run_streamed(first, QUESTION, max_turns=MAX_TURNS)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                pieces.append(event.data.delta)  # noqa: PERF401 - every contender consumes its stream the same way.
        return Outcome("".join(pieces), result.last_agent.name, len(pieces))

    return stream_once if workload.shape == "stream" else run_once
