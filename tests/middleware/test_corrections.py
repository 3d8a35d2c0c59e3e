"""`ValidateOutput` and `RequireAnnouncedHandoff`."""

from typing import Any

import pytest
from pydantic import BaseModel

from batonkit import Agent, Runner, SetupError, handoff, tool
from batonkit.errors import OutputError
from batonkit.log import AgentResponded, ResponseRestarted, TextDelta
from batonkit.messages import Usage
from batonkit.middleware import RequireAnnouncedHandoff, ValidateOutput
from batonkit.testing import ScriptedModel, ScriptedStream, call, say


def short(ctx: Any, output: str) -> str | None:
    """Complain about long answers."""
    return None if len(output) < 10 else f"it has {len(output)} characters; at most 9 are allowed."


async def test_the_model_is_asked_again_with_the_complaint() -> None:
    model = ScriptedModel([say("a long answer", usage=Usage(5)), say("short", usage=Usage(7))])
    result = await Runner(Agent("A", model=model, middleware=[ValidateOutput(short)])).run("Hi")
    assert (result.output, [message.content for message in result.messages]) == ("short", ["Hi", "short"])
    complaint = "This answer was rejected: it has 13 characters; at most 9 are allowed.\nAnswer again."
    assert [message.content for message in model.requests[1].messages] == ["Hi", "a long answer", complaint]
    (responded,) = [event for event in result.events if isinstance(event, AgentResponded)]
    assert (responded.model_calls, result.usage.total.input_tokens) == (2, 12)


async def test_after_so_many_times_the_run_fails_with_the_last_complaint() -> None:
    model = ScriptedModel(["a long answer"] * 3)
    with pytest.raises(OutputError, match=r"`A` must answer with an answer that its check accepts, .* 13 characters"):
        await Runner(Agent("A", model=model, middleware=[ValidateOutput(short, times=1)])).run("Hi")
    assert len(model.requests) == 2


class Trip(BaseModel):
    """A trip."""

    city: str
    nights: int


async def test_an_async_function_is_given_the_parsed_output() -> None:
    seen: list[Any] = []

    async def check(ctx: Any, output: Trip) -> bool:
        seen.append((ctx.agent, output))
        return output.nights > 0

    invalid, wrong, right = '{"city": 1}', '{"city": "Rome", "nights": 0}', '{"city": "Rome", "nights": 2}'
    model = ScriptedModel([invalid, wrong, right])
    agent = Agent("A", model=model, output_type=Trip, middleware=[ValidateOutput(check)])
    result = await Runner(agent).run("Hi")
    # The agent itself corrects what does not fit the type.
    assert seen == [("A", Trip(city="Rome", nights=0)), ("A", Trip(city="Rome", nights=2))]
    assert result.output == Trip(city="Rome", nights=2)


async def test_responses_with_tool_calls_are_not_checked() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([say("I shall have a look at it", call("look")), "fine"])
    result = await Runner(Agent("A", model=model, tools=[look], middleware=[ValidateOutput(short)])).run("Hi")
    assert (result.output, len(model.requests)) == ("fine", 2)


@pytest.mark.parametrize(
    ("is_held", "expected"), [(False, ["a long answer", "restart", "short"]), (True, ["short"])], ids=["shown", "held"]
)
async def test_subscribers_see_a_rejected_answer_only_if_deltas_are_not_held(
    is_held: bool, expected: list[str]
) -> None:
    middleware = ValidateOutput(short, holds_deltas=is_held)
    runner = Runner(
        Agent(
            "A",
            model=ScriptedModel([ScriptedStream("a long answer"), ScriptedStream("short")]),
            middleware=[middleware],
        )
    )
    async with runner.stream("Hi") as run:
        found = [event async for event in run if isinstance(event, TextDelta | ResponseRestarted)]
    pieces = "".join("|" if isinstance(each, ResponseRestarted) else each.text for each in found)
    assert pieces.split("|") == [each for each in expected if each != "restart"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ValidateOutput(lambda output: True), r"is called with \(ctx, output\)"),  # pyright: ignore
        (lambda: ValidateOutput(short, times=-1), "give 0 or more"),
        (lambda: ValidateOutput("short"), r"give a function \(ctx, output\)"),  # pyright: ignore
        (lambda: RequireAnnouncedHandoff(phrases=["("]), "not regular expressions"),
        (lambda: RequireAnnouncedHandoff(phrases="to"), "give a list of regular expressions"),
    ],
)
def test_wrong_arguments_say_what_to_give(make: Any, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        make()


async def test_a_wrong_verdict_says_what_to_return() -> None:
    def check(ctx: Any, output: str) -> Any:
        return 3

    with pytest.raises(SetupError, match="ValidateOutput returned 3; return None, True or a complaint"):
        await Runner(Agent("A", model=ScriptedModel(["x"]), middleware=[ValidateOutput(check)])).run("Hi")


def desk(*steps: Any, **options: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    billing = Agent("BillingAgent", description="Bills.", model=ScriptedModel(["Your bill."]))
    closed = Agent("Night Desk", description="Nights.", model=ScriptedModel(["Good night."]))
    model = ScriptedModel(steps)
    edges = [billing, handoff(closed, is_enabled=False)]
    middleware = [RequireAnnouncedHandoff(**options)]
    return Runner(Agent("Desk", model=model, handoffs=edges, middleware=middleware)), model


async def test_an_announced_handoff_without_a_call_is_asked_for_once_more() -> None:
    runner, model = desk("I'll transfer you to billing now.", call("transfer_to_billingagent"))
    result = await runner.run("My bill?")
    assert (result.agent, result.output) == ("BillingAgent", "Your bill.")
    complaint = str(model.requests[1].messages[-1].content)
    assert complaint.startswith("You announced a transfer to BillingAgent, but did not call `transfer_to_billingagent`")
    # The announcement is not part of the history.
    assert "billing now" not in str([message.content for message in result.messages])


async def test_the_second_response_is_used_whatever_it_says() -> None:
    runner, model = desk("I'll transfer you to billing.", "I am transferring you to billing.", "never")
    result = await runner.run("My bill?")
    assert (result.output, len(model.requests)) == ("I am transferring you to billing.", 2)


@pytest.mark.parametrize(
    "text",
    [
        "I am connecting you with the Billing Agent.",
        "One moment. Handing you over to billing.",
        "Let me put you through to BILLING!",
        "I will pass you on to billing_agent",
    ],
)
async def test_announcements_are_recognized(text: str) -> None:
    runner, model = desk(text, call("transfer_to_billingagent"))
    assert (await runner.run("Hi")).agent == "BillingAgent"
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Shall I transfer you to billing?",
        "I cannot transfer you to billing today.",
        "If you wish, I can connect you to billing.",
        "Your billing address is correct.",
        "I will transfer you to sales.",
        # It is disabled, so the model could not call it.
        "I will transfer you to the night desk.",
        "You transferred 5 EUR. The rebilling is done.",
    ],
)
async def test_other_texts_are_answers(text: str) -> None:
    runner, model = desk(text, "never")
    assert (await runner.run("Hi")).output == text
    assert len(model.requests) == 1


async def test_a_false_positive_costs_one_more_call() -> None:
    # Documented
    network = Agent("Network", description="Networks.", model=ScriptedModel(["x"]))
    model = ScriptedModel(["I connected the printer to the network.", "The printer is connected."])
    agent = Agent("Desk", model=model, handoffs=[network], middleware=[RequireAnnouncedHandoff()])
    assert (await Runner(agent).run("Hi")).output == "The printer is connected."


async def test_announcements_of_sub_agents_name_the_shared_tool() -> None:
    child = Agent("账单", description="账单。", model=ScriptedModel(["您的账单。"]))
    model = ScriptedModel(["我现在为您转接账单专员。", call("transfer_to_agent", agent_name="账单")])
    result = await Runner(Agent("Desk", model=model, sub_agents=[child], middleware=[RequireAnnouncedHandoff()])).run(
        "?"
    )
    assert (result.agent, result.output) == ("账单", "您的账单。")
    assert "`transfer_to_agent`" in str(model.requests[1].messages[-1].content)


async def test_own_phrases_replace_the_built_in_ones() -> None:
    runner, _ = desk("Ich verbinde Sie mit Billing.", call("transfer_to_billingagent"), phrases=["verbinde"])
    assert (await runner.run("Hi")).agent == "BillingAgent"
