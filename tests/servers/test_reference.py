"""The reference names everything that servers and suites offer."""

import inspect
import re
from importlib import import_module

import pytest
from tests.architecture.look import REPOSITORY
from tests.servers import OpenAIServer, ProviderServer, ServerOptions

PAGE = (REPOSITORY / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("room", ["servers", "conformance"])
def test_the_reference_names_each_name(room: str) -> None:
    offered = import_module(f"baton.testing.{room}").__all__
    section = PAGE.partition(f"## `baton.testing.{room}`")[2].partition("\n## ")[0]
    assert [name for name in offered if f"| `{name}` |" not in section] == []


def test_every_option_is_named_once_and_written_down() -> None:
    options = [*inspect.signature(ProviderServer).parameters][1:]
    assert options == [*ServerOptions.__annotations__]
    named = {*options, "steps", *inspect.signature(OpenAIServer).parameters} - {"options"}
    assert [name for name in named if not re.search(rf"^\| `{name}` \|", PAGE, re.MULTILINE)] == []
