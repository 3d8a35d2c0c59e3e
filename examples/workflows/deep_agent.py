"""One agent for long work: a list, tasks for others, files. The model is scripted: no network, no key.

python examples/workflows/deep_agent.py
baton check examples/workflows/deep_agent.py:deep
"""

from batonkit import Agent, Runner, deep_agent, tool
from batonkit.messages import text_of
from batonkit.testing import call, scripted_or_real
from batonkit.workflows import FILE_KEY, GENERAL_PURPOSE, TODOS_KEY


@tool
async def search(query: str) -> str:
    """Search the web."""
    return f"{query}: a page of results"


deep = deep_agent(
    tools=[search],
    sub_agents=[Agent("Critic", description="Finds fault with texts.", instructions="Find fault.")],
    name="Deep",
    files=True,
)
TODO = [{"content": "find sources"}, {"content": "write"}, {"content": "have it judged"}]
DONE = [{**todo, "status": "completed"} for todo in TODO]
model = scripted_or_real(
    {
        "Deep": [
            call("write_todos", todos=TODO),
            call("task", subagent=GENERAL_PURPOSE, description="Find sources on tides; put them into sources.md."),
            call("read_file", path="sources.md"),
            call("write_file", path="report.md", content="Tides come twice a day. [1]"),
            call("task", subagent="Critic", description="Judge: Tides come twice a day. [1]"),
            call("edit_file", path="report.md", old="twice a day", new="about twice a day"),
            call("write_todos", todos=DONE),
            "The report is in report.md.",
        ],
        "Deep.general_purpose": [
            call("search", query="tides"),
            call("write_file", path="sources.md", content="[1] Almanac"),
            "One source is in sources.md.",
        ],
        "Critic": ["Not quite twice."],
    }
)
runner = Runner(deep, model=model)


def main() -> None:
    print(model.notice)
    result = runner.run_sync("A report on tides, please.")
    for critic in [request for request in model.requests if request.agent == "Critic"][:1]:
        print(f"all that Critic read: {[text_of(message.content) for message in critic.messages]}")
    print(f"done: {[todo['content'] for todo in result.values.get(f'{TODOS_KEY}:Deep', [])]}")
    print(f"{result.output} {result.values.get(f'{FILE_KEY}:report.md', '')}")


if __name__ == "__main__":
    main()
