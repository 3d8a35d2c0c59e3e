"""PostgreSQL databases that released versions have written."""

from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from tests.compatibility.stored import CHECKS, SCHEMA, VERSIONS, Check
from tests.postgres import PostgresAddress


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_database_of_an_earlier_version(check: Check, folder: Path, postgres_server: PostgresAddress) -> None:
    database = f"stored_{uuid4().hex}"
    postgres_server.execute(f"CREATE DATABASE {database}")
    url = postgres_server.url_of(database)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((folder / "runs.sql").read_bytes())

    await check(f"{url}&options={quote(f'-csearch_path={SCHEMA}', safe='')}", folder)
