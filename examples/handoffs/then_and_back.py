"""Where control goes when the other one is done. The model is scripted: no network, no key.

python examples/handoffs/then_and_back.py
baton check examples/handoffs/then_and_back.py:editor
baton graph examples/handoffs/then_and_back.py:editor
"""

from batonkit import Agent, Runner, handoff, then_transfer
from batonkit.testing import call, scripted_or_real, transcript

researcher = Agent("Researcher", description="Finds facts.", instructions="Find out.")
# Whatever the writer writes, the checker reads it next: no model decides that.
writer = then_transfer(
    Agent("Writer", description="Writes the article.", instructions="Write."),
    to="Checker",
)
checker = Agent("Checker", description="Checks what was written.", instructions="Check it.")
editor = Agent(
    "Editor",
    instructions="Have it researched, then have it written.",
    handoffs=[
        handoff(researcher, return_to="caller"),  # The editor runs again when the researcher is done.
        handoff(writer),  # The editor is done; control stays where it goes.
        handoff(checker),
    ],
)
model = scripted_or_real(
    {
        "Editor": [call("transfer_to_researcher"), call("transfer_to_writer")],
        "Researcher": ["The bridge is 137 m long."],
        "Writer": ["A bridge of 137 m was opened today."],
        "Checker": ["Checked: 137 m is right."],
    }
)
runner = Runner(editor, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("Write about the new bridge.")
    print("\n".join(transcript(result.events)))
    print(f"path: {' → '.join(result.events[-2].path)}")


if __name__ == "__main__":
    main()
