"""Middleware around model calls and tool calls, yours and ready-made. The model is scripted: no network.

python examples/agents/middleware.py
baton check examples/agents/middleware.py:desk
"""

from typing import Any

from msgspec.structs import replace

from batonkit import Agent, Middleware, RunContext, Runner, ToolResult, tool
from batonkit.messages import ToolCall, text_of
from batonkit.middleware import NextModelCall, NextToolCall, RedactPII, RequireAnnouncedHandoff, ValidateOutput
from batonkit.models import ModelRequest, ModelResponse
from batonkit.testing import ScriptedModel, call

STEPS: dict[str, Any] = {
    "Desk": ["I will transfer you to billing.", call("transfer_to_billing")],
    "Billing": [call("send_bill", address="[email 1]"), "Sent.", "The bill is on its way to [email 1]."],
}


class Log(Middleware):
    """Prints what passes, and adds a sentence to the instructions."""

    async def model_call(self, ctx: RunContext, request: ModelRequest, next: NextModelCall) -> ModelResponse:
        print(f"  {ctx.agent} reads: {text_of(request.messages[-1].content)}")
        return await next(replace(request, instructions=f"{request.instructions} Be brief."))

    async def tool_call(self, ctx: RunContext, call: ToolCall, next: NextToolCall) -> ToolResult:
        result = await next(call)
        print(f"  {call.name} -> {result.content}")
        return result


def names_the_address(ctx: RunContext, output: str) -> str | None:
    """Say what is wrong with an answer, or nothing."""
    return None if " to " in output else "say where the bill was sent."


@tool
async def send_bill(address: str) -> str:
    """Send the bill."""
    return f"sent to {address}"


billing = Agent(
    "Billing", description="Sends bills.", tools=[send_bill], middleware=[ValidateOutput(names_the_address)]
)
desk = Agent("Desk", handoffs=[billing], middleware=[RequireAnnouncedHandoff()])

if __name__ == "__main__":
    print("scripted model: no language model is called")
    model = ScriptedModel(STEPS)
    # The runner's middleware is outside: the log shows what the user wrote, the model reads placeholders.
    runner = Runner(desk, model=model, middleware=[Log(), RedactPII(restore=True)])
    result = runner.run_sync("My bill to ada@example.org, please.")
    print(f"the model read: {text_of(model.requests[0].messages[0].content)}")
    print(f"{result.agent}: {result.output} ({len(model.requests)} model calls)")
