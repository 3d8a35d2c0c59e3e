"""Stored runs on PostgreSQL."""

from typing import Any

from tests.runs.test_stored_runs import test_every_store_supports_all_operations as every_operation


async def test_postgres_supports_all_operations(postgres_url: Any) -> None:
    await every_operation(postgres_url)
