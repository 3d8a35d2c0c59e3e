"""The notes from which threads are read instead of logs, and the entries that need not be read."""

from collections.abc import Sequence
from typing import Any

import pytest

from batonkit import Agent, RunContext, Runner, handoff, tool
from batonkit.agents import Compaction
from batonkit.errors import BatonError
from batonkit.messages import Message, text_of
from batonkit.runs.threads.thread import ThreadReader
from batonkit.stores import THREAD_NOTE, MemoryStore, RunNote
from batonkit.testing import ScriptedModel, call


class CountingStore(MemoryStore):
    """A store that counts the runs whose logs and notes are read."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.noted = 0

    async def load(self, run_id: str, *, start: int = 0) -> Sequence[bytes]:
        self.loaded.append(run_id)
        return await super().load(run_id, start=start)

    async def thread_notes(self, thread: str, name: str, *, before: int, limit: int = 100) -> Sequence[RunNote]:
        found = await super().thread_notes(thread, name, before=before, limit=limit)
        self.noted += len(found)
        return found


def texts(messages: Sequence[Message]) -> list[str]:
    return [text_of(message.content) for message in messages]


def summarize(ctx: RunContext[Any], messages: Sequence[Message]) -> str:
    """Summarize nothing."""
    return "so far"


COMPACTION = Compaction(at_tokens=20, keep_last=2, summarizer=summarize)


async def test_a_cold_runner_reads_a_thread_from_notes_alone() -> None:
    store, model = CountingStore(), ScriptedModel([f"answer {number}" for number in range(31)])
    for number in range(30):
        await Runner(Agent("A"), model=model, store=store).run(f"question {number}", thread="t")
    assert store.loaded == []
    result = await Runner(Agent("A"), model=model, store=store).run("last", thread="t")
    assert store.loaded == []
    assert texts(model.requests[-1].messages)[:3] == ["question 0", "answer 0", "question 1"]
    assert len(model.requests[-1].messages) == 61
    assert (await store.read_notes([result.run_id], THREAD_NOTE)).keys() == {result.run_id}
    assert THREAD_NOTE not in await store.notes(result.run_id)


async def test_a_warm_runner_reads_nothing_of_its_own_runs() -> None:
    store = CountingStore()
    runner = Runner(Agent("A"), model=ScriptedModel(["yes"], cycle=True), store=store)
    for number in range(10):
        await runner.run(f"question {number}", thread="t")
    assert (store.loaded, store.noted) == ([], 8)


async def test_the_note_of_a_run_that_went_on_is_ignored() -> None:
    # A run fails, and its note is stored; then it is resumed elsewhere and cancelled without a note.
    @tool
    async def ask(ctx: RunContext) -> str:
        """Ask."""
        return str(await ctx.interrupt("which?"))

    store = CountingStore()
    runner = Runner(Agent("A", tools=[ask]), model=ScriptedModel([RuntimeError("no"), call("ask")]), store=store)
    with pytest.raises(BatonError):
        await runner.run("first", thread="t", run_id="r1")
    stale = (await store.read_notes(["r1"], THREAD_NOTE))["r1"]
    assert (await runner.resume("r1")).status == "suspended"
    assert await runner.runs.cancel("r1") == "cancelled"
    assert (await store.read_notes(["r1"], THREAD_NOTE))["r1"] == stale
    model = ScriptedModel(["done"])
    await Runner(Agent("A", tools=[ask]), model=model, store=store).run("second", thread="t")
    assert [type(message).__name__ for message in model.requests[0].messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "UserMessage",
    ]


async def test_a_note_belongs_to_its_run_alone() -> None:
    # Trimming a thread removes all that was kept of the deleted runs.
    store, model = CountingStore(), ScriptedModel([f"answer {number}" for number in range(4)])
    runner = Runner(Agent("A"), model=model, store=store)
    run_ids = [(await runner.run(f"question {number}", thread="t")).run_id for number in range(3)]
    await runner.thread("t").trim(keep=1)
    notes = await store.read_notes(run_ids, THREAD_NOTE)
    assert notes.keys() == {run_ids[2]}
    assert b"question 1" not in notes[run_ids[2]]
    await Runner(Agent("A"), model=model, store=store).run("next", thread="t")
    assert texts(model.requests[-1].messages) == ["question 2", "answer 2", "next"]


@pytest.mark.parametrize("runs", [12, 60])
async def test_a_compacted_thread_costs_the_same_however_long_it_is(runs: int) -> None:
    store, model = CountingStore(), ScriptedModel(["a long answer"], cycle=True)
    for number in range(runs):
        runner = Runner(Agent("A"), model=model, store=store, compaction=COMPACTION)
        await runner.run(f"question {number}", thread="t")
    store.noted = 0
    result = await Runner(Agent("A"), model=model, store=store, compaction=COMPACTION).run("last", thread="t")
    assert store.noted <= 9
    assert len(model.requests[-1].messages) < 10
    assert texts(result.messages) == ["last", "a long answer"]
    whole = await Runner(Agent("A"), model=model, store=store).thread("t").messages()
    assert len(whole) == 2 * (runs + 1), "the thread itself has all messages"


async def test_agents_with_summaries_of_their_own_read_the_whole_thread() -> None:
    # A summary for all agents replaces nothing for one that reads answers.
    store, model = MemoryStore(), ScriptedModel(["a long answer"], cycle=True)
    for number in range(12):
        runner = Runner(Agent("A"), model=model, store=store, compaction=COMPACTION)
        await runner.run(f"question {number}", thread="t")
    await Runner(Agent("A", history="answers"), model=model, store=store).run("last", thread="t")
    assert len(model.requests[-1].messages) == 25
    helper = Agent("B", description="b").as_tool(history="answers")
    runner = Runner(Agent("A", tools=[helper]), model=model, store=store)
    assert runner._repository.threads._reads_all


async def test_an_agent_that_a_tool_returns_reads_the_summary_of_what_was_not_read() -> None:
    store, model = MemoryStore(), ScriptedModel(["a long answer"], cycle=True)
    for number in range(12):
        runner = Runner(Agent("A"), model=model, store=store, compaction=COMPACTION)
        await runner.run(f"question {number}", thread="t")
    made: list[Agent] = []

    @tool
    def fetch() -> Any:
        """Fetch an agent that no one has declared."""
        made.append(Agent("Made", history="answers"))
        return made[-1]

    last = ScriptedModel({"A": [call("fetch")], "Made": ["hello"]})
    await Runner(Agent("A", tools=[fetch]), model=last, store=store).run("last", thread="t")
    assert "so far" in texts(last.requests[-1].messages)[0]


async def test_the_end_of_a_task_is_read_where_the_task_was_opened() -> None:
    # The run that opened it is before the summary, and the one that ended it is after it.
    worker = Agent("Worker", description="works")
    boss = Agent("Boss", handoffs=[handoff(worker, return_to="caller", until="finished")])
    script: list[tuple[dict[str, Any], Compaction | None]] = [
        ({"Boss": [call("transfer_to_worker")], "Worker": ["working"]}, None),
        ({"Worker": ["still working"]}, None),
        ({"Worker": [call("finish_task", result="finished work")], "Boss": ["good"]}, None),
        ({"Boss": ["a new day"]}, Compaction(at_tokens=1, keep_last=2, summarizer=summarize)),
    ]
    store = MemoryStore()
    for number, (steps, compaction) in enumerate(script):
        runner = Runner(boss, model=ScriptedModel(steps), store=store, compaction=compaction)
        result = await runner.run(f"turn {number}", thread="t", run_id=f"r{number}")
        assert result.status == "completed"
    part, whole = [await ThreadReader(store, reads_all=reads_all).latest("t") for reads_all in (False, True)]
    assert part.summaries[0].upto.run_id == "r1"
    assert not part.is_whole
    found, expected = [[(e.message, e.is_answer) for e in state.entries] for state in (part, whole)]
    assert found == expected[-len(found) :]
    assert sum("finished work" in text for text in texts([message for message, _ in expected])) == 1
    assert sum("finished work" in text for text in texts([message for message, _ in found])) == 0
