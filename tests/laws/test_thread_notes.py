"""A thread is read the same from the notes beside its logs as from the logs."""

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st
from tests.laws.executions import run_in_loop
from tests.laws.facts import Conversation, Thread, compactions, conversations, with_shared_summaries
from tests.laws.thread_notes import check_notes

from batonkit import Runner
from batonkit.agents import Compaction


@given(conversation=conversations, compaction=st.none() | compactions)
def test_a_thread_is_the_same_with_and_without_its_notes(
    conversation: Conversation, compaction: Compaction | None
) -> None:
    note(f"{conversation!r}\n{compaction!r}")
    thread = Thread(conversation, compaction)

    async def run_and_check() -> None:
        for number in range(len(conversation.runs)):
            await thread.run(number)
            await check_notes(thread.store)

    run_in_loop(run_and_check())


class WholeThread(Thread):
    """A conversation whose agents get all entries, also those that a summary replaces."""

    def new_runner(self) -> Runner[Any, Any]:
        runner = super().new_runner()
        runner._repository.threads._reads_all = True
        return runner


@given(conversation=conversations.map(with_shared_summaries), compaction=compactions)
def test_entries_that_a_summary_replaces_need_not_be_read(conversation: Conversation, compaction: Compaction) -> None:
    # What the models read is the same, to the message.
    note(f"{conversation!r}\n{compaction!r}")
    part, whole = Thread(conversation, compaction), WholeThread(conversation, compaction)
    assert run_in_loop(part.run_all()) == run_in_loop(whole.run_all())
    for ours, theirs in zip(part.model.requests, whole.model.requests, strict=True):
        assert (ours.agent, [*ours.messages]) == (theirs.agent, [*theirs.messages])
