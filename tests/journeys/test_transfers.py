"""End-to-end runs with transfers, and all of their events."""

from typing import Literal

from inline_snapshot import snapshot
from pydantic import BaseModel

from batonkit import (
    Agent,
    AgentContext,
    Limits,
    RunContext,
    Runner,
    Transfer,
    agent,
    handoff,
    then_transfer,
    tool,
)
from batonkit.messages import text_of
from batonkit.runs import HandoffRules
from batonkit.testing import ScriptedModel, call, say, transcript, transfer_to


@tool
async def get_weather(city: str) -> str:
    """Get the current weather for a city."""
    return f"the temperature in {city} is 25°C"


async def test_a_router_transfers_to_an_expert() -> None:
    weather = Agent(
        "WeatherAgent",
        description="Knows the current weather of any city.",
        instructions="Use get_weather, then report the result.",
        tools=[get_weather],
    )
    chat = Agent("ChatAgent", description="General conversation.", instructions="Be friendly.")
    router = Agent(
        "RouterAgent",
        description="Routes to an expert.",
        instructions="Pick the right expert.",
        sub_agents=[chat, weather],
    )
    model = ScriptedModel(
        {
            "RouterAgent": [transfer_to("WeatherAgent")],
            "WeatherAgent": [call("get_weather", city="Beijing"), "It is 25°C in Beijing."],
        },
        stream=True,
    )
    result = await Runner(router, model=model).run("What's the weather in Beijing?")
    assert transcript(result.events) == snapshot(
        [
            'run of RouterAgent started with "What\'s the weather in Beijing?"',
            "RouterAgent started",
            'RouterAgent: called transfer_to_agent({"agent_name":"WeatherAgent"})',
            "RouterAgent: transfer_to_agent -> successfully transferred to agent [WeatherAgent]",
            "RouterAgent → WeatherAgent",
            "RouterAgent finished",
            "WeatherAgent started",
            'WeatherAgent: called get_weather({"city":"Beijing"})',
            "WeatherAgent: get_weather -> the temperature in Beijing is 25°C",
            'WeatherAgent: said "It is 25°C in Beijing."',
            "WeatherAgent finished",
            "run completed",
        ]
    )
    assert [text_of(message.content) for message in model.requests[-1].messages] == snapshot(
        [
            "What's the weather in Beijing?",
            'For context: [RouterAgent] called tool: `transfer_to_agent` with arguments: {"agent_name":"WeatherAgent"}.',  # noqa: E501
            "For context: [RouterAgent] `transfer_to_agent` tool returned result: successfully transferred to agent [WeatherAgent].",  # noqa: E501
            "",
            "the temperature in Beijing is 25°C",
        ]
    )
    assert (result.output, result.agent) == ("It is 25°C in Beijing.", "WeatherAgent")
    model.assert_done()


async def test_an_expert_transfers_back_to_the_router() -> None:
    model = ScriptedModel(
        {
            "Router": [transfer_to("Chat"), say("Sorry, then:", transfer_to("Weather"))],
            "Chat": [say("I cannot know that.", transfer_to("Router"))],
            "Weather": [call("get_weather", city="Rome"), "25°C."],
        }
    )
    experts = [Agent("Chat", description="chats"), Agent("Weather", description="knows", tools=[get_weather])]
    result = await Runner(Agent("Router", description="routes", sub_agents=experts), model=model).run("Rome?")
    assert transcript(result.events) == snapshot(
        [
            'run of Router started with "Rome?"',
            "Router started",
            'Router: called transfer_to_agent({"agent_name":"Chat"})',
            "Router: transfer_to_agent -> successfully transferred to agent [Chat]",
            "Router → Chat",
            "Router finished",
            "Chat started",
            'Chat: said "I cannot know that." + transfer_to_agent({"agent_name":"Router"})',
            "Chat: transfer_to_agent -> successfully transferred to agent [Router]",
            "Chat → Router",
            "Chat finished",
            "Router started",
            'Router: said "Sorry, then:" + transfer_to_agent({"agent_name":"Weather"})',
            "Router: transfer_to_agent -> successfully transferred to agent [Weather]",
            "Router → Weather",
            "Router finished",
            "Weather started",
            'Weather: called get_weather({"city":"Rome"})',
            "Weather: get_weather -> the temperature in Rome is 25°C",
            'Weather: said "25°C."',
            "Weather finished",
            "run completed",
        ]
    )
    assert result.events[-2].path == ("Router", "Chat", "Router", "Weather")


async def test_functions_that_return_agents_transfer_as_in_swarm() -> None:
    # Functions that return agents, and values that instructions read.
    sales = Agent("Sales", instructions="Sell to {customer}.", template=True)
    refunds = Agent("Refunds", instructions="Refund {customer}.", template=True)

    def transfer_to_sales() -> Agent:
        """For anything about buying."""
        return sales

    def transfer_to_refunds() -> Agent:
        """For anything about money back."""
        return refunds

    def back_to_triage() -> Agent:
        """When it is not your business."""
        return triage

    @tool
    def remember(ctx: RunContext, customer: str) -> str:
        """Remember who it is."""
        ctx.values.set("customer", customer)
        return "remembered"

    sales = sales.clone(tools=[back_to_triage])
    # One at a time: otherwise the order of the results depends on which thread finishes first.
    triage = Agent("Triage", tools=[transfer_to_sales, transfer_to_refunds, remember], concurrent_tools=False)
    model = ScriptedModel(
        {
            "Triage": [[call("remember", customer="Ada"), call("transfer_to_sales")], call("transfer_to_refunds")],
            "Sales": [call("back_to_triage")],
            "Refunds": ["You will have your money back, Ada."],
        }
    )
    result = await Runner(triage, model=model).run("I want my money back")
    assert transcript(result.events) == snapshot(
        [
            'run of Triage started with "I want my money back"',
            "Triage started",
            'Triage: called remember({"customer":"Ada"}) + transfer_to_sales({})',
            'Triage: remember -> remembered [customer="Ada"]',
            'Triage: step transfer_to_sales -> {"target":"Sales","content":"{\\"assistant\\":\\"Sales\\"}"}',
            'Triage: transfer_to_sales -> {"assistant":"Sales"}',
            "Triage → Sales",
            "Triage finished",
            "Sales started",
            "Sales: called back_to_triage({})",
            'Sales: step back_to_triage -> {"target":"Triage","content":"{\\"assistant\\":\\"Triage\\"}"}',
            'Sales: back_to_triage -> {"assistant":"Triage"}',
            "Sales → Triage",
            "Sales finished",
            "Triage started",
            "Triage: called transfer_to_refunds({})",
            'Triage: step transfer_to_refunds -> {"target":"Refunds","content":"{\\"assistant\\":\\"Refunds\\"}"}',
            'Triage: transfer_to_refunds -> {"assistant":"Refunds"}',
            "Triage → Refunds",
            "Triage finished",
            "Refunds started",
            'Refunds: said "You will have your money back, Ada."',
            "Refunds finished",
            "run completed",
        ]
    )
    assert [request.instructions for request in model.requests] == ["", "Sell to Ada.", "", "Refund Ada."]


class Verdict(BaseModel):
    """The result of a review."""

    verdict: Literal["good", "bad"]


async def test_control_returns_to_the_caller_after_a_handoff() -> None:
    reviewer = Agent("Reviewer", description="reviews", output_type=Verdict, output_key="verdict")
    writer = Agent("Writer", handoffs=[handoff(reviewer, return_to="caller")], output_key="text")
    model = ScriptedModel(
        {
            "Writer": [say("Draft: it rains.", call("transfer_to_reviewer")), "It rains, and it pours."],
            "Reviewer": ["It is bad!", '{"verdict": "bad"}'],
        }
    )
    result = await Runner(writer, model=model).run("Write about rain")
    assert transcript(result.events) == snapshot(
        [
            'run of Writer started with "Write about rain"',
            "Writer started",
            'Writer: said "Draft: it rains." + transfer_to_reviewer({})',
            'Writer: transfer_to_reviewer -> {"assistant":"Reviewer"}',
            "Writer → Reviewer",
            "Writer finished",
            "Reviewer started",
            'Reviewer: said "It is bad!"',
            'Reviewer: said "{\\"verdict\\": \\"bad\\"}"',
            "Reviewer → Writer (returned)",
            'Reviewer finished [verdict={"verdict":"bad"}]',
            "Writer started",
            'Writer: said "It rains, and it pours."',
            'Writer finished [text="It rains, and it pours."]',
            "run completed",
        ]
    )
    assert [text_of(message.content) for message in model.requests[-1].messages] == snapshot(
        [
            "Write about rain",
            "Draft: it rains.",
            '{"assistant":"Reviewer"}',
            'For context: [Reviewer] said: {"verdict": "bad"}.',
        ]
    )
    assert result.values == {"verdict": {"verdict": "bad"}, "text": "It rains, and it pours."}


async def test_a_chain_of_then_transfer_agents() -> None:
    # A chain whose last agent reads only answers.
    research = then_transfer(Agent("Research", tools=[get_weather]), to="Write")
    write = then_transfer(Agent("Write"), to="Edit")
    edit = Agent("Edit", history="answers", exit_tool=True)
    model = ScriptedModel(
        {
            "Research": [call("get_weather", city="Rome"), "25°C in Rome."],
            "Write": ["Rome enjoys 25°C today."],
            "Edit": [call("exit", final_result="Rome enjoys 25 °C.")],
        }
    )
    result = await Runner(research, extra_agents=[write, edit], model=model).run("Report")
    assert transcript(result.events) == snapshot(
        [
            'run of Research started with "Report"',
            "Research started",
            'Research: called get_weather({"city":"Rome"})',
            "Research: get_weather -> the temperature in Rome is 25°C",
            'Research: said "25°C in Rome."',
            'Research: called transfer_to_agent({"agent_name":"Write"})',
            "Research: transfer_to_agent -> successfully transferred to agent [Write]",
            "Research → Write",
            "Research finished",
            "Write started",
            'Write: said "Rome enjoys 25°C today."',
            'Write: called transfer_to_agent({"agent_name":"Edit"})',
            "Write: transfer_to_agent -> successfully transferred to agent [Edit]",
            "Write → Edit",
            "Write finished",
            "Edit started",
            'Edit: called exit({"final_result":"Rome enjoys 25 °C."})',
            "Edit: exit -> The task is ended. (final)",
            'Edit: said "Rome enjoys 25 °C."',
            "Edit finished",
            "run completed",
        ]
    )
    assert [text_of(message.content) for message in model.requests[-1].messages] == snapshot(
        [
            "Report",
            "For context: [Research] said: 25°C in Rome.",
            "For context: [Write] said: Rome enjoys 25°C today.",
        ]
    )
    assert result.output == "Rome enjoys 25 °C."


async def test_invalid_calls_and_transfers_are_corrected_by_the_model() -> None:
    model = ScriptedModel(
        {
            "Desk": [
                [call("get_wether", city="Rome"), transfer_to("Kitchen")],
                [call("get_weather", town="Rome"), transfer_to("Bookings"), transfer_to("Bar")],
            ],
            "Bookings": ["A table for two."],
        }
    )
    staff = [Agent("Bookings", description="books"), Agent("Bar", description="pours")]
    desk = Agent("Desk", description="receives", tools=[get_weather], sub_agents=staff)
    result = await Runner(desk, model=model).run("A table, please")
    assert transcript(result.events) == snapshot(
        [
            'run of Desk started with "A table, please"',
            "Desk started",
            'Desk: called get_wether({"city":"Rome"}) + transfer_to_agent({"agent_name":"Kitchen"})',
            "Desk: get_wether failed -> There is no tool `get_wether`; the tools are: `get_weather`, `transfer_to_agent`.",  # noqa: E501
            "Desk: transfer_to_agent failed -> Not transferred: there is no `Kitchen`; you can transfer to: `Bookings`, `Bar`.",  # noqa: E501
            'Desk: called get_weather({"town":"Rome"}) + transfer_to_agent({"agent_name":"Bookings"}) + transfer_to_agent({"agent_name":"Bar"})',  # noqa: E501
            "Desk: get_weather failed -> The arguments of `get_weather` do not fit:\\n- `city` is required\\n- `town` is not a parameter; the parameters are: `city`\\nCorrect them and call it again.",  # noqa: E501
            "Desk: transfer_to_agent failed -> Not transferred to [Bar]: only one transfer is followed per response, and that is the one to [Bookings].",  # noqa: E501
            "Desk: transfer_to_agent -> successfully transferred to agent [Bookings]",
            "Desk → Bookings",
            "Desk finished",
            "Bookings started",
            'Bookings: said "A table for two."',
            "Bookings finished",
            "run completed",
        ]
    )


async def test_a_transfer_loop_ends_at_the_fallback_agent() -> None:
    model = ScriptedModel(
        {"Left": [transfer_to("Right")], "Right": [transfer_to("Left")], "Human": ["A human takes over."]}, cycle=True
    )
    left = Agent("Left", sub_agents=[Agent("Right")])
    runner = Runner(
        left,
        extra_agents=[Agent("Human")],
        model=model,
        handoff_rules=HandoffRules(loop_fallback="Human"),
        limits=Limits(idle_cycles=1),
    )
    result = await runner.run("hi")
    assert transcript(result.events) == snapshot(
        [
            'run of Left started with "hi"',
            "Left started",
            'Left: called transfer_to_agent({"agent_name":"Right"})',
            "Left: transfer_to_agent -> successfully transferred to agent [Right]",
            "Left → Right",
            "Left finished",
            "Right started",
            'Right: called transfer_to_agent({"agent_name":"Left"})',
            "Right: transfer_to_agent -> successfully transferred to agent [Left]",
            "Right → Human (loop)",
            "Right finished",
            "Human started",
            'Human: said "A human takes over."',
            "Human finished",
            "run completed",
        ]
    )


async def test_a_custom_agent_in_a_team_with_model_agents() -> None:
    @agent("Gate", description="lets in", handoffs=["Desk"])
    async def gate(ctx: AgentContext) -> Transfer | None:
        visits = ctx.values.get("visits", 0) + 1
        ctx.values.set("visits", visits)
        if visits > 1:
            await ctx.say("We are closed.")
            return None
        await ctx.say("Welcome.")
        return Transfer("Desk", payload={"visit": visits})

    desk = Agent("Desk", description="receives", handoffs=[gate])
    model = ScriptedModel([say("Wait.", call("transfer_to_gate"))])
    result = await Runner(gate, extra_agents=[desk], model=model).run("Hello?")
    assert transcript(result.events) == snapshot(
        [
            'run of Gate started with "Hello?"',
            "Gate started",
            'Gate: said "Welcome." [visits=1]',
            'Gate → Desk with {"visit":1}',
            "Gate finished",
            "Desk started",
            'Desk: said "Wait." + transfer_to_gate({})',
            'Desk: transfer_to_gate -> {"assistant":"Gate"}',
            "Desk → Gate",
            "Desk finished",
            "Gate started",
            'Gate: said "We are closed." [visits=2]',
            "Gate finished",
            "run completed",
        ]
    )
    assert result.output == "We are closed."
