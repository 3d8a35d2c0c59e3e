"""Handoffs are directed edges, one tool for each. The model is scripted: no network, no key.

python examples/first_steps/handoffs.py
baton check examples/first_steps/handoffs.py:desk
"""

from batonkit import Agent, Runner, handoff
from batonkit.testing import call, scripted_or_real, transcript

bookings = Agent("Bookings", description="Books and moves rooms.", instructions="Settle the booking.")
complaints = Agent(
    "Complaints",
    description="Listens to complaints.",
    instructions="Apologise, then hand over to Bookings.",
    handoffs=["Bookings"],  # By name: the agent stands elsewhere in the team.
)
desk = Agent(
    "Desk",
    instructions="Find out what it is about, then hand over.",
    handoffs=[
        bookings,
        handoff(
            complaints,
            tool_name_override="escalate",
            tool_description_override="Hand over to Complaints, if the guest is upset.",
        ),
    ],
)
model = scripted_or_real(
    {
        "Desk": [call("escalate")],
        "Complaints": [call("transfer_to_bookings")],
        "Bookings": ["Sorry for the noise. You are in room 12 now, on the quiet side."],
    }
)
runner = Runner(desk, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("My room is terribly loud!")
    print("\n".join(transcript(result.events)))
    print(f"tools of Desk: {', '.join(spec.name for spec in model.requests[0].tools)}")
    print(f"{result.agent}: {result.output}")


if __name__ == "__main__":
    main()
