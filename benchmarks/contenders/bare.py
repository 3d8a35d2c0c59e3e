"""The honest minimum: an asyncio loop over plain dicts that a programmer would write for one program.

It has no log, no limits, no validation and no hooks. It is the scale, not a rival.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.contender import RunOnce
from benchmarks.script import Script
from benchmarks.workloads import INSTRUCTIONS, QUESTION, TRANSFER_PREFIX, TRANSFER_TOOL, Call, Outcome, Workload

Message = dict[str, Any]
BareAgent = dict[str, Any]


class StubModel:
    def __init__(self, script: Script) -> None:
        self.script = script

    async def answer(self, agent: BareAgent, messages: list[Message]) -> tuple[str, tuple[Call, ...]]:
        if self.script.workload.shape == "branches":
            reply = await self.script.overlapping(len(messages))
        elif self.script.reads_results:
            last = messages[-1]
            reply = self.script.after(last["content"] if last["role"] == "tool" else "", len(messages))
        else:
            reply = self.script.next(len(messages))
        return reply.text, reply.calls

    async def deltas(self, agent: BareAgent, messages: list[Message]) -> AsyncIterator[str]:
        for delta in self.script.next(len(messages)).deltas:
            yield delta


async def run_agents(model: StubModel, agents: dict[str, BareAgent], agent: BareAgent, question: str) -> Outcome:
    messages: list[Message] = [{"role": "user", "content": question}]
    while True:
        text, calls = await model.answer(agent, messages)
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        if not calls:
            return Outcome(text, agent["name"])
        name = calls[0].name
        if name == TRANSFER_TOOL or name in agent["handoffs"]:
            arguments = json.loads(calls[0].arguments)
            agent = agents[arguments["agent_name"]] if name == TRANSFER_TOOL else agent["handoffs"][name]
            content = f"transferred to {agent['name']}"
            messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": content})
        elif len(calls) == 1:
            content = await call_tool(agent, calls[0])
            messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": content})
        else:
            contents = await asyncio.gather(*(call_tool(agent, call) for call in calls))
            for call, content in zip(calls, contents, strict=True):
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def run_branches(model: StubModel, agents: dict[str, BareAgent], question: str) -> Outcome:
    """All agents at once, each on its own copy of the conversation; what they say is joined in their order."""
    messages: list[Message] = [{"role": "user", "content": question}]

    async def run_branch(agent: BareAgent) -> list[Message]:
        own = list(messages)
        text, calls = await model.answer(agent, own)
        own.append({"role": "assistant", "content": text, "tool_calls": calls})
        return own

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_branch(agent)) for agent in agents.values()]
    said = [message for task in tasks for message in task.result()[len(messages) :]]
    messages += said
    return Outcome("".join(message["content"] for message in said), "All")


async def run_loop(model: StubModel, agent: BareAgent, question: str, iterations: int) -> Outcome:
    """One agent again and again on the same conversation."""
    messages: list[Message] = [{"role": "user", "content": question}]
    text = ""
    for _ in range(iterations):
        text, calls = await model.answer(agent, messages)
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
    return Outcome(text, "Loop")


async def call_tool(agent: BareAgent, call: Call) -> str:
    return await agent["tools"][call.name](**json.loads(call.arguments))


async def stream_agent(model: StubModel, agent: BareAgent, question: str) -> AsyncIterator[Message]:
    messages: list[Message] = [{"role": "user", "content": question}]
    pieces: list[str] = []
    async for delta in model.deltas(agent, messages):
        pieces.append(delta)
        yield {"type": "delta", "text": delta}
    messages.append({"role": "assistant", "content": "".join(pieces)})
    yield {"type": "end", "agent": agent["name"]}


def prepare(workload: Workload, script: Script) -> RunOnce:
    model = StubModel(script)
    tools = {"step": script.step_tool()}
    agents: dict[str, BareAgent] = {}
    for name in workload.agents:
        agents[name] = {"name": name, "instructions": INSTRUCTIONS, "tools": tools}
    for agent in agents.values():
        agent["handoffs"] = {f"{TRANSFER_PREFIX}{name.lower()}": other for name, other in agents.items()}
    first = agents[workload.agents[0]]
    if workload.shape == "agent_tool":
        second = agents[workload.agents[1]]

        async def ask_second(request: str) -> str:
            return (await run_agents(model, agents, second, request)).text

        first["tools"] = {"a1": ask_second}
    if workload.shape == "branches":
        return lambda: run_branches(model, agents, QUESTION)
    if workload.shape == "loop":
        return lambda: run_loop(model, first, QUESTION, workload.units)

    async def run_once() -> Outcome:
        return await run_agents(model, agents, first, QUESTION)

    async def stream_once() -> Outcome:
        pieces: list[str] = []
        last_agent = ""
        async for event in stream_agent(model, first, QUESTION):
            if event["type"] == "delta":
                pieces.append(event["text"])
            else:
                last_agent = event["agent"]
        return Outcome("".join(pieces), last_agent, len(pieces))

    return stream_once if workload.shape == "stream" else run_once
