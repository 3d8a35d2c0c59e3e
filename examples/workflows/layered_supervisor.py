"""A supervisor of supervisors. The model is scripted: no network, no key.

python examples/workflows/layered_supervisor.py
baton check examples/workflows/layered_supervisor.py:editor
"""

from batonkit import Agent, Runner, supervisor
from batonkit.log import ControlTransferred
from batonkit.testing import call, scripted_or_real

research = supervisor(
    Agent("Research", description="Finds out what is true.", instructions="Have it searched and checked."),
    sub_agents=[
        Agent("Web", description="Searches the web."),
        Agent("Archive", description="Searches our archive."),
    ],
)
desk = supervisor(
    Agent("Desk", description="Turns facts into text.", instructions="Have it written and shortened."),
    sub_agents=[
        Agent("Writer", description="Writes."),
        # Who calls exit ends everything, through all layers.
        Agent("Lawyer", description="Knows what must not be printed.", exit_tool=True),
    ],
)
editor = supervisor(
    Agent("Editor", instructions="Have it researched, then have it written."), sub_agents=[research, desk]
)
START = {
    "Editor": [call("transfer_to_research"), call("transfer_to_desk"), "Print it."],
    "Research": [call("transfer_to_web"), call("transfer_to_archive"), "The mayor paid for the bridge himself."],
    "Web": ["The mayor's firm built it."],
    "Archive": ["He promised it in 2019."],
}
PRINTED = {"Desk": [call("transfer_to_writer"), "It reads well."], "Writer": ["The mayor's bridge."]}
STOPPED = {"Desk": [call("transfer_to_lawyer")], "Lawyer": [call("exit", final_result="Not a word of this.")]}


def main() -> None:
    models = [scripted_or_real({**START, **rest}) for rest in (PRINTED, STOPPED)]
    print(models[0].notice)
    for model in models:
        result = Runner(editor, model=model).run_sync("What about the mayor's bridge?")
        for event in result.events:
            if isinstance(event, ControlTransferred):
                print(f"  {event.source} {'back to' if event.reason == 'returned' else '→'} {event.target}")
        print(f"{result.agent} had the last word: {result.output}")


if __name__ == "__main__":
    main()
