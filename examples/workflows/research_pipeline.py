"""One after the other, each reads what came before. The model is scripted: no network, no key.

python examples/workflows/research_pipeline.py
baton check examples/workflows/research_pipeline.py:pipeline
baton graph examples/workflows/research_pipeline.py:pipeline
"""

from batonkit import Agent, Runner, SequentialAgent, tool
from batonkit.messages import text_of
from batonkit.testing import call, say, scripted_or_real


@tool
async def search(query: str) -> str:
    """Search the library."""
    return f"{query}: 42 articles since 2020"


pipeline = SequentialAgent(
    "Research",
    description="Researches a question and reports.",
    sub_agents=[
        Agent("Planner", instructions="Say what to look for.", output_key="plan"),
        # The plan is a value of the run as well: `{plan}` stands for it.
        Agent("Searcher", instructions="Search for: {plan}", template=True, tools=[search]),
        Agent("Reporter", instructions="Report in one sentence."),
    ],
)
model = scripted_or_real(
    {
        "Planner": ["bicycle lanes and accidents"],
        "Searcher": [say("Searching.", call("search", query="bicycle lanes")), "Most of the 42 see fewer accidents."],
        "Reporter": ["Bicycle lanes lower the number of accidents, most studies find."],
    }
)
runner = Runner(pipeline, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("Do bicycle lanes help?")
    for request in model.requests:
        print(f"{request.agent} is told {request.instructions!r} and reads:")
        for message in request.messages:
            print(f"    {type(message).__name__}: {text_of(message.content)}")
    print(f"{result.agent} answers: {result.output}")


if __name__ == "__main__":
    main()
