"""Plan, do a step, look at the plan again. The model is scripted: no network, no key.

python examples/workflows/trip_planning.py
baton check examples/workflows/trip_planning.py:trip
baton graph examples/workflows/trip_planning.py:trip
"""

from batonkit import Runner, plan_execute, tool
from batonkit.messages import text_of
from batonkit.testing import call, scripted_or_real
from batonkit.workflows import PLAN_EXECUTE_KEY, ParallelPlan, make_executor, make_planner, make_replanner


@tool
async def find(what: str) -> str:
    """Find trains, hotels and the like."""
    return {"train": "ICE at 9:40, 89 EUR", "hotel": "Hotel Roma, full"}.get(what, "Pension Ada, 70 EUR")


trip = plan_execute(
    name="Trip",
    description="Plans trips.",
    planner=make_planner(plan_type=ParallelPlan),
    executor=make_executor(tools=[find]),
    replanner=make_replanner(plan_type=ParallelPlan),
    parallel_steps=True,  # Steps that stand together in a list are done side by side.
    max_iterations=4,
)
model = scripted_or_real(
    {
        "Planner": ['{"steps": [["find a train", "find a hotel"], "write it up"]}'],
        "Executor": [
            call("find", what="train"),
            call("find", what="hotel"),
            "The ICE at 9:40, 89 EUR.",
            "Hotel Roma is full.",
            call("find", what="another hotel"),
            "Pension Ada, 70 EUR.",
        ],
        # Results change plans: a hotel is still to be found.
        "Replanner": [
            call("plan", steps=["find another hotel", "write it up"]),
            call("respond", response="Take the ICE at 9:40 (89 EUR) and stay at Pension Ada (70 EUR)."),
        ],
    }
)
runner = Runner(trip, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("Two days in Rome, by train.")
    for last in [request for request in model.requests if request.agent == "Executor"][-2:-1]:
        print("\n".join(f"    {line}" for line in text_of(last.messages[0].content).splitlines()))
    progress = result.values[f"{PLAN_EXECUTE_KEY}:Trip"]
    print(f"{len(progress['done'])} steps in {progress['rounds']} rounds: {result.output}")


if __name__ == "__main__":
    main()
