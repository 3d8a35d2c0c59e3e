"""Google ADK: a `BaseLlm` subclass behind `LlmAgent` and the in-memory runner; telemetry is off (`peer_sessions`).

Every run gets a fresh session, because that is the only way to start one; it is deleted afterwards.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types

from benchmarks.contender import RunOnce
from benchmarks.script import Script
from benchmarks.workloads import INSTRUCTIONS, QUESTION, Outcome, Reply, Workload

logging.disable(logging.WARNING)

APP, USER = "benchmark", "user"


class StubModel(BaseLlm):
    script: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        reply = self.reply_to(llm_request.contents)
        if stream:
            for delta in reply.deltas:
                yield LlmResponse(content=content_of(types.Part(text=delta)), partial=True)
        yield LlmResponse(content=content_of(*parts_of(reply)), partial=False)

    def reply_to(self, contents: list[types.Content]) -> Reply:
        if not self.script.reads_results:
            return self.script.next(len(contents))
        returned = contents[-1].parts[-1].function_response
        return self.script.after(returned.response["result"] if returned else "", len(contents))


def content_of(*parts: types.Part) -> types.Content:
    return types.Content(role="model", parts=list(parts))


def parts_of(reply: Reply) -> list[types.Part]:
    calls = (types.FunctionCall(id=call.id, name=call.name, args=json.loads(call.arguments)) for call in reply.calls)
    return [types.Part(function_call=call) for call in calls] or [types.Part(text=reply.text)]


def build_agents(workload: Workload, script: Script) -> LlmAgent:
    """The root of a tree in which each agent is the parent of the next: control can go down and up again."""
    model = StubModel(model="stub", script=script)
    tools = [FunctionTool(script.step_tool())] if workload.shape in ("tool_loop", "parallel_tools") else []
    agent: LlmAgent | None = None
    for name in reversed(workload.agents):
        agent = LlmAgent(
            name=name,
            description=f"Agent {name}.",
            instruction=INSTRUCTIONS,
            model=model,
            tools=tools,
            sub_agents=[agent] if agent else [],
        )
    assert agent is not None
    return agent


def prepare(workload: Workload, script: Script) -> RunOnce:
    runner = InMemoryRunner(build_agents(workload, script), app_name=APP)
    streaming = StreamingMode.SSE if workload.shape == "stream" else StreamingMode.NONE
    config = RunConfig(max_llm_calls=100_000, streaming_mode=streaming)
    question = types.Content(role="user", parts=[types.Part(text=QUESTION)])

    async def run_once() -> Outcome:
        pieces: list[str] = []
        text = agent = ""
        session = await runner.session_service.create_session(app_name=APP, user_id=USER)
        events = runner.run_async(user_id=USER, session_id=session.id, new_message=question, run_config=config)
        async for event in events:
            said = event.content.parts[0].text if event.content and event.content.parts else None
            if event.partial and said:
                pieces.append(said)
            elif said:
                text, agent = said, event.author
        await runner.session_service.delete_session(app_name=APP, user_id=USER, session_id=session.id)
        return Outcome("".join(pieces) or text, agent, len(pieces))

    return run_once
