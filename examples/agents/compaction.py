"""A summary replaces a long history, once. The model is scripted: no network, no key.

python examples/agents/compaction.py
baton check examples/agents/compaction.py:clerk
"""

import asyncio

from batonkit import Agent, Runner, tool
from batonkit.agents import Compaction
from batonkit.log import HistoryCompacted
from batonkit.messages import AssistantMessage, Usage, estimate_tokens
from batonkit.models import ModelResponse
from batonkit.testing import ScriptedModel, call


@tool
async def read_page(number: int) -> str:
    """Read a page of the file."""
    return f"Page {number}: order A-{number} was delivered. " + "Lorem ipsum dolor sit amet. " * 12


written = [f"Orders A-1 to A-{last} were delivered." for last in (2, 4)]
small = ScriptedModel(  # In your program: "openai:gpt-5-mini", or leave it out to ask the agent's own model.
    [ModelResponse(AssistantMessage(text), Usage(input_tokens=250, output_tokens=12)) for text in written], name="small"
)
clerk = Agent("Clerk", description="Reads files.", tools=[read_page])
pages = [call("read_page", number=number) for number in range(1, 6)]
model = ScriptedModel([*pages, "Five orders, all delivered.", "A-1 came first."])
runner = Runner(
    clerk, model=model, store="memory:", compaction=Compaction(at_tokens=300, keep_last=1, summarizer=small)
)


async def main() -> None:
    print("scripted model: no language model is called")
    result = await runner.run("What was delivered?", thread="t")
    for request in model.requests:
        print(f"the model read {len(request.messages)} messages, {estimate_tokens(request.messages)} tokens")
    for event in result.events:
        if isinstance(event, HistoryCompacted):
            print(f"{event.key} replaced everything up to {event.upto.key}: {event.text.splitlines()[-1]}")
    print(f"the log keeps all {len(result.messages)} messages")
    print(f"tokens of the summaries: {result.usage.by_model['small'].total_tokens}")

    again = await runner.run("Which came first?", thread="t")
    print(f"{again.output} It read {len(model.requests[-1].messages)} messages, with the summary")


if __name__ == "__main__":
    asyncio.run(main())
