"""Events and deltas across processes, through the channel of a PostgreSQL store."""

from batonkit import Agent, Runner
from batonkit.log import Origin, ProgressDelta, TextDelta
from batonkit.runs.background import relay
from batonkit.stores import MemoryStore, SupportsChannel
from batonkit.testing import ScriptedModel


def test_messages_fit_into_a_notification() -> None:
    origin = Origin("1", "A", None)
    long = [
        (2, TextDelta(origin, "日本" * 5000)),
        (2, ProgressDelta(origin, "x" * 9000)),
        (2, TextDelta(origin, "end")),
    ]
    parts = relay._pack("r", long)
    assert all(sum(len(bytes(delta)) for _, delta in part) < 7900 for part in parts)
    assert b"end" in bytes(parts[-1][-1][1])
    many = relay._split({f"run-{number}" * 10: number for number in range(1000)})
    assert sum(map(len, many)) == 1000
    assert all(len(str(part)) < 7900 for part in many)


async def test_stores_without_a_channel_are_polled() -> None:
    assert not isinstance(MemoryStore(), SupportsChannel)
    runner = Runner(Agent("A", model=ScriptedModel(["hello"])), store="memory:")
    await runner.run("go", run_id="r")
    assert [number async for number, _ in runner.runs.watch("r", after=4)] == [5]
