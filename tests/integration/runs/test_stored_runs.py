"""Stored runs on PostgreSQL."""

from typing import Any

from tests.runs.test_answers_fork import check_later_message_can_be_edited
from tests.runs.test_stored_runs import test_every_store_supports_all_operations as every_operation


async def test_postgres_supports_all_operations(postgres_url: Any) -> None:
    await every_operation(postgres_url)


async def test_a_later_message_of_a_thread_on_postgres_can_be_edited_in_a_new_thread(postgres_url: str) -> None:
    await check_later_message_can_be_edited(postgres_url)
