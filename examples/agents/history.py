"""What the next agent reads is a projection of the log. The model is scripted: no network, no key.

python examples/agents/history.py
baton check examples/agents/history.py:nurse
"""

from collections.abc import Sequence
from typing import Any

from batonkit import Agent, BaseAgent, Runner, then_transfer, tool
from batonkit.agents import HistoryPolicy
from batonkit.log import HistoryEntry
from batonkit.messages import Message, ToolMessage, UserMessage, text_of
from batonkit.runs import HistoryOptions
from batonkit.testing import call, scripted_or_real


@tool
async def file_of(patient: str) -> str:
    """The file of a patient."""
    return f"{patient}: allergic to nuts"


def in_brief(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
    """A projection of your own: entries in, messages out."""
    asked = [entry.message for entry in entries if entry.is_user_input]
    known = [text_of(entry.message.content) for entry in entries if isinstance(entry.message, ToolMessage)]
    return [*asked, UserMessage(f"Known so far: {known[0]}")]


def team(projection: HistoryPolicy) -> BaseAgent[Any, Any]:
    """A nurse, and a doctor who reads what happened in the way asked for."""
    doctor = Agent("Doctor", description="Knows what to do.", instructions="Advise.", history=projection)
    nurse = Agent("Nurse", description="Has the files.", tools=[file_of], sub_agents=[doctor])
    return then_transfer(nurse, to="Doctor")


nurse = team("rewritten")


def main() -> None:
    projections: list[HistoryPolicy] = ["rewritten", "verbatim", "lineage", "answers", "none", in_brief]
    model = scripted_or_real([call("file_of", patient="Ada"), "Ada must not eat nuts.", "No cake, then."], cycle=True)
    print(model.notice)
    for projection in projections:
        Runner(team(projection), model=model, history=HistoryOptions(show_transfers=False)).run_sync(
            "May Ada have cake?"
        )
        print(f"\nwith history={projection if isinstance(projection, str) else 'a function'} the doctor reads:")
        for message in model.requests[-1].messages:
            calls = [f"{each.name}({each.arguments})" for each in getattr(message, "calls", ())]
            print(f"  {type(message).__name__}: {' '.join([str(message.content), *calls]).strip()}")


if __name__ == "__main__":
    main()
