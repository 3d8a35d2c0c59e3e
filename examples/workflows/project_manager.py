"""Supervisor, sequence, parallel and questions in one team. The model is scripted: no network, no key.

python examples/workflows/project_manager.py
baton check examples/workflows/project_manager.py:manager
"""

import asyncio
from typing import Any

from batonkit import Agent, ParallelAgent, RunContext, Runner, SequentialAgent, supervisor, tool
from batonkit.log import decode_log, encode_log
from batonkit.testing import call, scripted_or_real


@tool
async def ask_owner(ctx: RunContext[Any], question: str) -> str:
    """Ask the owner of the project."""
    return str(await ctx.interrupt(question))


@tool(needs_approval=True)
async def release(version: str) -> str:
    """Release a version to all users."""
    return f"{version} is out"


reviews = ParallelAgent("Reviews", sub_agents=[Agent("Security"), Agent("Style", tools=[ask_owner])])
build = SequentialAgent("Build", description="Writes code and has it reviewed.", sub_agents=[Agent("Coder"), reviews])
analyst = Agent("Analyst", description="Finds out what is wanted.", tools=[ask_owner])
shipper = Agent("Shipper", description="Releases.", tools=[release])
manager = supervisor(Agent("Manager", instructions="See it through."), sub_agents=[analyst, build, shipper])
model = scripted_or_real(
    {
        "Manager": [call("transfer_to_analyst"), call("transfer_to_build"), call("transfer_to_shipper"), "It is out."],
        "Analyst": [call("ask_owner", question="Which colour?"), "Green it is."],
        "Coder": ["A green button."],
        "Security": ["No way in."],
        "Style": [call("ask_owner", question="Round corners?"), "Round corners, then."],
        "Shipper": [call("release", version="1.0"), "Released."],
    }
)
ANSWERS = {"Which colour?": "green", "Round corners?": "yes"}
runner = Runner(manager, model=model)


async def main() -> None:
    print(model.notice)
    result = await runner.run("A button, please.")
    while result.status == "suspended":
        (question,) = result.interrupts
        answer: Any = ANSWERS.get(str(question.payload), True)
        print(f"{' → '.join(question.path)} asks {question.payload!r}: {answer}")
        # Hours later, in another process: all it needs is the log, and nothing in it is done again.
        later = Runner(manager, model=model)
        result = await later.resume(await later.runs.load(decode_log(encode_log(result.events))), {question.id: answer})
    print(f"{result.output} ({result.usage.total.model_calls} model calls, {len(result.events)} events)")


if __name__ == "__main__":
    asyncio.run(main())
