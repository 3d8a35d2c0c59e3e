"""An answer of a given type; an invalid one goes back. The model is scripted: no network, no key.

python examples/first_steps/structured_output.py
baton check examples/first_steps/structured_output.py:planner
"""

from pydantic import BaseModel, Field

from batonkit import Agent, Runner
from batonkit.testing import scripted_or_real


class Trip(BaseModel):
    """A journey as the booking system wants it."""

    city: str
    nights: int = Field(ge=1)


planner = Agent(
    "Planner",
    instructions="Turn the request into a trip.",
    output_type=Trip,
    output_key="trip",
)
model = scripted_or_real(['{"city": "Lisbon", "nights": 0}', '{"city": "Lisbon", "nights": 3}'])
runner = Runner(planner, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("A long weekend in Lisbon, please.")
    print(f"the first answer went back: {model.requests[-1].messages[-1].content}")
    # A type checker knows that this is a Trip.
    print(f"output: {result.output!r}, {result.output.nights * 90} EUR")
    print(f"values: {result.values}")


if __name__ == "__main__":
    main()
