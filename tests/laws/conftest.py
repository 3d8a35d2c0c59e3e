"""The laws make thousands of tools fail on purpose; nobody wants to read of each."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def quiet_baton() -> Iterator[None]:
    """No warnings from Baton while a law is tested: pytest would keep every one of them in memory."""
    logger = logging.getLogger("baton")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
