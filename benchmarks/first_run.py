"""The first run of a new process, with one tool: prints the CPU seconds since the interpreter started."""

import asyncio
import time
from collections.abc import AsyncIterable

from batonkit import Agent, Runner, tool
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.models import Chunk, CompleteResponse, ModelRequest, ModelResponse


@tool
async def step(n: int) -> str:
    """Take a step."""
    return str(n)


class Stub:
    """Calls the tool, then answers."""

    name = "stub"

    def respond(self, request: ModelRequest) -> AsyncIterable[Chunk]:
        calls = (ToolCall("c", "step", '{"n": 1}'),) if len(request.messages) == 1 else ()
        return CompleteResponse(ModelResponse(AssistantMessage("" if calls else "done", calls)))


asyncio.run(Runner(Agent("A", tools=[step]), model=Stub()).run("Go."))
print(time.process_time())
