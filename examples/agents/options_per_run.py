"""Another model, other instructions and fewer tools, for one run. The model is scripted: no network, no key.

python examples/agents/options_per_run.py
baton check examples/agents/options_per_run.py:desk
baton run examples/agents/options_per_run.py:runner "Where is my parcel?"
"""

import asyncio

from batonkit import Agent, AgentOptions, ModelSettings, Runner, tool
from batonkit.models import register_model
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call


@tool
async def track(parcel: int) -> str:
    """Find a parcel."""
    return f"parcel {parcel} is in Graz"


@tool
async def refund(parcel: int) -> str:
    """Pay the price of a parcel back."""
    return f"parcel {parcel} is refunded"


large, small = (
    ScriptedModel([call("track", parcel=7), "It is in Graz."], cycle=True),
    ScriptedModel(["Hm."], cycle=True),
)
register_model("scripted", lambda name: small)  # So that the string `scripted:small` names it, as `openai:…` would.
desk = Agent("Desk", instructions="Help customers.", tools=[track, refund])
store = MemoryStore()
runner = Runner(desk, model=large, store=store)


async def main() -> None:
    print("scripted model: no language model is called")
    await runner.run("Where is my parcel?")
    # This caller has a small plan: a small model for all agents, and a desk that cannot refund.
    options = {"Desk": AgentOptions(instructions="Help customers. Be brief.", tools=["track"], max_turns=3)}
    settings = ModelSettings(temperature=0.2)
    await runner.run("Where is it?", model="scripted:small", model_settings=settings, agent_options=options)
    for model in (large, small):
        tools = ", ".join(spec.name for spec in model.requests[0].tools)
        print(f"{model.requests[0].instructions} [{tools}]")

    # Strings, numbers and names are recorded with the run: another process drives it with the same options.
    run_id = await runner.submit("Where is it?", model="scripted:small", agent_options=options)
    print(f"another worker: {(await Runner(desk, model=large, store=store).runs.drive(run_id)).status}")
    # An object is not data: it belongs to a runner. This one has the same team and the same runs.
    print(f"a clone: {(await runner.clone(model=small).run('Where is it?')).output}")


if __name__ == "__main__":
    asyncio.run(main())
