"""Fewer tokens, fewer calls, and no more than the provider allows. The model is scripted: no network.

python examples/agents/smaller_prompts.py
baton check examples/agents/smaller_prompts.py:reader
"""

import asyncio

from batonkit import Agent, Runner, tool
from batonkit.messages import ToolMessage, text_of
from batonkit.middleware import Cache, ClearToolResults, PromptCache, RateLimit
from batonkit.testing import ScriptedModel, call

CHAPTERS = {"1": "The sea is calm. " * 40, "2": "A storm comes up. " * 40, "3": "They reach the shore. " * 40}


class Clock:
    """A clock whose minutes pass at once, so that the example does not take them."""

    now = 0.0

    def time(self) -> float:
        """Return the time in seconds."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Move the clock."""
        print(f"  the rate limit waits for {seconds:.0f} s")
        self.now += seconds


@tool(effect="read")
async def read_chapter(number: str) -> str:
    """Read a chapter of the book."""
    return CHAPTERS[number]


clock, responses = Clock(), dict[str, bytes]()
model = ScriptedModel([*(call("read_chapter", number=number) for number in CHAPTERS), "They are saved."])
middleware = [
    ClearToolResults(keep_last=1),  # The model has read the older chapters; the log keeps them.
    PromptCache(),  # For Anthropic and OpenAI: reuse the beginning of the prompt.
    Cache(responses),  # In development: the same request is not sent twice. Cache("responses.db") is a file.
    RateLimit(per_minute=3, clock=clock.time, sleep=clock.sleep),  # The last: only calls that are made count.
]
reader = Agent("Reader", instructions="Read the book, then answer.", model=model, tools=[read_chapter])


async def main() -> None:
    """Ask the same question twice."""
    for turn in ("first", "second"):
        result = await Runner(reader, middleware=middleware).run("How does it end?")
        print(f"{turn} run: {result.output} ({len(model.requests)} model calls so far)")
    sizes = [len(text_of(each.content)) for each in model.requests[-1].messages if isinstance(each, ToolMessage)]
    print(f"the chapters in the last request: {sizes} characters")


if __name__ == "__main__":
    print("scripted model: no language model is called")
    asyncio.run(main())
