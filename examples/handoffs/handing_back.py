"""Ask an expert and get control back. The model is scripted: no network, no key.

python examples/handoffs/handing_back.py
baton check examples/handoffs/handing_back.py:planner
"""

from batonkit import Agent, Runner, handoff
from batonkit.messages import text_of
from batonkit.testing import call, say, scripted_or_real

trains = Agent("Trains", description="Knows trains.", instructions="Name one train.")
hotels = Agent("Hotels", description="Knows hotels.", instructions="Name one hotel.")
planner = Agent(
    "Planner",
    instructions="Ask the experts, one after the other, then sum up in one sentence.",
    # The experts need not know who asked them: control returns to the agent that handed over.
    handoffs=[handoff(trains, return_to="caller"), handoff(hotels, return_to="caller")],
)
model = scripted_or_real(
    {
        "Planner": [
            say("First the train.", call("transfer_to_trains")),
            say("Now the bed.", call("transfer_to_hotels")),
            "Take the 9:12, and sleep at the Lindenhof.",
        ],
        "Trains": ["The 9:12, without a change."],
        "Hotels": ["The Lindenhof, near the station."],
    }
)
runner = Runner(planner, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("Plan my trip to Bern.")
    print("the last that Planner reads:")
    for message in model.requests[-1].messages:
        if text := text_of(message.content):
            print(f"  {type(message).__name__}: {text}")
    print(f"path: {' → '.join(result.events[-2].path)}")
    print(f"{result.agent}: {result.output}")


if __name__ == "__main__":
    main()
