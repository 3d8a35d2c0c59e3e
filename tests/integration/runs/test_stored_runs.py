"""Stored runs on PostgreSQL."""

from typing import Any

import pytest
from tests.runs.test_answers_fork import check_later_message_can_be_edited
from tests.runs.test_stored_runs import test_every_store_supports_all_operations as every_operation
from tests.runs.test_threads import check_that_the_rest_is_read

from batonkit.stores import PostgresStore


async def test_postgres_supports_all_operations(postgres_url: Any) -> None:
    await every_operation(postgres_url)


async def test_a_later_message_of_a_thread_on_postgres_can_be_edited_in_a_new_thread(postgres_url: str) -> None:
    await check_later_message_can_be_edited(postgres_url)


@pytest.mark.parametrize("deleter", ["runs.delete", "another process"])
async def test_a_run_in_the_middle_of_a_thread_on_postgres_is_deleted_and_the_rest_is_read(
    postgres_url: str, deleter: str
) -> None:
    await check_that_the_rest_is_read(PostgresStore(postgres_url), deleter)
