"""Agents of your own code, beside one that asks a model. The model is scripted: no network, no key.

python examples/agents/your_own_agent.py
baton check examples/agents/your_own_agent.py:doorman
"""

from typing import Any

from batonkit import Agent, AgentContext, BaseAgent, Runner, Transfer, agent
from batonkit.testing import scripted_or_real, transcript


async def is_member(name: str) -> bool:
    """Stands for a database."""
    return name == "Ada"


class Doorman(BaseAgent[Any]):
    """Lets members in, by a rule that no model has to guess."""

    async def run(self, ctx: AgentContext[Any]) -> Transfer | None:
        name: str = ctx.values["name"]
        # Recorded: a resumed run does not ask the database again.
        if await ctx.step("look_up", lambda: is_member(name)):
            await ctx.say(f"Welcome, {name}.")
            return Transfer("Host")
        return Transfer("Bouncer")


@agent("Bouncer", description="Turns people away.")
async def bouncer(ctx: AgentContext[Any]) -> None:
    await ctx.say("Members only, sorry.")


host = Agent("Host", description="Looks after members.", instructions="Offer a table.")
doorman = Doorman("Doorman", description="Lets members in.", handoffs=[host, bouncer])
model = scripted_or_real(["The table by the window is yours."], cycle=True)
runner = Runner(doorman, model=model)


def main() -> None:
    print(model.notice)
    for name in ("Ada", "Bob"):
        result = runner.run_sync("A table, please.", values={"name": name})
        print("\n".join(transcript(result.events)), end="\n\n")


if __name__ == "__main__":
    main()
