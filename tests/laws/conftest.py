"""Silence Baton's log output: the property tests make thousands of tools fail on purpose."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def quiet_baton() -> Iterator[None]:
    """Suppress Baton's warnings, which pytest would otherwise keep in memory."""
    logger = logging.getLogger("baton")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
