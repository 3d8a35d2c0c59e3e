"""LangGraph: a chat-model subclass behind a message graph, without a checkpointer; tracing is off (`peer_sessions`).

Tools run in the library's own `ToolNode`. A handoff is a node that returns `Command(goto=...)`, as its guide shows.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from benchmarks.contender import RunOnce
from benchmarks.script import Script
from benchmarks.workloads import INSTRUCTIONS, QUESTION, Outcome, Reply, Workload

CONFIG = {"recursion_limit": 10_000}
SYSTEM = SystemMessage(INSTRUCTIONS)


class StubModel(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "stub"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        raise NotImplementedError("the benchmark only runs asynchronously")

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        reply = self.reply_to(messages)
        calls = [{"id": call.id, "name": call.name, "args": json.loads(call.arguments)} for call in reply.calls]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply.text, tool_calls=calls))])

    def reply_to(self, messages: Any) -> Reply:
        history_length = len(messages) - 1  # The system message is the request's, not the conversation's.
        if not self.script.reads_results:
            return self.script.next(history_length)
        last = messages[-1]
        return self.script.after(last.content if isinstance(last, ToolMessage) else "", history_length)


class StreamingStubModel(StubModel):
    """A class of its own, because a chat model that can stream is always asked to when anyone listens."""

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for delta in self.reply_to(messages).deltas:
            chunk = ChatGenerationChunk(message=AIMessageChunk(delta))
            if run_manager is not None:
                await run_manager.on_llm_new_token(delta, chunk=chunk)
            yield chunk


def tool_graph(workload: Workload, script: Script, *, checkpointer: Any = None) -> Any:
    model = StreamingStubModel(script=script) if workload.shape == "stream" else StubModel(script=script)
    name = workload.agents[0]

    async def ask(state: MessagesState) -> dict[str, Any]:
        message = await model.ainvoke([SYSTEM, *state["messages"]])
        message.name = name
        return {"messages": [message]}

    graph = StateGraph(MessagesState)
    graph.add_node(name, ask)
    graph.add_edge(START, name)
    if workload.shape in ("tool_loop", "parallel_tools"):
        step = StructuredTool.from_function(coroutine=script.step_tool(), name="step", description="Take one step.")
        graph.add_node("tools", ToolNode([step]))
        graph.add_conditional_edges(name, tools_condition)
        graph.add_edge("tools", name)
    return graph.compile(checkpointer=checkpointer)


def handoff_graph(workload: Workload, script: Script) -> Any:
    model = StubModel(script=script)

    def agent_node(name: str) -> Any:
        async def ask(state: MessagesState) -> Command:
            message = await model.ainvoke([SYSTEM, *state["messages"]])
            message.name = name
            if not message.tool_calls:
                return Command(goto=END, update={"messages": [message]})
            call = message.tool_calls[0]
            target = call["args"]["agent_name"]
            note = ToolMessage(f"transferred to {target}", tool_call_id=call["id"])
            return Command(goto=target, update={"messages": [message, note]})

        return ask

    graph = StateGraph(MessagesState)
    for name in workload.agents:
        graph.add_node(name, agent_node(name), destinations=(*workload.agents, END))
    graph.add_edge(START, workload.agents[0])
    return graph.compile()


def prepare(workload: Workload, script: Script) -> RunOnce:
    passes_control = workload.shape in ("chain", "ping_pong")
    graph = handoff_graph(workload, script) if passes_control else tool_graph(workload, script)

    async def run_once() -> Outcome:
        state = await graph.ainvoke({"messages": [HumanMessage(QUESTION)]}, CONFIG)
        last = state["messages"][-1]
        return Outcome(last.content, last.name)

    async def stream_once() -> Outcome:
        pieces: list[str] = []
        agent = ""
        inputs = {"messages": [HumanMessage(QUESTION)]}
        async for chunk, metadata in graph.astream(inputs, CONFIG, stream_mode="messages"):
            # Closing chunks without text belong to the stream's end, not to its deltas.
            if chunk.content:
                pieces.append(chunk.content)
                agent = metadata["langgraph_node"]
        return Outcome("".join(pieces), agent, len(pieces))

    return stream_once if workload.shape == "stream" else run_once
