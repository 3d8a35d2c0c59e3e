"""What was said in a run, read from its log alone."""

from typing import Any

from baton import Agent, AgentContext, BaseAgent, Runner
from baton.flow import recalled
from baton.messages import text_of
from baton.testing import ScriptedModel, call


async def test_places_may_be_words_and_stay_in_the_order_in_which_they_began() -> None:
    # The agent says nothing between its parts, so that only their places and their beginnings tell them apart.
    class Stage(BaseAgent[Any, Any]):
        def parts(self) -> tuple[BaseAgent[Any, Any], ...]:
            return (writer, critic)

        async def run(self, ctx: AgentContext[Any]) -> None:
            await ctx.inside(writer, "writing")
            await ctx.inside(critic, "judging.first")

    writer, critic = Agent("Writer", handoffs=[Agent("Aide", description="d")]), Agent("Critic")
    script = {"Writer": [call("transfer_to_aide")], "Aide": ["w"], "Critic": ["c"]}
    result = await Runner(Stage("Stage"), model=ScriptedModel(script)).run("go")
    entries = recalled(result.events)
    assert [text_of(entry.message.content) for entry in entries] == [
        "go",
        "",
        '{"assistant":"Aide"}',
        "w",
        "c",
    ]
    assert [entry.message for entry in entries] == [*result.messages]
