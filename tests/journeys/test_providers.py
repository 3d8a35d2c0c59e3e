"""One conversation that Claude begins and Gemini ends, over their own SDKs."""

from baton import Agent, Runner, handoff, tool
from baton.messages import AssistantMessage, Reasoning
from baton.models.anthropic import AnthropicModel
from baton.models.google import GoogleModel
from baton.testing import call
from baton.testing.servers import AnthropicServer, GoogleServer


@tool
async def look_up(city: str) -> str:
    """Look up a city."""
    return f"{city} is sunny"


async def test_a_handoff_from_claude_to_gemini() -> None:
    thoughtful = AssistantMessage("One moment.", (call("look_up", city="Rome"),), (Reasoning("They want weather."),))
    async with (
        AnthropicServer([thoughtful, call("transfer_to_reporter")]) as claude,
        GoogleServer([call("look_up", city="Oslo"), "Both are sunny."]) as gemini,
    ):
        reporter = Agent(
            "Reporter",
            model=GoogleModel("gemini-3.8-flash", api_key=gemini.api_key, base_url=gemini.base_url),
            tools=[look_up],
            history="verbatim",
        )
        desk = Agent(
            "Desk",
            model=AnthropicModel("claude-opus-5-5", api_key=claude.api_key, base_url=claude.base_url),
            tools=[look_up],
            handoffs=[handoff(reporter)],
        )
        result = await Runner(desk).run("How is the weather in Rome and Oslo?")
        claude.assert_done()
        gemini.assert_done()
    assert (result.output, result.agent) == ("Both are sunny.", "Reporter")
    assert claude.rejected == []
    assert gemini.rejected == []
    # Claude reads its own thoughts again; Gemini does not read them, and knows that the calls are not its own.
    assert [block["type"] for block in claude.requests[1].body["messages"][1]["content"]] == [
        *("thinking", "text", "tool_use"),
    ]
    first = gemini.requests[0].body["contents"][1]["parts"]
    assert [next(iter(part)) for part in first] == ["text", "functionCall"]
    assert "They want weather." not in gemini.requests[0].raw.decode()
