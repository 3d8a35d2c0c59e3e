"""Arguments of plain types are validated without pydantic, with the same results."""

import subprocess
import sys


def test_a_run_with_a_tool_of_plain_arguments_does_not_import_pydantic() -> None:
    program = """
import asyncio, sys
from batonkit import Agent, Runner, tool
from batonkit.messages import AssistantMessage, ToolCall
from batonkit.models import CompleteResponse, ModelResponse

@tool
async def step(n: int) -> str:
    return str(n)

class Stub:
    name = "stub"
    def respond(self, request):
        calls = (ToolCall("c", "step", '{"n": 1}'),) if len(request.messages) == 1 else ()
        return CompleteResponse(ModelResponse(AssistantMessage("" if calls else "done", calls)))

print(asyncio.run(Runner(Agent("A", tools=[step]), model=Stub()).run("Go.")).output, "pydantic" in sys.modules)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["done", "False"]
