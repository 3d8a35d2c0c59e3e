"""Laws of messages that steer a run: each is read once, at the recorded place, whatever the agents do."""

import asyncio
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st
from tests.unfinished import recover

from batonkit import Agent, Limits, Runner, tool
from batonkit.context import RunContext
from batonkit.errors import RunExistsError
from batonkit.log import UserMessageAdded
from batonkit.log.fold import history_from_log
from batonkit.messages import UserMessage, pair_calls_with_results, text_of
from batonkit.runs import Dismiss
from batonkit.runs.threads.waiting_messages import to_message
from batonkit.stores import AppendOptions, FullStore, MemoryStore, RunFlags, Store, WaitMode
from batonkit.testing import ScriptedModel, assert_survives_crashes, call, transfer_to

LIMIT = 100


class SendingStore(MemoryStore):
    """A store in which messages arrive after chosen writes."""

    def __init__(self, arrivals: dict[int, WaitMode]) -> None:
        super().__init__()
        self._arrivals = arrivals
        self._writes = 0
        self.runner: Runner[Any, Any] | None = None
        self.sent: list[str] = []

    async def append(self, run_id: str, expected_seq: int, lines: Any, **options: Any) -> RunFlags:
        about: AppendOptions = {**options}  # type: ignore[typeddict-item]
        self._writes += 1
        mode = self._arrivals.get(self._writes)
        if mode is not None and self.runner is not None and about.get("status") is None:
            self.sent.append(f"message {self._writes}")
            started = self.runner._run_started(self.sent[-1], {"thread": "t"})
            await self.enqueue(to_message(started, mode, "active"), limit=LIMIT)
        return await super().append(run_id, expected_seq, lines, **about)


def steps_of(plan: list[str]) -> dict[str, list[Any]]:
    """Return scripts of two agents that follow a plan together and then answer whatever comes."""
    scripts: dict[str, list[Any]] = {"A": [], "B": []}
    active, other = "A", "B"
    for step in plan:
        if step == "transfer":
            scripts[active].append(transfer_to(other))
            active, other = other, active
        else:
            scripts[active].append([call("look") for _ in range(int(step))])
    for script in scripts.values():
        script += [f"answer {number}" for number in range(60)]
    return scripts


def make_runner(plan: list[str], store: Store) -> Runner[Any, Any]:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    other = Agent("B", description="The other one.", tools=[look])
    root = Agent("A", tools=[look], sub_agents=[other])
    # A plan of transfers alone is a loop without progress, which would end the run before any message is read.
    return Runner(root, model=ScriptedModel(steps_of(plan)), store=store, limits=Limits(idle_cycles=None))


@example(plan=["transfer"] * 6, arrivals={})
@given(
    plan=st.lists(st.sampled_from(["transfer", "1", "2"]), max_size=6),
    arrivals=st.dictionaries(st.integers(1, 14), st.sampled_from(["steer", "steer", "queue"]), max_size=5),
)
def test_messages_are_read_once_and_in_order(plan: list[str], arrivals: dict[int, WaitMode]) -> None:
    asyncio.run(check_messages(plan, arrivals))


async def check_messages(plan: list[str], arrivals: dict[int, WaitMode]) -> None:
    store = SendingStore(arrivals)
    runner = store.runner = make_runner(plan, store)
    result = await runner.run("begin", thread="t")
    while await recover(runner):
        pass
    assert await runner.thread("t").waiting() == []
    messages = await runner.thread("t").messages()
    # The history that any provider receives is valid: no message stands between a call and its result.
    assert [*pair_calls_with_results(messages)] == [*messages]
    said = [text_of(message.content) for message in messages if isinstance(message, UserMessage)]
    assert said == ["begin", *store.sent]
    assert tuple(entry.message for entry in history_from_log(result.events)) == result.messages
    for record in await runner.thread("t").runs():
        events = await runner.runs.events(record.run_id)
        replayed = await runner.runs.replay(record.run_id)
        assert replayed.events == tuple(events)
        for position, event in enumerate(events):
            if isinstance(event, UserMessageAdded):
                # A copy of the run up to the message reads it at the same place.
                fork = await runner.runs.fork(record.run_id, at=position + 1)
                again = await runner.resume(fork)
                assert [one.key for one in again.events if isinstance(one, UserMessageAdded)][-1] == event.key


async def test_a_steered_run_survives_a_crash_after_every_event() -> None:
    # Also between the removal of the message and the next model call.
    def new_runner(store: Store) -> Runner[Any, Any]:
        @tool
        async def look(ctx: RunContext[Any]) -> str:
            """Look, while the user says more."""
            for text in ("louder", "softer"):
                started = runner._run_started(text, {"thread": "t", "run_id": text})
                try:
                    await cast("FullStore", store).enqueue(to_message(started, "steer", "active"), limit=LIMIT)
                except RunExistsError:
                    continue  # An earlier attempt of this call has sent it.
            return "seen"

        other = Agent("Other", description="The other one.")
        agent = Agent("Desk", tools=[look], sub_agents=[other])
        model = ScriptedModel({"Desk": [[call("look")], transfer_to("Other")], "Other": [_read]})
        runner: Runner[Any, Any] = Runner(agent, model=model, store=store)
        return runner

    report = await assert_survives_crashes(new_runner, "one", thread="t")
    assert report.crashes > report.events


def _read(request: Any) -> str:
    return " | ".join(text_of(message.content) for message in request.messages if isinstance(message, UserMessage))


async def test_a_dismissed_question_survives_a_crash_after_every_event() -> None:
    def new_runner(store: Store) -> Runner[Any, Any]:
        @tool
        async def ask(ctx: RunContext[Any]) -> str:
            """Ask."""
            return str(await ctx.interrupt("why?"))

        model = ScriptedModel([[call("ask"), call("ask")], "Done."])
        return Runner(Agent("Desk", tools=[ask], model=model), store=store)

    report = await assert_survives_crashes(new_runner, "one", answers=Dismiss("Never mind."))
    assert report.crashes > report.events
