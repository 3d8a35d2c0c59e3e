"""Answers that an output guardrail rejects: they are in the log, and in nothing that later models and users read."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.agents.guardrail_fakes import run_to_failure

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    LoopAgent,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    agent,
    handoff,
    tool,
)
from batonkit.agents import Compaction, StopAt, with_guardrails
from batonkit.errors import GuardrailTrippedError
from batonkit.log import encode_log
from batonkit.messages import Message
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call


def no_secrets(ctx: RunContext[Any], output: Any) -> bool:
    """Reject whatever contains the secret."""
    return "swordfish" not in str(output)


@tool(return_directly=True)
def reveal() -> str:
    """Return the password."""
    return "It is swordfish."


@tool
def look() -> str:
    """Return the password."""
    return "It is swordfish."


@tool
def count() -> str:
    """Count the passwords."""
    return "There are 3."


def answering(name: str = "Desk", *responses: Any, **options: Any) -> Agent[Any, str]:
    """Return an agent whose model gives these responses."""
    return Agent(name, description="d", model=ScriptedModel(list(responses) or ["It is swordfish."]), **options)


@agent("Desk")
async def speaker(ctx: AgentContext) -> None:
    """Say the password without a model."""
    await ctx.say("It is swordfish.")


def make_teams() -> dict[str, BaseAgent[Any, Any]]:
    """Return agents that answer with the password, each in its own way."""
    return {
        "text": answering(),
        "JSON": answering("Desk", '{"text": "swordfish"}', output_type=dict[str, str]),
        "the final result of a tool": answering("Desk", call("reveal"), tools=[reveal]),
        "the final result among others": answering("Desk", [call("count"), call("reveal")], tools=[count, reveal]),
        "the result that stops the agent": answering(
            "Desk", call("look"), tools=[look], tool_use_behavior=StopAt(["look"])
        ),
        "an exit": answering("Desk", call("exit", final_result="It is swordfish."), exit_tool=True),
        "a message of a function": speaker,
        "a sequence": SequentialAgent("Steps", sub_agents=[answering("First", "Well…"), answering("Last")]),
        "a loop": LoopAgent("Loop", sub_agents=[answering()], max_iterations=1),
        "parallel branches": ParallelAgent("Both", sub_agents=[answering("One"), answering("Two", "Nothing.")]),
    }


def text_of_all(messages: Sequence[Message]) -> str:
    """Return everything that a reader of the messages sees."""
    return "\n".join(map(repr, messages))


@pytest.mark.parametrize("form", make_teams())
async def test_a_rejected_answer_is_logged_and_read_by_no_one(form: str) -> None:
    store = MemoryStore()
    team = with_guardrails(make_teams()[form], output_guardrails=[no_secrets])
    stream = Runner(team, store=store).stream("The password?", thread="t")
    with pytest.raises(GuardrailTrippedError):
        await stream._drive()
    assert b"swordfish" in encode_log(stream.result.events)
    assert "swordfish" not in text_of_all(stream.result.messages)
    later = ScriptedModel(["I cannot say."])
    # Another runner knows the run from its log alone.
    runner = Runner(Agent(team.name, model=later), store=store)
    assert "swordfish" not in text_of_all(await runner.thread("t").messages())
    await runner.run("Why not?", thread="t")
    assert "swordfish" not in text_of_all(later.requests[0].messages)
    assert later.requests[0].messages[0].content == "The password?"


async def test_the_turns_before_a_rejected_answer_are_still_read() -> None:
    model = ScriptedModel([call("count"), "They are swordfish, …"])
    desk = Agent("Desk", model=model, tools=[count], output_guardrails=[no_secrets])
    _, result = await run_to_failure(Runner(desk))
    assert [type(message).__name__ for message in result.messages] == ["UserMessage", "AssistantMessage", "ToolMessage"]
    assert result.messages[-1].content == "There are 3."


async def test_a_resumed_run_withholds_a_rejected_answer_again() -> None:
    runner = Runner(answering("Desk", output_guardrails=[no_secrets]))
    _, result = await run_to_failure(runner)
    stream = runner.stream_resume(result.run_id)
    with pytest.raises(GuardrailTrippedError):
        await stream._drive()
    assert stream.result.messages == result.messages


async def test_an_agent_that_goes_on_after_a_rejection_does_not_read_the_answer() -> None:
    guarded = answering("Inner", output_guardrails=[no_secrets])

    class Careful(BaseAgent[Any, str]):
        name = "Careful"

        def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
            return (guarded,)

        async def run(self, ctx: AgentContext[Any]) -> None:
            try:
                await ctx.run_agent(guarded, "inner")
            except GuardrailTrippedError:
                assert "swordfish" not in text_of_all(ctx.messages())
                await ctx.say("I cannot say.")

    result = await Runner(Careful()).run("The password?")
    assert [message.content for message in result.messages] == ["The password?", "I cannot say."]


async def test_the_result_of_a_task_that_is_rejected_is_read_by_no_one() -> None:
    finish = call("finish_task", result="It is swordfish.")
    worker = answering("Worker", finish, output_guardrails=[no_secrets])
    boss = answering(
        "Boss", call("transfer_to_worker"), handoffs=[handoff(worker, return_to="caller", until="finished")]
    )
    _, result = await run_to_failure(Runner(boss))
    assert "swordfish" not in text_of_all(result.messages)


async def test_a_summary_from_before_a_rejected_answer_is_still_read() -> None:
    store = MemoryStore()
    desk = Agent("Desk", model=ScriptedModel([*["Well…"] * 5, "It is swordfish."]), output_guardrails=[no_secrets])
    compaction = Compaction(at_tokens=40, keep_last=1, summarizer=lambda ctx, messages: "They talked.")
    runner = Runner(desk, store=store, compaction=compaction)
    for number in range(5):
        await runner.run(f"Message {number} {'x' * 40}", thread="t")
    with pytest.raises(GuardrailTrippedError):
        await runner.run("The last one?", thread="t")
    later = ScriptedModel(["fine"])
    await Runner(desk.clone(model=later), store=store).run("And now?", thread="t")
    read = [message.content for message in later.requests[0].messages]
    assert "They talked." in str(read[0])
    assert read[-2:] == ["The last one?", "And now?"]
