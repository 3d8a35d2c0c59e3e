"""Again and again until the critic is content. The model is scripted: no network, no key.

python examples/workflows/writer_and_critic.py
baton check examples/workflows/writer_and_critic.py:article
"""

from batonkit import Agent, LoopAgent, Runner, SequentialAgent
from batonkit.log import AgentStarted
from batonkit.testing import call, say, scripted_or_real, transcript
from batonkit.workflows import break_loop_tool

writer = Agent("Writer", instructions="Write, or write better what the critic found fault with.", output_key="draft")
critic = Agent(
    "Critic",
    instructions="Say what is wrong with the draft. If nothing is, call break_loop.",
    tools=[break_loop_tool],
)
publisher = Agent("Publisher", instructions="Publish this, with a title:\n{draft}", template=True)
article = SequentialAgent(
    "Article",
    description="Has an article written, judged and published.",
    sub_agents=[
        LoopAgent("Drafts", sub_agents=[writer, critic], max_iterations=5),
        publisher,  # What is broken is the loop: the sequence around it goes on.
    ],
)
model = scripted_or_real(
    {
        "Writer": ["Bridges are good.", "The new bridge saves every commuter 20 minutes."],
        "Critic": ["Which bridge? Good for whom?", say("That will do.", call("break_loop")), "I am content."],
        "Publisher": ["Twenty minutes a day: the new bridge."],
    }
)
runner = Runner(article, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("Write about the bridge.")
    said = [line for line in transcript(result.events) if " said " in line]
    print("\n".join(said))
    floors = [event.agent for event in result.events if isinstance(event, AgentStarted)]
    print("active agents: " + ", ".join(floors))
    print(f"published: {result.output}")


if __name__ == "__main__":
    main()
