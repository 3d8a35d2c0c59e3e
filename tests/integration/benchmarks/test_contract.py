"""The handoff probe that kills a process."""

from tests.benchmarks.test_contract import check_recorded_outcome


async def test_the_outcome_of_the_crash_probe_is_the_recorded_one() -> None:
    await check_recorded_outcome("crash")
