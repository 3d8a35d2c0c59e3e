"""Guardrails decide what threads keep: answers, the input of runs, and messages that enter later."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.agents.guardrail_fakes import ask
from tests.agents.test_guardrails_rejected_answers import answering, count, make_teams, no_secrets, text_of_all
from tests.waiting import until

from batonkit import (
    Agent,
    AgentContext,
    BaseAgent,
    Limits,
    ParallelAgent,
    RunContext,
    Runner,
    SequentialAgent,
    handoff,
    tool,
)
from batonkit.agents import Compaction, with_guardrails
from batonkit.errors import BatonError, GuardrailFailedError, GuardrailTrippedError
from batonkit.log import UserMessageAdded, decode_log, encode_log
from batonkit.log.fold import history_from_log
from batonkit.messages import Message, UserMessage, text_of
from batonkit.middleware import Middleware
from batonkit.stores import MemoryStore
from batonkit.testing import ScriptedModel, call


class Unreliable:
    """An output guardrail that fails in one way, and passes once it is repaired."""

    name = "unreliable"

    def __init__(self, way: str) -> None:
        self.way = way
        self.is_called = asyncio.Event()
        self.checked: list[Any] = []

    async def __call__(self, ctx: RunContext[Any], checked: Any) -> bool:
        self.checked.append(checked)
        self.is_called.set()
        if self.way == "raises":
            raise ConnectionError("no answer")
        if self.way == "hangs":
            await asyncio.Event().wait()
        if self.way == "asks":
            await ctx.interrupt("Is that so?")
        return True


async def drive(runner: Runner[Any, Any], check: Unreliable, input: str, **options: Any) -> str:
    """Run until the guardrail fails; return the id of the run."""
    stream = runner.stream(input, thread="t", **options)
    driving = asyncio.create_task(stream._drive())
    if check.way == "hangs" and "limits" not in options:
        await until(check.is_called.is_set)
        driving.cancel()
    await asyncio.wait([driving])
    assert driving.cancelled() or driving.exception() or stream.result.status == "suspended"
    assert "swordfish" not in text_of_all(stream.result.messages)
    return stream.run_id


async def shown(runner: Runner[Any, Any]) -> list[str]:
    return [text_of(message.content) for message in await runner.thread("t").messages()]


def no_evil(ctx: RunContext[Any], messages: Sequence[Message]) -> bool:
    """Reject a conversation in which anyone says the word."""
    return "evil" not in text_of_all(messages)


def guarded(*steps: Any, name: str = "Desk", **options: Any) -> Agent[Any, str]:
    return answering(name, *(steps or ["Fine."]), input_guardrails=[no_evil], **options)


# Answers that could not be checked.


@pytest.mark.parametrize("way", ["raises", "hangs", "asks", "out of time"])
@pytest.mark.parametrize("form", make_teams())
async def test_an_answer_that_could_not_be_checked_is_in_no_thread_until_it_has_passed(form: str, way: str) -> None:
    store = MemoryStore()
    check = Unreliable("hangs" if way == "out of time" else way)
    team = with_guardrails(make_teams()[form], output_guardrails=[check])
    runner = Runner(team, store=store)
    options = {"limits": Limits(seconds=0.05)} if way == "out of time" else {}
    run_id = await drive(runner, check, "The password?", **options)
    assert "swordfish" not in text_of_all(await runner.thread("t").messages())
    assert (await shown(runner))[0] == "The password?"
    check.way = "works"
    result = await runner.resume(run_id, *(["yes"] if way == "asks" else []), limits=Limits())
    assert (result.status, len(check.checked)) == ("completed", 2)
    assert "swordfish" in text_of_all(await runner.thread("t").messages())
    assert "swordfish" in text_of_all(result.messages)
    assert (await runner.runs.replay(result.events)).messages == result.messages


async def test_the_next_run_does_not_read_an_answer_that_could_not_be_checked() -> None:
    store = MemoryStore()
    check = Unreliable("raises")
    desk = Agent("Desk", model=ScriptedModel(["It is swordfish."]), output_guardrails=[check])
    await drive(Runner(desk, store=store), check, "The password?")
    later = ScriptedModel(["fine"])
    await Runner(desk.clone(model=later, output_guardrails=[]), store=store).run("And?", thread="t")
    assert [message.content for message in later.requests[0].messages] == ["The password?", "And?"]


async def test_an_answer_that_passed_stays_if_the_run_fails_later() -> None:
    failing = Unreliable("raises")
    first = answering("First", "Passed.", output_guardrails=[no_secrets])
    team = SequentialAgent("Steps", sub_agents=[first, answering("Last", output_guardrails=[failing])])
    runner = Runner(team, store=MemoryStore())
    await drive(runner, failing, "go")
    assert await shown(runner) == ["go", "Passed."]


async def test_an_agent_that_goes_on_does_not_read_an_answer_that_could_not_be_checked() -> None:
    failing = answering("Inner", output_guardrails=[Unreliable("raises")])
    fallback = Agent("Fallback", model=ScriptedModel(["I cannot say."], cycle=True))

    class Careful(BaseAgent[Any, str]):
        name = "Careful"

        def inner_agents(self) -> tuple[BaseAgent[Any, Any], ...]:
            return failing, fallback

        async def run(self, ctx: AgentContext[Any]) -> None:
            try:
                await ctx.run_agent(failing, "inner")
            except GuardrailFailedError:
                assert "swordfish" not in text_of_all(ctx.messages())
                await ctx.run_agent(fallback, "fallback")

    result = await Runner(Careful()).run("The password?")
    assert [message.content for message in result.messages] == ["The password?", "I cannot say."]
    # The log alone says so as well, also of branches.
    both = ParallelAgent("Both", sub_agents=[answering("One"), answering("Two", "Nothing.")])
    failing = with_guardrails(both, output_guardrails=[Unreliable("raises")])
    result = await Runner(Careful()).run("The password?")
    assert [entry.message for entry in history_from_log(result.events)] == [*result.messages]
    assert [message.content for message in result.messages] == ["The password?", "I cannot say."]


async def test_middleware_that_tries_again_lets_only_checked_answers_through() -> None:
    class Again(Middleware[Any]):
        async def activation(self, ctx: Any, next: Any) -> Any:
            try:
                return await next()
            except GuardrailTrippedError:
                return await next()

    options: dict[str, Any] = {"output_guardrails": [no_secrets], "middleware": [Again()]}
    result = await Runner(answering("Desk", "It is swordfish.", "I cannot say.", **options)).run("The password?")
    assert [message.content for message in result.messages] == ["The password?", "I cannot say."]
    stream = Runner(answering("Desk", "It is swordfish.", "swordfish!", **options)).stream("The password?")
    with pytest.raises(GuardrailTrippedError):
        await stream._drive()
    assert [message.content for message in stream.result.messages] == ["The password?"]


async def test_a_summary_of_unchecked_answers_is_read_by_no_one() -> None:
    store = MemoryStore()
    check = Unreliable("raises")
    steps = [answering("First", "It is swordfish. " * 20), answering("Last", "Done.")]
    team = with_guardrails(SequentialAgent("Steps", sub_agents=steps), output_guardrails=[check])
    compaction = Compaction(at_tokens=20, keep_last=1, summarizer=lambda ctx, messages: "They said swordfish.")
    await drive(Runner(team, store=store, compaction=compaction), check, "The password?")
    later = ScriptedModel(["fine"])
    await Runner(Agent("Steps", model=later), store=store).run("And?", thread="t")
    assert "swordfish" not in text_of_all(later.requests[0].messages)


# Input that a guardrail ended.


def transferring() -> BaseAgent[Any, Any]:
    return answering("Front", call("transfer_to_desk"), handoffs=[handoff(guarded())])


INPUT_TEAMS: dict[str, Any] = {
    "blocking": guarded,
    "parallel": lambda: with_guardrails(answering("Desk", "Fine."), input_guardrails=[no_evil], mode="parallel"),
    "after a handoff": transferring,
    "a step of a workflow": lambda: SequentialAgent("Steps", sub_agents=[answering("First", "Well…"), guarded()]),
    "around a workflow": lambda: with_guardrails(
        SequentialAgent("Steps", sub_agents=[answering("First", "Well…")]), input_guardrails=[no_evil]
    ),
    "a branch": lambda: ParallelAgent("Both", sub_agents=[answering("One", "Well…"), guarded()]),
}


@pytest.mark.parametrize("form", INPUT_TEAMS)
async def test_input_that_a_guardrail_rejected_is_in_no_thread(form: str) -> None:
    store = MemoryStore()
    stream = Runner(INPUT_TEAMS[form](), store=store).stream("evil", thread="t")
    with pytest.raises(BatonError):
        await stream._drive()
    assert b"evil" in encode_log(stream.result.events)
    assert "evil" not in text_of_all(stream.result.messages)
    runner = Runner(INPUT_TEAMS[form](), store=store)
    assert "evil" not in text_of_all(await runner.thread("t").messages())
    # The guardrail checks all messages, and the thread is not locked.
    assert (await runner.run("go on", thread="t")).status == "completed"
    assert "go on" in await shown(runner)


async def test_the_turns_before_rejected_input_are_still_read() -> None:
    desk = guarded()
    front = answering("Front", call("count"), call("transfer_to_desk"), tools=[count], handoffs=[desk])
    runner = Runner(front, store=MemoryStore())
    with pytest.raises(GuardrailTrippedError):
        await runner.run("evil", thread="t")
    assert (await shown(runner))[:2] == ["", "There are 3."]


@pytest.mark.parametrize("mode", ["blocking", "parallel"])
@pytest.mark.parametrize("way", ["raises", "hangs"])
async def test_input_that_could_not_be_checked_is_in_no_thread_until_it_has_passed(way: str, mode: Any) -> None:
    check = Unreliable(way)
    # Beside the guardrail, the model is asked each time.
    desk = answering("Desk", *["Fine."] * (1 if mode == "blocking" else 2))
    team = with_guardrails(desk, input_guardrails=[check, no_evil], mode=mode)
    runner = Runner(team, store=MemoryStore())
    run_id = await drive(runner, check, "go")
    assert await shown(runner) == []
    check.way = "works"
    assert (await runner.resume(run_id)).output == "Fine."
    assert await shown(runner) == ["go", "Fine."]


async def test_input_that_was_cancelled_before_it_was_checked_is_in_no_thread() -> None:
    runner = Runner(guarded(), store=MemoryStore())
    run_id = await runner.submit("go", thread="t")
    await runner.runs.cancel(run_id)
    assert await shown(runner) == []


async def test_input_stays_if_the_run_goes_on_after_a_rejection() -> None:
    team = ParallelAgent("Both", sub_agents=[answering("One", "Well…"), guarded()], on_error="ignore")
    runner = Runner(team, store=MemoryStore())
    await runner.run("evil", thread="t")
    assert (await shown(runner))[:2] == ["evil", "Well…"]
    inner = guarded(name="Inner").as_tool()
    runner = Runner(answering("Desk", call("inner", request="evil"), "Sorry.", tools=[inner]), store=MemoryStore())
    await runner.run("an evil plan", thread="t")
    assert (await shown(runner))[0] == "an evil plan"


async def test_input_that_passed_stays_if_the_run_is_cancelled_later() -> None:
    runner = Runner(guarded(call("ask", question="Why?"), tools=[ask]), store=MemoryStore())
    first = await runner.run("go", thread="t")
    await runner.runs.cancel(first.run_id)
    assert (await shown(runner))[0] == "go"


async def test_a_run_whose_input_was_rejected_is_rejected_again_when_it_is_resumed() -> None:
    check = Unreliable("works")
    desk = Agent("Desk", model=ScriptedModel([]), input_guardrails=[check, no_evil])
    runner = Runner(desk, store=MemoryStore())
    stream = runner.stream("evil", thread="t")
    with pytest.raises(GuardrailTrippedError):
        await stream._drive()
    with pytest.raises(GuardrailTrippedError):
        await runner.resume(stream.run_id)
    assert (len(check.checked), await shown(runner)) == (1, [])


async def test_a_summary_of_rejected_input_is_read_by_no_one() -> None:
    store = MemoryStore()
    compaction = Compaction(at_tokens=20, keep_last=1, summarizer=lambda ctx, messages: "They said evil.")
    steps = [answering("First", "Well… " * 30), answering("Second", "And… " * 30), guarded()]
    runner = Runner(SequentialAgent("Steps", sub_agents=steps), store=store, compaction=compaction)
    with pytest.raises(GuardrailTrippedError):
        await runner.run("evil " * 30, thread="t")
    later = ScriptedModel(["fine"])
    await Runner(Agent("Steps", model=later), store=store).run("And?", thread="t")
    assert "evil" not in text_of_all(later.requests[0].messages)


# Messages that enter while a run is in progress.


async def test_a_message_that_comes_with_a_resumption_is_checked_before_agents_read_it() -> None:
    model = ScriptedModel([call("ask", question="Why?"), "Fine."])
    check = Unreliable("works")
    desk = Agent("Desk", model=model, tools=[ask], input_guardrails=[check, no_evil])
    runner = Runner(desk, store=MemoryStore())
    first = await runner.run("go", thread="t")
    stream = runner.stream_resume(first.run_id, "because", message="evil")
    with pytest.raises(GuardrailTrippedError):
        await stream._drive()
    assert [text_of(message.content) for message in check.checked[1]] == ["go", "", "because", "evil"]
    assert "evil" not in text_of_all([*stream.result.messages, *await runner.thread("t").messages()])
    assert await shown(runner) == ["go", "", "because"]
    # The message is gone; the run can go on without it.
    result = await runner.resume(first.run_id, message="hurry")
    assert result.output == "Fine."
    assert await shown(runner) == ["go", "", "because", "hurry", "Fine."]
    assert "evil" not in text_of_all(model.requests[-1].messages)
    assert (await runner.runs.replay(decode_log(encode_log(result.events)))).messages == result.messages


async def test_checks_of_later_messages_change_values_also_on_a_replay() -> None:
    def counts(ctx: RunContext[Any], messages: Sequence[Message]) -> None:
        ctx.values.set("checked", ctx.values.get("checked", 0) + 1)

    desk = answering("Desk", call("ask", question="Why?"), "Fine.", tools=[ask], input_guardrails=[counts])
    runner = Runner(desk, store=MemoryStore())
    first = await runner.run("go", thread="t")
    result = await runner.resume(first.run_id, "because", message="hurry")
    assert result.values["checked"] == 2
    assert (await runner.runs.replay(result.events)).values["checked"] == 2


class Slow:
    """A tool that waits until it is opened."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

        @tool
        async def look() -> str:
            """Look."""
            self.entered.set()
            await self.opened.wait()
            return "seen"

        self.tool = look


async def steer(runner: Runner[Any, Any], slow: Slow, *messages: Any) -> list[BaseException | None]:
    """Steer a run with messages; return how the run and the messages have ended."""
    first = asyncio.create_task(runner.run("go", thread="t", run_id="first"))
    await slow.entered.wait()
    tasks: list[asyncio.Task[Any]] = [first]
    for number, message in enumerate(messages, 1):
        tasks.append(asyncio.create_task(runner.run(message, thread="t", when_busy="steer")))

        async def waits(number: int = number) -> bool:
            return len(await runner.thread("t").waiting()) == number

        await until(waits)
    slow.opened.set()
    await asyncio.wait(tasks)
    return [task.exception() for task in tasks]


@pytest.mark.parametrize("mode", ["blocking", "parallel"])
async def test_a_message_that_steers_is_checked_before_agents_read_it(mode: Any) -> None:
    slow = Slow()
    model = ScriptedModel([call("look"), "Fine."])
    desk = Agent("Desk", model=model, tools=[slow.tool])
    runner = Runner(with_guardrails(desk, input_guardrails=[no_evil], mode=mode), store=MemoryStore())
    rest = ["louder", "evil", "softer"]
    errors = await steer(runner, slow, *rest)
    # Its sender learns of the end of the run that it steered; what came after it starts a run.
    assert isinstance(errors[0], GuardrailTrippedError)
    assert [error is None for error in errors] == [False, False, False, True]
    assert "evil" not in text_of_all([m for request in model.requests for m in request.messages])
    assert await shown(runner) == ["go", "", "seen", "louder", "softer", "Fine."]
    assert await runner.thread("t").waiting() == []


async def test_each_part_of_a_message_that_steers_is_checked() -> None:
    slow = Slow()
    seen: list[str] = []

    def last_only(ctx: RunContext[Any], messages: Sequence[Message]) -> bool:
        seen.append(text_of(messages[-1].content))
        return seen[-1] != "evil"

    desk = answering("Desk", call("look"), "Fine.", tools=[slow.tool], input_guardrails=[last_only])
    runner = Runner(desk, store=MemoryStore())
    await steer(runner, slow, [UserMessage("well"), UserMessage("evil"), UserMessage("please")])
    assert seen == ["go", "well", "evil"]
    assert await shown(runner) == ["go", "", "seen"]
    (record,) = await runner.thread("t").runs()
    added = [event for event in await runner.runs.events(record.run_id) if isinstance(event, UserMessageAdded)]
    assert [(event.text, event.withheld) for event in added] == [("well", True), ("evil", True), ("please", True)]


async def test_a_message_that_could_not_be_checked_waits_for_the_next_run() -> None:
    slow = Slow()
    calls = 0

    def fails_once(ctx: RunContext[Any], messages: Sequence[Message]) -> bool:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionError("no answer")
        return True

    model = ScriptedModel([call("look"), "Fine."])
    runner = Runner(Agent("Desk", model=model, tools=[slow.tool], input_guardrails=[fails_once]), store=MemoryStore())
    errors = await steer(runner, slow, "louder")
    assert isinstance(errors[0], GuardrailFailedError)
    assert errors[1] is None
    assert calls == 3
    assert await shown(runner) == ["go", "", "seen", "louder", "Fine."]


async def test_an_agent_that_took_over_checks_later_messages_with_its_own_guardrails() -> None:
    desk = guarded(call("ask", question="Why?"), "Fine.", tools=[ask])
    front = answering("Front", call("transfer_to_desk"), handoffs=[desk])
    runner = Runner(front, store=MemoryStore())
    first = await runner.run("go", thread="t")
    with pytest.raises(GuardrailTrippedError):
        await runner.resume(first.run_id, "because", message="evil")
    assert "evil" not in text_of_all(await runner.thread("t").messages())
    assert (await shown(runner))[0] == "go"
