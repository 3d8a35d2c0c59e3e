"""A sample of the benchmark of many runs: no query scans the table, and renewals are HOT updates."""

from benchmarks.many_runs import measure


async def test_no_query_scans_the_tables(postgres_url: str) -> None:
    # `python -m benchmarks.many_runs` checks a million runs.
    took, problems, hot = await measure(postgres_url, 20_000, show=False)
    assert problems == []
    assert len(took) > 10
    assert hot >= 0.95
