"""Pydantic AI: a `Model` subclass that answers from the script. Instrumentation is off unless asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.usage import RequestUsage

from benchmarks.contender import Inexpressible, RunOnce
from benchmarks.script import Script
from benchmarks.workloads import INSTRUCTIONS, QUESTION, Outcome, Reply, Workload


@dataclass
class StubStream(StreamedResponse):
    deltas: tuple[str, ...]

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        for delta in self.deltas:
            for event in self._parts_manager.handle_text_delta(vendor_part_id="text", content=delta):
                yield event
        self._usage += RequestUsage(input_tokens=1, output_tokens=len(self.deltas))

    async def close_stream(self) -> None:
        pass

    @property
    def model_name(self) -> str:
        return "stub"

    @property
    def provider_name(self) -> str | None:
        return None

    @property
    def provider_url(self) -> str | None:
        return None

    @property
    def timestamp(self) -> datetime:
        return datetime.now(UTC)


class StubModel(Model):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    @property
    def model_name(self) -> str:
        return "stub"

    @property
    def system(self) -> str:
        return "stub"

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> ModelResponse:
        self.prepare_request(model_settings, model_request_parameters)
        reply = self.reply_to(messages)
        parts: list[Any] = [ToolCallPart(call.name, call.arguments, call.id) for call in reply.calls]
        if not parts:
            parts = [TextPart(reply.text)]
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=1, output_tokens=1), model_name="stub")

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[StreamedResponse]:
        self.prepare_request(model_settings, model_request_parameters)
        yield StubStream(model_request_parameters, deltas=self.reply_to(messages).deltas)

    def reply_to(self, messages: Any) -> Reply:
        if not self.script.reads_results:
            return self.script.next(len(messages))
        last = messages[-1].parts[-1]
        return self.script.after(last.content if isinstance(last, ToolReturnPart) else "", len(messages))


def prepare(workload: Workload, script: Script) -> RunOnce:
    if workload.shape in ("chain", "ping_pong"):
        raise Inexpressible(
            "has no transfer of control: the caller runs the next agent, or an agent calls it as a tool"
        )
    tools = []
    if workload.shape in ("tool_loop", "parallel_tools"):
        tools = [Tool(script.step_tool(), name="step", takes_ctx=False)]
    agent = Agent(StubModel(script), name=workload.agents[0], instructions=INSTRUCTIONS, tools=tools)

    async def run_once() -> Outcome:
        result = await agent.run(QUESTION)
        return Outcome(result.output, agent.name or "")

    async def stream_once() -> Outcome:
        pieces: list[str] = []
        async with agent.run_stream_events(QUESTION) as events:
            async for event in events:
                # The first delta arrives as the start of a part, all others as additions to it.
                if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    pieces.append(event.delta.content_delta)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    pieces.append(event.part.content)
        return Outcome("".join(pieces), agent.name or "", len(pieces))

    return stream_once if workload.shape == "stream" else run_once
