"""One tool loop in three ways: a bare client, the official client, and Baton. Each yields a function that runs it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
from openai import AsyncOpenAI

from batonkit import Agent, Runner, tool
from batonkit.models.openai import OpenAIModel
from benchmarks.workloads import INSTRUCTIONS, QUESTION

RunOnce = Callable[[], Awaitable[str]]
Opened = Callable[[str], AbstractAsyncContextManager[RunOnce]]

KEY = "stub-key"
TOOL = {
    "name": "step",
    "description": "Take a step.",
    "parameters": {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
}


def step(n: int) -> str:
    """Take a step."""
    return f"step {n}"


def result_of(call: dict[str, Any]) -> dict[str, Any]:
    arguments = json.loads(call["function"]["arguments"])
    return {"role": "tool", "tool_call_id": call["id"], "content": step(**arguments)}


def first_messages() -> list[dict[str, Any]]:
    return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": QUESTION}]


@asynccontextmanager
async def bare(base_url: str) -> AsyncGenerator[RunOnce]:
    """aiohttp and dicts: the least that a program can do."""
    tools = [{"type": "function", "function": TOOL}]
    headers = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1000), headers=headers) as session:

        async def run_once() -> str:
            messages = first_messages()
            while True:
                body = {"model": "stub", "messages": messages, "tools": tools}
                async with session.post(f"{base_url}/chat/completions", json=body) as response:
                    said = (await response.json())["choices"][0]["message"]
                messages.append(said)
                if not said.get("tool_calls"):
                    return said["content"]
                messages += [result_of(call) for call in said["tool_calls"]]

        yield run_once


@asynccontextmanager
async def official(base_url: str) -> AsyncGenerator[RunOnce]:
    """The official client in the same loop."""
    tools: Any = [{"type": "function", "function": TOOL}]
    async with AsyncOpenAI(api_key=KEY, base_url=base_url, max_retries=0) as client:

        async def run_once() -> str:
            messages: list[Any] = first_messages()
            while True:
                answer = await client.chat.completions.create(model="stub", messages=messages, tools=tools)
                said = answer.choices[0].message
                messages.append(said)
                if not said.tool_calls:
                    return said.content or ""
                messages += [result_of(call.to_dict()) for call in said.tool_calls]

        yield run_once


@asynccontextmanager
async def baton(base_url: str) -> AsyncGenerator[RunOnce]:
    """An agent with a tool, at its default settings, over Baton's own wire."""
    # In the loop, as it is called in the other two.
    agent = Agent("A0", instructions=INSTRUCTIONS, tools=[tool(in_thread=False)(step)])
    model = OpenAIModel("stub", base_url=base_url, api_key=KEY)
    runner = Runner(agent, model=model)

    async def run_once() -> str:
        return (await runner.run(QUESTION)).output

    yield run_once
    await model.aclose()


LOOPS: dict[str, Opened] = {"aiohttp": bare, "baton": baton, "openai": official}
