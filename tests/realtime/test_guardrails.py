"""Output guardrails check responses at intervals; a rejection stops the response."""

import asyncio
from typing import Any

import pytest
from tests.realtime.backends import Backend, ScriptedBackend
from tests.realtime.recorder import SessionRecorder, make_runner, record_session, unplayed

from batonkit import GuardrailVerdict, tool
from batonkit.errors import GuardrailFailedError
from batonkit.log import AgentResponded, ResponseTruncated, ToolReturned
from batonkit.log.fold import history_from_log
from batonkit.messages import text_of
from batonkit.realtime import GuardrailTripped, PlaybackInterrupted, RealtimeAgent, RealtimeSettings, TranscriptDelta
from batonkit.testing import ScriptedStream, call, say


async def no_secrets(ctx: Any, text: str) -> GuardrailVerdict:
    return GuardrailVerdict("secret" not in text, "it is a secret")


async def test_guardrails_are_checked_at_intervals_and_at_the_end(backend: Backend) -> None:
    checked: list[str] = []

    async def record(ctx: Any, text: str) -> bool:
        checked.append(text)
        return True

    may_end = asyncio.Event()
    model = await backend.start([ScriptedStream("word " * 60, may_end, "and that is all.")])
    desk = RealtimeAgent("Desk", output_guardrails=[record])
    async with record_session(make_runner(desk, model, guardrail_interval=100).connect()) as recorder:
        await recorder.session.send_text("Talk")
        await recorder.wait_for(TranscriptDelta, where=lambda _: "".join(transcript_chunks(recorder)) == "word " * 60)
        may_end.set()
        await recorder.wait_for_response()
    assert checked[-1] == "word " * 60 + "and that is all."
    assert 2 <= len(checked) <= 4
    assert all(len(text) - size >= 100 for size, text in zip([0, *map(len, checked)], checked[:-1], strict=False))
    assert backend.complaints == []


def transcript_chunks(recorder: SessionRecorder) -> list[str]:
    return [delta.text for delta in recorder.of_type(TranscriptDelta)]


async def test_a_rejection_stops_the_response(backend: Backend) -> None:
    model = await backend.start([ScriptedStream("The secret is", asyncio.Event()), "I cannot tell."])
    desk = RealtimeAgent("Desk", output_guardrails=[no_secrets])
    async with record_session(
        make_runner(desk, model, guardrail_interval=5, settings=RealtimeSettings()).connect(playback=unplayed())
    ) as recorder:
        await recorder.session.send_text("Tell me")
        tripped = await recorder.wait_for(GuardrailTripped)
        await recorder.wait_for(AgentResponded)
        await recorder.wait_for(ResponseTruncated)
        await recorder.session.wait_until_idle()
        assert "cancel" in backend.commands()
        await recorder.session.send_text("Well?")
        await recorder.wait_for(AgentResponded, 2)
    assert (tripped.guardrail, tripped.reason) == ("no_secrets", "it is a secret")
    assert recorder.of_type(AgentResponded)[0].stop_reason == "guardrail"
    assert len(recorder.of_type(GuardrailTripped)) == 1
    assert len(recorder.of_type(PlaybackInterrupted)) == 1
    assert backend.commands() == ["user", "respond", "cancel", "truncate", "user", "respond"]
    # Nothing of the response was played yet, so the history does not contain it.
    assert "secret" not in " ".join(text_of(message.content) for message in recorder.session.result.messages)
    assert backend.complaints == []


async def test_calls_of_a_stopped_response_are_not_executed_also_not_after_a_resume(backend: Backend) -> None:
    # And the log says so, in case the run is resumed or replayed.
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        return "paid"

    desk = RealtimeAgent("Desk", tools=[pay], output_guardrails=[no_secrets], handoffs=[RealtimeAgent("Billing")])
    steps = [say("The secret", call("pay"), call("transfer_to_billing")), "I did nothing.", "I did nothing."]
    model = await backend.start(steps)
    runner = make_runner(desk, model)
    async with record_session(runner.connect()) as recorder:
        await recorder.session.send_text("Pay")
        await recorder.wait_for(ToolReturned, 2)
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I did nothing.")
        assert recorder.session.active_agent == "Desk"
        log = list(recorder.session.log.events)
    assert calls == 0
    assert recorder.transfers == []
    refusal = "Not carried out: a guardrail stopped this response."
    assert recorder.tool_results == [("pay", refusal), ("transfer_to_billing", refusal)]
    assert backend.commands().count("result") == 2
    history = [text_of(message.content) for message in recorder.session.result.messages]
    assert [text_of(entry.message.content) for entry in history_from_log(recorder.session.log.events)] == history
    replayed = await runner.text_runner.runs.replay(recorder.session.log.events)
    assert [text_of(message.content) for message in replayed.messages] == history
    # Resume the run from its log right after the response.
    position = next(index for index, event in enumerate(log) if isinstance(event, AgentResponded))
    other_runner = make_runner(desk, model)
    run_id = await other_runner.text_runner.runs.load(log[: position + 1])
    async with record_session(other_runner.resume(run_id)) as recorder:
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "I did nothing.")
    assert calls == 0
    assert recorder.tool_results == [("pay", refusal), ("transfer_to_billing", refusal)]
    assert backend.complaints == []


@pytest.mark.parametrize("interval", [5, 1000])
async def test_a_guardrail_that_raises_fails_the_session(backend: Backend, interval: int) -> None:
    # Immediately, also in the middle of a response: unchecked text must not be delivered.

    async def fail(ctx: Any, text: str) -> bool:
        raise LookupError("no such rule")

    never_set = asyncio.Event()
    model = await backend.start([ScriptedStream("One two three", never_set) if interval == 5 else "One two three"])
    desk = RealtimeAgent("Desk", output_guardrails=[fail])
    async with record_session(make_runner(desk, model, guardrail_interval=interval).connect()) as recorder:
        await recorder.session.send_text("Count")
        await recorder.wait_until_ended()
    assert isinstance(recorder.failure, GuardrailFailedError)
    assert "no such rule" in str(recorder.failure)
    assert recorder.session.result.status == "failed"
    assert backend.complaints == []


async def test_the_guardrails_of_the_active_agent_are_checked(scripted_backend: ScriptedBackend) -> None:
    # After a transfer, those of the new agent.
    checked: list[tuple[str, str]] = []

    def make_guardrail(name: str) -> Any:
        async def record(ctx: Any, text: str) -> bool:
            checked.append((name, text))
            return True

        return record

    billing = RealtimeAgent("Billing", description="Settles invoices.", output_guardrails=[make_guardrail("Billing")])
    desk = RealtimeAgent("Desk", handoffs=[billing], output_guardrails=[make_guardrail("Desk")])
    model = await scripted_backend.start(
        {"Desk": [say("One moment.", call("transfer_to_billing"))], "Billing": ["Hello."]}
    )
    async with record_session(make_runner(desk, model).connect()) as recorder:
        await recorder.session.send_text("Hi")
        await recorder.wait_for(AgentResponded, where=lambda response: response.text == "Hello.")
    assert checked == [("Desk", "One moment."), ("Billing", "Hello.")]
