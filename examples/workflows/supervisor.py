"""A supervisor over search and maths. The model is scripted: no network, no key.

python examples/workflows/supervisor.py
baton check examples/workflows/supervisor.py:boss
baton graph examples/workflows/supervisor.py:boss
"""

from batonkit import Agent, Runner, supervisor, tool
from batonkit.testing import call, scripted_or_real, transcript


@tool
async def look_up(what: str) -> str:
    """Look a figure up."""
    return {"GDP of the US, 2024": "29 trillion", "GDP of New York, 2024": "2.3 trillion"}[what]


@tool
async def share(part: float, whole: float) -> str:
    """Say how much of the whole a part is."""
    return f"{100 * part / whole:.1f} %"


boss = supervisor(
    Agent("Boss", instructions="Have figures looked up, then have them reckoned with. Do nothing yourself."),
    sub_agents=[
        Agent("Search", description="Looks figures up.", instructions="Look it up.", tools=[look_up]),
        Agent("Maths", description="Reckons.", instructions="Reckon.", tools=[share]),
    ],
    on_error="report",  # The boss would be told of a worker that fails; by default that ends the run.
)
model = scripted_or_real(
    {
        "Boss": [call("transfer_to_search"), call("transfer_to_maths"), "About 7.9 %."],
        "Search": [
            [call("look_up", what="GDP of the US, 2024"), call("look_up", what="GDP of New York, 2024")],
            "29 and 2.3 trillion.",
        ],
        "Maths": [call("share", part=2.3, whole=29), "7.9 %"],
    }
)
runner = Runner(boss, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("What share of the GDP of the US was New York's in 2024?")
    print("\n".join(line for line in transcript(result.events) if "transfer_to" not in line))
    for worker in [request for request in model.requests if request.agent == "Maths"][:1]:
        print(f"tools of Maths: {', '.join(spec.name for spec in worker.tools)}; it has no way to Search")
    print(f"path: {' → '.join(result.events[-2].path)}")


if __name__ == "__main__":
    main()
