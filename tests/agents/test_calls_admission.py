"""Checks before a transfer: typed input, approval, acceptance by the target and `on_handoff`, each once."""

import logging
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from batonkit import Agent, RunContext, Runner, SetupError, handoff, tool
from batonkit.errors import HandoffInputError, TransferError
from batonkit.log import ControlTransferred
from batonkit.messages import AssistantMessage, ToolCall, UserMessage, text_of
from batonkit.testing import ScriptedModel, call, transcript, transfer_to


class Reason(BaseModel):
    """The reason for a transfer."""

    reason: str
    urgency: int = 1


@tool
async def ask(ctx: RunContext, question: str) -> str:
    """Ask a person."""
    return str(await ctx.interrupt(question))


def make_runner(*steps: Any, target: Agent | None = None, **options: Any) -> tuple[Runner[Any, Any], ScriptedModel]:
    """Create a runner of agent `A`, which follows these steps and has a handoff to `B` with these options."""
    model = ScriptedModel({"A": steps, "B": [call("ask", question="?"), "B is done"], "C": ["C is here"]})
    b = target or Agent("B", tools=[ask])
    a = Agent("A", handoffs=[handoff(b, **options), Agent("C")], tools=[ask])
    return Runner(a, model=model), model


# --- input


async def test_typed_input_is_parsed_and_recorded() -> None:
    runner, model = make_runner(call("transfer_to_b", reason="angry", urgency=3), input_type=Reason)
    result = await runner.run("hi")
    assert result.agent == "B"
    (transferred,) = [event for event in result.events if isinstance(event, ControlTransferred)]
    assert transferred.payload == {"reason": "angry", "urgency": 3}
    # Without on_handoff the input becomes a message for the target.
    assert model.requests[1].messages[-1] == UserMessage(
        'For context: [A] handed over with: {"reason":"angry","urgency":3}.'
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "reason: Field required"),
        ("not json", "Invalid JSON"),
        ("null", "the input"),
        ("{}", "reason: Field required"),
        ('{"reason": 7}', "reason: Input should be a valid string"),
        ('{"reason": "x", "urgency": "3"}', "urgency: Input should be a valid integer"),
    ],
)
async def test_invalid_input_is_returned_to_the_model_which_can_correct_it(arguments: str, problem: str) -> None:
    # Strict, no coercion.
    wrong = AssistantMessage(tool_calls=(ToolCall("x", "transfer_to_b", arguments),))
    runner, model = make_runner(wrong, call("transfer_to_b", reason="angry"), input_type=Reason)
    result = await runner.run("hi")
    assert result.agent == "B"
    error_result = model.requests[1].messages[-1]
    assert text_of(error_result.content).startswith("Not transferred to [B]: ")
    assert problem in text_of(error_result.content)
    # Later agents do not read the rejected attempt.
    assert not any("Not transferred" in text_of(message.content) for message in model.requests[2].messages)


async def test_repeated_invalid_input_raises_a_handoff_input_error() -> None:
    runner, model = make_runner(*[call("transfer_to_b", reason=7)] * 9, input_type=Reason)
    with pytest.raises(HandoffInputError, match="the model of `A` gave invalid input for the handoff to `B`") as caught:
        await runner.run("hi")
    assert (caught.value.source, caught.value.target) == ("A", "B")
    assert "reason" in caught.value.problems
    assert isinstance(caught.value, TransferError)
    assert len(model.requests) == 3


async def test_the_values_of_invalid_input_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    secret = {"reason": {"card": "4111-1111"}}
    runner, _ = make_runner(call("transfer_to_b", **secret), "sorry", input_type=Reason)
    await runner.run("hi")
    assert "4111" not in caplog.text


@pytest.mark.parametrize(("kind", "value"), [(int, 3), (list[str], ["a", "b"]), (str | None, None)])
async def test_input_that_is_not_an_object_is_unwrapped(kind: Any, value: Any) -> None:
    callback = RecordingCallback()
    runner, _ = make_runner(call("transfer_to_b", input=value), input_type=kind, on_handoff=callback)
    await runner.run("hi")
    assert callback.calls == [(value,)]


# --- on_handoff


class RecordingCallback:
    """An `on_handoff` callback that records its arguments after the context."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> None:
        self.calls.append(arguments[1:])


async def test_on_handoff_is_called_once_even_across_resumes_and_replays() -> None:
    callback = RecordingCallback()
    runner, _ = make_runner(call("transfer_to_b"), on_handoff=callback)
    suspended = await runner.run("hi")
    assert suspended.agent == "B"
    assert callback.calls == [()]
    result = await runner.resume(suspended.run_id, "yes")
    assert (result.output, callback.calls) == ("B is done", [()])
    await runner.runs.replay(result.events)
    assert callback.calls == [()]


async def test_on_handoff_can_be_sync_or_async_and_write_values() -> None:
    def sync(ctx: RunContext) -> None:
        ctx.values.set("who", ctx.agent)

    async def with_input(ctx: RunContext, input: Reason) -> None:
        ctx.values.set("why", input.reason)

    runner, _ = make_runner(call("transfer_to_b"), on_handoff=sync)
    assert (await runner.run("hi")).values == {"who": "A"}
    runner, model = make_runner(call("transfer_to_b", reason="angry"), on_handoff=with_input, input_type=Reason)
    suspended = await runner.run("hi")
    assert suspended.values == {"why": "angry"}
    # If on_handoff takes the input, the target gets no message with it.
    assert not any("handed over with" in text_of(message.content) for message in model.requests[1].messages)
    assert (await runner.resume(suspended.run_id, "yes")).values == {"why": "angry"}


def no_parameters() -> None: ...


def one_parameter(ctx: Any) -> None: ...


def two_parameters(ctx: Any, input: Any) -> None: ...


def three_parameters(ctx: Any, input: Any, more: Any) -> None: ...


@pytest.mark.parametrize(
    ("callback", "input_type", "message"),
    [
        (no_parameters, None, r"is called with \(ctx\), because it has no input_type, but it takes \(\)"),
        (two_parameters, None, r"is called with \(ctx\), because it has no input_type, but it takes \(ctx"),
        (one_parameter, Reason, r"is called with \(ctx, input\), because it has an input_type, but it takes \(ctx"),
        (three_parameters, Reason, r"is called with \(ctx, input\)"),
        (42, None, "must be callable, not 42"),
    ],
)
def test_on_handoff_with_wrong_parameters_is_refused_at_construction(
    callback: Any, input_type: Any, message: str
) -> None:
    with pytest.raises(SetupError, match=f"on_handoff of the handoff to `B` {message}"):
        handoff("B", on_handoff=callback, input_type=input_type)


async def test_an_error_in_on_handoff_ends_the_run_and_a_resume_calls_it_again() -> None:
    tries: list[int] = []

    def fails_once(ctx: RunContext) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("disk full")

    runner, model = make_runner(call("transfer_to_b"), on_handoff=fails_once)
    stream = runner.stream("hi")
    with pytest.raises(OSError, match="disk full"):
        await stream._drive()
    assert not any(isinstance(event, ControlTransferred) for event in stream.result.events)
    suspended = await runner.resume(stream.run_id)
    assert suspended.agent == "B"
    assert [request.agent for request in model.requests] == ["A", "B"]


async def test_on_handoff_is_not_called_for_a_transfer_that_is_not_followed() -> None:
    callback = RecordingCallback()
    runner, _ = make_runner([call("transfer_to_c"), call("transfer_to_b")], on_handoff=callback)
    assert (await runner.run("hi")).agent == "C"
    assert callback.calls == []


async def test_on_handoff_is_called_after_the_tools_of_the_turn() -> None:
    callback = RecordingCallback()
    runner, _ = make_runner([call("transfer_to_b"), call("ask", question="first?")], on_handoff=callback)
    suspended = await runner.run("hi")
    assert (suspended.agent, callback.calls) == ("A", [])
    assert (await runner.resume(suspended.run_id, "yes")).agent == "B"
    assert callback.calls == [()]


# --- approval


async def test_a_handoff_can_need_approval() -> None:
    runner, _ = make_runner(call("transfer_to_b", reason="angry"), input_type=Reason, needs_approval=True)
    suspended = await runner.run("hi")
    assert (suspended.status, suspended.agent) == ("suspended", "A")
    (question,) = suspended.interrupts
    assert question.payload == {"kind": "approval", "handoff": "B", "input": {"reason": "angry", "urgency": 1}}
    result = await runner.resume(suspended.run_id, True)
    assert result.agent == "B"
    assert transcript(result.events)[-12:-2] == snapshot(
        [
            'A: called transfer_to_b({"reason":"angry"})',
            'A: asked {"kind":"approval","handoff":"B","input":{"reason":"angry","urgency":1}} about transfer_to_b({"reason":"angry"})',  # noqa: E501
            "run suspended with 1 open question",
            "run resumed",
            'A: got the answer {"approved":true}',
            'A: transfer_to_b -> {"assistant":"B"}',
            'A → B with {"reason":"angry","urgency":1}',
            "A finished",
            "B started",
            'B: called ask({"question":"?"})',
        ]
    )


async def test_the_rejection_of_a_handoff_is_returned_to_the_model_with_its_reason() -> None:
    runner, model = make_runner(call("transfer_to_b"), "I will do it myself", needs_approval=True)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, {"approved": False, "reason": "B is on holiday"})
    assert (result.agent, result.output) == ("A", "I will do it myself")
    assert model.requests[1].messages[-1].content == "Not transferred to [B]: B is on holiday"


async def test_needs_approval_can_depend_on_the_input() -> None:
    def is_urgent(ctx: RunContext, input: Reason) -> bool:
        return input.urgency > 2

    for urgency, agent_name in ((1, "B"), (3, "A")):
        runner, _ = make_runner(
            call("transfer_to_b", reason="x", urgency=urgency), input_type=Reason, needs_approval=is_urgent
        )
        assert (await runner.run("hi")).agent == agent_name


async def test_an_approval_can_change_the_input() -> None:
    runner, _ = make_runner(call("transfer_to_b", reason="angry"), input_type=Reason, needs_approval=True)
    suspended = await runner.run("hi")
    result = await runner.resume(suspended.run_id, {"approved": True, "arguments": {"reason": "calm"}})
    (transferred,) = [event for event in result.events if isinstance(event, ControlTransferred)]
    assert transferred.payload == {"reason": "calm", "urgency": 1}


# --- acceptance by the target


async def test_a_target_can_decline_with_a_reason() -> None:
    def accepts(ctx: RunContext, payload: Any) -> bool | str:
        return "we are closed"

    closed = Agent("B", accepts=accepts, tools=[ask])
    runner, model = make_runner(call("transfer_to_b"), call("transfer_to_c"), target=closed)
    result = await runner.run("hi")
    assert result.agent == "C"
    assert model.requests[1].messages[-1].content == "Not transferred: [B] declined: we are closed"
    # Later agents do not read the declined attempt.
    assert not any("declined" in text_of(message.content) for message in model.requests[2].messages)


async def test_a_target_can_decline_depending_on_the_input() -> None:
    async def accepts(ctx: RunContext, payload: Reason) -> bool | str:
        return True if payload.urgency < 3 else "too urgent for me"

    selective = Agent("B", accepts=accepts, tools=[ask])
    steps = [call("transfer_to_b", reason="x", urgency=5), call("transfer_to_b", reason="x", urgency=1)]
    runner, model = make_runner(*steps, target=selective, input_type=Reason)
    assert (await runner.run("hi")).agent == "B"
    assert "too urgent for me" in text_of(model.requests[1].messages[-1].content)


async def test_accepts_is_called_once_even_across_resumes() -> None:
    asked: list[int] = []

    def accepts(ctx: RunContext, payload: Any) -> bool:
        asked.append(1)
        return True

    runner, _ = make_runner(call("transfer_to_b"), target=Agent("B", accepts=accepts, tools=[ask]))
    suspended = await runner.run("hi")
    await runner.resume(suspended.run_id, "yes")
    assert asked == [1]


async def test_accepts_is_also_called_for_sub_agents_and_functions_that_return_agents() -> None:
    def accepts(ctx: RunContext, payload: Any) -> str:
        return "not today"

    declining = Agent("B", accepts=accepts)

    def to_declining() -> Agent:
        return declining

    for agents, step in (
        ({"sub_agents": [declining]}, transfer_to("B")),
        ({"tools": [to_declining]}, call("to_declining")),
    ):
        options: dict[str, Any] = agents
        model = ScriptedModel([step, "I stay"])
        result = await Runner(Agent("A", model=model, **options)).run("hi")
        assert (result.agent, result.output) == ("A", "I stay")
        assert "declined: not today" in text_of(model.requests[1].messages[-1].content)
