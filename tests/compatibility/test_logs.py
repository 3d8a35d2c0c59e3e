"""Logs that released versions have written: they decode, encode to the same lines, and are read as before."""

from pathlib import Path
from typing import get_args

import pytest
from tests.compatibility.scenarios import describe
from tests.compatibility.stored import VERSIONS

from batonkit.log import UnknownEvent, decode_log, encode_log
from batonkit.log.events import KnownEvent
from batonkit.version import __version__

LOGS = [log for version in VERSIONS for log in sorted(version.glob("logs/*.jsonl"))]


def _name(log: Path) -> str:
    return f"{log.parents[1].name}-{log.stem}"


def test_this_version_has_fixtures() -> None:
    assert __version__ in [folder.name for folder in VERSIONS]


@pytest.mark.parametrize("log", LOGS, ids=_name)
def test_a_log_of_an_earlier_version_is_read_as_before(log: Path) -> None:
    events = decode_log(log.read_bytes())

    assert not [event for event in events if isinstance(event, UnknownEvent)]
    assert encode_log(events) == log.read_bytes()
    assert describe(events) == log.with_suffix(".txt").read_text(encoding="utf-8")


def test_the_logs_of_this_version_contain_every_event() -> None:
    logs = [log for log in LOGS if log.parents[1].name == __version__]
    written = {type(event) for log in logs for event in decode_log(log.read_bytes())}

    assert written == {*get_args(KnownEvent)}
