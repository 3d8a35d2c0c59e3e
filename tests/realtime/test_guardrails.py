"""R10: guardrails judge what is being said, now and then; a no stops it."""

import asyncio
from typing import Any

import pytest
from tests.realtime.backends import Backend, InMemory
from tests.realtime.listener import Listener, listening_to, make_runner

from baton import GuardrailVerdict, tool
from baton.errors import GuardrailFailedError
from baton.events import AgentResponded, ResponseTruncated, ToolReturned
from baton.flow.log_history import history_from_log
from baton.messages import text_of
from baton.realtime import GuardrailTripped, PlaybackInterrupted, RealtimeAgent, RealtimeSettings, TranscriptDelta
from baton.testing import ScriptedStream, call, say


async def no_secrets(ctx: Any, text: str) -> GuardrailVerdict:
    return GuardrailVerdict("secret" not in text, "it is a secret")


async def test_guardrails_are_checked_at_intervals_and_at_the_end(backend: Backend) -> None:
    """R10: debounced."""
    asked: list[str] = []

    async def listen(ctx: Any, text: str) -> bool:
        asked.append(text)
        return True

    may_end = asyncio.Event()
    model = await backend.plays([ScriptedStream("word " * 60, may_end, "and that is all.")])
    desk = RealtimeAgent("Desk", output_guardrails=[listen])
    async with listening_to(make_runner(desk, model, guardrail_interval=100).connect()) as heard:
        await heard.session.send_text("Talk")
        await heard.until(TranscriptDelta, where=lambda _: "".join(said(heard)) == "word " * 60)
        may_end.set()
        await heard.said()
    assert asked[-1] == "word " * 60 + "and that is all."
    assert 2 <= len(asked) <= 4
    assert all(len(text) - size >= 100 for size, text in zip([0, *map(len, asked)], asked[:-1], strict=False))
    assert backend.complaints == []


def said(heard: Listener) -> list[str]:
    return [delta.text for delta in heard.all(TranscriptDelta)]


async def test_a_rejection_stops_the_response(backend: Backend) -> None:
    """R10."""
    model = await backend.plays([ScriptedStream("The secret is", asyncio.Event()), "I cannot tell."])
    desk = RealtimeAgent("Desk", output_guardrails=[no_secrets])
    async with listening_to(
        make_runner(desk, model, guardrail_interval=5, settings=RealtimeSettings()).connect()
    ) as heard:
        await heard.session.send_text("Tell me")
        stopped = await heard.until(GuardrailTripped)
        await heard.until(AgentResponded)
        await heard.until(ResponseTruncated)
        await heard.session.wait_until_idle()
        assert "cancel" in backend.commands()
        await heard.session.send_text("Well?")
        await heard.until(AgentResponded, 2)
    assert (stopped.guardrail, stopped.reason) == ("no_secrets", "it is a secret")
    assert heard.all(AgentResponded)[0].stop_reason == "guardrail"
    assert len(heard.all(GuardrailTripped)) == 1
    assert len(heard.all(PlaybackInterrupted)) == 1
    assert backend.commands() == ["user", "respond", "cancel", "truncate", "user", "respond"]
    # By the clock, nothing of it was played yet: nobody has heard the secret.
    assert "secret" not in " ".join(text_of(message.content) for message in heard.session.result.messages)
    assert backend.complaints == []


async def test_calls_of_a_response_that_was_stopped_are_not_carried_out_also_not_later(backend: Backend) -> None:
    """R10: and the log says so, in case it is resumed or replayed."""
    calls = 0

    @tool
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        return "paid"

    desk = RealtimeAgent("Desk", tools=[pay], output_guardrails=[no_secrets], handoffs=[RealtimeAgent("Billing")])
    steps = [say("The secret", call("pay"), call("transfer_to_billing")), "I did nothing.", "I did nothing."]
    model = await backend.plays(steps)
    runner = make_runner(desk, model)
    async with listening_to(runner.connect()) as heard:
        await heard.session.send_text("Pay")
        await heard.until(ToolReturned, 2)
        await heard.until(AgentResponded, where=lambda said: said.text == "I did nothing.")
        assert heard.session.active_agent == "Desk"
        log = list(heard.session.log.events)
    assert calls == 0
    assert heard.transfers == []
    told = "Not carried out: a guardrail stopped this response."
    assert heard.results == [("pay", told), ("transfer_to_billing", told)]
    assert backend.commands().count("result") == 2
    history = [text_of(message.content) for message in heard.session.result.messages]
    assert [text_of(entry.message.content) for entry in history_from_log(heard.session.log.events)] == history
    replayed = await runner.text_runner.replay(heard.session.log.events)
    assert [text_of(message.content) for message in replayed.messages] == history
    # Cut off just after it was said, and taken up again.
    said = next(place for place, event in enumerate(log) if isinstance(event, AgentResponded))
    again = make_runner(desk, model)
    run_id = again.text_runner.load_log(log[: said + 1])
    async with listening_to(again.resume(run_id)) as heard:
        await heard.until(AgentResponded, where=lambda said: said.text == "I did nothing.")
    assert calls == 0
    assert heard.results == [("pay", told), ("transfer_to_billing", told)]
    assert backend.complaints == []


@pytest.mark.parametrize("step", [5, 1000])
async def test_a_guardrail_that_fails_ends_the_conversation(backend: Backend, step: int) -> None:
    """R10: at once, also in the middle of a response; what nobody can judge must not be said."""

    async def broken(ctx: Any, text: str) -> bool:
        raise LookupError("no such rule")

    never = asyncio.Event()
    model = await backend.plays([ScriptedStream("One two three", never) if step == 5 else "One two three"])
    desk = RealtimeAgent("Desk", output_guardrails=[broken])
    async with listening_to(make_runner(desk, model, guardrail_interval=step).connect()) as heard:
        await heard.session.send_text("Count")
        await heard.until_over()
    assert isinstance(heard.failure, GuardrailFailedError)
    assert "no such rule" in str(heard.failure)
    assert heard.session.result.status == "failed"
    assert backend.complaints == []


async def test_the_guardrails_of_the_active_agent_are_checked(scripted: InMemory) -> None:
    """R10: the floor has changed, and with it the guardrails."""
    asked: list[tuple[str, str]] = []

    def listener(name: str) -> Any:
        async def listen(ctx: Any, text: str) -> bool:
            asked.append((name, text))
            return True

        return listen

    billing = RealtimeAgent("Billing", description="Settles invoices.", output_guardrails=[listener("Billing")])
    desk = RealtimeAgent("Desk", handoffs=[billing], output_guardrails=[listener("Desk")])
    model = await scripted.plays({"Desk": [say("One moment.", call("transfer_to_billing"))], "Billing": ["Hello."]})
    async with listening_to(make_runner(desk, model).connect()) as heard:
        await heard.session.send_text("Hi")
        await heard.until(AgentResponded, where=lambda said: said.text == "Hello.")
    assert asked == [("Desk", "One moment."), ("Billing", "Hello.")]
